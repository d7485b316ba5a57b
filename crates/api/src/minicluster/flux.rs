//! `spec.flux`: how Flux is set up, delivered and started.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, SecurityContext};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Bursting;
use crate::embedded::embedded;
use crate::unset::is_unset;

/// How Flux is set up, delivered and started.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.bootServer) && self.bootServer != '') == (has(self.bootServerSize) && self.bootServerSize > 0)")
        .message("bootServer and bootServerSize must be set together: the address of the other cluster's lead, and its size")
        .field_path(".bootServer"),
    validation = Rule::new("(has(self.connection) && self.connection != '') == (has(self.connectionSize) && self.connectionSize > 0)")
        .message("connection and connectionSize must be set together: the name of the other MiniCluster, and its size")
        .field_path(".connection"),
    validation = Rule::new("!(has(self.bootServer) && self.bootServer != '' && has(self.connection) && self.connection != '')")
        .message("bootServer and connection are two ways to join another cluster: keep one")
        .field_path(".connection"),
    validation = Rule::new("!has(self.join) || ((!has(self.bootServer) || self.bootServer == '') && (!has(self.connection) || self.connection == ''))")
        .message("join replaces bootServer and connection, the older ways to join another cluster: keep one")
        .field_path(".join"),
    validation = Rule::new("!(has(self.curveCert) && self.curveCert != '' && has(self.curveCertSecret) && self.curveCertSecret != '')")
        .message("curveCert and curveCertSecret exclude each other: keep one")
        .field_path(".curveCertSecret")
)]
pub struct Flux {
    /// The image that contains Flux, and how it is delivered to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<FluxContainer>,

    /// Kept for older manifests; the image decides the architecture.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63))]
    pub arch: String,

    /// How the command is submitted. Unset: `flux submit`.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub submit_command: String,

    /// Program and arguments, separated by commas, that the brokers are run under
    /// (`flux start --wrap`), such as strace.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub wrap: String,

    /// Longest time a broker waits for its parent, as Flux writes durations (5s,
    /// 1.5m). Unset: 5s.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(
        length(max = 32),
        regex(pattern = r"^$|^([0-9]+(\.[0-9]*)?|\.[0-9]+)(ms|s|m|h|d)?$")
    )]
    pub connect_timeout: String,

    /// Further flags for submitting the command, such as `-ompi=openmpi@5`.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub option_flags: String,

    /// One Service for the lead broker alone, instead of a headless Service with a
    /// name for every pod.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub minimal_service: bool,

    /// Do not put the broker's socket at its well-known path.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub disable_socket: bool,

    /// Shape of the tree of brokers: kary:K, mincrit:K, binomial or custom.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(
        length(max = 63),
        regex(pattern = r"^$|^(kary:[0-9]+|mincrit(:[0-9]+)?|binomial|custom)$")
    )]
    pub topology: String,

    /// Start sidecars without waiting for the broker's socket.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub no_wait_socket: bool,

    /// A worker is complete when its broker has exited, whatever its exit code.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub complete_workers: bool,

    /// Log level of the brokers, from 1 (alerts) to 7 (debug). Unset or 0: 6.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 7))]
    pub log_level: i32,

    /// Text of the CURVE certificate to use instead of a generated one. Everyone who can
    /// read the MiniCluster can read it; curveCertSecret is safer.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 16_384))]
    pub curve_cert: String,

    /// Secret with the CURVE certificate in its key curve.cert, to use instead of a
    /// generated one.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub curve_cert_secret: String,

    /// Secret with a munge key, for clusters that share the key.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub munge_secret: String,

    /// The complete broker.toml, instead of the generated one.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 262_144))]
    pub broker_config: String,

    /// Environment variables for shells that connect to the cluster.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 1024))]
    pub environment: BTreeMap<String, String>,

    /// The scheduler and its settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,

    /// Hosts outside this cluster that may join it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursting: Option<Bursting>,

    /// Resources of every node, instead of those detected in its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<FluxResources>,

    /// The MiniCluster whose Flux instance the brokers join, instead of starting one of their
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<Join>,

    /// Address of the lead broker of a MiniCluster to join: the name of its lead's pod, such as
    /// `flux-sample-0`, or its full name in the cluster's DNS.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub boot_server: String,

    /// Number of brokers of the cluster at bootServer.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 100_000))]
    pub boot_server_size: i32,

    /// Name of a MiniCluster in the same namespace to join.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub connection: String,

    /// Number of brokers of the MiniCluster named in connection.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 100_000))]
    pub connection_size: i32,
}

/// The MiniCluster whose Flux instance the brokers join.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Join {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Its namespace, if that is another one. Its flux.bursting.allowedNamespaces must then
    /// name the namespace of this MiniCluster.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,

    /// Which of its ranks to lease: ranks as Flux writes them, such as 4-7, or the property of
    /// the hosts, such as the name of a pool, spare or home. Unset: any that are free.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253), regex(pattern = r"^$|^[-,0-9]+$|^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub ranks: String,
}

/// The image that contains Flux, and how it is delivered to the pods.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FluxContainer {
    /// Flux is in the runner's own image: do not deliver it.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub disable: bool,

    /// How Flux is delivered to the pods: imageVolume mounts the image, init copies from
    /// it, auto mounts the image if the cluster supports that.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub delivery: Delivery,

    /// Name of the init container and of its volume. Unset: flux-view.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Image that contains Flux. Unset: the Go operator's default, a view for Ubuntu.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 1024))]
    pub image: String,

    /// Working directory of the init container.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub working_dir: String,

    /// Value for PYTHONPATH, instead of the path found in the view.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub python_path: String,

    /// Resource requests and limits of the init container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<ResourceRequirements>")]
    pub resources: Option<ResourceRequirements>,

    /// Secret with the credentials to pull the image.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub image_pull_secret: String,

    /// Pull the image every time.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub pull_always: bool,

    /// Security settings of the init container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<SecurityContext>")]
    pub security_context: Option<SecurityContext>,

    /// Where Flux and its configuration are mounted. Unset: /mnt/flux.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 1024), regex(pattern = r"^$|^/[^:]*[^/:]$"))]
    pub mount_path: String,
}

/// The scheduler and its settings.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    /// Policy of Fluxion's queue. Unset: fcfs, or easy if maxSize or bursting register
    /// hosts that may be down. With fcfs, Fluxion fails a job that needs more hosts than are
    /// up; with the other policies the job waits.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub queue_policy: QueuePolicy,

    /// Use Flux's simple scheduler, even if the image has Fluxion.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub simple: bool,
}

/// Resources of every node, instead of those detected in its pod.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FluxResources {
    /// Cores per node. Unset or 0: those detected in the lead pod.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 65_536))]
    pub cores: i32,

    /// GPUs per node. Unset or 0: the GPUs in the runner's resource limits.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(range(min = 0, max = 1024))]
    pub gpus: i32,
}

/// How the agent and Flux are delivered to the pods.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Unset: auto.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// Image volumes if the cluster supports them, otherwise an init container.
    #[serde(rename = "auto")]
    Auto,
    /// Image volumes: nothing is copied.
    #[serde(rename = "imageVolume")]
    ImageVolume,
    /// An init container that copies, as the Go operator does.
    #[serde(rename = "init")]
    Init,
}

/// Policy of Fluxion's queue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum QueuePolicy {
    /// Unset: first come, first served, or easy if hosts may be down.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// First come, first served.
    Fcfs,
    /// Backfill that does not delay the first waiting job.
    Easy,
    /// Backfill that does not delay any waiting job.
    Conservative,
    /// Backfill that does not delay the first few waiting jobs.
    Hybrid,
}
