//! The life of an invitation: granted, used, revoked or expired, and free again.

use std::sync::Arc;

use flux_operator_plan::{ExistingPod, JoinerView};
use serde_json::{Value, json};

use crate::fixture::*;

const LATER: &str = "2026-01-01T02:00:00Z";

#[test]
fn b12_an_invitation_gets_the_highest_hosts_that_the_lender_does_not_use() {
    let lender = Lender::settled(&one_invitation());
    assert_eq!(lender.leases(), ["a: 9,8 Active"]);
    let lease = lender.lease("a");
    assert_eq!(lease.holder, format!("invitation:a:{END}"));
    assert_eq!((lease.namespace.as_str(), lease.since.as_str()), ("hpc", START));
    assert_eq!(lender.invited("a").expires, END);
}

#[test]
fn an_invitation_gets_ranks_for_others_before_those_of_the_lender() {
    let pools = json!([{ "name": "a", "size": 1 }, { "name": "b", "size": 1 }]);
    let mut bursting = one_invitation();
    bursting["clusters"] = pools;
    bursting["spareRanks"] = json!(1);
    // Own 0-9, pools 10 and 11, spare 12.
    assert_eq!(Lender::settled(&bursting).leases(), ["a: 10,12 Active"], "its pool first");
}

#[test]
fn an_invitation_with_a_property_gets_ranks_of_hosts_that_have_it() {
    let leases = |ranks: i32, property: &str| {
        let pools = json!([{ "name": "a", "size": 1 }, { "name": "b", "size": 2 }]);
        let mut invited = invitation("a", ranks, END);
        invited["property"] = json!(property);
        let bursting = json!({ "clusters": pools, "spareRanks": 1, "invitations": [invited] });
        Lender::settled(&bursting).leases()
    };
    // Own 0-9, pools 10 and 11-12, spare 13.
    assert_eq!(leases(1, "spare"), ["a: 13 Active"]);
    assert_eq!(leases(2, "b"), ["a: 11-12 Active"]);
    assert_eq!(leases(2, "spare"), [""; 0], "there is one");
    assert_eq!(leases(1, "c"), [""; 0]);
}

#[test]
fn two_invitations_have_different_ranks_and_ports() {
    let invitations = json!([invitation("a", 2, END), invitation("b", 3, LATER)]);
    let lender = Lender::settled(&json!({ "invitations": invitations }));
    assert_eq!(lender.leases(), ["a: 9,8 Active", "b: 7,6,5 Active"]);
    let (a, b) = (lender.invited("a"), lender.invited("b"));
    assert_ne!(a.service_port, b.service_port);
    assert_ne!(a.gateway_port, b.gateway_port);
    assert_ne!(a.port, b.port);
}

#[test]
fn an_invitation_for_more_ranks_than_are_free_gets_none() {
    let with = |ranks| json!({ "invitations": [invitation("a", ranks, END)] });
    assert_eq!(Lender::settled(&with(8)).leases(), ["a: 9,8,7,6,5,4,3,2 Active"]);
    assert_eq!(Lender::settled(&with(9)).leases(), [""; 0], "two of ten are in use");
}

#[test]
fn without_expose_an_invitation_gets_no_ranks() {
    let mut bursting = one_invitation();
    bursting["expose"] = Value::Null;
    let mut lender = Lender::settled(&bursting);
    assert_eq!(lender.leases(), [""; 0]);
    lender.edit(&json!({ "expose": {} }));
    lender.settle();
    assert_eq!(lender.leases(), ["a: 9,8 Active"]);
}

#[test]
fn nothing_is_granted_before_the_lead_has_reported() {
    let mut lender = Lender::new(&one_invitation());
    lender.observed.report = None;
    lender.reconcile();
    assert_eq!(lender.leases(), [""; 0]);
}

#[test]
fn b12_a_revoked_invitation_leaves_at_once_and_is_removed_once_its_ranks_are_offline() {
    let mut lender = Lender::settled(&one_invitation());
    lender.online("0-1,8-9");
    lender.edit(&json!({ "invitations": [] }));
    lender.at(10);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Leaving"], "at once");
    assert_eq!(lender.lease("a").since, after(10).to_string());
    lender.at(10 + CLOSING);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Leaving"], "its brokers are online");
    lender.online("0-1,8");
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Leaving"], "one of them is");
    lender.online("0-1");
    lender.reconcile();
    assert_eq!(lender.leases(), [""; 0]);
}

