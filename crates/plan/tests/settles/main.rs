//! Properties of every plan, tested on generated histories: a settled cluster is
//! quiet, it recovers from a crash after any step, and nothing is created twice.
//!
//! The [`World`] beside this file applies steps like the API server, with a Job
//! controller reduced to what plans can observe of it. What the API server really does
//! is tested with a real one, in `tests/e2e/tests/crash.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod queued;
mod ready_timeout;
#[path = "../common/record.rs"]
mod record;
mod recorded;
mod transitions;
mod world;

use flux_operator_plan::{Blocker, Step, TargetKind};
use proptest::prelude::*;
use serde_json::{Value, json};
use transitions::{hard_histories, histories, specs};
use world::{PodState, World};

/// As many cases as run in a few seconds together without optimization.
const CASES: u32 = 48;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn a_settled_cluster_is_quiet((spec, transitions) in histories()) {
        let mut world = World::new(&spec);
        world.settle();
        for happening in transitions {
            happening.apply(&mut world);
            world.settle();
            let settled = world.clone();
            prop_assert_eq!(world.reconcile().steps, []);
            world.control();
            prop_assert_eq!(&world, &settled, "something still changes after {:?}", happening);
        }
    }

    /// Also if the operator is down while things happen, and observes them together.
    #[test]
    fn a_cluster_recovers_from_a_crash_after_any_step((spec, happenings) in histories(), away in any::<bool>()) {
        let mut world = World::new(&spec);
        for happening in happenings {
            if !away {
                settle_in_spite_of_crashes(&mut world);
            }
            happening.apply(&mut world);
        }
        settle_in_spite_of_crashes(&mut world);
    }

    /// Also if its watches lag behind, its steps fail, and its status is refused because the
    /// object has changed: once all of this is over, it settles.
    #[test]
    fn it_settles_after_missed_events_and_failures((spec, happenings) in hard_histories()) {
        let mut world = World::new(&spec);
        for happening in happenings {
            happening.apply(&mut world);
            for _ in 0..2 {
                world.reconcile();
                world.control();
            }
        }
        world.settle();
        let settled = world.clone();
        prop_assert_eq!(world.reconcile().steps, []);
        world.control();
        prop_assert_eq!(&world, &settled);
    }

    #[test]
    fn the_same_input_gives_the_same_plan((spec, happenings) in histories()) {
        let mut world = World::new(&spec);
        for happening in happenings {
            prop_assert_eq!(world.decided(), world.clone().decided());
            world.reconcile();
            world.control();
            happening.apply(&mut world);
        }
        prop_assert_eq!(world.decided(), world.clone().decided());
    }

    #[test]
    fn no_write_is_one_that_kubernetes_refuses((spec, happenings) in histories()) {
        let mut world = World::new(&spec);
        for happening in happenings {
            // Without settling: steps must be valid in intermediate states too.
            world.reconcile();
            happening.apply(&mut world);
            world.control();
        }
        world.settle();
    }

    #[test]
    fn time_alone_changes_nothing_that_was_not_announced(
        (spec, happenings) in histories(),
        seconds in 1_i64..200,
    ) {
        let mut world = World::new(&spec);
        for happening in happenings {
            world.settle();
            happening.apply(&mut world);
        }
        world.settle();
        let announced = world.decided().requeue_at;
        let before = world.now();
        world.pass_time(seconds);
        if announced.is_none_or(|announced| announced > world.now()) {
            prop_assert_eq!(world.decided().steps, []);
        }
        prop_assert!(announced.is_none_or(|announced| announced > before));
    }

    #[test]
    fn names_are_legal(
        name in "[a-z]([-a-z0-9]{0,40}[a-z0-9])?",
        (spec, happenings) in histories(),
    ) {
        let mut world = World::named(&name, &spec);
        for happening in happenings {
            world.settle();
            happening.apply(&mut world);
        }
        world.settle();
        for name in world.names() {
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            prop_assert!(name.len() <= 63, "{} is too long", name);
            prop_assert!(name.chars().all(legal), "{} has other characters", name);
            prop_assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{}", name);
            prop_assert!(!name.ends_with('-'), "{}", name);
        }
    }

    #[test]
    fn what_cannot_change_is_replaced_before_the_start_and_refused_after(
        spec in specs(),
        (field, patch) in fixed_fields(),
        phase in proptest::sample::select(&["Pending", "Running", "Ready"][..]),
    ) {
        let mut world = World::new(&spec);
        world.change(&json!({ "suspend": false, "jobLabels": null, "queue": null }));
        world.settle();
        world.set_pods(PodState::Is(phase));
        world.settle();
        world.change(&patch);
        let (decided, jobs) = (world.decided(), world.jobs_made());
        if phase == "Pending" {
            prop_assert!(matches!(&decided.steps[..], [Step::Delete(job)] if job.kind == TargetKind::Job));
            prop_assert_eq!(decided.blocker, None);
            world.settle();
            prop_assert_eq!(world.jobs_made(), jobs + 1);
        } else {
            prop_assert_eq!(decided.steps, []);
            let Some(Blocker::Immutable(fields)) = decided.blocker else { panic!("{:?}", decided.blocker) };
            prop_assert!(fields.iter().any(|named| named == field), "{:?}", fields);
            world.settle();
            prop_assert_eq!(world.jobs_made(), jobs);
            let reported = world.condition("Accepted");
            prop_assert_eq!(reported.status, "False");
            prop_assert!(reported.message.contains(field), "{}", reported.message);
        }
    }
}

