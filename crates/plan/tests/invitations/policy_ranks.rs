//! Spare ranks that BurstPolicies give a MiniCluster.

use flux_operator_plan::Observed;
use flux_operator_wire::BootPlan;
use serde_json::{Value, json};

use crate::fixture::*;

/// A MiniCluster of two hosts that does not run yet, for which policies may request this many nodes.
fn unstarted(nodes: i32, spec: &Value) -> Lender {
    let mut patch = json!({ "spec": { "size": 2, "interactive": true } });
    flux_operator_testkit::merge(&mut patch, &json!({ "spec": spec }));
    let observed = Observed { burst_ranks: nodes, ..Observed::empty(after(0)) };
    let minicluster = minicluster("fs", &patch);
    Lender { minicluster, observed, joiner_pods: Vec::new(), own_pods: 0 }
}

/// The boot plan that its brokers are started with.
fn started(lender: &mut Lender) -> BootPlan {
    lender.reconcile();
    let data = lender.observed.config_map.as_ref().unwrap().data.clone();
    serde_json::from_str(&data.unwrap()["boot.json"]).unwrap()
}

fn hosts(nodes: i32, spec: &Value) -> String {
    started(&mut unstarted(nodes, spec)).hosts.to_string()
}

#[test]
fn policies_give_spare_ranks_and_a_scheduler_with_which_jobs_wait() {
    let plan = started(&mut unstarted(3, &json!({})));
    assert_eq!(plan.hosts.to_string(), "fs-[0-1],fs-spare-[0-2]");
    assert_eq!(plan.config.queue_manager.unwrap().queue_policy.as_deref(), Some("easy"));
    assert_eq!(plan.broker.topology, "kary:0", "brokers elsewhere reach the lead only");
    let plan = started(&mut unstarted(0, &json!({})));
    assert_eq!(plan.hosts.to_string(), "fs-[0-1]");
    assert_eq!(plan.config.queue_manager.unwrap().queue_policy.as_deref(), Some("fcfs"));
}

#[test]
fn policies_change_nothing_about_a_cluster_that_was_started() {
    for before in [0, 3] {
        let mut lender = unstarted(before, &json!({}));
        started(&mut lender);
        let map = lender.observed.config_map.clone();
        for nodes in [0, 3, 7] {
            lender.observed.burst_ranks = nodes;
            assert_eq!(lender.reconcile(), [""; 0], "{before} to {nodes}");
            // Its ConfigMap is created again as it was.
            lender.observed.config_map = None;
            assert_eq!(lender.reconcile(), ["create ConfigMap fs-entrypoint"]);
            assert_eq!(lender.observed.config_map, map);
            assert_eq!(lender.condition("Accepted").status, "True", "no field has changed");
        }
    }
}

#[test]
fn the_number_in_the_manifest_takes_precedence() {
    let given = |spare: i32| json!({ "flux": { "bursting": { "spareRanks": spare } } });
    assert_eq!(hosts(3, &given(0)), "fs-[0-1]");
    assert_eq!(hosts(3, &given(1)), "fs-[0-1],fs-spare-0");
    assert_eq!(hosts(3, &given(4)), "fs-[0-1],fs-spare-[0-3]");
    // A default is not a user's choice.
    let shared = json!({ "jobSelector": "a" });
    assert_eq!(hosts(3, &shared), "fs-[0-1],fs-spare-[0-7]");
    assert_eq!(hosts(9, &shared), "fs-[0-1],fs-spare-[0-8]");
}

#[test]
fn a_cluster_that_cannot_have_spare_ranks_runs_without_them() {
    let hostlist = json!({ "flux": { "bursting": { "hostlist": "fs-[0-1],a-0" } } });
    assert_eq!(hosts(3, &hostlist), "fs-[0-1],a-0", "it names every host");
    let tree = json!({ "flux": { "topology": "kary:1" } });
    assert_eq!(hosts(3, &tree), "fs-[0-1]", "they would not be children of the lead");
    let own =
        json!({ "flux": { "brokerConfig": "[bootstrap]\nhosts = [{ host = \"fs-[0-1]\" }]" } });
    assert_eq!(hosts(3, &own), "fs-[0-1]", "the user's configuration does not list them");
}

#[test]
fn ranks_by_policy_are_lent() {
    let spec = json!({ "flux": { "bursting": { "expose": {},
        "invitations": [invitation("a", 3, END)] } } });
    let mut lender = unstarted(3, &spec);
    lender.reconcile();
    let pods = [lead_pod("fs"), pod("fs", 1, &json!({}))];
    lender.observed.pods = pods.map(std::sync::Arc::new).into();
    (lender.own_pods, lender.observed.burst_ranks) = (2, 0);
    lender.online("0-1");
    lender.settle();
    assert_eq!(lender.leases(), ["a: 2-4 Active"]);
}
