//! What becomes of a Burst, and that a controller that is killed goes on where it was.

use flux_operator_api::Reason;
use flux_operator_plan::bursting::{Presence, must_ask_target};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use super::world::{World, failure};

fn ready(spec: serde_json::Value) -> World {
    let mut world = World::new(spec);
    world.settle();
    assert_eq!(world.reason("Ready"), "True Joined", "{:?}", world.status());
    world
}

fn expect_gone(world: &World) {
    assert!(world.burst.is_none(), "{:?}", world.status());
    assert!(!world.has_any());
    let cluster = world.cluster.as_ref().unwrap();
    assert_eq!(cluster.metadata.finalizers, None);
    assert_eq!(cluster.spec.flux.as_ref().unwrap().bursting.as_ref().unwrap().invitations, []);
}

#[test]
fn a_burst_comes_up_and_is_given_back() {
    let mut world = ready(json!({}));
    assert_eq!(world.steps, ["AddFinalizer", "ClaimCluster", "Create"]);
    assert_eq!((world.status().ranks.as_str(), world.status().ready.as_str()), ("2-3", "2/2"));
    world.delete_burst();
    world.settle();
    expect_gone(&world);
    assert_eq!(world.steps[3..], ["ClaimCluster", "DeleteObjects", "Finish"]);
}

#[test]
fn a_burst_in_the_same_cluster_needs_no_invitation() {
    let target = json!({ "name": "here", "maxNodes": 4, "kubeconfig": null, "cluster": {} });
    let mut world = ready(json!({ "target": target }));
    assert_eq!(world.steps, ["AddFinalizer", "ClaimCluster", "Create"]);
    world.delete_burst();
    world.settle();
    expect_gone(&world);
    // The operator drains its ranks.
    assert_eq!(world.steps[3..], ["DeleteObjects", "Finish"]);
}

#[test]
fn a_settled_burst_is_quiet() {
    let mut world = ready(json!({}));
    let before = world.status();
    let decision = world.decide();
    assert_eq!((decision.step, decision.status), (None, before));
    assert!(decision.requeue_at.is_some());
    world.reconcile(false);
    assert_eq!(world.steps.len(), 3);
}

/// A controller that writes the status again and again does not get to its step if it is killed after
/// each write.
#[test]
fn a_burst_that_waits_for_its_last_step_is_quiet() {
    let mut world = ready(json!({}));
    world.delete_burst();
    while world.has_any() {
        world.reconcile(false);
        world.pass(1);
    }
    world.reconcile(true);
    world.pass(1);
    let before = world.status();
    world.reconcile(true);
    assert_eq!(world.status(), before);
}

#[test]
fn jobs_on_its_nodes_may_finish_but_not_longer_than_the_grace_period() {
    for finishes in [true, false] {
        let mut world = ready(json!({ "graceSeconds": 60 }));
        world.running = vec!["3".parse().unwrap()];
        world.delete_burst();
        world.settle();
        assert_eq!(world.reason("GivingBack"), "True Draining");
        assert!(world.has_any(), "the job has lost its node");
        if finishes {
            world.running.clear();
        } else {
            world.pass(60);
        }
        world.settle();
        expect_gone(&world);
    }
}

/// Which ranks are online is not known after the lead has restarted: jobs may run on all of them.
#[test]
fn jobs_may_finish_also_if_it_is_not_known_what_is_online() {
    let mut world = ready(json!({ "graceSeconds": 60 }));
    world.running = vec!["3".parse().unwrap()];
    world.delete_burst();
    for _ in 0..10 {
        world.cluster.as_mut().unwrap().status.as_mut().unwrap().online.clear();
        world.reconcile(false);
        world.pass(1);
    }
    assert_eq!(world.reason("GivingBack"), "True Draining");
    assert!(world.has_any(), "the job has lost its node");
}

