//! Which ranks brokers of a target can have, and why a target is not asked.

use flux_operator_api::burst::{BurstTarget, KubeconfigTarget};

use crate::testing::{at, instance, nodes, policy, target};
use crate::{Action, Answer, AnswerReason, Decision, Instance, Memory, decide};

/// A decision about one job of two nodes at a target.
fn decided(instance: &Instance, target: BurstTarget) -> Decision {
    let policies = [policy("p", target)];
    decide(instance, &policies, &[], &[nodes(1, 2)], &Memory::default(), at(100))
}

fn answer(decision: &Decision) -> &Answer {
    &decision.answers[0]
}

/// The ranks that are requested.
fn ranks(decision: &Decision) -> Option<&str> {
    match &decision.actions[..] {
        [Action::Create { target, .. }] => Some(&target.ranks),
        _ => None,
    }
}

/// No nodes are free. Spare ranks have the lead's 4 cores, those of the pool `large` 64.
fn with_large_ranks() -> Instance {
    let mut instance = instance(2, 0);
    instance.lendable.insert("large".into(), 4);
    instance.leasable.insert("large".into(), 4);
    instance.shapes = [("spare".into(), (4, 0)), ("large".into(), (64, 0))].into();
    instance
}

#[test]
fn a_target_leases_no_ranks_for_which_its_nodes_have_too_few_cores() {
    let instance = with_large_ranks();
    let of = |ranks: &str, cores| BurstTarget { ranks: ranks.into(), cores, ..target("t") };
    for (ranks_of_target, cores, expected) in [
        ("", 0, Some("spare")),
        ("", 4, Some("spare")),
        ("", 2, None),
        ("large", 0, Some("large")),
        ("large", 64, Some("large")),
        ("large", 32, None),
    ] {
        let decision = decided(&instance, of(ranks_of_target, cores));
        assert_eq!(ranks(&decision), expected, "{ranks_of_target} {cores}");
        let is_refused = answer(&decision).reason == AnswerReason::NoTargetFits;
        assert_eq!(is_refused, expected.is_none(), "{decision:?}");
    }
}

/// The configuration of an instance may give all ranks more cores than its lead has.
#[test]
fn nodes_of_which_a_target_says_nothing_can_have_spare_ranks() {
    let mut instance = instance(2, 0);
    instance.shapes = [("spare".into(), (4096, 0))].into();
    assert_eq!(ranks(&decided(&instance, target("t"))), Some("spare"));
}

/// All spare ranks are leased, and those of the pool are for larger nodes.
#[test]
fn a_target_that_names_no_ranks_does_not_lease_those_of_larger_nodes() {
    let mut instance = with_large_ranks();
    instance.lendable.insert("spare".into(), 0);
    let decision = decided(&instance, target("t"));
    assert_eq!(answer(&decision).reason, AnswerReason::NoRanks);
    let large = BurstTarget { cores: 64, ..target("t") };
    assert_eq!(ranks(&decided(&instance, large)), Some("large"));
}

#[test]
fn ranks_that_no_slot_has_are_named_with_those_that_there_are() {
    let decision =
        decided(&with_large_ranks(), BurstTarget { ranks: "larg".into(), ..target("t") });
    assert_eq!(answer(&decision).reason, AnswerReason::NoRanks);
    assert_eq!(
        answer(&decision).message,
        "target \"t\" leases ranks \"larg\", of which the MiniCluster has none: set its ranks to a \
         name that it has (large, spare)"
    );
}

/// Its brokers could never join, and the policy's limits would be used up.
#[test]
fn nothing_is_requested_elsewhere_for_a_minicluster_that_cannot_be_reached() {
    let elsewhere = BurstTarget { kubeconfig: Some(KubeconfigTarget::default()), ..target("t") };
    let mut instance = instance(2, 0);
    assert_eq!(answer(&decided(&instance, elsewhere.clone())).reason, AnswerReason::Requested);
    instance.is_exposed = false;
    let decision = decided(&instance, elsewhere);
    assert_eq!(answer(&decision).reason, AnswerReason::NotExposed);
    assert!(decision.actions.is_empty(), "{decision:?}");
    let here = BurstTarget { cluster: Some(Default::default()), ..target("t") };
    assert_eq!(answer(&decided(&instance, here)).reason, AnswerReason::Requested);
}
