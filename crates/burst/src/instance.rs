//! The nodes of a MiniCluster's Flux instance.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::IsolatedRun;

/// What is known about a MiniCluster's Flux instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    /// The MiniCluster's name.
    pub name: String,
    /// The brokers that are online.
    pub nodes: Vec<Node>,
    /// How many ranks could be leased now, by their property.
    pub lendable: BTreeMap<String, u32>,
    /// How many ranks can be leased at all, by their property: when others are given back.
    pub leasable: BTreeMap<String, u32>,
    /// Cores and GPUs of ranks in the rank table, by their property; of different ones the least. A broker
    /// with more has no more for Flux.
    pub shapes: BTreeMap<String, (u32, u32)>,
    /// Cores of the lead's node: those of ranks of which the table says nothing else.
    pub lead_cores: u32,
    /// GPUs of the lead's node: the same.
    pub lead_gpus: u32,
    /// Whether the scheduler is taken to start jobs behind one that cannot start: true for Fluxion,
    /// whatever its queue policy, false for sched-simple.
    pub skips_blocked: bool,
    /// Whether brokers of other Kubernetes clusters can reach it.
    pub is_exposed: bool,
    /// How many ranks the rank table has. No job can have more nodes.
    pub table_size: u32,
    /// Jobs that wait here, and run in an instance of their own, with their Bursts.
    pub isolated: Vec<IsolatedRun>,
}

/// A broker that is online.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its rank.
    pub rank: u32,
    /// Its name in the rank table, which the operator `hostlist` of a constraint refers to.
    pub host: String,
    /// Its property in R: `home`, `spare`, or the name of a pool of ranks.
    pub property: String,
    /// Its cores.
    pub cores: u32,
    /// Its GPUs.
    pub gpus: u32,
    /// Whether no job runs on it and it is not drained.
    pub is_free: bool,
    /// Since when it has been free, if that is known.
    pub idle_since: Option<Timestamp>,
    /// The burst it belongs to. `None`: it is the MiniCluster's own, or has joined otherwise.
    pub member: Option<PoolMember>,
}

/// Which pod of which burst a broker runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolMember {
    /// The Burst's name.
    pub burst: String,
    /// The index of the pod. A burst that shrinks loses the pods with the highest indices.
    pub pod: u32,
}
