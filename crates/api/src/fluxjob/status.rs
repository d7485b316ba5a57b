//! `status` of a FluxJob, and the admission record that MiniClusters in a queue have too.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::{embedded_list, quantities, time};
use crate::unset::unset;

/// What is true of a FluxJob. Written by the operator only.
///
/// `admission`, `requeue` and `finishTime` are records: they are read back when the
/// operator starts. Everything else is told anew from them, the spec and the
/// MiniCluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
// Always written as a whole, so owned as a whole: else the API server keeps an account of who
// set which field, which is as large again as the status.
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct FluxJobStatus {
    /// What the job is doing, in one word, for people: Requested, Waiting, Ready,
    /// Running, Finished, Failed, Evicted or Suspended.
    #[serde(default, skip_serializing_if = "unset")]
    pub phase: String,

    /// Why it waits or failed, in one word.
    #[serde(default, skip_serializing_if = "unset")]
    pub reason: String,

    /// The job's id: its name and the beginning of its uid.
    #[serde(default, skip_serializing_if = "unset")]
    pub jobid: String,

    /// The FluxSetup it waits at or was admitted by, as `namespace/name`.
    #[serde(default, skip_serializing_if = "unset")]
    pub queue: String,

    /// Record: the room that the queue has given it. Unset while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,

    /// Record: how often it lost its room, and until when it stays out of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<Requeue>,

    /// When the command was first seen to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub start_time: Option<Time>,

    /// Record: when the job ended, well or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub finish_time: Option<Time>,

    /// Exit code of the command, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,

    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The truth in detail, one entry per condition type.
    #[serde(default, skip_serializing_if = "unset")]
    #[schemars(schema_with = "embedded_list::<Condition>")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Room that a queue has given. It is written once, by one request, and counts
/// against the quota until the job has ended.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The FluxSetup that gave it, as `namespace/name`.
    pub queue: String,

    /// Nodes given; fewer than asked for when the job was admitted in part.
    pub size: i32,

    /// What is taken from the quota.
    #[serde(default, skip_serializing_if = "unset")]
    #[schemars(schema_with = "quantities")]
    pub resources: BTreeMap<String, Quantity>,

    /// When it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub time: Option<Time>,

    /// Why it is taken back, in one word. It counts until the job's MiniCluster is gone.
    #[serde(default, skip_serializing_if = "unset")]
    pub leaving: String,
}

/// What is remembered of a job that lost its room.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Requeue {
    /// How often it lost its room for a reason that calls for a back-off.
    #[serde(default)]
    pub count: i32,

    /// When it last lost its room; it waits as of then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub since: Option<Time>,

    /// Until when it is not admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub until: Option<Time>,
}
