//! `spec.pod`: settings of the pods as a whole.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, HostAlias, PodDNSConfig, PodResourceClaim, PodSecurityContext, Toleration,
    TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::{embedded, embedded_list, quantities};
use crate::unset::is_unset;

/// Settings of the pods as a whole.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// Annotations of the pods.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub annotations: BTreeMap<String, String>,

    /// Labels of the pods, in addition to the operator's own.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub labels: BTreeMap<String, String>,

    /// Whether the kubelet restarts a container that failed. Unset: never, so that
    /// a failed command is reported and not run again.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub restart_policy: PodRestartPolicy,

    /// Service account of the pods.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub service_account_name: String,

    /// Give the pods a token of their service account.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub automount_service_account_token: bool,

    /// Runtime class of the pods.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub runtime_class_name: String,

    /// Scheduler of the pods. Unset: the cluster's own.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub scheduler_name: String,

    /// Priority class of the pods.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,

    /// Labels a node must have.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub node_selector: BTreeMap<String, String>,

    /// For each label, the values that a node may have. All labels must match.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_affinity: BTreeMap<String, Vec<String>>,

    /// Affinity of the pods. Each kind of affinity that is set here replaces the operator's
    /// own of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<Affinity>")]
    pub affinity: Option<Affinity>,

    /// Taints the pods tolerate.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<Toleration>")]
    pub tolerations: Vec<Toleration>,

    /// How the pods spread over zones or nodes.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<TopologySpreadConstraint>")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// Use the node's network. Pods are then placed on different nodes, because
    /// their ports would conflict.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub host_network: bool,

    /// Use the node's IPC namespace.
    #[serde(default, skip_serializing_if = "is_unset", rename = "hostIPC")]
    pub host_ipc: bool,

    /// Use the node's process namespace.
    #[serde(default, skip_serializing_if = "is_unset", rename = "hostPID")]
    pub host_pid: bool,

    /// How names are resolved in the pods.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub dns_policy: DnsPolicy,

    /// Further settings for resolving names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<PodDNSConfig>")]
    pub dns_config: Option<PodDNSConfig>,

    /// Lines for the pods' /etc/hosts.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<HostAlias>")]
    pub host_aliases: Vec<HostAlias>,

    /// Devices claimed for each pod.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<PodResourceClaim>")]
    pub resource_claims: Vec<PodResourceClaim>,

    /// Overhead of the pods, for a runtime class that declares the same overhead.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "quantities")]
    pub resources: BTreeMap<String, Quantity>,

    /// Security settings of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<PodSecurityContext>")]
    pub security_context: Option<PodSecurityContext>,

    /// Seconds between SIGTERM and SIGKILL when a pod is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub termination_grace_period_seconds: Option<i64>,
}

/// Whether the kubelet restarts a container that failed. A Job does not allow the
/// policy Always.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodRestartPolicy {
    /// Unset: never.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// When a container fails.
    OnFailure,
    /// Never: the Job decides.
    Never,
}

/// How names are resolved in the pods.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DnsPolicy {
    /// Unset: the policy that suits the pod's network.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// The cluster's DNS first.
    ClusterFirst,
    /// The cluster's DNS first, also on the node's network.
    ClusterFirstWithHostNet,
    /// As the node does.
    Default,
    /// Only as dnsConfig says.
    None,
}
