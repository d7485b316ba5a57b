//! What the pods of a MiniCluster ask for.

use flux_operator_api::MiniCluster;
use flux_operator_queue::Resources;

/// What a MiniCluster takes of a quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Each node: the node and the pod themselves, and what its containers ask for.
    pub each: Resources,
    /// Once: the pod of the services.
    pub once: Resources,
}

/// What a MiniCluster's pods ask for, as the scheduler of Kubernetes counts it: requests,
/// or limits where there are none; sidecars included; GPUs also as `gpus`.
pub fn requests(minicluster: &MiniCluster) -> Requests {
    let _ = minicluster;
    todo!()
}
