//! `status` of a FluxJob, and the admission record, which MiniClusters in a queue have too.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::{embedded_list, quantities, time};
use crate::unset::is_unset;

/// The observed state of a FluxJob. Written by the operator only.
///
/// `admission`, `requeue` and `finishTime` are records: the operator reads them back when
/// it starts. Everything else is computed again from them, the spec and the
/// MiniCluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
// Always written as a whole, so owned as a whole: otherwise the API server tracks the manager of
// every single field, which takes as much space again as the status.
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct FluxJobStatus {
    /// What the job is doing, in one word: Requested, Waiting, Ready,
    /// Running, Finished, Failed, Evicted or Suspended.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub phase: String,

    /// Why it waits or failed, in one word.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub reason: String,

    /// The job's id: its name and the beginning of its uid.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub jobid: String,

    /// The FluxSetup in whose queue it waits, or which admitted it, as `namespace/name`.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub queue: String,

    /// Record: the quota that the queue has granted. Unset while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,

    /// Record: how often it was evicted, and until when it stays out of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<Requeue>,

    /// When the command was first observed to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub start_time: Option<Time>,

    /// Record: when the job finished, successfully or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub finish_time: Option<Time>,

    /// Exit code of the command, once it has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,

    /// The generation of the spec that this status is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions, one for each type.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<Condition>")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Quota that a queue has granted. It is written in one request, and counts as used until the
/// job has finished or was evicted.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The FluxSetup that granted it, as `namespace/name`.
    pub queue: String,

    /// Number of nodes granted; fewer than requested if the job was admitted in part.
    pub size: i32,

    /// The amounts that count against the quota.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "quantities")]
    pub resources: BTreeMap<String, Quantity>,

    /// When it was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub time: Option<Time>,

    /// Why the job is being evicted, in one word. The quota counts until its MiniCluster is
    /// deleted.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub leaving: String,
}

/// What is recorded of a job that was evicted.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Requeue {
    /// How often it was evicted for a reason that requires a back-off.
    #[serde(default)]
    pub count: i32,

    /// When it was last evicted. Its age in the queue counts from then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub since: Option<Time>,

    /// The end of the back-off: until then it is not admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub until: Option<Time>,
}