/// A report from before the lease was given back says nothing about a broker that started since.
#[test]
fn an_older_report_does_not_free_the_ranks_of_a_revoked_invitation() {
    let mut lender = Lender::settled(&one_invitation());
    lender.edit(&json!({ "invitations": [] }));
    lender.observed.now = after(3);
    lender.reconcile();
    lender.observed.now = after(3 + CLOSING);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Leaving"], "the report is of the start");
    lender.at(4 + CLOSING);
    lender.reconcile();
    assert_eq!(lender.leases(), [""; 0]);
}

/// A gateway whose connection to the API server is dead notices a revocation later. Until then a broker
/// that is offline may connect again, and would replace that of the next holder.
#[test]
fn the_ranks_of_a_revoked_invitation_are_not_free_before_the_gateway_has_closed_its_port() {
    let revoked = |bursting: Value| {
        let mut lender = Lender::settled(&bursting);
        lender.edit(&json!({ "invitations": [] }));
        lender.at(1);
        lender.reconcile();
        assert_eq!(lender.leases(), ["a: 9,8 Leaving"]);
        lender
    };
    let mut lender = revoked(one_invitation());
    lender.at(CLOSING);
    lender.reconcile();
    assert_eq!(
        lender.leases(),
        ["a: 9,8 Leaving"],
        "its brokers are offline, its port may be open"
    );
    lender.at(1 + CLOSING);
    lender.reconcile();
    assert_eq!(lender.leases(), [""; 0]);
    let mut short = revoked(json!({ "invitations": [invitation("a", 2, "2026-01-01T00:00:05Z")] }));
    short.at(5);
    short.reconcile();
    assert_eq!(short.leases(), ["a: 9,8 Leaving"], "the clock of the gateway may be slow");
    let mut direct = one_invitation();
    direct["expose"] = json!({ "direct": true });
    let mut direct = revoked(direct);
    direct.at(2);
    direct.reconcile();
    assert_eq!(direct.leases(), [""; 0], "there is no gateway");
}

#[test]
fn the_ranks_of_a_revoked_invitation_are_granted_again_only_once_it_is_removed() {
    let mut lender = Lender::settled(&json!({ "invitations": [invitation("a", 7, END)] }));
    lender.online("0-1,9");
    lender.edit(&json!({ "invitations": [invitation("b", 7, END)] }));
    lender.at(10);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8,7,6,5,4,3 Leaving"]);
    lender.online("0-1");
    lender.at(10 + CLOSING);
    lender.settle();
    assert_eq!(lender.leases(), ["b: 9,8,7,6,5,4,3 Active"]);
}

#[test]
fn a_lender_is_reconciled_when_its_next_invitation_expires() {
    let invitations = json!([invitation("a", 1, LATER), invitation("b", 1, END)]);
    let lender = Lender::settled(&json!({ "invitations": invitations }));
    let requeue_at = lender.decide().1.requeue_at;
    assert_eq!(requeue_at, Some(after(HOUR)));
}

#[test]
fn an_expired_invitation_leaves_and_frees_its_ranks() {
    let mut lender = Lender::settled(&one_invitation());
    lender.online("0-1,8-9");
    lender.at(HOUR - 1);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Active"]);
    lender.at(HOUR);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Leaving"]);
    lender.online("0-1");
    lender.at(HOUR + CLOSING - 1);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Leaving"], "the clock of the gateway may be slow");
    lender.at(HOUR + CLOSING);
    lender.reconcile();
    assert_eq!(lender.leases(), [""; 0]);
    lender.settle();
    assert_eq!(lender.leases(), [""; 0], "it gets none again");
}

#[test]
fn an_expired_invitation_that_was_never_used_frees_its_ranks() {
    let mut lender = Lender::settled(&one_invitation());
    lender.at(HOUR);
    lender.settle();
    lender.at(HOUR + CLOSING);
    lender.settle();
    assert_eq!(lender.leases(), [""; 0]);
    let mut unattended = Lender::settled(&one_invitation());
    unattended.at(HOUR + CLOSING);
    unattended.reconcile();
    unattended.reconcile();
    assert_eq!(unattended.leases(), [""; 0], "the operator was not running when it expired");
    let mut late = Lender::new(&one_invitation());
    late.at(HOUR + 1);
    late.settle();
    assert_eq!(late.leases(), [""; 0], "one that has expired gets none");
}

