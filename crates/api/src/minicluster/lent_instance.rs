//! `spec.flux.bursting.leadBroker.instance`: the instance of another Kubernetes cluster, as its
//! invitation describes it.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::unset::is_unset;

/// An instance whose ranks were lent by an invitation. It has no secret: the certificate and the
/// invitation's key are in the Secret that `curveCertSecret` names.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LentInstance {
    /// Name of the invitation.
    #[schemars(length(max = 63))]
    pub invitation: String,

    /// Uid of the MiniCluster that lends the ranks.
    #[schemars(length(max = 63))]
    pub cluster: String,

    /// When the invitation ends.
    #[schemars(
        length(max = 40),
        regex(
            pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
        )
    )]
    pub expires: String,

    /// The ranks, in the order of this cluster's pods.
    #[schemars(length(max = 65_536))]
    pub ranks: String,

    /// Hash of the rank table.
    #[schemars(length(max = 128))]
    pub table: String,

    /// Every host of the instance, in rank order.
    #[schemars(length(min = 1, max = 1024))]
    pub hosts: Vec<LentHosts>,

    /// Shape of the tree of brokers.
    #[schemars(length(max = 63))]
    pub topology: String,

    /// The lender's configuration, as TOML, without the hosts.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 262_144))]
    pub config: String,

    /// Use Flux's simple scheduler, as the lender does.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub simple_scheduler: bool,

    /// What the lender's lead has, and the brokers that join must agree with.
    pub lead: LentLead,

    /// The lead is exposed without a gateway that could be asked for permission.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub direct: bool,
}

/// Consecutive hosts of an instance.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LentHosts {
    /// The hosts, in Flux's hostlist form.
    #[schemars(length(max = 65_536))]
    pub hosts: String,

    /// Their property, by which jobs select them.
    #[schemars(length(max = 63))]
    pub property: String,

    /// Cores of each.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 65_536))]
    pub cores: i32,

    /// GPUs of each.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 1024))]
    pub gpus: i32,
}

/// What a lead has.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LentLead {
    /// Its version of Flux.
    #[schemars(length(max = 128))]
    pub version: String,

    /// The user that it runs as.
    #[schemars(range(min = 0))]
    pub user: i64,

    /// The cores that jobs may use.
    #[schemars(range(min = 0, max = 65_536))]
    pub cores: i32,
}
