//! MiniClusters that name a queue themselves.

use flux_operator_plan::Blocker;
use flux_operator_queue::{Resource, WaitReason};
use serde_json::{Value, json};

use crate::world::{PodState, World};

/// A MiniCluster of two nodes in a queue.
fn queued() -> World {
    World::new(&json!({ "size": 2, "maxSize": 4, "queue": "batch", "interactive": true }))
}

/// The status patch of an admission.
pub fn admission(size: i32) -> Value {
    json!({ "admission": { "queue": "hpc/batch", "size": size } })
}

#[test]
fn q1_a_minicluster_that_names_a_queue_waits_for_it() {
    let mut world = queued();
    world.settle();
    assert!(world.is_suspended(), "its Job is created suspended");
    assert_eq!(world.pods(), 0);
    for kind in ["Admitted", "Ready"] {
        let reported = world.condition(kind);
        assert_eq!(
            (reported.status.as_str(), reported.reason.as_str()),
            ("False", "WaitingForQueue")
        );
    }
    assert_eq!(world.condition("JobWaitingForResources").status, "True");
    assert_eq!(world.status()["phase"], "Waiting");
}

/// Otherwise a client that waits for it would wait forever.
#[test]
fn q11_a_minicluster_reports_what_its_user_has_to_change() {
    let mut world = queued();
    world.wait(WaitReason::UnknownQueue("batch".into()));
    world.settle();
    let reported = world.condition("Admitted");
    assert_eq!((reported.status.as_str(), reported.reason.as_str()), ("False", "UnknownQueue"));
    assert!(reported.message.contains("\"batch\""), "{}", reported.message);
    // It is admitted without user action.
    world.wait(WaitReason::WaitingForQuota { resource: Resource::Nodes, missing: 2 });
    world.settle();
    assert_eq!(world.condition("Admitted").reason, "WaitingForQueue");
}

#[test]
fn q8_an_admitted_minicluster_runs_and_reports_its_queue() {
    let mut world = queued();
    world.settle();
    world.write_status(&admission(2));
    world.settle();
    assert!(!world.is_suspended());
    assert_eq!(world.pods(), 2);
    let reported = world.condition("Admitted");
    assert_eq!((reported.status.as_str(), reported.reason.as_str()), ("True", "Admitted"));
    assert_eq!(reported.message, "queue \"hpc/batch\" has granted 2 nodes");
    world.set_pods(PodState::Is("Ready"));
    world.settle();
    assert_eq!(world.status()["admission"], admission(2)["admission"], "the record stays");
}

#[test]
fn q8_a_minicluster_does_not_grow_beyond_its_quota() {
    let mut world = queued();
    world.write_status(&admission(2));
    world.settle();
    world.set_pods(PodState::Is("Ready"));
    world.change(&json!({ "size": 4 }));
    world.settle();
    assert_eq!(world.decided().blocker, Some(Blocker::ExceedsGrant { size: 4, granted: 2 }));
    assert_eq!(world.pods(), 2);
    assert_eq!(world.condition("Accepted").reason, "NoRoom");
    world.change(&json!({ "size": 1 }));
    world.settle();
    assert_eq!(world.condition("Accepted").status, "True");
}

/// Otherwise its Job would be replaced by an equal one forever.
#[test]
fn q8_a_minicluster_with_fewer_nodes_than_requested_is_started_once() {
    let mut world = World::new(&json!({ "size": 3, "queue": "batch", "interactive": true }));
    world.reconcile();
    world.change(&json!({ "tasks": 2 }));
    world.write_status(&admission(1));
    world.settle();
    let made = world.jobs_made();
    world.settle();
    assert_eq!((world.jobs_made(), world.pods()), (made, 1));
    assert_eq!(world.decided().blocker, Some(Blocker::ExceedsGrant { size: 3, granted: 1 }));
}

#[test]
fn q16_a_suspended_minicluster_releases_its_quota() {
    let mut world = queued();
    world.write_status(&admission(2));
    world.settle();
    world.set_pods(PodState::Is("Ready"));
    world.settle();
    world.change(&json!({ "suspend": true }));
    world.reconcile();
    assert_eq!(world.status()["admission"], admission(2)["admission"], "its pods are still there");
    world.settle();
    assert_eq!(world.status()["admission"], Value::Null);
    assert_eq!(world.condition("Admitted").reason, "Suspended");
    world.change(&json!({ "suspend": false }));
    world.settle();
    assert!(world.is_suspended(), "it waits again");
    assert_eq!(world.condition("Admitted").reason, "WaitingForQueue");
}

#[test]
fn q16_an_evicted_minicluster_stops_and_waits() {
    let mut world = queued();
    world.write_status(&admission(2));
    world.settle();
    world.set_pods(PodState::Is("Ready"));
    world.settle();
    world.evict();
    world.reconcile();
    assert_eq!(world.condition("Admitted").reason, "OverQuota");
    assert_eq!(world.status()["admission"]["size"], 2, "it counts while its pods are there");
    world.settle();
    assert!(world.is_suspended());
    assert_eq!(world.status()["admission"], Value::Null);
    assert_eq!(world.condition("Admitted").reason, "WaitingForQueue");
}

/// The world panics on writes to fields that belong to Kueue.
#[test]
fn q30_fields_of_a_job_that_belong_to_kueue_are_never_written() {
    let kueue = json!({ "kueue.x-k8s.io/queue-name": "batch" });
    let spec = json!({ "suspend": true, "jobLabels": kueue, "size": 2, "maxSize": 4 });
    let mut world = World::new(&spec);
    world.settle();
    for change in [
        json!({ "suspend": false }),
        json!({ "size": 4 }),
        json!({ "size": 1 }),
        json!({ "readyTimeoutSeconds": 1 }),
    ] {
        world.change(&change);
        world.settle();
        world.pass_time(60);
        world.settle();
    }
    assert!(world.is_suspended(), "Kueue resumes it");
    assert_eq!(world.condition("Admitted").reason, "NotQueued");
}
