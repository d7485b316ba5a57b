//! A workload, and what was decided about it.

use crate::{Admission, Workload};

/// A workload, and what was decided about it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) workload: Workload,
    /// Room that it was given and that nobody has told us of yet.
    pub(super) decided: Option<Admission>,
    /// It was said to lose its room.
    pub(super) evicted: bool,
    /// It stays out of the lines until its back-off ends.
    pub(super) rests: bool,
}

impl Job {
    pub(super) fn new(workload: Workload) -> Job {
        Job { workload, decided: None, evicted: false, rests: false }
    }

    /// The room it has, written down or decided.
    pub(super) fn admission(&self) -> Option<&Admission> {
        self.workload.admission.as_ref().or(self.decided.as_ref())
    }

    /// Whether it has room that it is about to lose.
    pub(super) fn is_leaving(&self) -> bool {
        self.evicted || self.workload.suspended
    }
}
