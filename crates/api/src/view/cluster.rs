//! A cluster: its brokers, ranks and jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Attributes;

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
    /// Cores of each host; 0 if they are those of the lead.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub cores: u32,
    /// GPUs of each host; unset if they are those of the lead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpus: Option<u32>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
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

/// The jobs that wait in an instance, and what runs meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceJobs {
    /// Whether the lead has listed them. It is asked to do so when they are first requested, so
    /// this is false the first time.
    pub listed: bool,
    /// A number that changes with the jobs, the ranks in use and the ranks online.
    #[serde(default)]
    pub version: u64,
    /// Ranks whose brokers are online, such as `0-3`; unset if the lead has not reported lately.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub online: Option<String>,
    /// Ranks on which a job runs; unset if not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busy: Option<String>,
    /// Drained ranks, up to 30 seconds ago; unset if not known, and while no job waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drained: Option<String>,
    /// The instance's ranks, grouped by owner.
    #[serde(default)]
    pub slots: Vec<SlotRange>,
    /// Cores of the lead's node; 0 if not known.
    #[serde(default)]
    pub lead_cores: u32,
    /// GPUs of the lead's node.
    #[serde(default)]
    pub lead_gpus: u32,
    /// Whether a job that cannot start keeps those behind it from starting, as with Flux's simple
    /// scheduler.
    #[serde(default)]
    pub stops_at_blocked: bool,
    /// Running jobs; at most 1,000.
    #[serde(default)]
    pub running: Vec<RunningInstanceJob>,
    /// The waiting jobs, in the order in which the scheduler considers them; at most 10,000.
    pub items: Vec<InstanceJob>,
}

/// A job that runs in an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningInstanceJob {
    /// Its Flux job id, as a number.
    pub id: u64,
    /// The ranks that it runs on, such as `0-3`.
    pub ranks: String,
}

/// A job that waits in an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceJob {
    /// Its Flux job id, as a number.
    pub id: u64,
    /// The id of the user who submitted it.
    #[serde(default)]
    pub user: u32,
    /// Its queue in Flux; unset if the instance has no named queues.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub queue: String,
    /// Number of nodes it requests; unset if the scheduler decides.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nodes: Option<u32>,
    /// Number of its tasks.
    pub tasks: u32,
    /// Number of cores it requests in total; unset if it requests whole nodes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores: Option<u32>,
    /// Number of GPUs it requests: on each node if its jobspec requests nodes, else in total.
    #[serde(default)]
    pub gpus: u32,
    /// When it was submitted, in seconds since 1970.
    pub submitted: u64,
    /// Its time limit in seconds; 0 if it has none.
    #[serde(default)]
    pub duration: u64,
    /// When the scheduler expects to start it, in seconds since 1970; unset if it does not know.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub estimate: Option<u64>,
    /// Whether it does not start whatever is free: its urgency is 0, or it waits for another job.
    #[serde(default)]
    pub held: bool,
    /// Whether it is held by its urgency alone.
    #[serde(default)]
    pub on_hold: bool,
    /// Its attributes, such as `burstable` and `constraints`.
    pub attributes: Attributes,
}
