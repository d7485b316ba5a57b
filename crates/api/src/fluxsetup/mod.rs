//! FluxSetup: a queue with quota.

mod spec;
mod status;

pub(crate) use spec::QUEUE_NAME_PATTERN;
pub use spec::{
    FluxSetup, FluxSetupSpec, JobDefaults, NodeQuota, OverQuota, QueueingStrategy, RequeuePolicy,
    StopPolicy,
};
pub use status::FluxSetupStatus;
