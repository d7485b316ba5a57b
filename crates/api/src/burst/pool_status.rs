//! `status` of a Burst.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::BurstRun;
use crate::embedded::embedded_list;
use crate::unset::is_unset;

/// The observed state of a Burst. Written by the burst controller only.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BurstStatus {
    /// What it is doing, or why it waits, in one word, for display. Programs should read the
    /// conditions.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub phase: String,

    /// Nodes that have joined, and those that are requested, such as 1/2.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub ready: String,

    /// Ranks that are leased for it, in the order of its pods.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub ranks: String,

    /// Nodes that have joined.
    #[serde(default)]
    pub online: i32,

    /// Jobs that run on its nodes.
    #[serde(default)]
    pub jobs: i32,

    /// Record: the name of everything that is created for it: at the target, and of its invitation.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub object_name: String,

    /// Record: a hash of the server and the namespace where its objects are.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub place: String,

    /// Record: a program was asked to make a Kubernetes cluster for it, and has not deleted it yet.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub cluster_made: bool,

    /// Record: uid of the MiniCluster that it was started for.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub cluster_uid: String,

    /// Record: seconds of all its nodes together, up to `counted`.
    #[serde(default)]
    pub node_seconds: i64,

    /// Record: of these, those of the day of `counted`, in UTC.
    #[serde(default)]
    pub node_seconds_today: i64,

    /// Record: until when nodeSeconds are counted.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub counted: String,

    /// Record: nodes that are counted from then on.
    #[serde(default)]
    pub counted_nodes: i32,

    /// Node-hours, with two decimals.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub node_hours: String,

    /// Cost by the target's price, with two decimals.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub cost: String,

    /// Record: when one of its nodes had joined for the first time.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub joined_at: String,

    /// Record: since when no job has run on its nodes.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub idle_since: String,

    /// Record: since when it is given back.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub giving_back_since: String,

    /// The run of its job, of a Burst with isolatedJob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<BurstRun>,

    /// Record: how often the target has failed in a row.
    #[serde(default)]
    pub failures: i32,

    /// Record: when the target is tried again after a failure.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub retry_at: String,

    /// The generation of the spec that this status is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions, one for each type: TargetReady, CredentialsAccepted, Prepared, Joined, Ready,
    /// GivingBack; with isolatedJob, Finished instead of Joined and Ready.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<Condition>")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
