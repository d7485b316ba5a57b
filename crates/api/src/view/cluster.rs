//! A cluster: its brokers, ranks and jobs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A MiniCluster as its lead sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it is doing, in one word.
    pub phase: String,
    /// Brokers online of its own Job, of the size asked for, such as `3/4`.
    pub ready: String,
    /// Brokers online that belong to others.
    pub joined: i32,
    /// Its ranks, by whose brokers they are for.
    pub slots: Vec<Slots>,
    /// How many jobs its instance has; unset before its lead has told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jobs: Option<JobCounts>,
    /// How many seconds ago its lead has reported; unset before it has.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_seconds_ago: Option<i64>,
    /// The last thing that went wrong in a broker.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub last_error: String,
}

/// Ranks that follow each other and belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slots {
    /// Whose brokers they are for: `Job` (the cluster's own), `Pool` or `Nobody` yet.
    pub owner: String,
    /// The pool's name.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub pool: String,
    /// The ranks, such as `0-3`.
    pub ranks: String,
    /// The hosts, such as `fs-[0-3]`.
    pub hosts: String,
    /// Those of the ranks whose brokers are online; unset while nobody knows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub online: Option<String>,
}

/// How many jobs an instance has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobCounts {
    /// Waiting.
    pub pending: u32,
    /// Running.
    pub running: u32,
    /// Ended.
    pub inactive: u32,
}

/// The jobs that wait in an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceJobs {
    /// Whether the lead has listed them. It is asked to when they are asked for, so that this
    /// is false the first time.
    pub listed: bool,
    /// The jobs, in the order in which the scheduler looks at them.
    pub items: Vec<InstanceJob>,
}

/// A job that waits in an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceJob {
    /// Flux's id of it, as a number.
    pub id: u64,
    /// How many nodes it asks for; unset if that is left to the scheduler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nodes: Option<u32>,
    /// How many tasks it has.
    pub tasks: u32,
    /// When it was submitted, in seconds since 1970.
    pub submitted: u64,
    /// Its attributes, such as `burstable`.
    pub attributes: BTreeMap<String, serde_json::Value>,
}
