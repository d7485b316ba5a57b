//! The life of a FluxJob: requested, waiting, ready, running, finished.

use flux_operator_api::{FluxJob, FluxJobStatus, FluxSetupSpec, MiniCluster};
use flux_operator_queue::{EvictReason, Waiting};
use k8s_openapi::jiff::Timestamp;

use super::workload::Mistake;

/// Everything that is known of a job.
#[derive(Clone, Debug)]
pub struct JobSeen<'a> {
    /// The job.
    pub job: &'a FluxJob,
    /// The MiniCluster of its name, whoever it belongs to, being deleted or not.
    pub minicluster: Option<&'a MiniCluster>,
    /// The setup it waits at or was admitted by, if that is there.
    pub setup: Option<&'a FluxSetupSpec>,
    /// Why it cannot be queued, if so.
    pub mistake: Option<&'a Mistake>,
    /// Why it waits, if it does.
    pub waiting: Option<&'a Waiting>,
    /// Its queue takes its room back.
    pub evicted: Option<EvictReason>,
    /// What the last pass could not do, in words.
    pub failure: Option<&'a str>,
    /// Chance, from 0 to 1, for the back-off.
    pub chance: f64,
    /// The time.
    pub now: Timestamp,
}

/// One change of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum JobStep {
    /// Create the MiniCluster, unless it is there and belongs to this job.
    CreateMiniCluster(Box<MiniCluster>),
    /// Delete the MiniCluster with everything it owns.
    DeleteMiniCluster,
    /// Delete the job itself: its time is over.
    DeleteJob,
}

/// What to do about a job, and what to say of it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPlan {
    /// In this order.
    pub steps: Vec<JobStep>,
    /// The status to show; None while there is nothing to say yet, so that a job that is
    /// admitted at once is written once.
    pub status: Option<FluxJobStatus>,
    /// When to look again, if nothing happens before.
    pub look_again: Option<Timestamp>,
}

/// Decides what to do about a job. Same arguments, same plan.
pub fn plan(seen: &JobSeen<'_>) -> JobPlan {
    let _ = seen;
    todo!()
}
