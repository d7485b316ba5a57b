//! `status`: the observed state of a MiniCluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::embedded_list;
use crate::fluxjob::Admission;
use crate::unset::is_unset;

/// The observed state of a MiniCluster. Written by the operator only.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MiniClusterStatus {
    /// What the cluster is doing, in one word, for display. Programs should read the
    /// conditions.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub phase: String,

    /// Brokers online, and the requested size, such as 3/4.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub ready: String,

    /// Brokers online that do not belong to this cluster's own Job, such as those of a pool.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub joined: i32,

    /// Exit code of the command, once it has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,

    /// Number of pods, for the scale subresource.
    #[serde(default)]
    pub size: i32,

    /// Labels of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub selector: String,

    /// Largest size that the cluster can grow to: the number of host names registered
    /// when it booted.
    #[serde(default)]
    pub maximum_size: i32,

    /// The Flux job id of the command. Unset if the command is not a single job: in an
    /// interactive cluster, and for a launcher.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub jobid: String,

    /// Record: the quota that the queue has granted. Unset while it waits, and for a
    /// MiniCluster that names no queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,

    /// The generation of the spec that this status is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions, one for each type.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<Condition>")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
