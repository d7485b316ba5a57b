//! Bursts: their life, what is written for them, and the objects that run their brokers in another
//! Kubernetes cluster, without an operator and without CRDs there.

mod claim;
mod events;
mod joiner;
mod life;
mod made_cluster;
mod names;
mod observed;
mod policy;
mod remote_pool;
mod spare_ranks;
mod state;
mod usage;

pub use claim::{deadline_seconds, has_claim, release};
pub use events::burst_events;
pub use joiner::{joiner, joiner_trouble};
pub use life::{
    BurstDecision, BurstStep, after_failure, decide_burst, must_ask_target, needs_nodes,
};
pub use made_cluster::{
    CommandJobs, Deletion, cluster_api_cluster, cluster_api_kind, cluster_api_presence,
    cluster_nodes, cluster_secret, command_presence, down_job, up_job,
};
pub use names::{
    BURST_CLUSTER_LABEL, BURST_FINALIZER, BURST_LABEL, BURST_NAME_ANNOTATION, burst_annotations,
    burst_labels, field_manager, is_object_name, object_name, policy_burst_name,
    remote_config_map_name, remote_secret_name,
};
pub use observed::{BurstObserved, Presence, TargetFailure, TargetView, job_failure, pods_trouble};
pub use policy::{policy_status, selects};
pub use remote_pool::{PoolPods, RemotePool, RemotePoolError, remote_pool, resize_patch};
pub use spare_ranks::burst_ranks;
pub(crate) use spare_ranks::with_burst_ranks;
pub use usage::{day, two_decimals, used_today, with_finished};
