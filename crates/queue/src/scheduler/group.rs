//! Jobs that are in the same queue for the same reason.

use std::collections::HashSet;

use crate::{SetupName, Uid, WaitReason};

/// Jobs of one namespace that name the same queue, or jobs that were admitted under the same
/// name. All of them are in one queue, and move to another together.
#[derive(Debug)]
pub(super) struct Group {
    /// The queue, or why there is none.
    pub(super) queue: Result<SetupName, WaitReason>,
    pub(super) jobs: HashSet<Uid>,
}

impl Group {
    pub(super) fn new(queue: Result<SetupName, WaitReason>) -> Group {
        Group { queue, jobs: HashSet::new() }
    }
}
