//! The condition `Exposed`, and what is published beside it.

use std::sync::Arc;

use flux_operator_plan::{FailureKind, GatewayEndpoint};
use k8s_openapi::api::core::v1::{Service, ServiceStatus};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::fixture::*;

fn exposed(expose: Value) -> Lender {
    let mut bursting = one_invitation();
    bursting["expose"] = expose;
    Lender::settled(&bursting)
}

/// Status, reason and message of the condition.
fn state(lender: &Lender) -> [&str; 3] {
    let it = lender.condition("Exposed");
    [it.status.as_str(), it.reason.as_str(), it.message.as_str()]
}

fn addresses(lender: &Lender) -> Vec<String> {
    lender.minicluster.status.as_ref().unwrap().external.clone().unwrap().addresses
}

fn change_service(lender: &mut Lender, change: impl Fn(&mut Service)) {
    let service = lender.observed.services.iter_mut().find(|it| it.name_any() == "lender-external");
    let service = service.unwrap();
    let mut changed = (**service).clone();
    change(&mut changed);
    *service = Arc::new(changed);
}

#[test]
fn b9_a_lender_that_can_be_reached_says_where() {
    let lender = exposed(json!({}));
    let says = "brokers with an invitation reach it at 203.0.113.1, 203.0.113.2";
    assert_eq!(state(&lender), ["True", "Exposed", says]);
    assert_eq!(addresses(&lender), ["203.0.113.1", "203.0.113.2"]);
    let external = lender.minicluster.status.unwrap().external.unwrap();
    assert_eq!(external.port, 0, "each lease has its own");
    let broker = external.lead.unwrap();
    assert_eq!((broker.version.as_str(), broker.user, broker.cores), ("0.88.0", 1000, 4));
}

#[test]
fn a_lender_that_is_not_exposed_has_no_such_condition() {
    let lender = Lender::settled(&json!({ "expose": null }));
    let conditions = &lender.minicluster.status.as_ref().unwrap().conditions;
    assert!(!conditions.iter().any(|it| it.type_ == "Exposed"));
    assert_eq!(lender.minicluster.status.as_ref().unwrap().external, None);
}

#[test]
fn b10_a_missing_gateway_is_reported() {
    let mut lender = exposed(json!({}));
    lender.observed.gateway.endpoints.clear();
    lender.reconcile();
    let [status, reason, message] = state(&lender);
    assert_eq!((status, reason), ("False", "GatewayMissing"));
    // Without the gateway invitations cannot be revoked, so that is not a remedy.
    assert!(message.contains("manifests") && !message.contains("direct"), "{message}");
}

/// Another Service has the node port. The cluster itself runs, so its manifest is accepted.
#[test]
fn a_service_that_the_api_server_refuses_is_reported_as_not_exposed() {
    let mut lender = exposed(json!({}));
    lender.edit(&json!({ "expose": { "nodePort": 30_093 } }));
    let message = "failed to change Service \"lender-external\": spec.ports[0].nodePort: Invalid \
        value: 30093: provided port is already allocated";
    for (kind, reason) in [
        (FailureKind::Invalid, "ApplyFailed"),
        (FailureKind::Refused, "ApplyFailed"),
        (FailureKind::NotOurs, "NotOurs"),
    ] {
        let retry = lender.fail("patch Service lender-external", kind, message);
        assert!(retry, "{kind:?}");
        assert_eq!(state(&lender), ["False", reason, message]);
        assert_eq!(lender.condition("Accepted").status, "True");
        assert_eq!(lender.leases(), ["a: 9,8 Active"]);
    }
    lender.fail("patch Service lender-external", FailureKind::Conflict, message);
    assert_eq!(state(&lender)[1], "Exposed", "it is corrected in a moment");
}

#[test]
fn a_step_of_the_cluster_itself_that_fails_does_not_change_whether_it_is_exposed() {
    let mut lender = exposed(json!({}));
    lender.minicluster.spec.size = 3;
    lender.fail("patch Job lender", FailureKind::Refused, "forbidden");
    assert_eq!(state(&lender)[..2], ["True", "Exposed"]);
    assert_eq!(lender.condition("Accepted").reason, "ApplyFailed");
}

#[test]
fn an_address_that_is_not_known_yet_is_reported() {
    let pending = |lender: &mut Lender, says: &str| {
        lender.reconcile();
        let [status, reason, message] = state(lender);
        assert_eq!((status, reason), ("False", "AddressPending"), "{message}");
        assert!(message.contains(says), "{message}");
        assert_eq!(addresses(lender), [""; 0]);
    };
    let mut lender = exposed(json!({}));
    lender.observed.gateway.nodes = None;
    pending(&mut lender, "may not list nodes");
    lender.observed.gateway.nodes = Some([].into());
    pending(&mut lender, "no node that accepts connections");
    pending(&mut exposed(json!({ "type": "LoadBalancer" })), "the load balancer has no address");
    let mut of_cluster = exposed(json!({ "type": "ClusterIP" }));
    assert_eq!(addresses(&of_cluster), ["10.96.0.7"]);
    for address in [None, Some("None"), Some("")] {
        change_service(&mut of_cluster, |it| {
            it.spec.as_mut().unwrap().cluster_ip = address.map(str::to_owned);
        });
        pending(&mut of_cluster, "the Service has no address");
    }
    // Directly, the port on the nodes is needed too.
    let mut bursting = one_invitation();
    bursting["expose"] = json!({ "direct": true });
    let mut direct = Lender::new(&bursting);
    direct.reconcile();
    assert_eq!(state(&direct)[1], "AddressPending");
    direct.settle();
    assert_eq!(state(&direct)[1], "ExposedDirectly");
}

