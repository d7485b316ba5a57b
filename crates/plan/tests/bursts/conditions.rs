//! What a Burst reports when something is wrong, and that it tries again less and less often.

use flux_operator_api::minicluster::InvitationRefusal;
use flux_operator_api::{BurstStatus, Reason};
use flux_operator_plan::bursting::unserved_status;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::world::{World, failure};

#[test]
fn each_failure_is_shown_in_its_condition() {
    for (reason, condition) in [
        (Reason::TargetUnreachable, "TargetReady"),
        (Reason::CredentialsMissing, "CredentialsAccepted"),
        (Reason::CredentialsRefused, "CredentialsAccepted"),
        (Reason::KubeconfigRefused, "CredentialsAccepted"),
        (Reason::NamespaceNotListed, "CredentialsAccepted"),
        (Reason::TargetRefused, "Prepared"),
    ] {
        let mut world = World::new(json!({}));
        world.reconcile(false);
        world.failure = failure(reason);
        world.settle();
        let expected = format!("False {reason}");
        assert_eq!(world.reason(condition), expected);
        assert_eq!(world.reason("Ready"), expected, "those that depend on it repeat its reason");
        assert_eq!(world.status().phase, reason.to_string());
    }
}

#[test]
fn a_target_that_fails_is_tried_again_less_and_less_often() {
    let mut world = World::new(json!({}));
    world.reconcile(false);
    world.failure = failure(Reason::TargetUnreachable);
    let mut delays = Vec::new();
    for _ in 0..9 {
        world.reconcile(false);
        let retry: Timestamp = world.status().retry_at.parse().unwrap();
        let delay = retry.duration_since(world.now).as_secs();
        world.pass(delay - 1);
        let failures = world.status().failures;
        world.reconcile(false);
        assert_eq!(world.status().failures, failures, "it is left alone until then");
        world.pass(1);
        delays.push(delay);
    }
    assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    world.failure = failure(Reason::CredentialsMissing);
    world.pass(300);
    world.reconcile(false);
    let retry: Timestamp = world.status().retry_at.parse().unwrap();
    assert_eq!(retry.duration_since(world.now).as_secs(), 15, "a user may be about to correct it");
    world.pass(15);
    world.failure = None;
    world.settle();
    assert_eq!((world.status().failures, world.reason("Ready").as_str()), (0, "True Joined"));
}

#[test]
fn what_was_reached_stays_true_while_the_target_does_not_respond() {
    let mut world = World::new(json!({}));
    world.settle();
    world.failure = failure(Reason::TargetUnreachable);
    for _ in 0..3 {
        world.reconcile(false);
        assert_eq!(world.reason("TargetReady"), "False TargetUnreachable");
        assert_eq!(world.reason("CredentialsAccepted"), "True CredentialsAccepted");
        // Its brokers are still online.
        for (condition, reason) in
            [("Prepared", "Prepared"), ("Joined", "Joined"), ("Ready", "Joined")]
        {
            assert_eq!(world.reason(condition), format!("True {reason}"));
        }
        world.pass(7);
    }
    world.failure = failure(Reason::CredentialsMissing);
    world.pass(300);
    world.reconcile(false);
    assert_eq!(world.reason("Ready"), "True Joined");
    assert_eq!(world.status().phase, "CredentialsMissing");
}

/// Whoever begins with the first condition that is not true finds the cause.
#[test]
fn the_first_condition_that_is_not_true_has_the_cause() {
    let mut world = World::new(json!({}));
    world.failure = failure(Reason::CredentialsMissing);
    world.settle();
    assert_eq!(world.reason("TargetReady"), "Unknown CredentialsMissing");
    assert_eq!(world.reason("Ready"), "False CredentialsMissing");
    assert_eq!(world.status().phase, "CredentialsMissing");
}

#[test]
fn brokers_that_are_refused_are_shown() {
    let mut world = World::new(json!({}));
    let (reason, message) = ("VersionMismatch".into(), "0.70, not 0.88".into());
    world.refusal = Some(InvitationRefusal { reason, message });
    world.settle();
    assert_eq!(world.reason("Joined"), "False VersionMismatch");
    assert_eq!(world.status().phase, "VersionMismatch");
}

#[test]
fn pods_without_nodes_are_shown() {
    let mut world = World::new(json!({}));
    world.target.trouble = Some((Reason::OutOfCapacity, "0/3 nodes are available".into()));
    for _ in 0..5 {
        world.reconcile(false);
    }
    world.cluster.as_mut().unwrap().status.as_mut().unwrap().online = "0-1".into();
    let decision = world.decide();
    let joined = decision.status.conditions.iter().find(|it| it.type_ == "Joined").unwrap();
    assert_eq!(
        (joined.reason.as_str(), joined.message.as_str()),
        ("OutOfCapacity", "0/3 nodes are available")
    );
    assert_eq!(decision.status.phase, "OutOfCapacity");
}

#[test]
fn a_minicluster_that_is_not_exposed_cannot_be_joined_from_elsewhere() {
    let mut world = World::new(json!({}));
    let flux = world.cluster.as_mut().unwrap().spec.flux.as_mut().unwrap();
    flux.bursting.as_mut().unwrap().expose = None;
    world.settle();
    assert_eq!(world.reason("Prepared"), "False NotExposed");
    // None of its brokers is part of the instance.
    let mut drained = World::new(json!({}));
    drained.settle();
    let flux = drained.cluster.as_mut().unwrap().spec.flux.as_mut().unwrap();
    flux.bursting.as_mut().unwrap().expose = None;
    drained.burst.as_mut().unwrap().spec.drain = true;
    drained.settle();
    assert!(drained.burst.is_none() && !drained.has_any(), "{:?}", drained.steps);
    assert_eq!(world.steps, ["AddFinalizer"]);
}

#[test]
fn a_burst_of_a_namespace_that_is_not_listed_says_so_once() {
    for isolated in [json!({}), json!({ "isolatedJob": "f2b" })] {
        let mut world = World::new(isolated);
        let unserved =
            |world: &World| unserved_status(world.burst(), world.cluster.as_ref(), world.now);
        let status = unserved(&world).unwrap();
        assert_eq!((status.phase.as_str(), status.failures), ("NamespaceNotListed", 0));
        assert_eq!(status.retry_at, "", "once it is listed, the target is asked at once");
        world.burst.as_mut().unwrap().status = Some(status);
        assert_eq!(world.reason("CredentialsAccepted"), "False NamespaceNotListed");
        world.pass(1000);
        assert_eq!(unserved(&world), None);
        world.burst.as_mut().unwrap().metadata.generation = Some(2);
        assert_eq!(unserved(&world).unwrap().observed_generation, Some(2));
        world.reconcile(true);
        assert_eq!(world.reason("CredentialsAccepted"), "True CredentialsAccepted", "it is listed");
        assert!(unserved(&world).is_some(), "it is no longer listed");
    }
}

#[test]
fn what_a_burst_has_stays_as_it_is_while_its_namespace_is_not_listed() {
    let mut world = World::new(json!({}));
    world.settle();
    let before = world.status();
    world.pass(7200);
    let status = unserved_status(world.burst(), world.cluster.as_ref(), world.now).unwrap();
    let same = |status: &BurstStatus| {
        (status.ranks.clone(), status.counted.clone(), status.place.clone(), status.run.clone())
    };
    assert_eq!(same(&status), same(&before));
}
