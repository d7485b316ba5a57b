//! A target in Google Kubernetes Engine.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::unset::is_unset;

/// A cluster of Google Kubernetes Engine, with one node pool.
///
/// A program makes it, as a Job of the policy's namespace. It acts as a Google service account: the one to
/// which Workload Identity binds the ServiceAccount, or the one of a key in a Secret.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.labels) || !('flux-framework-org-burst' in self.labels)")
        .message("the label flux-framework-org-burst is set by the burst controller: remove it")
)]
pub struct GkeTarget {
    /// The project.
    #[schemars(length(min = 6, max = 30), regex(pattern = r"^[a-z][-a-z0-9]*[a-z0-9]$"))]
    pub project: String,

    /// The zone, such as us-central1-a. A region has its nodes in several zones, with slow links between
    /// them.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z]+(-[a-z]+)+[0-9]+-[a-z]$"))]
    pub location: String,

    /// The machine type of its nodes, such as c3-standard-8.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z][-a-z0-9]*$"))]
    pub machine_type: String,

    /// The ServiceAccount of the program. It must be allowed to create and patch Secrets of the namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub service_account: String,

    /// The key of a Google service account. Unset: the program acts as the one to which Workload Identity
    /// binds the ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<GkeCredentials>,

    /// The Google service account of the nodes, as an email address. Unset: that of Compute Engine, which
    /// may have more rights than nodes need.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 254), regex(pattern = r"^$|^[^@\s]+@[^@\s]+$"))]
    pub node_service_account: String,

    /// The size of a node's disk, in GB. Unset or 0: Google's default.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 65_536))]
    pub disk_size_gb: i32,

    /// Spot VMs: cheaper, and Google may take them back at any time.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub spot: bool,

    /// The network, by its name or path. Unset: default.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub network: String,

    /// The subnetwork, by its name or path. Unset: that of the network in the region.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub subnetwork: String,

    /// The version of Kubernetes, such as 1.34 or 1.34.1-gke.100. Unset: the default of the release
    /// channel.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(
        length(max = 64),
        regex(pattern = r"^$|^[0-9]+\.[0-9]+(\.[0-9]+)?(-gke\.[0-9]+)?$")
    )]
    pub version: String,

    /// The release channel. Unset: Google's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_channel: Option<GkeReleaseChannel>,

    /// Labels of the cluster and its machines in Google Cloud, such as for bills.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,

    /// Namespace in the new cluster. It is created there. Unset: default.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
}

/// The key of a Google service account, in a Secret of the policy's namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GkeCredentials {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret: String,

    /// The key of the Secret, whose value is the JSON file that Google gives. Unset: key.json.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub key: String,
}

/// How soon a cluster gets new versions.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum GkeReleaseChannel {
    /// As soon as they exist.
    Rapid,
    /// Some months later.
    Regular,
    /// Later still.
    Stable,
    /// As Regular, with longer support.
    Extended,
}
