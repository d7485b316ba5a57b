//! `status` of a BurstPolicy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::embedded_list;
use crate::unset::is_unset;

/// The observed state of a BurstPolicy. Written by the burst controller only.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BurstPolicyStatus {
    /// MiniClusters that it serves.
    #[serde(default)]
    pub clusters: i32,

    /// Jobs of these MiniClusters that wait and that it selects.
    #[serde(default)]
    pub pending_jobs: i32,

    /// Bursts that it has created and that exist.
    #[serde(default)]
    pub bursts: i32,

    /// Nodes of these bursts.
    #[serde(default)]
    pub nodes: i32,

    /// What its bursts have used today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<DayUsage>,

    /// Answers for jobs that wait: the first 50, in the order of their queue. `kubectl minicluster
    /// why --job` has them for all.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub jobs: Vec<JobAnswer>,

    /// The generation of the spec that this status is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions, one for each type: Accepted, Active.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<Condition>")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What bursts of a policy have used on one day.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DayUsage {
    /// The day, in UTC, such as 2026-05-04.
    pub day: String,

    /// Node-hours, with two decimals.
    pub node_hours: String,

    /// Cost, with two decimals.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub cost: String,

    /// Record: what bursts have used that no longer exist.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub finished: Vec<FinishedBurst>,
}

/// What a burst had used on a day when it was given back.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FinishedBurst {
    /// Its uid.
    pub uid: String,

    /// Seconds of all its nodes together.
    pub node_seconds: i64,

    /// Price of a node for an hour.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub price: String,
}

/// Why nodes were or were not requested for a job that waits.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct JobAnswer {
    /// The MiniCluster in whose instance it waits.
    pub cluster: String,

    /// Its Flux job id.
    pub id: String,

    /// The answer, in one word.
    pub reason: String,

    /// The answer, in a sentence.
    pub message: String,
}
