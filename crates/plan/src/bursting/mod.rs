//! Bursts: their life, what is written for them, and the objects that run their brokers in another
//! Kubernetes cluster, without an operator and without CRDs there.

mod claim;
mod events;
mod isolated;
mod joiner;
mod life;
mod made_cluster;
mod names;
mod observed;
mod policy;
mod policy_burst;
mod poll;
mod remote_pool;
mod spare_ranks;
mod standalone;
mod state;
mod unreadable;
mod unserved;
mod usage;

pub use claim::{deadline_seconds, has_claim, release};
pub use events::burst_events;
pub use isolated::{
    CUT_KEY, HomeAnswer, HomeJob, IsolatedObjects, OUTPUT_KEY, RECORD_SECONDS, after_output,
    home_order, isolated_objects, isolated_secret_name, keeps_cluster, needs_jobspec, output_name,
};
pub use joiner::{joiner, joiner_nodes, joiner_patch, joiner_trouble};
pub use life::{
    BurstDecision, BurstStep, after_failure, decide_burst, must_ask_target, needs_nodes,
};
pub use made_cluster::{
    ApiCluster, CommandJobs, Deletion, Growth, asks_inside, cluster_api_cluster, cluster_api_kind,
    cluster_api_presence, cluster_nodes, cluster_secret, cluster_secret_name, command_presence,
    creates_inside, down_job, gke_command, gke_job, is_command_job, may_exist, needs_permission,
    up_job,
};
pub use names::{
    BURST_CLUSTER_LABEL, BURST_FINALIZER, BURST_LABEL, BURST_NAME_ANNOTATION, burst_annotations,
    burst_labels, field_manager, is_object_name, object_name, remote_config_map_name,
    remote_secret_name,
};
pub use observed::{
    BurstObserved, ObservedMiniCluster, Presence, TargetFailure, TargetView, job_failure,
    pods_trouble, running_ranks,
};
pub use policy::{MAX_POLICIES, ServedClusters, Service, policy_status, selects};
pub use policy_burst::{isolated_policy_burst, policy_burst};
pub use remote_pool::{PoolPods, RemotePool, RemotePoolError, remote_pool, resize_patch};
pub(crate) use spare_ranks::with_burst_ranks;
pub use spare_ranks::{burst_ranks, must_list_policies};
pub use standalone::{
    InstanceState, NewInstance, StandaloneError, StandaloneInstance, has_ranks, leased,
    ranks_to_drain, standalone_lender, standalone_pool, standalone_problem, with_claim, with_ranks,
};
pub use unreadable::{Unreadable, WhileUnreadable, while_unreadable};
pub use unserved::unserved_status;
pub use usage::{RawStatus, day, record_finished, two_decimals, used_today, with_finished};
