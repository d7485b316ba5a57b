//! The Service by which others reach a lender, and its endpoints.

use std::sync::Arc;

use flux_operator_plan::GatewayEndpoint;
use k8s_openapi::api::core::v1::ServiceSpec;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::fixture::*;

fn exposed(expose: Value) -> Lender {
    let mut bursting = one_invitation();
    bursting["expose"] = expose;
    Lender::settled(&bursting)
}

fn spec(lender: &Lender) -> &ServiceSpec {
    lender.service().unwrap().spec.as_ref().unwrap()
}

/// The ports of the Service as `name port`.
fn ports(lender: &Lender) -> Vec<String> {
    let ports = spec(lender).ports.iter().flatten();
    ports.map(|port| format!("{} {}", port.name.as_deref().unwrap(), port.port)).collect()
}

#[test]
fn b8_the_service_belongs_to_the_minicluster() {
    let lender = exposed(json!({}));
    let service = lender.service().unwrap();
    assert_eq!(service.metadata.namespace.as_deref(), Some("hpc"));
    let owner = &service.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("MiniCluster", "lender-uid"));
    assert_eq!(owner.controller, Some(true));
}

#[test]
fn b8_the_service_has_the_type_of_the_spec() {
    for (kind, policy) in
        [("NodePort", Some("Cluster")), ("LoadBalancer", Some("Cluster")), ("ClusterIP", None)]
    {
        let lender = exposed(json!({ "type": kind }));
        let ServiceSpec { type_, external_traffic_policy, selector, .. } = spec(&lender);
        assert_eq!(type_.as_deref(), Some(kind));
        assert_eq!(external_traffic_policy.as_deref(), policy, "{kind}");
        assert_eq!(*selector, None, "the endpoints are the gateway's");
        assert_eq!(ports(&lender), ["a 8050"], "{kind}");
    }
}

/// Where sources are checked, the address of the sender must not be replaced on the way.
#[test]
fn b38_source_ranges_are_checked_where_the_source_is_known() {
    let ranges = json!(["203.0.113.0/24"]);
    for kind in ["NodePort", "LoadBalancer"] {
        let lender = exposed(json!({ "type": kind, "sourceRanges": ranges }));
        assert_eq!(spec(&lender).external_traffic_policy.as_deref(), Some("Local"), "{kind}");
        let checked = spec(&lender).load_balancer_source_ranges.clone();
        let by_balancer = kind == "LoadBalancer";
        assert_eq!(checked.is_some(), by_balancer, "{kind}");
    }
}

#[test]
fn b10_without_leases_no_port_leads_anywhere() {
    let lender = Lender::settled(&json!({}));
    assert_eq!(ports(&lender), ["closed 8050"]);
    assert!(lender.observed.endpoint_slices.is_empty());
}

#[test]
fn b11_a_name_and_the_users_annotations_are_those_of_the_service() {
    let lender = exposed(json!({ "hostname": "lender.example.org",
        "annotations": { "example.org/balancer": "internal" } }));
    let annotations = lender.service().unwrap().annotations();
    let dns = "external-dns.alpha.kubernetes.io/hostname";
    assert_eq!(annotations.get(dns).map(String::as_str), Some("lender.example.org"));
    assert_eq!(annotations.get("example.org/balancer").map(String::as_str), Some("internal"));
}

/// Others may have added annotations, such as the controller of a load balancer.
#[test]
fn annotations_that_are_removed_from_the_spec_are_removed_from_the_service() {
    let mut lender = exposed(json!({ "hostname": "lender.example.org",
        "annotations": { "example.org/a": "1", "example.org/b": "2" } }));
    annotate(&mut lender, "cloud.example.org/id", "7");
    lender
        .edit(&json!({ "expose": { "annotations": { "example.org/a": null }, "hostname": null } }));
    assert_eq!(lender.reconcile(), ["patch Service lender-external"]);
    let kept = [("cloud.example.org/id", "7"), ("example.org/b", "2")];
    assert_eq!(annotations(&lender), kept);
    lender.edit(&json!({ "expose": { "annotations": null } }));
    lender.settle();
    assert_eq!(annotations(&lender), kept[..1]);
}

