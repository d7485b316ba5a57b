//! Amounts of what a quota counts.

use std::fmt;
use std::sync::Arc;

/// Something a quota counts. The order is the order in which they are shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Brokers: the size of a cluster.
    Nodes,
    /// Pods: brokers, and the pod of the services.
    Pods,
    /// Thousandths of a core.
    Cpu,
    /// Bytes.
    Memory,
    /// GPUs of any make.
    Gpus,
    /// Another resource of the cluster, by its full name; in thousandths.
    Other(Arc<str>),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Nodes => "nodes",
            Resource::Pods => "pods",
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
            Resource::Gpus => "gpus",
            Resource::Other(name) => name,
        })
    }
}

/// An amount of each of some resources, in order and without zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources(Vec<(Resource, i64)>);
