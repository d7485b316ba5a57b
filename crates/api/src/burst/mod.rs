//! BurstPolicy and Burst: brokers elsewhere for jobs that wait.

mod condition;
mod gke;
mod made_cluster;
#[expect(clippy::duplicated_attributes, reason = "each column has a type of its own")]
mod policy;
mod policy_status;
#[expect(clippy::duplicated_attributes, reason = "each column has a type of its own")]
mod pool;
mod pool_status;
mod run;
mod target;

pub use condition::BurstConditionType;
pub use gke::{GkeCredentials, GkeReleaseChannel, GkeTarget};
pub use made_cluster::{
    ClusterApiTarget, ClusterClassReference, ClusterTemplate, CommandTarget, JsonText,
};
pub use policy::{
    BurstLimits, BurstPolicy, BurstPolicySpec, BurstWhen, GiveBack, JobMatch, JobSelection,
};
pub use policy_status::{BurstPolicyStatus, DayUsage, FinishedBurst, JobAnswer};
pub use pool::{Burst, BurstSpec, MIN_IDLE_SECONDS};
pub use pool_status::BurstStatus;
pub use run::{BurstRun, RunState};
pub use target::{
    BurstTarget, ClusterTarget, KubeconfigTarget, MockFailure, MockTarget, Scaling, TargetKind,
    TargetPods,
};
