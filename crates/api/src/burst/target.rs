//! A target: where brokers of a burst run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterApiTarget, CommandTarget, GkeTarget};
use crate::embedded::{embedded, embedded_list};
use crate::unset::is_unset;

/// Where brokers of a burst run, and what that costs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.cluster), has(self.kubeconfig), has(self.clusterAPI), has(self.command), has(self.gke), has(self.mock)].filter(is, is).size() == 1")
        .message("a target is one of cluster, kubeconfig, clusterAPI, command, gke or mock: set exactly one of them, such as `cluster: {}`"),
    validation = Rule::new("!has(self.scaling) || self.scaling.maxNodes <= self.maxNodes")
        .message("scaling.maxNodes must be at most maxNodes, the limit of the whole target")
        .field_path(".scaling")
)]
pub struct BurstTarget {
    /// Its name, for messages and in the names of what is created there.
    #[schemars(length(min = 1, max = 20), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Largest number of nodes that all bursts of a policy have there at the same time.
    #[schemars(range(min = 1, max = 1024))]
    pub max_nodes: i32,

    /// Let a burst grow and shrink between these sizes. Unset: it keeps the size it was created
    /// with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,

    /// Cores of each node there. Unset or 0: as many as the MiniCluster's lead has. Brokers get no ranks
    /// for which the rank table has more.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 65_536))]
    pub cores: i32,

    /// GPUs of each node there. Unset: as many as the MiniCluster's lead has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub gpus: Option<i32>,

    /// Which ranks of the MiniCluster its brokers get: `spare`, or the name of a pool in
    /// flux.bursting.clusters. Unset: spare ranks first, then those of pools for which its nodes are
    /// large enough.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub ranks: String,

    /// Price of one node for an hour, such as 0.36, in the currency of limits.costPerDay. Unset: it
    /// costs nothing.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 16), regex(pattern = r"^$|^[0-9]+(\.[0-9]+)?$"))]
    pub price_per_node_hour: String,

    /// How long its nodes usually take to come up. A job that is expected to start earlier at home
    /// waits. Unset: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub startup_seconds: Option<i32>,

    /// Labels of the pods there, such as for cost centres.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 16))]
    pub labels: BTreeMap<String, String>,

    /// How the pods there are scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<TargetPods>,

    /// The Kubernetes cluster of the MiniCluster itself: another node pool, to which a cluster
    /// autoscaler may add nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterTarget>,

    /// Another Kubernetes cluster. It needs no operator and no CRDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<KubeconfigTarget>,

    /// A Kubernetes cluster that Cluster API makes for the burst, in any cloud that it knows. The
    /// administrator must allow it.
    #[serde(default, rename = "clusterAPI", skip_serializing_if = "Option::is_none")]
    pub cluster_api: Option<ClusterApiTarget>,

    /// A Kubernetes cluster that a program of yours makes for the burst. The administrator must allow
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandTarget>,

    /// A cluster of Google Kubernetes Engine that is made for the burst. The administrator must allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gke: Option<GkeTarget>,

    /// Nothing: it behaves like a target, for tests of a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mock: Option<MockTarget>,
}

/// Between which sizes a burst grows and shrinks.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.minNodes <= self.maxNodes")
        .message("scaling.minNodes must be at most scaling.maxNodes")
)]
pub struct Scaling {
    /// The size below which it does not shrink. A burst that is idle as a whole is given back all
    /// the same.
    #[schemars(range(min = 1, max = 1024))]
    pub min_nodes: i32,

    /// The size up to which it grows. At another Kubernetes cluster, as many ranks are leased when it
    /// is created.
    #[schemars(range(min = 1, max = 1024))]
    pub max_nodes: i32,
}

/// How pods of a target are scheduled.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TargetPods {
    /// Labels of the nodes on which they run.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints of nodes that they tolerate.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<Toleration>")]
    pub tolerations: Vec<Toleration>,

    /// Their PriorityClass.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,

    /// Resources of the runner. Unset: those of the MiniCluster's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<ResourceRequirements>")]
    pub resources: Option<ResourceRequirements>,

    /// Image of the runner. Unset: that of the MiniCluster's own.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 1024))]
    pub image: String,
}

