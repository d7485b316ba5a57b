//! The record of an admission: one write of the status.

use flux_operator_api::fluxjob::Admission as Record;
use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_queue::{Admit, EvictReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{job, leaving, merge_patch, quantity};

/// The merge patch of a FluxJob's status that admits it: the record, the conditions and
/// the phase, with the resource version that was decided on, so that it fails if the job
/// has changed since.
pub fn of_job(job: &FluxJob, admit: &Admit, now: Timestamp) -> Value {
    let status = job::admitted(job, record(admit, now), now);
    let patch = merge_patch(&job.status.clone().unwrap_or_default(), &status);
    exactly(&job.metadata, patch.unwrap_or_default())
}

/// The same for a MiniCluster that names a queue itself: only the record. Its conditions
/// follow with its next pass.
pub fn of_minicluster(minicluster: &MiniCluster, admit: &Admit, now: Timestamp) -> Value {
    exactly(&minicluster.metadata, json!({ "admission": record(admit, now) }))
}

/// The merge patch that takes the room of a MiniCluster back: its next pass suspends its
/// Job, and the record goes when its pods have. One that has no room any more refuses it,
/// because a record names its queue.
pub fn taken_from_minicluster(reason: EvictReason) -> Value {
    json!({ "status": { "admission": { "leaving": leaving::word(reason) } } })
}

fn record(admit: &Admit, now: Timestamp) -> Record {
    let admission = &admit.admission;
    Record {
        queue: admission.queue.to_string(),
        size: i32::try_from(admission.size).unwrap_or(i32::MAX),
        resources: quantity::quantities(&admission.resources),
        time: Some(Time(now)),
        leaving: String::new(),
    }
}

/// A patch of the status of exactly this version of an object.
fn exactly(metadata: &ObjectMeta, status: Value) -> Value {
    json!({ "metadata": { "resourceVersion": metadata.resource_version }, "status": status })
}
