//! What waits for quota, or has it.

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

/// A job as its queue sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its uid.
    pub uid: Uid,
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
    /// The queue it names.
    pub queue: QueueName,
    /// Higher comes first.
    pub priority: i32,
    /// Since when it waits: its creation, or its last eviction.
    pub waiting_since: Millis,
    /// The end of its back-off after an eviction.
    pub not_before: Option<Millis>,
    /// Its user has suspended it.
    pub suspended: bool,
    /// The number of nodes it requests. None: the default of the setup.
    pub size: Option<u32>,
    /// The smallest size it can start with; None: all or nothing.
    pub min_size: Option<u32>,
    /// What it uses for each node, the node itself included.
    pub per_node: Resources,
    /// What it uses once, whatever its size.
    pub per_job: Resources,
    /// Its longest run time.
    pub max_runtime: Option<Millis>,
    /// Its admission, as it was written.
    pub admission: Option<Admission>,
    /// All its pods exist, so the ResourceQuotas of the namespace count them.
    pub pods_exist: bool,
    /// It has finished, and its quota is free.
    pub finished: bool,
}

impl Workload {
    /// The number of nodes it requests in a queue whose setup has a default size.
    pub fn size_at(&self, setup: Option<&Setup>) -> u32 {
        self.size.or(setup.map(|setup| setup.default_size)).unwrap_or(1)
    }

    /// The resources it requests in the queue of a setup.
    pub fn request_at(&self, setup: Option<&Setup>) -> Resources {
        let mut request = self.per_node.times(self.size_at(setup));
        request.add(&self.per_job);
        request
    }
}

/// Quota that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The setup that granted it.
    pub queue: SetupName,
    /// The number of nodes.
    pub size: u32,
    /// What it uses of the quota.
    pub resources: Resources,
    /// When it was granted.
    pub at: Millis,
}