/// The Kubernetes cluster of the MiniCluster itself.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTarget {}

/// Another Kubernetes cluster, by a kubeconfig in a Secret of the policy's namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigTarget {
    /// Name of the Secret. Its kubeconfig has a token, or a certificate and key, as text: one with
    /// `exec`, `auth-provider` or paths of files is refused.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret: String,

    /// The key of the Secret. Unset: kubeconfig.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub key: String,

    /// Namespace in the other cluster, which must exist. Unset: that of the kubeconfig's context,
    /// otherwise default.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
}

/// A target without brokers.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MockTarget {
    /// How long its brokers take to come up.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 86_400))]
    pub joined_after_seconds: i32,

    /// What fails there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<MockFailure>,
}

/// What fails at a mock target.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum MockFailure {
    /// It does not respond.
    Unreachable,
    /// It does not accept the credentials.
    CredentialsRefused,
    /// It has no nodes.
    OutOfCapacity,
}

/// The kind of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetKind<'a> {
    /// The MiniCluster's own Kubernetes cluster.
    Cluster,
    /// Another Kubernetes cluster.
    Kubeconfig(&'a KubeconfigTarget),
    /// One that Cluster API makes.
    ClusterApi(&'a ClusterApiTarget),
    /// One that a program makes.
    Command(&'a CommandTarget),
    /// One of Google Kubernetes Engine.
    Gke(&'a GkeTarget),
    /// Nothing.
    Mock(&'a MockTarget),
}

/// How long brokers may take to join, as a multiple of the target's usual time and in seconds beyond it.
const JOIN_FACTOR: i64 = 3;
const JOIN_MARGIN: i64 = 300;

impl BurstTarget {
    /// Its kind. The schema requires exactly one; without any, it is a mock that is unreachable.
    pub fn kind(&self) -> TargetKind<'_> {
        const NONE: &MockTarget =
            &MockTarget { joined_after_seconds: 0, failure: Some(MockFailure::Unreachable) };
        if self.cluster.is_some() {
            return TargetKind::Cluster;
        }
        let kubeconfig = self.kubeconfig.as_ref().map(TargetKind::Kubeconfig);
        let made = self.cluster_api.as_ref().map(TargetKind::ClusterApi);
        let made = made.or(self.command.as_ref().map(TargetKind::Command));
        let made = made.or(self.gke.as_ref().map(TargetKind::Gke));
        let mock = || TargetKind::Mock(self.mock.as_ref().unwrap_or(NONE));
        kubeconfig.or(made).unwrap_or_else(mock)
    }

    /// Whether its brokers run in another Kubernetes cluster, and so come through the gateway.
    pub fn is_elsewhere(&self) -> bool {
        match self.kind() {
            TargetKind::Kubeconfig(_)
            | TargetKind::ClusterApi(_)
            | TargetKind::Command(_)
            | TargetKind::Gke(_) => true,
            TargetKind::Cluster | TargetKind::Mock(_) => false,
        }
    }

    /// Whether a program makes its cluster, of which only the program knows whether it exists.
    pub fn is_made_by_program(&self) -> bool {
        match self.kind() {
            TargetKind::Command(_) | TargetKind::Gke(_) => true,
            TargetKind::Cluster | TargetKind::Kubeconfig(_) => false,
            TargetKind::ClusterApi(_) | TargetKind::Mock(_) => false,
        }
    }

    /// Whether ranks for the largest size of a burst are leased when it is created. A joiner leases
    /// those of its present size instead.
    pub fn leases_largest_size(&self) -> bool {
        !matches!(self.kind(), TargetKind::Cluster)
    }

    /// How long its nodes take to come up.
    pub fn startup_seconds(&self) -> i64 {
        i64::from(self.startup_seconds.unwrap_or(60))
    }

    /// How long its brokers may take to join.
    pub fn join_seconds(&self) -> i64 {
        self.startup_seconds().saturating_mul(JOIN_FACTOR).saturating_add(JOIN_MARGIN)
    }

    /// The price of a node for an hour; 0 if it has none.
    pub fn price(&self) -> f64 {
        self.price_per_node_hour.parse().unwrap_or_default()
    }
}
