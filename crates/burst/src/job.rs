//! A pending job.

use std::collections::BTreeMap;

use flux_operator_api::view::JsonText;
use k8s_openapi::jiff::Timestamp;

/// A pending job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its id.
    pub id: u64,
    /// How many nodes it requests. `None`: that is left to the scheduler.
    pub nodes: Option<u32>,
    /// How many tasks it has.
    pub tasks: u32,
    /// Cores of all its tasks together. `None`: one for each task.
    pub cores: Option<u32>,
    /// GPUs of each node if `nodes` is set, otherwise of all tasks together.
    pub gpus: u32,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// The user id of its owner.
    pub user: i64,
    /// Its queue; empty if Flux has no named queues.
    pub queue: String,
    /// Its attributes below `attributes.system`, such as `burstable` and `constraints`.
    pub attributes: BTreeMap<String, JsonText>,
    /// When the scheduler expects it to start, if it says so.
    pub estimate: Option<Timestamp>,
    /// Whether it is held: its urgency is 0, and it does not start whatever is free.
    pub is_held: bool,
}

/// What a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// So many whole nodes, each with at least these cores and GPUs.
    Nodes { count: u32, cores: u32, gpus: u32 },
    /// These cores and GPUs, on any number of nodes.
    Cores { cores: u32, gpus: u32 },
}

impl Job {
    /// What it needs.
    pub(crate) fn need(&self) -> Need {
        let cores = self.cores.unwrap_or(self.tasks).max(self.tasks).max(1);
        match self.nodes {
            Some(count) if count > 0 => {
                Need::Nodes { count, cores: cores.div_ceil(count), gpus: self.gpus }
            }
            _ => Need::Cores { cores, gpus: self.gpus },
        }
    }

    /// How many nodes it needs, each with so many cores.
    pub(crate) fn node_count(&self, cores_per_node: u32) -> u32 {
        self.need().node_count(cores_per_node, u32::MAX)
    }
}

impl Need {
    /// Nothing more.
    pub(crate) fn is_met(&self) -> bool {
        match *self {
            Need::Nodes { count, .. } => count == 0,
            Need::Cores { cores, gpus } => cores == 0 && gpus == 0,
        }
    }

    /// Whether nodes of a shape are of use for it.
    pub(crate) fn accepts(&self, node_cores: u32, node_gpus: u32) -> bool {
        match *self {
            Need::Nodes { cores, gpus, .. } => node_cores >= cores && node_gpus >= gpus,
            Need::Cores { gpus, .. } => node_cores > 0 && (gpus == 0 || node_gpus > 0),
        }
    }

    /// How much it needs, in nodes or cores.
    pub(crate) fn amount(&self) -> (u32, &'static str) {
        match *self {
            Need::Nodes { count, .. } => (count, "nodes"),
            Need::Cores { cores, .. } => (cores, "cores"),
        }
    }

    /// How much of that a node with so many cores has.
    pub(crate) fn amount_per_node(&self, cores: u32) -> u32 {
        match self {
            Need::Nodes { .. } => 1,
            Need::Cores { .. } => cores,
        }
    }

    /// How many nodes of a shape it needs.
    pub(crate) fn node_count(&self, node_cores: u32, node_gpus: u32) -> u32 {
        match *self {
            Need::Nodes { count, .. } => count,
            Need::Cores { cores, gpus } => {
                cores.div_ceil(node_cores.max(1)).max(gpus.div_ceil(node_gpus.max(1)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job;

    #[test]
    fn cores_are_per_node_if_nodes_are_requested() {
        let nodes = |count, cores| Need::Nodes { count, cores, gpus: 0 };
        let cores = |cores| Need::Cores { cores, gpus: 0 };
        let cases = [
            (Some(2), 2, None, nodes(2, 1)),
            (Some(2), 5, None, nodes(2, 3)),
            (Some(2), 2, Some(16), nodes(2, 8)),
            (None, 3, None, cores(3)),
            (None, 3, Some(12), cores(12)),
            (None, 0, None, cores(1)),
        ];
        for (nodes, tasks, cores, need) in cases {
            let job = Job { nodes, tasks, cores, ..job(1) };
            assert_eq!(job.need(), need, "{job:?}");
        }
    }

    #[test]
    fn nodes_are_counted_by_cores_and_gpus() {
        assert_eq!(Need::Cores { cores: 9, gpus: 0 }.node_count(4, 0), 3);
        assert_eq!(Need::Cores { cores: 1, gpus: 3 }.node_count(4, 2), 2);
        assert_eq!(Need::Nodes { count: 7, cores: 1, gpus: 0 }.node_count(4, 0), 7);
    }
}
