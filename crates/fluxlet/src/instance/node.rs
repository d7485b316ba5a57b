//! The resources of a rank, which of them are in use, and whether they may be used.

use flux_operator_flux::IdSet;

use crate::message::{Drain, ResourceNode};

/// One rank of the instance.
#[derive(Clone, Debug)]
pub struct Node {
    pub rank: u32,
    pub host: String,
    pub cores: IdSet,
    pub gpus: IdSet,
    pub used_cores: IdSet,
    pub used_gpus: IdSet,
    pub properties: Vec<String>,
    pub excluded: bool,
    pub drained: Option<Drain>,
    pub presence: BrokerPresence,
    /// Flux's note about a broker that is offline.
    pub note: &'static str,
    /// Since when the broker has been in this state.
    pub since: f64,
}

/// Whether the broker of a rank is online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerPresence {
    /// Has not joined, or has left normally.
    Offline,
    Online,
    /// Was online, and disconnected unexpectedly.
    Lost,
}

impl Node {
    pub fn new(rank: u32, host: String, cores: IdSet, now: f64) -> Self {
        Self {
            rank,
            host,
            cores,
            gpus: IdSet::new(),
            used_cores: IdSet::new(),
            used_gpus: IdSet::new(),
            properties: Vec::new(),
            excluded: false,
            drained: None,
            presence: BrokerPresence::Offline,
            note: "",
            since: now,
        }
    }

    pub fn is_online(&self) -> bool {
        self.presence == BrokerPresence::Online
    }

    /// Whether a new job may use it.
    pub fn is_usable(&self) -> bool {
        self.is_online() && !self.excluded && self.drained.is_none()
    }

    /// Whether no job uses it.
    pub fn is_idle(&self) -> bool {
        self.used_cores.is_empty() && self.used_gpus.is_empty()
    }

    pub fn free_cores(&self) -> IdSet {
        self.cores.difference(&self.used_cores)
    }

    pub fn free_gpus(&self) -> IdSet {
        self.gpus.difference(&self.used_gpus)
    }

    pub fn allocate(&mut self, cores: &IdSet, gpus: &IdSet) {
        self.used_cores = self.used_cores.union(cores);
        self.used_gpus = self.used_gpus.union(gpus);
    }

    pub fn release(&mut self, cores: &IdSet, gpus: &IdSet) {
        self.used_cores = self.used_cores.difference(cores);
        self.used_gpus = self.used_gpus.difference(gpus);
    }

    pub fn to_resource(&self) -> ResourceNode {
        ResourceNode {
            rank: self.rank,
            host: self.host.clone(),
            cores: self.cores.clone(),
            gpus: self.gpus.clone(),
            used_cores: self.used_cores.clone(),
            used_gpus: self.used_gpus.clone(),
            online: self.is_online(),
            excluded: self.excluded,
            drained: self.drained.clone(),
            properties: self.properties.clone(),
        }
    }
}