#[test]
fn a_burst_of_a_policy_that_loses_its_brokers_for_a_while_stays() {
    let mut world = ready(json!({ "policy": "p", "idleSeconds": 100 }));
    world.own("p");
    world.running = vec!["2-3".parse().unwrap()];
    world.pass(1000);
    world.settle();
    world.is_cut_off = true;
    world.settle();
    assert_eq!(world.reason("Ready"), "False Joining");
    assert_eq!(world.status().giving_back_since, "");
    world.is_cut_off = false;
    world.settle();
    assert_eq!(world.reason("Ready"), "True Joined");
}

/// The clock was a day ahead when its brokers began to be missing.
#[test]
fn a_join_deadline_after_a_clock_that_was_wrong_is_not_waited_for() {
    let mut world = World::new(json!({ "policy": "p" }));
    world.own("p");
    world.is_cut_off = true;
    world.settle();
    let conditions = &mut world.burst.as_mut().unwrap().status.as_mut().unwrap().conditions;
    for condition in conditions {
        condition.last_transition_time.0 += SignedDuration::from_hours(24);
    }
    world.reconcile(false);
    assert!(world.burst().join_deadline() <= world.now + SignedDuration::from_hours(1));
}

#[test]
fn a_job_that_has_failed_at_the_target_is_shown_and_a_policy_gives_it_back() {
    for policy in ["", "p"] {
        let mut world = ready(json!({ "policy": policy }));
        world.own(policy);
        world.target.job_failure = Some("BackoffLimitExceeded".into());
        world.is_cut_off = true;
        world.settle();
        match policy {
            "" => assert_eq!(world.reason("Joined"), "False TargetRefused"),
            _ => expect_gone(&world),
        }
    }
}

#[test]
fn what_is_being_deleted_at_the_target_is_waited_for() {
    let mut world = ready(json!({}));
    world.lingers = true;
    world.delete_burst();
    world.settle();
    let deletions = world.steps.iter().filter(|step| **step == "DeleteObjects").count();
    assert_eq!(deletions, 1, "{:?}", world.steps);
    world.target.presence = Presence::Nothing;
    world.settle();
    expect_gone(&world);
}

#[test]
fn a_burst_that_has_joined_in_part_is_not_idle_before_the_rest_had_its_time() {
    let mut world = World::new(json!({ "idleSeconds": 10 }));
    world.reconcile(false);
    for _ in 0..40 {
        let cluster = world.cluster.as_mut().unwrap();
        cluster.status.get_or_insert_default().online = "0-2".into();
        let decision = world.decide();
        world.burst.as_mut().unwrap().status = Some(decision.status);
        world.pass(1);
    }
    assert_eq!(world.status().idle_since, "");
}

#[test]
fn a_burst_without_a_job_is_given_back_after_its_idle_time() {
    let mut world = ready(json!({ "idleSeconds": 100 }));
    world.running = vec!["2-3".parse().unwrap()];
    world.pass(500);
    world.settle();
    assert_eq!((world.status().jobs, world.reason("Ready").as_str()), (1, "True Joined"));
    world.running.clear();
    world.settle();
    assert_eq!(world.reason("Ready"), "True Joined", "the time is not over");
    world.pass(100);
    world.settle();
    expect_gone(&world);
    // A user's Burst without idleSeconds stays.
    let mut world = ready(json!({}));
    world.pass(1000);
    world.settle();
    assert_eq!(world.reason("Ready"), "True Joined");
}

fn keep(world: &World) -> Option<i32> {
    let spec = &world.cluster.as_ref().unwrap().spec;
    spec.flux.as_ref().unwrap().bursting.as_ref().unwrap().invitations[0].keep
}

/// What is known of jobs is some seconds old.
#[test]
fn a_job_that_starts_when_the_idle_time_is_over_keeps_the_burst() {
    let mut world = ready(json!({ "idleSeconds": 100 }));
    world.started = vec!["3".parse().unwrap()];
    world.pass(100);
    world.settle();
    assert_eq!(keep(&world), Some(0), "no other job starts there");
    assert!(world.status().giving_back_since.is_empty(), "the job would be lost");
    world.running = std::mem::take(&mut world.started);
    world.settle();
    assert_eq!((keep(&world), world.reason("Ready").as_str()), (None, "True Joined"));
    world.running.clear();
    world.settle();
    world.pass(100);
    world.settle();
    expect_gone(&world);
}

