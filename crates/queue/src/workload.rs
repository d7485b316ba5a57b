//! What waits for room, or has it.

use std::sync::Arc;

use crate::{Millis, QueueName, Resources, Setup, SetupName, Uid};

/// The kind of object that a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A FluxJob.
    FluxJob,
    /// A MiniCluster that names a queue itself.
    MiniCluster,
}

/// A job as a queue sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Who it is.
    pub uid: Uid,
    /// What it is.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
    /// The queue it asks for.
    pub queue: QueueName,
    /// Higher comes first.
    pub priority: i32,
    /// Since when it waits: its creation, or when it last lost its room.
    pub since: Millis,
    /// Until when it stays out of the queue, after it lost its room.
    pub not_before: Option<Millis>,
    /// Its user holds it back.
    pub suspended: bool,
    /// Nodes it asks for. None: as many as the setup gives.
    pub size: Option<u32>,
    /// The least it can start with; None: all or nothing.
    pub min_size: Option<u32>,
    /// What each node takes, the node itself included.
    pub each: Resources,
    /// What it takes once, whatever its size.
    pub once: Resources,
    /// Longest time it may run.
    pub max_runtime: Option<Millis>,
    /// The room it has, as it was written down.
    pub admission: Option<Admission>,
    /// All its pods exist, so a quota of the namespace counts them itself.
    pub started: bool,
    /// It has ended, and its room is free.
    pub finished: bool,
}

impl Workload {
    /// The nodes it asks for at a setup, which gives a size to those that have none.
    pub fn size_at(&self, setup: Option<&Setup>) -> u32 {
        self.size.or(setup.map(|setup| setup.default_size)).unwrap_or(1)
    }

    /// The resources it asks for at a setup.
    pub fn request_at(&self, setup: Option<&Setup>) -> Resources {
        let mut request = self.each.times(self.size_at(setup));
        request.add(&self.once);
        request
    }
}

/// Room that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// By which setup.
    pub queue: SetupName,
    /// For so many nodes.
    pub size: u32,
    /// What it takes of the quota.
    pub resources: Resources,
    /// When.
    pub at: Millis,
}
