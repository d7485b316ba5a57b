//! The decisions of the scheduler.

use std::sync::Arc;

use crate::{Admission, Kind, Millis, Uid};

/// The decisions of one cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// Jobs that are admitted, in order. They already count as admitted.
    pub admit: Vec<NewAdmission>,
    /// Jobs that are evicted. Their quota counts as used until they are put without an admission.
    pub evict: Vec<Eviction>,
    /// When to run the next cycle, if nothing changes before.
    pub wake_at: Option<Millis>,
    /// Number of jobs considered.
    pub considered: usize,
}

/// A job that is admitted. It has to be written, or reverted by [`crate::Scheduler::undo`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAdmission {
    /// Its uid.
    pub uid: Uid,
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
    /// The quota it is granted.
    pub admission: Admission,
}

/// A job that is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Its uid.
    pub uid: Uid,
    /// The reason.
    pub reason: EvictionReason,
}

/// Why a job is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvictionReason {
    /// The queue was stopped with HoldAndDrain.
    QueueStopped,
    /// The quota was lowered, and the setup has overQuota Evict.
    OverQuota,
}
