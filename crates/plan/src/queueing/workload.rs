//! FluxJobs and MiniClusters as the queue sees them.

use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_queue::Workload;

/// What must be known besides the job to read it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    /// The job's MiniCluster, if it is there.
    pub minicluster: Option<&'a MiniCluster>,
    /// The value of the PriorityClass that it names, if there is such a class.
    pub class_value: Option<i32>,
}

/// Why a job cannot be queued: a condition `Accepted=False`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// In one word.
    pub reason: &'static str,
    /// What to do about it.
    pub message: String,
}

/// A FluxJob. None if somebody else manages it.
pub fn of_job(job: &FluxJob, beside: Beside<'_>) -> Result<Option<Workload>, Mistake> {
    let _ = (job, beside);
    todo!()
}

/// A MiniCluster. None if it names no queue, belongs to a FluxJob, is managed by somebody
/// else, or carries Kueue's label: then it is not ours to admit.
pub fn of_minicluster(minicluster: &MiniCluster) -> Option<Workload> {
    let _ = minicluster;
    todo!()
}