/// The same with a joiner: it is suspended, so that the operator drains its ranks.
#[test]
fn a_job_that_starts_when_the_idle_time_is_over_keeps_a_burst_in_the_same_cluster() {
    let target = json!({ "name": "here", "maxNodes": 4, "kubeconfig": null, "cluster": {} });
    let mut world = ready(json!({ "idleSeconds": 100, "target": target }));
    world.started = vec!["3".parse().unwrap()];
    world.pass(100);
    world.settle();
    assert_eq!(world.target.nodes, 0, "no other job starts there");
    assert_eq!(world.deleted_for, None, "the job would be lost");
    world.running = std::mem::take(&mut world.started);
    world.settle();
    assert_eq!((world.target.nodes, world.reason("Ready").as_str()), (2, "True Joined"));
    world.running.clear();
    world.settle();
    world.pass(100);
    world.settle();
    expect_gone(&world);
}

/// In a busy queue there is always a job that would start.
#[test]
fn a_burst_that_is_drained_lets_its_jobs_finish_and_gets_no_other() {
    let mut world = ready(json!({ "graceSeconds": 0 }));
    world.running = vec!["3".parse().unwrap()];
    world.burst.as_mut().unwrap().spec.drain = true;
    world.settle();
    assert_eq!(keep(&world), Some(0));
    assert_eq!(world.reason("GivingBack"), "True Draining");
    assert!(world.has_any() && world.status().giving_back_since.is_empty());
    world.running.clear();
    world.settle();
    expect_gone(&world);
}

#[test]
fn a_burst_in_the_same_cluster_that_is_drained_waits_for_its_jobs() {
    let target = json!({ "name": "here", "maxNodes": 4, "kubeconfig": null, "cluster": {} });
    let mut world = ready(json!({ "graceSeconds": 0, "target": target }));
    world.running = vec!["3".parse().unwrap()];
    world.burst.as_mut().unwrap().spec.drain = true;
    world.settle();
    assert_eq!((world.target.nodes, world.reason("GivingBack").as_str()), (0, "True Draining"));
    assert!(world.has_any() && world.status().giving_back_since.is_empty());
    world.running.clear();
    world.settle();
    expect_gone(&world);
}

#[test]
fn a_burst_whose_invitation_is_refused_says_so_and_has_a_lifetime() {
    let mut world = World::new(json!({}));
    world.refuses_claims = true;
    world.settle();
    assert_eq!(world.reason("Prepared"), "False LenderNotReady");
    let claims = world.steps.iter().filter(|it| **it == "ClaimCluster").count();
    assert!((2..6).contains(&claims), "{:?}", world.steps);
    world.pass(3600);
    world.settle();
    expect_gone(&world);
}

/// The clock of a machine that was suspended may have been wrong for a moment.
#[test]
fn times_that_are_too_far_away_are_not_waited_for() {
    let mut world = ready(json!({}));
    let next_day = world.now + SignedDuration::from_hours(24);
    let status = world.burst.as_mut().unwrap().status.as_mut().unwrap();
    status.retry_at = next_day.to_string();
    status.giving_back_since = next_day.to_string();
    world.running = vec!["3".parse().unwrap()];
    world.delete_burst();
    world.settle();
    assert!(world.has_any(), "its grace period is not over");
    world.pass(60);
    world.settle();
    expect_gone(&world);
    let mut world = ready(json!({}));
    world.burst.as_mut().unwrap().status.as_mut().unwrap().retry_at = next_day.to_string();
    assert!(must_ask_target(world.burst(), world.now));
}

#[test]
fn a_burst_is_given_back_at_the_end_of_its_lifetime() {
    let mut world = ready(json!({ "lifetimeSeconds": 600 }));
    world.pass(600);
    world.settle();
    expect_gone(&world);
}

