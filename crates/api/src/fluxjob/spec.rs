//! `spec` of a FluxJob.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::FluxJobStatus;
use crate::MiniClusterSpec;
use crate::embedded::embedded;
use crate::unset::is_unset;

/// A command to run on a MiniCluster of its own, once a queue has granted quota for it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "flux-framework.org",
    version = "v1alpha2",
    kind = "FluxJob",
    plural = "fluxjobs",
    singular = "fluxjob",
    shortname = "fj",
    category = "flux",
    namespaced,
    status = "FluxJobStatus",
    derive = "PartialEq",
    doc = "A command that runs on a MiniCluster of its own, once its queue has granted quota.",
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.phase",
        description = "What the job is doing, in one word"
    ),
    printcolumn(
        name = "Queue",
        type_ = "string",
        json_path = ".status.queue",
        description = "The FluxSetup in whose queue it waits, or which admitted it"
    ),
    printcolumn(
        name = "Size",
        type_ = "integer",
        json_path = ".status.admission.size",
        description = "Number of nodes granted"
    ),
    printcolumn(
        name = "Exit",
        type_ = "integer",
        json_path = ".status.exitCode",
        description = "Exit code of the command, once it has finished"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        description = "Why it waits or failed",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must start with a lowercase letter and contain only lowercase letters, digits and '-', because a MiniCluster is named after it"),
    validation = Rule::new("self.metadata.name.size() <= 56")
        .message("metadata.name is too long: at most 56 characters are allowed, because pods are named after it and their index")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.minSize) || !has(self.size) || self.minSize <= self.size")
        .message("minSize must be at most size: it is the least the job can start with")
        .field_path(".minSize"),
    validation = Rule::new("!has(self.priorityClassName) || self.priorityClassName == '' || !has(self.priority)")
        .message("priority and priorityClassName exclude each other: keep one")
        .field_path(".priority")
)]
pub struct FluxJobSpec {
    /// Image to run in. It overrides the template's. Unset: the template's, else the
    /// setup's, else `fluxrm/flux-sched:focal`.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 1024))]
    pub image: String,

    /// The command, as typed at a shell prompt. It overrides the template's. Without
    /// any command the cluster stays up until the job is deleted.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub command: String,

    /// Number of nodes, one pod each. It overrides the template's. Unset: the
    /// template's if that is more than 1, else the setup's, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub size: Option<i32>,

    /// Fewest nodes the job can start with, if there is no quota for all. It then
    /// gets as many as fit. Unset: all or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub min_size: Option<i32>,

    /// Total number of tasks of the command. Unset: the template's if that is more
    /// than 1, else one per node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000_000))]
    pub tasks: Option<i32>,

    /// Resource requests and limits of the pod of each node. They override those of the
    /// template's runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<ResourceRequirements>")]
    pub resources: Option<ResourceRequirements>,

    /// The FluxSetup in whose queue to wait: `name` in the job's namespace or in the
    /// operator's, or `namespace/name`. Unset: the only one that serves the namespace, else
    /// the one called `default` there.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 317), regex(pattern = crate::fluxsetup::QUEUE_NAME_PATTERN))]
    pub queue: String,

    /// Jobs of higher priority come first. Unset: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1_000_000_000, max = 1_000_000_000))]
    pub priority: Option<i32>,

    /// A Kubernetes PriorityClass whose value is the job's priority in the queue.
    /// It does not apply to its pods.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,

    /// Longest time in seconds that the job may run after it was admitted. Only jobs with
    /// this limit can be backfilled. Unset or 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_runtime_seconds: Option<i64>,

    /// Do not admit the job, or evict it if it was admitted. The command starts from the
    /// beginning when this becomes false.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub suspend: bool,

    /// Keep the MiniCluster after the command has finished, for its logs. Its quota is
    /// released.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub keep_cluster: bool,

    /// Delete the job this many seconds after it has finished. Unset: the setup's
    /// retentionSeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// Name of the controller that runs the job, as `domain/name`. Unset: this
    /// operator. With any other value this operator ignores the job.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/.+$"))]
    pub managed_by: String,

    /// The MiniCluster to create, if image, command and size are not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Box<Template>>,
}

/// The MiniCluster that a FluxJob creates.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Labels of the MiniCluster.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the MiniCluster.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub annotations: BTreeMap<String, String>,

    /// Its spec. Fields of the job such as image, command and size override it; its queue,
    /// suspend, cleanup, ttlSecondsAfterFinished and maxSize are ignored.
    pub spec: MiniClusterSpec,
}
