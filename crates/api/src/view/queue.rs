//! Queues and the jobs in them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Queues, and the jobs that wait in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueOverview {
    /// The queues, by name.
    pub queues: Vec<Queue>,
    /// The jobs that wait, by queue and position; those without a queue last.
    pub pending: Vec<WaitingJob>,
}

/// Queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {
    /// The queues, by name.
    pub items: Vec<Queue>,
}

/// A queue: a FluxSetup and its usage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// The FluxSetup's namespace.
    pub namespace: String,
    /// The FluxSetup's name.
    pub name: String,
    /// The order in which jobs are admitted: `BestEffortFIFO`, `StrictFIFO` or `Backfill`.
    pub strategy: String,
    /// Quota and usage of each resource; empty if nothing is limited.
    pub resources: Vec<ResourceUse>,
    /// Number of jobs that wait.
    pub pending: usize,
    /// Number of jobs that have quota.
    pub admitted: usize,
    /// Whether it admits jobs.
    pub active: bool,
    /// Why it does not, in one word; `Active` if it does.
    pub reason: String,
    /// Why it does not, as a sentence.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub message: String,
}

/// Quota and usage of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceUse {
    /// The resource, such as `nodes` or `cpu`.
    pub name: String,
    /// The amount in use, as a Kubernetes quantity.
    pub used: String,
    /// The total amount, as a Kubernetes quantity.
    pub quota: String,
}

/// A page of the jobs that wait in a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingJobs {
    /// Number of jobs that wait, on all pages.
    pub total: usize,
    /// The jobs of this page, in the order in which they are considered.
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
    /// Number of jobs of its queue that are ahead of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub position: Option<usize>,
    /// Its priority.
    pub priority: i32,
    /// Number of nodes it requests.
    pub size: u32,
    /// All that it requests, as Kubernetes quantities.
    pub asks: BTreeMap<String, String>,
    /// Why it waits, in one word.
    pub reason: String,
    /// Why it waits, as a sentence.
    pub message: String,
    /// Since when it waits, in seconds since 1970.
    pub since: i64,
}

/// The state of a job in its queue, and the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobExplanation {
    /// `FluxJob` or `MiniCluster`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: AdmissionState,
    /// What it requests, or was granted, as text.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub asks: String,
    /// Its queue and that queue's strategy.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub queue: String,
    /// Its position in the queue.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub position: Option<QueuePosition>,
    /// The reason, in one word.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
    /// The reason, as a sentence.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub message: String,
    /// How much quota is missing.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub missing: String,
    /// The state of the MiniCluster, of a job that has quota.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub cluster: String,
    /// Jobs that would free enough quota by finishing.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub freed_by: Vec<String>,
    /// Notes on how reliable this information is.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// The state of a job in its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdmissionState {
    /// It waits for quota.
    #[default]
    Waiting,
    /// Quota is available, and it is about to be admitted.
    Admissible,
    /// It has quota.
    Admitted,
    /// It cannot be queued as it is.
    Refused,
    /// It has finished.
    Ended,
}

/// The position of a job in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueuePosition {
    /// Number of jobs ahead of it.
    pub place: usize,
    /// Number of jobs that wait in the queue.
    pub pending: usize,
}
