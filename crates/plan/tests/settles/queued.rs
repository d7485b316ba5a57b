//! MiniClusters that name a queue themselves.

use flux_operator_plan::Hold;
use flux_operator_queue::{Reason, Resource};
use serde_json::{Value, json};

use crate::world::{Lead, World};

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
        let told = world.condition(kind);
        assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "WaitingForQueue"));
    }
    assert_eq!(world.condition("JobWaitingForResources").status, "True");
    assert_eq!(world.status()["phase"], "Waiting");
}

/// Otherwise a client that waits for it would wait forever.
#[test]
fn q11_a_minicluster_says_what_its_user_has_to_change() {
    let mut world = queued();
    world.wait(Reason::UnknownQueue("batch".into()));
    world.settle();
    let told = world.condition("Admitted");
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "UnknownQueue"));
    assert!(told.message.contains("\"batch\""), "{}", told.message);
    // It is admitted without user action.
    world.wait(Reason::WaitingForQuota { resource: Resource::Nodes, missing: 2 });
    world.settle();
    assert_eq!(world.condition("Admitted").reason, "WaitingForQueue");
}

#[test]
fn q8_a_minicluster_that_is_admitted_runs_and_says_by_whom() {
    let mut world = queued();
    world.settle();
    world.write_status(&admission(2));
    world.settle();
    assert!(!world.is_suspended());
    assert_eq!(world.pods(), 2);
    let told = world.condition("Admitted");
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("True", "Admitted"));
    assert_eq!(told.message, "queue \"hpc/batch\" has granted 2 nodes");
    world.lead(Lead::Is("Ready"));
    world.settle();
    assert_eq!(world.status()["admission"], admission(2)["admission"], "the record stays");
}

#[test]
fn q8_a_minicluster_grows_no_further_than_its_room() {
    let mut world = queued();
    world.write_status(&admission(2));
    world.settle();
    world.lead(Lead::Is("Ready"));
    world.change(&json!({ "size": 4 }));
    world.settle();
    assert_eq!(world.decided().hold, Some(Hold::NoRoom { size: 4, room: 2 }));
    assert_eq!(world.pods(), 2);
    assert_eq!(world.condition("Accepted").reason, "NoRoom");
    world.change(&json!({ "size": 1 }));
    world.settle();
    assert_eq!(world.condition("Accepted").status, "True");
}

/// Otherwise its Job would be replaced by an equal one forever.
#[test]
fn q8_a_minicluster_with_fewer_nodes_than_it_asks_for_is_started_once() {
    let mut world = World::new(&json!({ "size": 3, "queue": "batch", "interactive": true }));
    world.reconcile();
    world.change(&json!({ "tasks": 2 }));
    world.write_status(&admission(1));
    world.settle();
    let made = world.jobs_made();
    world.settle();
    assert_eq!((world.jobs_made(), world.pods()), (made, 1));
    assert_eq!(world.decided().hold, Some(Hold::NoRoom { size: 3, room: 1 }));
}

#[test]
fn q16_a_minicluster_that_its_user_stops_gives_its_room_back() {
    let mut world = queued();
    world.write_status(&admission(2));
    world.settle();
    world.lead(Lead::Is("Ready"));
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
fn q16_a_minicluster_that_loses_its_room_stops_and_waits() {
    let mut world = queued();
    world.write_status(&admission(2));
    world.settle();
    world.lead(Lead::Is("Ready"));
    world.settle();
    world.take_room();
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
fn q30_what_is_kueues_of_a_job_is_never_written() {
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
