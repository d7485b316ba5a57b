//! A cluster: its brokers, ranks and jobs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A MiniCluster as its lead reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it is doing, in one word.
    pub phase: String,
    /// Brokers of its own Job that are online, and the requested size, such as `3/4`.
    pub ready: String,
    /// Brokers online that do not belong to its own Job.
    pub joined: i32,
    /// Its ranks, grouped by owner.
    pub slots: Vec<SlotRange>,
    /// Number of jobs in its instance; unset before the first report of its lead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jobs: Option<JobCounts>,
    /// Seconds since the last report of its lead; unset before the first one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_seconds_ago: Option<i64>,
    /// The last error of a broker.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub last_error: String,
}

/// Consecutive ranks with one owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlotRange {
    /// Whose brokers they are for: `Job` (the cluster's own), `Pool`, or `Spare`.
    pub owner: String,
    /// The pool's name.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub pool: String,
    /// The ranks, such as `0-3`.
    pub ranks: String,
    /// The hosts, such as `fs-[0-3]`.
    pub hosts: String,
    /// Those of the ranks whose brokers are online; unset if not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub online: Option<String>,
}

/// Number of jobs in an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobCounts {
    /// Waiting.
    pub pending: u32,
    /// Running.
    pub running: u32,
    /// Finished.
    pub inactive: u32,
}

/// The jobs that wait in an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceJobs {
    /// Whether the lead has listed them. It is asked to do so when they are first requested, so
    /// this is false the first time.
    pub listed: bool,
    /// The jobs, in the order in which the scheduler considers them.
    pub items: Vec<InstanceJob>,
}

/// A job that waits in an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceJob {
    /// Its Flux job id, as a number.
    pub id: u64,
    /// Number of nodes it requests; unset if the scheduler decides.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nodes: Option<u32>,
    /// Number of its tasks.
    pub tasks: u32,
    /// When it was submitted, in seconds since 1970.
    pub submitted: u64,
    /// Its attributes, such as `burstable`.
    pub attributes: BTreeMap<String, serde_json::Value>,
}
