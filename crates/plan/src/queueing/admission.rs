//! The record of an admission: one write of the status.

use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_queue::Admit;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// The merge patch of a FluxJob's status that admits it: the record, the conditions and
/// the phase, with the resource version that was decided on, so that it fails if the job
/// has changed since.
pub fn of_job(job: &FluxJob, admit: &Admit, now: Timestamp) -> Value {
    let _ = (job, admit, now);
    todo!()
}

/// The same for a MiniCluster that names a queue itself: only the record. Its conditions
/// follow with its next pass.
pub fn of_minicluster(minicluster: &MiniCluster, admit: &Admit, now: Timestamp) -> Value {
    let _ = (minicluster, admit, now);
    todo!()
}
