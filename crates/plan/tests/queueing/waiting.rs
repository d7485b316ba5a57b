//! What is reported of a job that waits, and when.

use flux_operator_plan::reason::of_waiting;
use flux_operator_queue::{Resource, WaitReason};
use serde_json::json;

use crate::objects::{after, no_quota, waits};
use crate::world::{World, is_deletion};

#[test]
fn q7_a_job_that_only_waits_is_reported_after_five_seconds() {
    let mut world = World::new(json!({}));
    for waiting in [None, Some(no_quota(2)), Some(waits(WaitReason::NoQueue))] {
        waiting.into_iter().for_each(|waiting| world.wait(waiting));
        let decided = world.decided();
        assert_eq!((decided.steps.len(), decided.status()), (0, None));
        assert_eq!(decided.requeue_at(), Some(after(5)));
    }
    world.pass_time(5);
    world.settle();
    assert_eq!(world.phase_and_reason(), ("Waiting".into(), "NoQueue".into()));
    assert_eq!(world.status().jobid, "lammps-12345678");
}

#[test]
fn q7_a_reason_that_needs_the_user_is_reported_at_once() {
    let requested = WaitReason::ExceedsQuota { resource: Resource::Nodes, requested: 9, quota: 4 };
    for reason in [
        WaitReason::TooLarge { size: 9, max_size: 4 },
        requested,
        WaitReason::UnknownQueue("a".into()),
        WaitReason::AmbiguousQueue(vec![]),
        WaitReason::NotServed(flux_operator_queue::SetupName::new("a", "b")),
    ] {
        let mut world = World::new(json!({}));
        let word = of_waiting(&reason).as_str();
        world.wait(waits(reason));
        world.settle();
        assert_eq!(world.phase_and_reason(), ("Waiting".into(), word.into()));
        let reported = world.condition("Admitted");
        assert_eq!((reported.status.as_str(), reported.reason.as_str()), ("False", word));
    }
    let bad = json!({ "spec": { "containers": [{ "environment": { "a=b": "c" } }] } });
    let mut world = World::new(json!({ "template": bad }));
    world.settle();
    assert_eq!(world.condition("Accepted").reason, "InvalidTemplate");
    assert_eq!(world.condition("JobWaitingForResources").status, "False");
}

#[test]
fn q7_a_reason_is_written_once_whatever_its_amounts() {
    let mut world = World::new(json!({}));
    world.pass_time(5);
    for missing in [3, 2, 1] {
        world.wait(no_quota(missing));
        world.settle();
    }
    assert_eq!(world.writes, 1);
    world.wait(waits(WaitReason::BehindOthers { job: "a".into() }));
    world.settle();
    assert_eq!(world.writes, 2);
    assert_eq!(world.status().queue, "hpc/batch");
}

#[test]
fn q14_a_waiting_job_may_change() {
    let mut world = World::new(json!({ "size": 2 }));
    world.pass_time(5);
    world.wait(no_quota(1));
    world.settle();
    world.change(&json!({ "size": 9, "image": "other" }));
    world.settle();
    assert_eq!(world.condition("Accepted").status, "True");
    assert_eq!(world.status().observed_generation, Some(2));
    assert_eq!(world.workload().unwrap().size, Some(9));
    assert_eq!(world.workload().unwrap().waiting_since, after(0).as_millisecond());
}

#[test]
fn q16_a_suspended_job_is_reported_as_suspended() {
    let mut world = World::new(json!({ "suspend": true }));
    world.pass_time(5);
    world.settle();
    assert_eq!(world.phase_and_reason(), ("Suspended".into(), "Suspended".into()));
    assert_eq!(world.condition("JobWaitingForResources").status, "False");
}

#[test]
fn q4_a_cluster_without_a_record_is_left_alone_unless_its_user_stops_it() {
    let mut world = World::admitted(json!({}));
    world.cluster("Quorum");
    world.lose_status();
    world.pass_time(5);
    world.settle();
    assert!(world.minicluster().is_some(), "the watch may not show its record yet");
    world.admit(2);
    world.settle();
    assert_eq!(
        (world.phase_and_reason().0.as_str(), world.clusters_created, world.runs()),
        ("Running", 1, 1)
    );
    world.lose_status();
    world.change(&json!({ "suspend": true }));
    assert!(is_deletion(&world.reconcile().steps));
}

#[test]
fn q15_a_terminating_job_is_not_written_to() {
    let mut world = World::admitted(json!({}));
    world.delete_job();
    assert!(is_nothing(&world));
    let mut other = World::new(json!({ "managedBy": "example.org/other" }));
    other.pass_time(60);
    assert!(is_nothing(&other));
}

/// Whether there are no steps, no status and no requeue.
fn is_nothing(world: &World) -> bool {
    let decided = world.decided();
    decided.steps.is_empty() && decided.status().is_none() && decided.requeue_at().is_none()
}
