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
use crate::unset::is_unset;

/// The form of a queue's name: `name`, or `namespace/name`.
pub(crate) const QUEUE_NAME_PATTERN: &str =
    r"^$|^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";

/// Refuses a setup that names itself in `replaces`, unless it is stored like that already.
/// The API server evaluates a rule at the root of an object on every write of its status or
/// finalizers too, and the operator must be able to write those: to report what is wrong, and
/// to let the setup be deleted.
///
/// The lists are compared as a whole, because the API server cannot estimate the cost of
/// searching a list of `oldSelf`.
fn forbid_self_replacement() -> Rule {
    Rule::new(
        "!has(self.spec.replaces) || !(self.metadata.name in self.spec.replaces) || \
         (oldSelf.hasValue() && has(oldSelf.value().spec.replaces) && \
          self.spec.replaces == oldSelf.value().spec.replaces)",
    )
    .optional_old_self(true)
    .message("a setup cannot replace itself: remove its name from replaces")
    .field_path(".spec.replaces")
}

/// A queue of FluxJobs and MiniClusters, and the quota they share.
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
    doc = "A queue: the quota that its jobs share, and the order in which they are admitted.",
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.queueingStrategy",
        description = "The order in which jobs are admitted"
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
        description = "Jobs waiting for quota"
    ),
    printcolumn(
        name = "Admitted",
        type_ = "integer",
        json_path = ".status.admittedWorkloads",
        description = "Jobs that have quota"
    ),
    printcolumn(
        name = "Used",
        type_ = "string",
        json_path = ".status.usage",
        description = "Quota in use, and in total"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = forbid_self_replacement()
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.quota) || self.quota.all(r, r in ['nodes', 'pods', 'cpu', 'memory', 'gpus'] || r.contains('/'))")
        .message("quota counts nodes, pods, cpu, memory, gpus, or a resource of the cluster by its full name, such as nvidia.com/gpu")
        .field_path(".quota"),
    validation = Rule::new("!has(self.maxSize) || !has(self.miniCluster) || !has(self.miniCluster.size) || self.miniCluster.size <= self.maxSize")
        .message("miniCluster.size must be at most maxSize: jobs without a size could not run")
        .field_path(".miniCluster.size"),
    validation = Rule::new("!has(self.maxSize) || !has(self.max__dash__size) || self.maxSize == self.max__dash__size")
        .message("max-size is the old name of maxSize: keep one of them")
        .field_path(".maxSize")
)]
pub struct FluxSetupSpec {
    /// The quota that all jobs of the queue share: nodes (brokers), pods, cpu, memory,
    /// gpus, or any resource by its full name. A resource that is not listed is not limited.
    /// Without quota and quotaFromNodes, the quota is maxSize nodes.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "quantities", extend("maxProperties" = 16))]
    pub quota: BTreeMap<String, Quantity>,

    /// Take the quota from the capacity of the existing nodes, less what pods outside of
    /// the queue request. If quota is set too, the lesser amount applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_from_nodes: Option<NodeQuota>,

    /// Largest size of one job. Unset: limited by the quota only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_size: Option<i32>,

    /// Defaults for jobs that do not set these fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mini_cluster: Option<JobDefaults>,

    /// Namespaces whose jobs may use the queue, besides its own. It has an effect only for
    /// a setup in the operator's namespace. Unset: none; `{}`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<LabelSelector>")]
    pub namespace_selector: Option<LabelSelector>,

    /// The order in which jobs are admitted. Unset: BestEffortFIFO.
    #[serde(default)]
    pub queueing_strategy: QueueingStrategy,

    /// Seconds for which later jobs may overtake a job that does not fit, before quota is
    /// reserved for it (BestEffortFIFO). Unset: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub patience_seconds: Option<i32>,

    /// Stop the queue. Hold admits no more jobs; HoldAndDrain also evicts the jobs that
    /// are admitted.
    #[serde(default)]
    pub stop_policy: StopPolicy,

    /// What happens to admitted jobs when the quota is lowered below what they use:
    /// Drain lets them finish; Evict evicts the youngest.
    #[serde(default)]
    pub over_quota: OverQuota,

    /// Seconds within which the brokers of an admitted job must reach their quorum. A job
    /// that does not is evicted and waits again. Unset or 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ready_timeout_seconds: Option<i32>,

    /// How long an evicted job stays out of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<RequeuePolicy>,

    /// Seconds for which a finished job is kept. Unset: it is kept until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retention_seconds: Option<i32>,

    /// Names of other setups in the same namespace that this one replaces: it takes over
    /// their waiting and running jobs, and they are deleted. While this setup is not valid,
    /// or its replaces conflicts with that of another setup, nothing is taken over or
    /// deleted.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub replaces: Vec<String>,

    /// Queues of one cohort lend each other unused quota. Not supported yet.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub cohort: String,

    /// The old name of maxSize.
    #[serde(default, rename = "max-size", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub old_max_size: Option<i32>,

    /// The old name of miniCluster.
    #[serde(default, rename = "mini-cluster", skip_serializing_if = "Option::is_none")]
    pub old_mini_cluster: Option<JobDefaults>,
}

impl FluxSetupSpec {
    /// The largest size of one job, from either name of the field.
    pub fn max_size(&self) -> Option<i32> {
        self.max_size.or(self.old_max_size)
    }

    /// Defaults for jobs, from either name of the field.
    pub fn defaults(&self) -> JobDefaults {
        self.mini_cluster.clone().or_else(|| self.old_mini_cluster.clone()).unwrap_or_default()
    }
}

/// Defaults for jobs that do not set these fields.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct JobDefaults {
    /// Size of a job without a size. Unset: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub size: Option<i32>,

    /// Image of a job without an image. Unset: `fluxrm/flux-sched:focal`.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 1024))]
    pub image: String,
}

/// The nodes whose capacity is the quota.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeQuota {
    /// Labels that a node must have. Unset or empty: all schedulable nodes.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
}

/// How long an evicted job stays out of the queue: the base, doubled with each eviction,
/// up to the maximum, with jitter.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RequeuePolicy {
    /// The first back-off, in seconds. Unset: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub base_seconds: Option<i32>,

    /// The longest back-off, in seconds. Unset: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_seconds: Option<i32>,

    /// How often a job may be requeued before it counts as failed. Unset: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
}

/// The order in which jobs are admitted. Always by priority, then by age.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueingStrategy {
    /// Later jobs may overtake a job that does not fit, for patienceSeconds.
    #[default]
    BestEffortFIFO,
    /// A job that does not fit blocks all jobs behind it.
    StrictFIFO,
    /// Later jobs may overtake a job that does not fit if they do not delay it, by their
    /// maxRuntimeSeconds.
    Backfill,
}

/// Whether a queue is stopped.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopPolicy {
    /// It is not stopped.
    #[default]
    None,
    /// It admits no more jobs.
    Hold,
    /// It admits no more jobs and evicts those that are admitted.
    HoldAndDrain,
}

/// What happens to jobs beyond a lowered quota.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OverQuota {
    /// They run until they finish.
    #[default]
    Drain,
    /// The youngest jobs of the lowest priority are evicted.
    Evict,
}
