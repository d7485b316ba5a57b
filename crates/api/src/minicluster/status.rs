//! `status`: the observed state of a MiniCluster.

use flux_operator_flux::RankList;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::joining::name_in;
use super::{External, InvitationLease};
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

    /// Ranks of the instance whose brokers are online, such as 0-3. Empty while the lead does not
    /// report.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub online: String,

    /// Record: which ranks of this cluster's instance are leased to brokers of other MiniClusters.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub leases: Vec<Lease>,

    /// Where brokers of other Kubernetes clusters reach this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,

    /// The MiniCluster whose Flux instance this one's brokers join, with its namespace if that is
    /// another one.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub lender: String,

    /// Ranks that this cluster's brokers have in the lender's instance, in the order of its pods.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub ranks: String,

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

/// Ranks of an instance that only the brokers of one other MiniCluster, or of an invitation, may use.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The ranks, in the order of the holder's pods.
    pub ranks: String,

    /// Uid of the MiniCluster that holds them. That of an invitation is `invitation:`, its name and
    /// its end.
    pub holder: String,

    /// The holder's namespace; of an invitation, that of this cluster.
    pub namespace: String,

    /// The holder's name.
    pub name: String,

    /// Hash of the rank table that the ranks belong to.
    pub table: String,

    /// When its state or its ranks last changed.
    pub since: String,

    /// What the holder may do.
    pub state: LeaseState,

    /// Set if it is the lease of an invitation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invitation: Option<InvitationLease>,
}

impl Lease {
    /// The ranks; none if they cannot be parsed.
    pub fn rank_list(&self) -> RankList {
        self.ranks.parse().unwrap_or_default()
    }

    /// The holder as it is shown in `namespace`.
    pub fn holder_in(&self, namespace: &str) -> String {
        name_in(namespace, &self.namespace, &self.name)
    }
}

/// What the holder of a lease may do.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// It may start brokers.
    Active,
    /// No broker may start any more. The ranks are drained, and free again once their pods are
    /// deleted and their brokers offline.
    Leaving,
}
