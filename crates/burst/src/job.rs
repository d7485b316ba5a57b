//! A pending job.

use flux_operator_api::view::Attributes;
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
    pub attributes: Attributes,
    /// When the scheduler expects it to start, if it says so.
    pub estimate: Option<Timestamp>,
    /// Whether it does not start whatever is free: its urgency is 0, or it waits for another job.
    pub is_held: bool,
    /// Whether it is held by its urgency alone: it waits for no other job.
    pub is_on_hold: bool,
}

/// What a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    /// So many whole nodes, each with at least these cores and GPUs.
    Nodes { count: u32, cores: u32, gpus: u32 },
    /// So many tasks, each with these cores and GPUs of one node. Several may share a node.
    Tasks { count: u32, cores: u32, gpus: u32 },
}

impl Job {
    /// What it needs.
    pub(crate) fn need(&self) -> Need {
        let tasks = self.tasks.max(1);
        let cores = self.cores.unwrap_or(tasks).max(tasks);
        match self.nodes {
            Some(count) if count > 0 => {
                Need::Nodes { count, cores: cores.div_ceil(count), gpus: self.gpus }
            }
            _ => Need::Tasks {
                count: tasks,
                cores: cores.div_ceil(tasks),
                gpus: self.gpus.div_ceil(tasks),
            },
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
        self.amount().0 == 0
    }

    /// Whether nodes of a shape are of use for it.
    pub(crate) fn accepts(&self, node_cores: u32, node_gpus: u32) -> bool {
        self.amount_per_node(node_cores, node_gpus) > 0
    }

    /// How much it needs, in nodes or tasks.
    pub(crate) fn amount(&self) -> (u32, &'static str) {
        match *self {
            Need::Nodes { count, .. } => (count, "nodes"),
            Need::Tasks { count, .. } => (count, "tasks"),
        }
    }

    /// How much of that a node of a shape has capacity for.
    pub(crate) fn amount_per_node(&self, node_cores: u32, node_gpus: u32) -> u32 {
        let fits = |available: u32, each: u32| available.checked_div(each).unwrap_or(u32::MAX);
        match *self {
            Need::Nodes { cores, gpus, .. } => (node_cores >= cores && node_gpus >= gpus).into(),
            Need::Tasks { cores, gpus, .. } => fits(node_cores, cores).min(fits(node_gpus, gpus)),
        }
    }

    /// How many nodes of a shape it needs.
    pub(crate) fn node_count(&self, node_cores: u32, node_gpus: u32) -> u32 {
        let per_node = self.amount_per_node(node_cores, node_gpus);
        self.amount().0.div_ceil(per_node.max(1))
    }

    /// The same with another amount.
    pub(crate) fn with_amount(self, count: u32) -> Need {
        match self {
            Need::Nodes { cores, gpus, .. } => Need::Nodes { count, cores, gpus },
            Need::Tasks { cores, gpus, .. } => Need::Tasks { count, cores, gpus },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job;

    #[test]
    fn cores_are_per_node_if_nodes_are_requested_and_otherwise_per_task() {
        let nodes = |count, cores| Need::Nodes { count, cores, gpus: 0 };
        let tasks = |count, cores| Need::Tasks { count, cores, gpus: 0 };
        let cases = [
            (Some(2), 2, None, nodes(2, 1)),
            (Some(2), 5, None, nodes(2, 3)),
            (Some(2), 2, Some(16), nodes(2, 8)),
            (None, 3, None, tasks(3, 1)),
            (None, 3, Some(12), tasks(3, 4)),
            (None, 1, Some(64), tasks(1, 64)),
            (None, 0, None, tasks(1, 1)),
        ];
        for (nodes, tasks, cores, need) in cases {
            let job = Job { nodes, tasks, cores, ..job(1) };
            assert_eq!(job.need(), need, "{job:?}");
        }
    }

    #[test]
    fn nodes_are_counted_by_cores_and_gpus() {
        let tasks = |count, cores, gpus| Need::Tasks { count, cores, gpus };
        assert_eq!(tasks(9, 1, 0).node_count(4, 0), 3);
        assert_eq!(tasks(3, 1, 1).node_count(4, 2), 2);
        assert_eq!(tasks(3, 3, 0).node_count(4, 0), 3, "one on each");
        assert_eq!(Need::Nodes { count: 7, cores: 1, gpus: 0 }.node_count(4, 0), 7);
        assert!(!tasks(1, 64, 0).accepts(8, 0), "a task is on one node");
        assert!(!tasks(1, 1, 1).accepts(8, 0));
    }
}
