//! `spec.containers[]` and `spec.services[]`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, SecurityContext};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::Volume;
use crate::embedded::embedded;
use crate::unset::is_unset;

/// One container of the cluster's pods, or of the services pod.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(self.launcher) && self.launcher && has(self.batch) && self.batch)")
        .message("launcher and batch exclude each other: a launcher submits its own jobs")
        .field_path(".launcher"),
    validation = Rule::new("!has(self.args) || self.args.size() == 0 || !has(self.batch) || !self.batch")
        .message("args cannot be combined with batch: each line of command is a job of its own")
        .field_path(".args"),
    validation = Rule::new("!has(self.ports) || self.ports.all(p, self.ports.exists_one(q, q == p))")
        .message("a port is listed twice")
        .field_path(".ports"),
    validation = Rule::new("!has(self.volumes) || !has(self.existingVolumes) || self.volumes.all(v, !(v in self.existingVolumes))")
        .message("a volume is in both volumes and existingVolumes: keep one")
        .field_path(".existingVolumes")
)]
pub struct Container {
    /// Image of the container. Unset: `ghcr.io/rse-ops/accounting:app-latest`, as with the Go
    /// operator.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 1024))]
    pub image: String,

    /// Name of a sidecar or service; required for those. The runner always has the
    /// name of the MiniCluster.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// The command, as it would be typed at a shell prompt. The runner's command is the job; if
    /// it is empty, the cluster stays up. Its lines are joined to one, unless it is a batch. The
    /// command of any other container is a script.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub command: String,

    /// Arguments, each passed on byte for byte, without a shell. They follow
    /// the command, or are the command if it is empty.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub args: Vec<String>,

    /// Working directory. Unset: the image's own.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub working_dir: String,

    /// Secret with the credentials to pull the image.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub image_pull_secret: String,

    /// When to pull the image. Unset: IfNotPresent.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub image_pull_policy: PullPolicy,

    /// Pull the image every time. It overrides imagePullPolicy.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub pull_always: bool,

    /// Ports the container listens on. Those of a sidecar also get a Service.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 64), inner(range(min = 1, max = 65535)))]
    pub ports: Vec<i32>,

    /// Environment variables.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 1024))]
    pub environment: BTreeMap<String, String>,

    /// Environment variables whose values come from keys of Secrets.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub secrets: BTreeMap<String, SecretKey>,

    /// The command submits jobs itself. It is started beside the broker instead of
    /// being submitted.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub launcher: bool,

    /// Each line of the command is a job, run by one batch script.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub batch: bool,

    /// With batch: the lines are the batch script, unchanged.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub batch_raw: bool,

    /// Directory for the output of batch jobs. Unset: /tmp/fluxout.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub logs: String,

    /// This container is the runner. If there is only one container, it is the runner.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub run_flux: bool,

    /// Run the image's own entrypoint, without a start script. For sidecars only.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub no_wrap_entrypoint: bool,

    /// Volumes to mount, by name.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 64))]
    pub volumes: BTreeMap<String, Volume>,

    /// Volumes to mount, by name; the old name of volumes, from v1alpha1.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 64))]
    pub existing_volumes: BTreeMap<String, Volume>,

    /// Commands to run when the container has started and before it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life_cycle: Option<Lifecycle>,

    /// Resource requests and limits of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<ResourceRequirements>")]
    pub resources: Option<ResourceRequirements>,

    /// Security settings of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "container_security")]
    pub security_context: Option<ContainerSecurity>,

    /// Hooks around the broker and the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
}

/// Hooks, each a piece of shell text. They share one shell: exported variables and
/// the working directory apply to the broker and the command too.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Commands {
    /// Runs first, in every pod.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub init: String,

    /// Runs in every pod once Flux is configured.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub pre: String,

    /// Runs in the lead pod only, before its broker.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub broker_pre: String,

    /// Runs in every pod but the lead, before its broker.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub worker_pre: String,

    /// Runs in every pod after the broker has exited.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub post: String,

    /// Runs in a sidecar before its command.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub service_pre: String,

    /// Words placed before the command, such as a wrapper program.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub prefix: String,

    /// A script to run as the command.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 262_144))]
    pub script: String,
}

/// Kubernetes' security settings of a container, and an old name of one of them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSecurity {
    /// The settings.
    #[serde(flatten)]
    pub core: SecurityContext,

    /// Capabilities to add; the old name of `capabilities.add`.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub add_capabilities: Vec<String>,
}

fn container_security(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = embedded::<SecurityContext>(generator);
    let properties =
        schema.pointer_mut("/properties").and_then(|properties| properties.as_object_mut());
    properties.expect("a SecurityContext has fields").insert(
        "addCapabilities".into(),
        serde_json::json!({ "type": "array", "items": { "type": "string" }, "maxItems": 64 }),
    );
    schema
}

/// Commands that the kubelet runs when a container starts and before it stops.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Shell text run right after the container has started.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub post_start_exec: String,

    /// Shell text run before the container is stopped.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 131_072))]
    pub pre_stop_exec: String,
}

/// One key of a Secret.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Key in the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// When the kubelet pulls an image.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// Unset: IfNotPresent.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// Every time.
    Always,
    /// If the node does not have it.
    IfNotPresent,
    /// The node must have it.
    Never,
}