/// One that the user removes and another program sets has that program's value.
#[test]
fn an_annotation_that_is_not_in_the_spec_any_more_belongs_to_others() {
    let mut lender = exposed(json!({ "annotations": { "example.org/a": "1" } }));
    lender.edit(&json!({ "expose": { "annotations": null } }));
    lender.settle();
    annotate(&mut lender, "example.org/a", "2");
    assert_eq!(lender.reconcile(), [""; 0]);
    assert_eq!(annotations(&lender), [("example.org/a", "2")]);
}

/// Another program annotates the Service.
fn annotate(lender: &mut Lender, name: &str, value: &str) {
    let service = lender.observed.services.iter_mut().find(|it| it.name_any() == "lender-external");
    let service = service.unwrap();
    let mut changed = (**service).clone();
    changed.annotations_mut().insert(name.into(), value.into());
    *service = Arc::new(changed);
}

/// The annotations of the Service, without the list of those that the operator has set.
fn annotations(lender: &Lender) -> Vec<(&str, &str)> {
    let all = lender.service().unwrap().annotations().iter();
    let all = all.filter(|(name, _)| *name != "flux-framework.org/annotations");
    all.map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn b10_the_endpoints_are_the_pods_of_the_gateway() {
    let mut lender = exposed(json!({}));
    let slice = lender.observed.endpoint_slices[0].clone();
    assert_eq!(slice.name_any(), "lender-external-ipv4");
    let service = slice.labels().get("kubernetes.io/service-name");
    assert_eq!(service.map(String::as_str), Some("lender-external"));
    let endpoint = &slice.endpoints.as_ref().unwrap()[0];
    assert_eq!(endpoint.addresses, ["10.2.0.9"]);
    assert_eq!(endpoint.node_name.as_deref(), Some("node-a"));
    let port = &slice.ports.as_ref().unwrap()[0];
    assert_eq!(port.name.as_deref(), Some("a"), "the port of the Service with this name");
    assert_eq!(port.port, Some(lender.invited("a").gateway_port));
    // The gateway's pod was replaced by two others.
    let pods = [[10, 2, 0, 10], [10, 2, 0, 11]];
    let pods = pods.map(|it| GatewayEndpoint { address: it.into(), node: String::new() });
    lender.observed.gateway.endpoints = pods.into();
    lender.settle();
    let endpoints = lender.observed.endpoint_slices[0].endpoints.clone().unwrap();
    let addresses: Vec<String> = endpoints.into_iter().flat_map(|it| it.addresses).collect();
    assert_eq!(addresses, ["10.2.0.10", "10.2.0.11"]);
}

/// A slice has addresses of one family, which cannot change.
#[test]
fn a_gateway_with_an_ipv6_address_has_a_slice_of_its_own() {
    let mut lender = exposed(json!({}));
    let pod = GatewayEndpoint { address: "fd00::9".parse().unwrap(), node: String::new() };
    lender.observed.gateway.endpoints = [pod].into();
    let steps = lender.reconcile();
    assert_eq!(
        steps,
        ["delete EndpointSlice lender-external-ipv4", "create EndpointSlice lender-external-ipv6"]
    );
    assert_eq!(lender.observed.endpoint_slices[0].address_type, "IPv6");
}

/// While the gateway is restarted, or the operator does not know it yet.
#[test]
fn without_a_gateway_the_endpoints_stay_as_they_are() {
    let mut lender = exposed(json!({}));
    lender.observed.gateway.endpoints.clear();
    assert_eq!(lender.reconcile(), [""; 0]);
    lender.edit(&json!({ "expose": null }));
    let steps = lender.reconcile();
    assert!(steps.contains(&"delete EndpointSlice lender-external-ipv4".to_owned()), "{steps:?}");
}

#[test]
fn b8_a_direct_service_selects_the_lead() {
    let lender = exposed(json!({ "direct": true, "port": 9000 }));
    let selector = spec(&lender).selector.clone().unwrap();
    let selector: Vec<(&str, &str)> =
        selector.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(selector, [(INDEX, "0"), ("job-name", "lender")]);
    assert_eq!(ports(&lender), ["broker 9000"]);
    let target = spec(&lender).ports.as_ref().unwrap()[0].target_port.clone();
    assert_eq!(json!(target), json!(8050));
    assert!(lender.observed.endpoint_slices.is_empty(), "Kubernetes writes them");
}

#[test]
fn a_lease_adds_its_port_and_its_end_removes_it() {
    let mut lender = exposed(json!({}));
    let both = json!({ "invitations": [invitation("a", 2, END), invitation("b", 2, END)] });
    lender.edit(&both);
    lender.settle();
    assert_eq!(ports(&lender), ["a 8050", "b 8051"]);
    lender.edit(&json!({ "invitations": [invitation("b", 2, END)] }));
    lender.at(1);
    lender.reconcile();
    assert_eq!(ports(&lender), ["b 8051"], "at once, although its brokers may be online");
    let slice = &lender.observed.endpoint_slices[0];
    assert_eq!(slice.ports.as_ref().unwrap().len(), 1);
}

#[test]
fn a_settled_lender_has_no_steps() {
    for expose in [
        json!({}),
        json!({ "type": "LoadBalancer", "sourceRanges": ["10.0.0.0/8"], "nodePort": 30_100 }),
        json!({ "type": "ClusterIP", "hostname": "a.example.org", "annotations": { "a": "b" } }),
        json!({ "type": "None", "hostname": "a.example.org" }),
        json!({ "direct": true }),
    ] {
        let mut lender = exposed(expose.clone());
        assert_eq!(lender.reconcile(), [""; 0], "{expose}");
    }
}

#[test]
fn the_service_is_deleted_when_the_lender_is_not_exposed_any_more() {
    let mut lender = exposed(json!({}));
    lender.edit(&json!({ "expose": null }));
    let steps = lender.reconcile();
    let expected = ["delete EndpointSlice lender-external-ipv4", "delete Service lender-external"];
    assert_eq!(steps.iter().filter(|it| it.starts_with("delete")).collect::<Vec<_>>(), expected);
    lender.at(CLOSING);
    lender.settle();
    assert_eq!(lender.leases(), [""; 0]);
    assert_eq!(lender.minicluster.status.unwrap().external, None);
}

/// Another object may have the name.
#[test]
fn a_service_of_another_owner_is_not_deleted() {
    let mut lender = Lender::settled(&json!({ "expose": null }));
    let mut other = exposed(json!({})).service().unwrap().clone();
    other.metadata.owner_references = None;
    lender.observed.services.push(Arc::new(other));
    assert_eq!(lender.reconcile(), [""; 0]);
}

/// The API server refuses a Service whose node port is taken. The cluster itself, and what invitations that
/// are in use need, must not depend on it.
#[test]
fn the_service_comes_after_all_other_steps() {
    let mut lender = exposed(json!({}));
    lender.edit(&json!({ "expose": { "nodePort": 30_093 } }));
    lender.minicluster.spec.size = 3;
    let pod = GatewayEndpoint { address: [10, 2, 0, 10].into(), node: String::new() };
    lender.observed.gateway.endpoints = [pod].into();
    let mut unlabelled = lead_pod("lender");
    unlabelled.metadata.labels = None;
    lender.observed.pods[0] = Arc::new(unlabelled);
    let expected = [
        "apply ConfigMap lender-entrypoint",
        "patch Job lender",
        "patch Pod lender-0",
        "apply EndpointSlice lender-external-ipv4",
        "patch Service lender-external",
    ];
    assert_eq!(lender.reconcile(), expected);
}

/// Changes the Service, and returns the steps that correct it.
fn corrected(expose: Value, change: impl Fn(&mut ServiceSpec)) -> Vec<String> {
    let mut lender = exposed(expose);
    let before = spec(&lender).clone();
    let service = lender.observed.services.iter_mut().find(|it| it.name_any() == "lender-external");
    let service = service.unwrap();
    let mut changed = (**service).clone();
    change(changed.spec.as_mut().unwrap());
    *service = Arc::new(changed);
    let steps = lender.reconcile();
    assert_eq!(*spec(&lender), before);
    assert_eq!(lender.reconcile(), [""; 0], "it is corrected once");
    steps
}

/// Server-side apply removes no port that another client has added, nor one that was there when the
/// Service was created. A merge patch replaces the list.
#[test]
fn changes_of_the_service_by_another_client_are_corrected() {
    let added = |spec: &mut ServiceSpec| {
        let port = json!({ "name": "ssh", "port": 22, "protocol": "TCP" });
        spec.ports.as_mut().unwrap().push(serde_json::from_value(port).unwrap());
    };
    let patch = ["patch Service lender-external"];
    assert_eq!(corrected(json!({}), added), patch);
    assert_eq!(corrected(json!({ "direct": true }), added), patch);
    assert_eq!(corrected(json!({}), |it| it.ports.as_mut().unwrap()[0].port = 99), patch);
    assert_eq!(corrected(json!({}), |it| it.type_ = Some("ClusterIP".into())), patch);
    let selects = |it: &mut ServiceSpec| it.selector = Some([("a".into(), "b".into())].into());
    assert_eq!(corrected(json!({}), selects), patch);
    assert_eq!(corrected(json!({ "direct": true }), selects), patch);
    let elsewhere = |it: &mut ServiceSpec| {
        let target = serde_json::from_value(json!(22)).unwrap();
        it.ports.as_mut().unwrap()[0].target_port = Some(target);
    };
    assert_eq!(corrected(json!({ "direct": true }), elsewhere), patch);
    let open = |it: &mut ServiceSpec| it.load_balancer_source_ranges = None;
    let ranges = json!({ "type": "LoadBalancer", "sourceRanges": ["10.0.0.0/8"] });
    assert_eq!(corrected(ranges, open), patch);
    let numbered = json!({ "type": "LoadBalancer", "nodePort": 30_100 });
    let moved = |it: &mut ServiceSpec| it.ports.as_mut().unwrap()[0].node_port = Some(30_200);
    assert_eq!(corrected(numbered, moved), patch);
}

#[test]
fn changes_of_the_endpoints_by_another_client_are_corrected() {
    let changes = [
        json!({ "endpoints": [{ "addresses": ["10.9.9.9"] }] }),
        json!({ "endpoints": [{ "addresses": ["10.2.0.9"], "nodeName": "node-a",
            "conditions": { "ready": false } }] }),
        json!({ "ports": [{ "name": "a", "port": 22 }] }),
        json!({ "metadata": { "labels": { "kubernetes.io/service-name": "other" } } }),
    ];
    for change in changes {
        let mut lender = exposed(json!({}));
        let before = lender.observed.endpoint_slices[0].clone();
        lender.observed.endpoint_slices = vec![Arc::new(merged(&*before, &change))];
        assert_eq!(lender.reconcile(), ["apply EndpointSlice lender-external-ipv4"], "{change}");
        assert_eq!(lender.observed.endpoint_slices, [before]);
    }
}

/// A load balancer's controller adds annotations, and Kubernetes adds fields.
#[test]
fn what_others_add_to_the_service_stays() {
    let mut lender = exposed(json!({ "annotations": { "a": "b" } }));
    annotate(&mut lender, "cloud.example.org/id", "7");
    let service = lender.observed.services.iter_mut().find(|it| it.name_any() == "lender-external");
    let service = service.unwrap();
    let mut changed = (**service).clone();
    let spec = changed.spec.as_mut().unwrap();
    spec.session_affinity = Some("None".into());
    spec.ip_families = Some(vec!["IPv4".into()]);
    *service = Arc::new(changed);
    assert_eq!(lender.reconcile(), [""; 0]);
}
