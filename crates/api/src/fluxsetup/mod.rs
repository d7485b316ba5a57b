//! FluxSetup: a queue with quota.

mod spec;
mod status;

pub use spec::{
    FluxSetup, FluxSetupSpec, JobDefaults, NodeQuota, OverQuota, QueueingStrategy,
    RequeuePolicy, StopPolicy,
};
pub use status::FluxSetupStatus;
