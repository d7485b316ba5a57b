//! `spec.flux.bursting.expose` and `invitations`: how brokers of other Kubernetes clusters reach the
//! lead, and which of them may.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LentLead;
use crate::unset::is_unset;

/// The ports that the gateway listens on: above those of usual programs, and below those that the
/// kernel uses for outgoing connections (from 32768).
pub const GATEWAY_PORTS: RangeInclusive<u16> = 24_000..=31_999;

/// A host name or address with a port, as in `host:port` or `[address]:port`.
pub fn host_and_port(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// How brokers of other Kubernetes clusters reach this one.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.nodePort) || self.nodePort == 0 || !has(self.type) || self.type in ['NodePort', 'LoadBalancer']")
        .message("nodePort has an effect only with type NodePort or LoadBalancer")
        .field_path(".nodePort"),
    validation = Rule::new("!has(self.type) || self.type != 'None' || (has(self.hostname) && self.hostname != '')")
        .message("type None makes no Service, so nothing is known about how others reach it: set hostname")
        .field_path(".hostname")
)]
pub struct Expose {
    /// The kind of Service that is made. Unset: NodePort.
    #[serde(rename = "type", default, skip_serializing_if = "is_unset")]
    pub kind: ExposeType,

    /// The first port of the Service; every invitation has a port of its own. Unset or 0: 8050. With
    /// type None it is the first port on which the gateway listens; unset or 0: 24000.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 65_000))]
    pub port: i32,

    /// The first port on the nodes. Unset or 0: Kubernetes chooses one for every invitation.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 65_000))]
    pub node_port: i32,

    /// Annotations of the Service, such as those of a load balancer.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,

    /// A name by which others reach it. It is published instead of addresses, and as an annotation
    /// for external-dns.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(
        length(max = 253),
        regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub hostname: String,

    /// Networks from which connections are accepted, such as 203.0.113.0/24. Unset: all.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 64))]
    pub source_ranges: Vec<String>,

    /// Expose the lead itself, without the gateway. Then an invitation cannot be revoked: who has
    /// the certificate can connect until the MiniCluster is deleted and created again.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub direct: bool,
}

/// The kind of Service by which brokers of other clusters reach this one.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExposeType {
    /// A port on every node.
    #[default]
    NodePort,
    /// A load balancer of the cloud.
    LoadBalancer,
    /// An address that only this Kubernetes cluster, or networks that are routed to it, can reach.
    ClusterIP,
    /// No Service: hostname names what forwards the ports to the gateway.
    None,
}

/// An invitation: ranks for brokers of another Kubernetes cluster, until a time.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.ranks == oldSelf.ranks && self.expires == oldSelf.expires && has(self.property) == has(oldSelf.property) && (!has(self.property) || self.property == oldSelf.property)")
        .message("an invitation cannot be changed, except for keep: revoke it, and invite again under another name"),
    validation = Rule::new("!has(self.keep) || self.keep <= self.ranks")
        .message("keep must be at most ranks")
        .field_path(".keep")
)]
pub struct Invitation {
    /// Its name.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// How many ranks it is for.
    #[schemars(range(min = 1, max = 1024))]
    pub ranks: i32,

    /// When it ends. The connections of its brokers are closed, and its ranks are free again.
    #[schemars(
        length(max = 40),
        regex(
            pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
        )
    )]
    pub expires: String,

    /// Which ranks it gets: those of hosts with this property, `spare` or the name of a pool in
    /// flux.bursting.clusters. Unset: any.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub property: String,

    /// How many of its ranks to keep. The others, the last ones of its lease, are drained: they stay
    /// leased, but no new job starts there, and no broker. Unset: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub keep: Option<i32>,
}

/// Where brokers of other Kubernetes clusters reach this one.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// Addresses or names, up to four. Each leads to the same ports.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub addresses: Vec<String>,

    /// The lead's port at these addresses, if it is exposed without the gateway. With it, every
    /// lease has its own.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub port: i32,

    /// What the lead has, for brokers that join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<LentLead>,

    /// Address and port of the lead's pod, to which the gateway forwards. Empty while there is none.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub lead_address: String,
}

/// What is special about the lease of an invitation.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InvitationLease {
    /// When it ends.
    pub expires: String,

    /// The port at the addresses of `status.external`; 0 while it is not known.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub port: i32,

    /// The port of the Service.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub service_port: i32,

    /// The port on which the gateway listens. No two leases have the same.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub gateway_port: i32,

    /// The MiniCluster whose brokers use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<InvitationUser>,

    /// How many of its ranks are kept, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<i32>,

    /// Since when this number is kept.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub kept_since: String,

    /// Ranks that are not kept and on which no job runs any more, as the lead reports them. Their
    /// brokers can be deleted.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub drained: String,

    /// Why its brokers are refused, if only a user can change that, such as a wrong version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<InvitationRefusal>,
}

/// Why brokers of an invitation are refused.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct InvitationRefusal {
    /// In one word.
    pub reason: String,

    /// In a sentence.
    pub message: String,
}

/// A MiniCluster of another Kubernetes cluster whose brokers use an invitation.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct InvitationUser {
    /// Its uid there.
    pub uid: String,

    /// Its namespace and name there.
    pub name: String,

    /// Since when.
    pub since: String,
}
