//! `spec` of a FluxSetup.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Rule;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FluxSetupStatus;
use crate::embedded::{embedded, quantities};
use crate::unset::unset;

/// How a queue is named: `name`, or `namespace/name`.
pub(crate) const NAME_PATTERN: &str =
    r"^$|^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";

/// A setup that names itself in `replaces` is refused, unless it is stored like that
/// already: a rule at the root of an object is asked again whenever its status or its
/// finalizers are written, and those must be written to say what is wrong and to let it be
/// deleted.
///
/// The lists are compared as a whole, because the API server cannot estimate what it costs
/// to search one of `oldSelf`.
fn replaces_itself() -> Rule {
    Rule::new(
        "!has(self.spec.replaces) || !(self.metadata.name in self.spec.replaces) || \
         (oldSelf.hasValue() && has(oldSelf.value().spec.replaces) && \
          self.spec.replaces == oldSelf.value().spec.replaces)",
    )
    .optional_old_self(true)
    .message("a setup cannot replace itself: remove its name from replaces")
    .field_path(".spec.replaces")
}

/// A queue of FluxJobs and MiniClusters, and the room they share.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "flux-framework.org",
    version = "v1alpha2",
    kind = "FluxSetup",
    plural = "fluxsetups",
    singular = "fluxsetup",
    shortname = "fs",
    category = "flux",
    namespaced,
    status = "FluxSetupStatus",
    derive = "PartialEq",
    doc = "A queue: how much room its jobs share, and in which order they get it.",
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.queueingStrategy",
        description = "The order of the queue"
    ),
    printcolumn(
        name = "Active",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Active')].status",
        description = "Whether it admits jobs"
    ),
    printcolumn(
        name = "Pending",
        type_ = "integer",
        json_path = ".status.pendingWorkloads",
        description = "Jobs that wait"
    ),
    printcolumn(
        name = "Admitted",
        type_ = "integer",
        json_path = ".status.admittedWorkloads",
        description = "Jobs that have room"
    ),
    printcolumn(
        name = "Used",
        type_ = "string",
        json_path = ".status.usage",
        description = "Room in use, of the quota"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = replaces_itself()
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.quota) || self.quota.all(r, r in ['nodes', 'pods', 'cpu', 'memory', 'gpus'] || r.contains('/'))")
        .message("quota counts nodes, pods, cpu, memory, gpus, or a resource of the cluster by its full name, such as nvidia.com/gpu")
        .field_path(".quota"),
    validation = Rule::new("!has(self.maxSize) || !has(self.miniCluster) || !has(self.miniCluster.size) || self.miniCluster.size <= self.maxSize")
        .message("miniCluster.size must be at most maxSize, or no job without a size could run")
        .field_path(".miniCluster.size"),
    validation = Rule::new("!has(self.maxSize) || !has(self.max__dash__size) || self.maxSize == self.max__dash__size")
        .message("max-size is the older word for maxSize: keep one of them")
        .field_path(".maxSize")
)]
pub struct FluxSetupSpec {
    /// The room that all jobs of the queue share: nodes (brokers), pods, cpu, memory,
    /// gpus, or any resource by its full name. What is not listed is not limited.
    /// Without quota and quotaFromNodes, maxSize nodes are the room.
    #[serde(default, skip_serializing_if = "unset")]
    #[schemars(schema_with = "quantities", extend("maxProperties" = 16))]
    pub quota: BTreeMap<String, Quantity>,

    /// Take the room from the nodes that are there: what pods outside of the queue
    /// leave of them. With quota, the lesser counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_from_nodes: Option<NodeQuota>,

    /// Largest size of one job. Unset: no limit but the quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_size: Option<i32>,

    /// What a job gets that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mini_cluster: Option<JobDefaults>,

    /// Namespaces whose jobs may use the queue, besides its own. It counts only for a
    /// setup in the operator's namespace. Unset: none; `{}`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<LabelSelector>")]
    pub namespace_selector: Option<LabelSelector>,

