//! `spec.network`: names and placement of the pods.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::unset::is_unset;

/// Names and placement of the pods on the network.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Name of the headless Service and subdomain of the pods. Unset: the
    /// MiniCluster's name.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub headless_name: String,

    /// Do not prefer that pods are placed near each other and on different nodes.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub disable_affinity: bool,
}