#[test]
fn an_invitation_of_the_same_name_with_another_end_is_another_holder() {
    let mut lender = Lender::settled(&one_invitation());
    lender.online("0-1,8-9");
    lender.edit(&json!({ "invitations": [invitation("a", 2, LATER)] }));
    lender.at(5);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 7,6 Active", "a: 9,8 Leaving"]);
    let ports: Vec<i32> = lender
        .minicluster
        .status
        .iter()
        .flat_map(|it| &it.leases)
        .map(|it| it.invitation.as_ref().unwrap().gateway_port)
        .collect();
    assert_ne!(ports[0], ports[1], "the brokers of the first cannot use the port of the second");
}

#[test]
fn a_lender_that_is_not_exposed_any_more_takes_its_leases_back() {
    let mut lender = Lender::settled(&one_invitation());
    lender.online("0-1,8-9");
    lender.edit(&json!({ "expose": null }));
    lender.at(5);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Leaving"]);
    lender.online("0-1");
    lender.at(5 + CLOSING);
    lender.settle();
    assert_eq!(lender.leases(), [""; 0]);
}

#[test]
fn a_lender_that_has_finished_takes_its_leases_back() {
    let mut lender = Lender::settled(&one_invitation());
    let failed = json!({ "type": "Failed", "status": "True", "reason": "DeadlineExceeded",
        "lastTransitionTime": START });
    let job = merged(
        &**lender.observed.job.as_ref().unwrap(),
        &json!({ "status": { "conditions": [failed] } }),
    );
    lender.observed.job = Some(Arc::new(job));
    lender.at(5);
    lender.reconcile();
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Leaving"]);
    lender.at(6);
    lender.reconcile();
    assert_eq!(lender.leases(), [""; 0]);
}

fn joiner(size: i32) -> JoinerView {
    let spec = json!({ "size": size, "flux": { "join": { "name": "lender" } } });
    let minicluster = minicluster("joiner", &json!({ "spec": spec }));
    JoinerView { minicluster: Arc::new(minicluster), job: None }
}

#[test]
fn a_joiner_and_an_invitation_never_have_the_same_rank() {
    let mut lender = Lender::new(&one_invitation());
    lender.observed.joiners = vec![joiner(3)];
    lender.settle();
    assert_eq!(lender.leases(), ["a: 9,8 Active", "joiner: 7,6,5 Active"]);
    lender.edit(&json!({ "invitations": [invitation("a", 2, END), invitation("b", 4, END)] }));
    lender.settle();
    assert_eq!(lender.leases().len(), 2, "three are left, and it needs four");
    lender.edit(&json!({ "invitations": [invitation("a", 2, END), invitation("b", 3, END)] }));
    lender.settle();
    assert_eq!(lender.leases(), ["a: 9,8 Active", "b: 4,3,2 Active", "joiner: 7,6,5 Active"]);
}

/// The pods of joiners show which ranks they have. Nothing shows the pods of an invitation.
#[test]
fn nothing_is_granted_to_an_invitation_while_pods_exist_whose_ranks_are_not_known() {
    let mut lender = Lender::new(&one_invitation());
    lender.joiner_pods = vec![ExistingPod {
        namespace: "hpc".into(),
        holder: "deleted".into(),
        table: "t".into(),
        index: 0,
    }];
    lender.reconcile();
    assert_eq!(lender.leases(), [""; 0]);
    lender.joiner_pods.clear();
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Active"]);
}

#[test]
fn a_rank_with_a_broker_that_has_no_lease_is_not_granted() {
    let mut lender = Lender::new(&one_invitation());
    lender.online("0-1,9");
    lender.settle();
    assert_eq!(lender.leases(), ["a: 8,7 Active"]);
}

#[test]
fn a_lender_cannot_grow_over_leased_ranks_and_says_which_invitation_has_them() {
    let mut lender = Lender::settled(&one_invitation());
    lender.minicluster.spec.size = 9;
    lender.reconcile();
    assert_eq!(lender.observed.job.as_ref().unwrap().spec.as_ref().unwrap().completions, Some(8));
    let accepted = lender.condition("Accepted");
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "RanksLeased"));
    let says = "spec.size 9 needs host 8, which invitation \"a\" leases: lower spec.size, or delete \
        that MiniCluster or revoke the invitation";
    assert_eq!(accepted.message, says);
}