    /// In which order jobs get room. Unset: BestEffortFIFO.
    #[serde(default)]
    pub queueing_strategy: QueueingStrategy,

    /// Seconds that a job which does not fit lets others pass, before room is kept
    /// for it (BestEffortFIFO). Unset: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub patience_seconds: Option<i32>,

    /// Stop the queue. Hold admits nothing more; HoldAndDrain also takes the room
    /// back from jobs that have it.
    #[serde(default)]
    pub stop_policy: StopPolicy,

    /// What happens to jobs that have room when the quota becomes less than they use:
    /// Drain lets them end; Evict sends the youngest back to wait.
    #[serde(default)]
    pub over_quota: OverQuota,

    /// Seconds in which an admitted job's brokers must reach their quorum, else it
    /// gives its room back and waits again. Unset or 0: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ready_timeout_seconds: Option<i32>,

    /// How long a job that lost its room stays out of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<RequeuePolicy>,

    /// Seconds for which a finished job is kept. Unset: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retention_seconds: Option<i32>,

    /// Names of other setups of the same namespace that this one replaces: it takes
    /// their jobs over, waiting and running, and they are deleted. While this setup
    /// is not valid, or its replaces contradicts that of another, nothing is taken
    /// over or deleted.
    #[serde(default, skip_serializing_if = "unset")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub replaces: Vec<String>,

    /// Queues of one cohort lend each other unused room. Not supported yet.
    #[serde(default, skip_serializing_if = "unset")]
    #[schemars(length(max = 253))]
    pub cohort: String,

    /// The older word for maxSize.
    #[serde(default, rename = "max-size", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub old_max_size: Option<i32>,

    /// The older word for miniCluster.
    #[serde(default, rename = "mini-cluster", skip_serializing_if = "Option::is_none")]
    pub old_mini_cluster: Option<JobDefaults>,
}

impl FluxSetupSpec {
    /// The largest size of one job, by either name of the field.
    pub fn max_size(&self) -> Option<i32> {
        self.max_size.or(self.old_max_size)
    }

    /// What a job gets that does not say, by either name of the field.
    pub fn defaults(&self) -> JobDefaults {
        self.mini_cluster.clone().or_else(|| self.old_mini_cluster.clone()).unwrap_or_default()
    }
}

/// What a job gets that does not say.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct JobDefaults {
    /// Size of a job that has none. Unset: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub size: Option<i32>,

    /// Image of a job that has none. Unset: `fluxrm/flux-sched:focal`.
    #[serde(default, skip_serializing_if = "unset")]
    #[schemars(length(max = 1024))]
    pub image: String,
}

/// Which nodes make the room.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeQuota {
    /// Labels of the nodes. Unset or empty: all that pods can be scheduled to.
    #[serde(default, skip_serializing_if = "unset")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
}

/// How long a job that lost its room stays out of the queue: base, then twice as
/// long each time, up to the maximum, with a little chance.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RequeuePolicy {
    /// The first time, in seconds. Unset: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub base_seconds: Option<i32>,

    /// At most, in seconds. Unset: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_seconds: Option<i32>,

    /// How often a job may wait again before it counts as failed. Unset: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
}

/// In which order jobs get room. Always by priority, then by age.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueingStrategy {
    /// A job that does not fit lets those behind it pass, for patienceSeconds.
    #[default]
    BestEffortFIFO,
    /// A job that does not fit holds up all behind it.
    StrictFIFO,
    /// A job that does not fit lets those pass that do not delay it, as their
    /// maxRuntimeSeconds shows.
    Backfill,
}

/// Whether a queue is stopped.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopPolicy {
    /// It runs.
    #[default]
    None,
    /// It admits nothing more.
    Hold,
    /// It admits nothing more and takes all room back.
    HoldAndDrain,
}

/// What happens to jobs beyond a lowered quota.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OverQuota {
    /// They end by themselves.
    #[default]
    Drain,
    /// The youngest of the lowest priority wait again.
    Evict,
}
