//! Queues and the jobs in them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Queues, and the jobs that wait in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// The queues, by name.
    pub queues: Vec<Queue>,
    /// The jobs that wait, by queue and place; those without a queue last.
    pub pending: Vec<WaitingJob>,
}

/// Queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {
    /// The queues, by name.
    pub items: Vec<Queue>,
}

/// A queue: a FluxSetup and what is used of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// The FluxSetup's namespace.
    pub namespace: String,
    /// The FluxSetup's name.
    pub name: String,
    /// In which order jobs are admitted: `BestEffortFIFO`, `StrictFIFO` or `Backfill`.
    pub strategy: String,
    /// Quota and use of each resource; empty where nothing is limited.
    pub resources: Vec<ResourceUse>,
    /// How many jobs wait.
    pub pending: usize,
    /// How many jobs have quota.
    pub admitted: usize,
    /// Whether it admits jobs.
    pub active: bool,
    /// Why it does not, in one word; `Active` if it does.
    pub reason: String,
    /// Why it does not, for people.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub message: String,
}

/// Quota and use of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceUse {
    /// The resource, such as `nodes` or `cpu`.
    pub name: String,
    /// How much is in use, as a Kubernetes quantity.
    pub used: String,
    /// How much there is, as a Kubernetes quantity.
    pub quota: String,
}

/// A page of the jobs that wait in a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingJobs {
    /// How many wait in all.
    pub total: usize,
    /// Those that were asked for, in the order in which they are looked at.
    pub items: Vec<WaitingJob>,
}

/// A job that waits for quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingJob {
    /// `FluxJob`, or `MiniCluster` for one that names a queue itself.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The queue it waits in, as `namespace/name`; unset if there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queue: Option<String>,
    /// How many of its queue come before it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub position: Option<usize>,
    /// Its priority.
    pub priority: i32,
    /// How many nodes it asks for.
    pub size: u32,
    /// All that it asks for, as Kubernetes quantities.
    pub asks: BTreeMap<String, String>,
    /// Why it waits, in one word.
    pub reason: String,
    /// Why it waits, for people.
    pub message: String,
    /// Since when it waits, in seconds since 1970.
    pub since: i64,
}

/// How a job stands, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// `FluxJob` or `MiniCluster`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How it stands.
    pub state: WhyState,
    /// What it asks for, or was given, for people.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub asks: String,
    /// Its queue and that queue's strategy.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub queue: String,
    /// Where it stands in its queue.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub position: Option<Place>,
    /// Why, in one word.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub message: String,
    /// How much is missing.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub missing: String,
    /// How far the cluster is that it has quota for.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub cluster: String,
    /// Jobs whose end would make room for it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub freed_by: Vec<String>,
    /// How far this can be trusted.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// How a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhyState {
    /// It waits for quota.
    #[default]
    Waiting,
    /// There is room for it, and it is about to be admitted.
    Admissible,
    /// It has quota.
    Admitted,
    /// It cannot be queued as it is.
    Refused,
    /// It has ended.
    Ended,
}

/// Where a job stands in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// How many come before it.
    pub place: usize,
    /// How many wait there.
    pub pending: usize,
}