#[test]
fn b9_the_address_of_a_load_balancer_is_published() {
    let mut lender = exposed(json!({ "type": "LoadBalancer" }));
    let ingress = json!([{ "ip": "198.51.100.7" }, { "hostname": "lb.example.org" }]);
    let status: ServiceStatus =
        serde_json::from_value(json!({ "loadBalancer": { "ingress": ingress } })).unwrap();
    change_service(&mut lender, |it| it.status = Some(status.clone()));
    lender.reconcile();
    assert_eq!(addresses(&lender), ["198.51.100.7", "lb.example.org"]);
    assert_eq!(state(&lender)[1], "Exposed");
}

#[test]
fn b11_a_name_is_published_instead_of_addresses() {
    for kind in ["NodePort", "LoadBalancer", "ClusterIP", "None"] {
        let lender = exposed(json!({ "type": kind, "hostname": "lender.example.org" }));
        assert_eq!(addresses(&lender), ["lender.example.org"], "{kind}");
        assert_eq!(state(&lender)[1], "Exposed", "{kind}");
    }
}

#[test]
fn b9_up_to_four_nodes_are_published_and_those_with_the_gateway_first() {
    let mut lender = exposed(json!({}));
    let nodes = ["a", "b", "c", "d", "e", "f"];
    let node = |name: &str| (format!("node-{name}"), format!("{name}.example.org"));
    lender.observed.gateway.nodes = Some(nodes.into_iter().map(node).collect());
    let pod = GatewayEndpoint { address: [10, 2, 0, 9].into(), node: "node-e".into() };
    lender.observed.gateway.endpoints = [pod].into();
    lender.settle();
    assert_eq!(addresses(&lender), ["e", "a", "b", "c"].map(|it| format!("{it}.example.org")));
    // Other nodes would hide where a connection comes from, so they accept none.
    lender.edit(&json!({ "expose": { "sourceRanges": ["203.0.113.0/24"] } }));
    lender.settle();
    assert_eq!(addresses(&lender), ["e.example.org"]);
}

#[test]
fn a_lender_without_the_gateway_says_that_nothing_can_be_revoked() {
    let mut lender = exposed(json!({ "direct": true }));
    let [status, reason, message] = state(&lender);
    assert_eq!((status, reason), ("True", "ExposedDirectly"));
    assert!(message.contains("203.0.113.1, 203.0.113.2, port 30050"), "{message}");
    assert!(message.contains("who has its certificate cannot be refused"), "{message}");
    assert!(message.contains("To revoke it, delete the MiniCluster"), "{message}");
    assert_eq!(lender.minicluster.status.as_ref().unwrap().external.as_ref().unwrap().port, 30_050);
    // No gateway is needed.
    lender.observed.gateway.endpoints.clear();
    lender.settle();
    assert_eq!(addresses(&lender), ["203.0.113.1", "203.0.113.2"]);
}

/// B9: the address of the pod changes, and the gateway follows.
#[test]
fn b9_the_leads_address_follows_its_pod() {
    let mut lender = exposed(json!({}));
    let lead = |lender: &Lender| {
        let external = lender.minicluster.status.as_ref().unwrap().external.clone();
        external.unwrap().lead_address
    };
    assert_eq!(lead(&lender), "10.1.0.5:8050");
    let moved = json!({ "metadata": { "uid": "another" }, "status": { "podIP": "10.1.0.6" } });
    lender.observed.pods = vec![Arc::new(merged(&*lender.observed.pods[0], &moved))];
    lender.reconcile();
    assert_eq!(lead(&lender), "10.1.0.6:8050");
    let six = json!({ "status": { "podIP": "fd00::6" } });
    lender.observed.pods = vec![Arc::new(merged(&*lender.observed.pods[0], &six))];
    lender.reconcile();
    assert_eq!(lead(&lender), "[fd00::6]:8050");
    let deleted = json!({ "metadata": { "deletionTimestamp": START } });
    lender.observed.pods = vec![Arc::new(merged(&*lender.observed.pods[0], &deleted))];
    lender.reconcile();
    assert_eq!(lead(&lender), "", "it terminates");
    lender.observed.pods.clear();
    lender.reconcile();
    assert_eq!(lead(&lender), "");
}

/// The Job is being deleted. Once its pod is, another one may have the lead's address.
#[test]
fn without_an_instance_there_is_no_lead_to_forward_to() {
    let mut lender = exposed(json!({}));
    let deleted = json!({ "metadata": { "deletionTimestamp": START } });
    lender.observed.job =
        Some(Arc::new(merged(&**lender.observed.job.as_ref().unwrap(), &deleted)));
    for (has_pods, lead) in [(true, "10.1.0.5:8050"), (false, "")] {
        if !has_pods {
            lender.observed.pods.clear();
        }
        lender.reconcile();
        let external = lender.minicluster.status.clone().unwrap().external.unwrap();
        assert_eq!((external.lead_address.as_str(), external.addresses.len()), (lead, 2));
        assert_eq!(lender.leases(), ["a: 9,8 Active"], "its brokers join the next one");
    }
}

/// The lead is restarted, and has not reported yet.
#[test]
fn what_the_lead_has_stays_until_it_reports_again() {
    let mut lender = exposed(json!({}));
    lender.observed.report = None;
    lender.reconcile();
    let external = lender.minicluster.status.unwrap().external.unwrap();
    assert_eq!(external.lead.unwrap().version, "0.88.0");
}
