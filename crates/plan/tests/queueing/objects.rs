//! Jobs, setups and MiniClusters for tests.

use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_queue::{
    Admission, Kind, NewAdmission, Resource, Resources, SetupName, WaitReason, WaitStatus,
};
use flux_operator_testkit::{fluxjob, fluxsetup, merge, smallest_minicluster};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// When everything was created.
pub const CREATED: &str = "2026-01-01T00:00:00Z";

/// The time so many seconds later.
pub fn after(seconds: i64) -> Timestamp {
    CREATED.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

fn metadata(uid: &str) -> Value {
    json!({ "namespace": "hpc", "uid": uid, "generation": 1, "resourceVersion": "7",
        "creationTimestamp": CREATED })
}

/// A job with this spec.
pub fn job(spec: Value) -> FluxJob {
    job_with(json!({ "spec": spec }))
}

/// A job with a command, changed by a merge patch.
pub fn job_with(patch: Value) -> FluxJob {
    let mut job = fluxjob("lammps");
    merge(
        &mut job,
        &json!({ "metadata": metadata("12345678-9abc"), "spec": { "command": "lmp" } }),
    );
    merge(&mut job, &patch);
    serde_json::from_value(job).unwrap()
}

/// A MiniCluster in a queue.
pub fn queued(patch: Value) -> MiniCluster {
    let mut minicluster = smallest_minicluster("fs");
    merge(&mut minicluster, &json!({ "metadata": metadata("u-fs"), "spec": { "queue": "batch" } }));
    merge(&mut minicluster, &patch);
    flux_operator_api::validate::read_minicluster(&minicluster).unwrap()
}

/// A setup with a quota of four nodes.
pub fn setup(patch: Value) -> FluxSetup {
    let mut setup = fluxsetup("batch", 4);
    merge(&mut setup, &json!({ "metadata": metadata("u-batch") }));
    merge(&mut setup, &patch);
    serde_json::from_value(setup).unwrap()
}

/// This many nodes and pods.
pub fn nodes(count: i64) -> Resources {
    Resources::of([(Resource::Nodes, count), (Resource::Pods, count)])
}

/// An admission of a job with this many nodes.
pub fn admit(size: u32) -> NewAdmission {
    NewAdmission {
        uid: "12345678-9abc".into(),
        kind: Kind::FluxJob,
        namespace: "hpc".into(),
        name: "lammps".into(),
        admission: Admission {
            queue: SetupName::new("hpc", "batch"),
            size,
            resources: nodes(i64::from(size)),
            at: after(1).as_millisecond(),
        },
    }
}

/// A job that waits for this reason.
pub fn waits(reason: WaitReason) -> WaitStatus {
    WaitStatus { queue: Some(SetupName::new("hpc", "batch")), position: Some(0), reason }
}

/// Too few nodes are free.
pub fn no_quota(missing: i64) -> WaitStatus {
    waits(WaitReason::WaitingForQuota { resource: Resource::Nodes, missing })
}
