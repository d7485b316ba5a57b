//! `spec.flux.bursting`: hosts outside this cluster.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{Expose, Invitation, LentInstance};
use crate::unset::is_unset;

/// Hosts outside this cluster that may join it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(self.hostlist) && self.hostlist != '' && has(self.clusters) && self.clusters.size() > 0)")
        .message("hostlist and clusters exclude each other: hostlist already names every host")
        .field_path(".hostlist"),
    validation = Rule::new("!has(self.clusters) || self.clusters.all(c, !has(c.name) || c.name == '' || self.clusters.exists_one(d, has(d.name) && d.name == c.name))")
        .message("two clusters have the same name: their host names would be the same")
        .field_path(".clusters")
)]
pub struct Bursting {
    /// The lead broker to join, if this cluster is a burst from another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead_broker: Option<LeadBroker>,

    /// Every host of the instance in rank order, in Flux's hostlist form, such as
    /// `flux-sample-[0-3],burst-0-[0-3]`.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 65_536))]
    pub hostlist: String,

    /// Clusters that may join later. Their hosts follow this cluster's own.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 64))]
    pub clusters: Vec<BurstingCluster>,

    /// Number of further hosts, `<name>-spare-0` and so on, that brokers of other MiniClusters
    /// can lease. Unset: 8 with jobSelector, otherwise none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub spare_ranks: Option<i32>,

    /// Namespaces whose MiniClusters may join, besides this one; `*` for all. Who joins gets
    /// this cluster's certificate, and with it full access to the Flux instance.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 256))]
    pub allowed_namespaces: Vec<String>,

    /// How brokers of other Kubernetes clusters reach this one. Unset: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,

    /// Brokers of other Kubernetes clusters that may join, written by
    /// `kubectl minicluster invite`.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub invitations: Vec<Invitation>,
}

/// The lead broker of the cluster that this one is a burst from.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.address == '' || (self.name != '' && self.size >= 1)")
        .message("leadBroker needs the name and the size of the cluster at address, for its host names"),
    validation = Rule::new("!has(self.instance) || self.address != ''")
        .message("instance needs the address of the lead broker: use the file of the invitation unchanged")
        .field_path(".address")
)]
pub struct LeadBroker {
    /// Address of the lead broker. Empty: this cluster is the first one.
    #[schemars(length(max = 253))]
    pub address: String,

    /// Name of its MiniCluster.
    #[schemars(length(max = 63))]
    pub name: String,

    /// Number of hosts that its MiniCluster registered: its maxSize.
    #[schemars(range(min = 0, max = 100_000))]
    pub size: i32,

    /// Port of the lead broker at that address. Unset or 0: 8050.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 65_535))]
    pub port: i32,

    /// Further addresses at which it may be reached, each as `host:port`. They are tried in turn,
    /// after `address`.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 8))]
    pub addresses: Vec<String>,

    /// The instance that the brokers join, as an invitation describes it. Unset: hosts and ranks
    /// follow from `name`, `size` and clusters, or from hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<LentInstance>,
}

/// A cluster that may join later.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BurstingCluster {
    /// Prefix of its host names. Unset: burst-0, burst-1 and so on.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Number of its hosts. Unset or 0: the same as size.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 100_000))]
    pub size: i32,

    /// Cores of each of its hosts. Unset or 0: as many as the lead has.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 65_536))]
    pub cores: i32,

    /// GPUs of each of its hosts. Unset: as many as the lead has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub gpus: Option<i32>,
}
