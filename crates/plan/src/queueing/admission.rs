//! The record of an admission: one write of the status.

use flux_operator_api::fluxjob::Admission as Record;
use flux_operator_api::{FluxJob, FluxJobStatus, MiniCluster};
use flux_operator_queue::{EvictionReason, NewAdmission, SetupName};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde_json::{Value, json};

use super::{job, quantity};
use crate::reason::of_eviction;

/// What admits a FluxJob: the record, the conditions and the phase, with the resource version
/// that was decided on, so that the write fails if the job has changed since.
pub fn job_write(job: &FluxJob, admit: &NewAdmission, now: Timestamp) -> Value {
    with_status(job, &job::admitted(job, record(admit, now), now))
}

/// A job with this status, to replace its current status. For the API server this costs two
/// thirds of a patch, and no other client writes the status.
pub fn with_status(job: &FluxJob, status: &FluxJobStatus) -> Value {
    let ObjectMeta { name, namespace, resource_version, .. } = &job.metadata;
    json!({
        "apiVersion": FluxJob::api_version(&()),
        "kind": FluxJob::kind(&()),
        "metadata": { "name": name, "namespace": namespace, "resourceVersion": resource_version },
        "status": status,
    })
}

/// The merge patch that admits a MiniCluster which names a queue itself: only the record. Its
/// conditions follow with its next reconciliation.
pub fn minicluster_patch(minicluster: &MiniCluster, admit: &NewAdmission, now: Timestamp) -> Value {
    let version = &minicluster.metadata.resource_version;
    json!({
        "metadata": { "resourceVersion": version },
        "status": { "admission": record(admit, now) },
    })
}

/// The merge patch that evicts a MiniCluster, for this version of the object: its next
/// reconciliation suspends its Job, and the record is removed when its pods are deleted. The
/// API server refuses the patch if there is no record any more, because `queue` is required.
pub fn eviction_patch(version: u64, reason: EvictionReason) -> Value {
    status_patch(version, json!({ "admission": { "leaving": of_eviction(reason).as_str() } }))
}

/// The merge patch with which the record of a MiniCluster names the setup that has replaced its
/// own, for this version of the object.
pub fn record_queue_patch(version: u64, queue: &SetupName) -> Value {
    status_patch(version, json!({ "admission": { "queue": queue.to_string() } }))
}

fn record(admit: &NewAdmission, now: Timestamp) -> Record {
    let admission = &admit.admission;
    Record {
        queue: admission.queue.to_string(),
        size: i32::try_from(admission.size).unwrap_or(i32::MAX),
        resources: quantity::quantities(&admission.resources),
        time: Some(Time(now)),
        leaving: String::new(),
    }
}

/// A status patch for exactly this version of an object.
fn status_patch(version: u64, status: Value) -> Value {
    json!({ "metadata": { "resourceVersion": version.to_string() }, "status": status })
}
