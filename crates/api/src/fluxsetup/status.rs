//! `status` of a FluxSetup.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::{embedded_list, quantities};
use crate::unset::is_unset;

/// The observed state of a FluxSetup. Written by the operator only, from live objects.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FluxSetupStatus {
    /// The effective quota, by resource: spec.quota, the nodes, or the lesser of both.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "quantities")]
    pub room: BTreeMap<String, Quantity>,

    /// The quota that admitted jobs use, by resource.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "quantities")]
    pub used: BTreeMap<String, Quantity>,

    /// Usage and quota of the first resource, such as 3/4 nodes, as text.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub usage: String,

    /// Nodes in use; the old name of used.nodes.
    #[serde(default)]
    pub used_resources: i32,

    /// Jobs that wait.
    #[serde(default)]
    pub pending_workloads: i32,

    /// Jobs that have quota.
    #[serde(default)]
    pub admitted_workloads: i32,

    /// MiniClusters of admitted jobs whose command is running.
    #[serde(default)]
    pub running_workloads: i32,

    /// The generation of the spec that this status is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions, one for each type: Active.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<Condition>")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
