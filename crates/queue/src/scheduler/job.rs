//! A workload and the decisions about it.

use crate::{Admission, Workload};

/// A workload and the decisions about it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) workload: Workload,
    /// An admission that was decided and not put yet.
    pub(super) decided: Option<Admission>,
    /// Its eviction was decided.
    pub(super) evicted: bool,
    /// It is not in a class until its back-off ends.
    pub(super) is_backing_off: bool,
}

impl Job {
    pub(super) fn new(workload: Workload) -> Job {
        Job { workload, decided: None, evicted: false, is_backing_off: false }
    }

    /// Its admission, written or decided.
    pub(super) fn admission(&self) -> Option<&Admission> {
        self.workload.admission.as_ref().or(self.decided.as_ref())
    }

    /// Whether it has the same quota as before. The time of the admission does not matter:
    /// the one that was written is in whole seconds.
    pub(super) fn has_same_quota_as(&self, before: &Job) -> bool {
        let quota = |job: &Job| {
            let Admission { queue, size, resources, at: _ } = job.admission()?.clone();
            Some((queue, size, resources))
        };
        quota(self).is_some() && quota(self) == quota(before)
    }

    /// Whether it has the same quota as before, and only its record names another setup.
    pub(super) fn is_renamed(&self, before: &Job) -> bool {
        match (&self.workload.admission, &before.workload.admission) {
            (Some(now), Some(before)) => {
                let queue = before.queue.clone();
                Admission { queue, ..now.clone() } == *before
            }
            _ => false,
        }
    }

    /// Whether it has quota that it is about to lose.
    pub(super) fn is_losing_quota(&self) -> bool {
        self.evicted || self.workload.suspended
    }
}
