//! What the scheduler says.

use std::sync::Arc;

use crate::{Admission, Kind, Millis, Uid};

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// Jobs that get room, in order. They count as admitted already.
    pub admit: Vec<Admit>,
    /// Jobs that lose theirs. They count until they are told to have none any more.
    pub evict: Vec<Evict>,
    /// When to ask again, if nothing happens before.
    pub wake: Option<Millis>,
    /// How many heads of lines were looked at.
    pub looked: usize,
}

/// A job that gets room. It is to be written down, or taken back by [`crate::Scheduler::undo`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit {
    /// Who.
    pub uid: Uid,
    /// What it is.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
    /// What it gets.
    pub admission: Admission,
}

/// A job that loses its room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// Who.
    pub uid: Uid,
    /// Why.
    pub reason: EvictReason,
}

/// Why a job loses its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvictReason {
    /// The queue is stopped and drained.
    QueueStopped,
    /// The quota was lowered, and the setup says so.
    OverQuota,
}