#[test]
fn a_burst_of_a_policy_whose_brokers_do_not_join_is_given_back() {
    let target = json!({ "startupSeconds": 10 });
    let mut world = World::new(json!({ "policy": "p", "target": target }));
    world.own("p");
    world.reconcile(false);
    world.failure = failure(Reason::TargetUnreachable);
    world.settle();
    assert_eq!(world.reason("TargetReady"), "False TargetUnreachable");
    world.pass(400);
    world.reconcile(false);
    assert!(world.burst().metadata.deletion_timestamp.is_some());
    // It stays until it is known that nothing is left.
    world.settle();
    assert!(world.burst.is_some());
    world.failure = None;
    world.pass(600);
    world.settle();
    expect_gone(&world);
}

#[test]
fn a_burst_goes_with_its_minicluster_and_remote_objects_first() {
    let mut world = ready(json!({}));
    world.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(world.now));
    world.running = vec!["2-3".parse().unwrap()];
    world.settle();
    expect_gone(&world);
    // Its jobs are lost with it anyway.
    assert_eq!(world.steps[3..], ["DeleteSelf", "DeleteObjects", "Finish"]);
}

#[test]
fn a_burst_waits_for_its_minicluster_only_before_it_was_started() {
    let mut world = World::new(json!({}));
    let cluster = world.cluster.take();
    world.settle();
    assert_eq!(world.reason("Prepared"), "False LenderMissing");
    world.cluster = cluster;
    world.settle();
    assert_eq!(world.reason("Ready"), "True Joined");
    // Another one of the same name is not joined.
    world.cluster.as_mut().unwrap().metadata.uid = Some("other".into());
    world.settle();
    assert!(world.burst.is_none());
}

#[test]
fn a_burst_with_scaling_grows_and_shrinks() {
    let scaling = json!({ "target": { "scaling": { "minNodes": 1, "maxNodes": 4 } } });
    let mut world = ready(scaling);
    assert_eq!(world.status().ranks, "2-5", "ranks for its largest size are leased");
    let resize = |world: &mut World, nodes| {
        world.burst.as_mut().unwrap().spec.nodes = nodes;
        world.settle();
        world.target.nodes
    };
    assert_eq!(resize(&mut world, 4), 4);
    assert_eq!(world.status().ready, "4/4");
    world.running = vec!["5".parse().unwrap()];
    assert_eq!(resize(&mut world, 1), 4, "a job runs on the last node");
    world.running.clear();
    world.settle();
    assert_eq!(world.target.nodes, 1);
    assert_eq!(
        (world.status().ready.as_str(), world.reason("Ready").as_str()),
        ("1/1", "True Joined")
    );
}

proptest! {
    /// Killed before any of its steps, any number of times: same end, nothing left.
    #[test]
    fn a_controller_that_is_killed_goes_on_where_it_was(
        killed in proptest::collection::vec(any::<bool>(), 60),
        lingers in any::<bool>(),
        scales in any::<bool>(),
        makes_cluster in any::<bool>(),
    ) {
        let spec = match scales {
            true => json!({ "target": { "scaling": { "minNodes": 1, "maxNodes": 4 } } }),
            false => json!({}),
        };
        let mut world = World::new(spec);
        world.makes_cluster = makes_cluster;
        let creations = if makes_cluster { 2 } else { 1 };
        let (up, down) = killed.split_at(30);
        for is_killed in up {
            world.reconcile(*is_killed);
            world.pass(1);
        }
        world.settle();
        prop_assert_eq!(world.reason("Ready"), "True Joined");
        prop_assert_eq!(world.steps.iter().filter(|it| **it == "Create").count(), creations);
        world.lingers = lingers;
        world.delete_burst();
        for is_killed in down {
            world.reconcile(*is_killed);
            world.pass(1);
        }
        world.lingers = false;
        if world.target.presence == Presence::Leaving {
            world.target.presence = Presence::Nothing;
        }
        world.settle();
        expect_gone(&world);
    }
}