#[test]
fn more_hosts_than_were_listed_are_a_new_job_before_the_start_and_refused_after() {
    for (phase, jobs) in [("Pending", 2), ("Running", 1)] {
        let mut world = World::new(&json!({ "size": 1, "interactive": true }));
        world.settle();
        world.set_pods(PodState::Is(phase));
        world.change(&json!({ "size": 2 }));
        world.settle();
        assert_eq!(world.jobs_made(), jobs, "{phase}");
        assert_eq!(world.condition("Accepted").reason == "TooLarge", jobs == 1, "{phase}");
    }
}

/// The Job was deleted with its owner, and the watch of MiniClusters does not show that yet.
#[test]
fn nothing_is_created_for_a_deleted_owner() {
    let mut world = World::new(&json!({ "size": 1, "interactive": true }));
    world.settle();
    world.stall_minicluster();
    world.delete_by_user("MiniCluster");
    world.control();
    assert_eq!(world.reconcile().steps, []);
    assert_eq!((world.jobs_made(), world.pods()), (1, 0));
}

#[test]
fn a_cluster_that_shrinks_is_drained_first() {
    let mut world = World::new(&json!({ "size": 4, "interactive": true }));
    world.settle();
    world.set_pods(PodState::Is("Ready"));
    world.send_report(false);
    world.settle();
    world.change(&json!({ "size": 2 }));
    world.settle();
    assert_eq!((world.pods(), world.condition("Ready").reason.as_str()), (4, "Draining"));
    world.send_report(true);
    world.settle();
    assert_eq!(world.pods(), 4, "jobs still run there");
    world.send_report(false);
    world.settle();
    assert_eq!((world.pods(), world.condition("Ready").reason.as_str()), (2, "Quorum"));
}

/// The watches show an older state than the one the queue has written.
#[test]
fn a_status_that_was_computed_from_an_older_object_is_not_written() {
    let mut world = World::new(&json!({ "size": 1, "queue": "batch", "interactive": true }));
    world.settle();
    world.stall();
    world.write_status(&queued::admission(1));
    world.set_pods(PodState::Is("Ready"));
    world.reconcile();
    assert_eq!(world.status()["admission"]["size"], 1, "it was overwritten");
}

#[test]
fn pods_of_a_job_that_was_replaced_are_not_the_new_ones() {
    let mut world = World::new(&json!({ "size": 1, "interactive": true }));
    world.settle();
    world.set_pods(PodState::Is("Ready"));
    world.settle();
    world.delete_by_user("Job");
    world.reconcile();
    world.reconcile();
    assert_eq!(world.jobs_made(), 2);
    assert_eq!(world.condition("Ready").reason, "PodsPending");
}

/// Fields that go into a Job's template, each with another value.
fn fixed_fields() -> impl Strategy<Value = (&'static str, Value)> {
    proptest::sample::select(vec![
        ("spec.containers[0].image", json!({ "containers": [{ "image": "other" }] })),
        (
            "spec.containers[0].command",
            json!({ "containers": [{ "image": "busybox", "command": "other" }] }),
        ),
        ("spec.network.headlessName", json!({ "network": { "headlessName": "elsewhere" } })),
        ("spec.tasks", json!({ "tasks": 9 })),
        ("spec.maxSize", json!({ "maxSize": 9 })),
        ("spec.pod.nodeSelector", json!({ "pod": { "nodeSelector": { "a": "b" } } })),
    ])
}

/// Settles, and for every step on the way also settles a world in which the operator crashed
/// right after it: the result must be the same.
fn settle_in_spite_of_crashes(world: &mut World) {
    let mut crashed = Vec::new();
    for _ in 0..World::MAX_ROUNDS {
        let steps = world.decided().steps;
        for count in 0..=steps.len() {
            let mut other = world.clone();
            other.crash_after(&steps[..count]);
            crashed.push((steps[..count].to_vec(), other));
        }
        if !world.round() {
            break;
        }
    }
    world.settle();
    for (done, mut other) in crashed {
        other.settle();
        assert_eq!(
            other.without_versions(),
            world.without_versions(),
            "a crash after {done:?} left something else"
        );
    }
}
