//! How queues and clusters are shown: by the operator over HTTP (`/v1`), and by
//! `kubectl minicluster -o json|yaml`.
//!
//! Data only. It is computed in the crate `plan`, and described by [`openapi`].

mod attributes;
mod cluster;
mod hand_over;
pub mod openapi;
mod queue;
mod ranks;

pub use attributes::Attributes;
pub use cluster::{Cluster, InstanceJob, InstanceJobs, JobCounts, RunningInstanceJob, SlotRange};
pub use hand_over::{HandOverGoal, HandOverRefusal, HandOverRequest, HandOverState, HandedOverJob};
pub use queue::{
    AdmissionState, JobExplanation, Queue, QueueList, QueueOverview, QueuePosition, ResourceUse,
    WaitingJob, WaitingJobs,
};
pub use ranks::{RankRange, RankState, RankTable};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of an error response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorResponse {
    /// What is wrong, and what to do about it.
    pub message: String,
}
