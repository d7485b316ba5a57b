//! `spec`: the top level of a MiniCluster.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Archive, Bursting, Container, Flux, LeadBroker, Logging, MiniClusterStatus, Network, PodSpec,
    StorageVolume,
};
use crate::unset::is_unset;

/// A Flux cluster of `size` brokers in Kubernetes. It runs the command of its
/// runner container to completion, or stays up if there is no command.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "flux-framework.org",
    version = "v1alpha2",
    kind = "MiniCluster",
    plural = "miniclusters",
    singular = "minicluster",
    shortname = "mc",
    category = "flux",
    namespaced,
    status = "MiniClusterStatus",
    derive = "PartialEq",
    doc = "A Flux cluster in Kubernetes: runs a command to completion, or stays up.",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.size",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.phase",
        description = "What the cluster is doing, in one word"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.ready",
        description = "Brokers online, and the requested size"
    ),
    printcolumn(
        name = "Joined",
        type_ = "integer",
        json_path = ".status.joined",
        priority = 1,
        description = "Brokers online that do not belong to the cluster's own Job"
    ),
    printcolumn(
        name = "Lender",
        type_ = "string",
        json_path = ".status.lender",
        priority = 1,
        description = "The MiniCluster whose Flux instance its brokers join"
    ),
    printcolumn(
        name = "Exit",
        type_ = "integer",
        json_path = ".status.exitCode",
        description = "Exit code of the command, once it has finished"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must start with a lowercase letter and contain only lowercase letters, digits and '-', because pods and a Service are named after it"),
    validation = Rule::new("self.metadata.name.size() + 1 + string((has(self.spec.maxSize) && self.spec.maxSize > self.spec.size ? self.spec.maxSize : self.spec.size) - 1).size() <= 63")
        .message("metadata.name is too long: the name, '-' and the highest index (maxSize - 1) are a host name, which has at most 63 characters"),
    validation = Rule::new("!has(self.spec.services) || self.spec.services.size() == 0 || self.metadata.name.size() <= 54")
        .message("metadata.name is too long: with services at most 54 characters are allowed, because their pod is called <name>-services"),
    validation = Rule::new("self.spec.containers.size() == 1 || self.spec.containers.all(c, (has(c.runFlux) && c.runFlux) || !has(c.name) || c.name != self.metadata.name)")
        .message("a sidecar cannot have the MiniCluster's name: the runner container has that name")
        .field_path(".spec.containers")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.maxSize) || self.maxSize == 0 || self.maxSize >= self.size")
        .message("maxSize must be at least size; leave it out to use size")
        .field_path(".maxSize"),
    validation = Rule::new("!has(self.minSize) || self.minSize <= self.size")
        .message("minSize must be at most size: it is the number of brokers to wait for")
        .field_path(".minSize"),
    validation = Rule::new("(has(self.flux) && has(self.flux.join)) == (has(oldSelf.flux) && has(oldSelf.flux.join)) && (!has(self.flux) || !has(self.flux.join) || self.flux.join == oldSelf.flux.join)")
        .message("the MiniCluster that it joins cannot be changed: delete it and create it again")
        .field_path(".flux"),
    validation = Rule::new("(has(self.flux) && has(self.flux.bootServer) ? self.flux.bootServer : '') == (has(oldSelf.flux) && has(oldSelf.flux.bootServer) ? oldSelf.flux.bootServer : '') && (has(self.flux) && has(self.flux.connection) ? self.flux.connection : '') == (has(oldSelf.flux) && has(oldSelf.flux.connection) ? oldSelf.flux.connection : '')")
        .message("the MiniCluster that it joins cannot be changed: delete it and create it again")
        .field_path(".flux"),
    validation = Rule::new("self.containers.size() == 1 || self.containers.filter(c, has(c.runFlux) && c.runFlux).size() == 1")
        .message("exactly one container must have runFlux: true when there are several: it runs the broker and the command")
        .field_path(".containers"),
    validation = Rule::new("self.containers.size() == 1 || self.containers.all(c, (has(c.runFlux) && c.runFlux) || (has(c.name) && c.name != ''))")
        .message("every container without runFlux needs a name")
        .field_path(".containers"),
    validation = Rule::new("self.containers.size() == 1 || self.containers.all(c, !has(c.name) || c.name == '' || self.containers.exists_one(d, has(d.name) && d.name == c.name))")
        .message("two containers have the same name: give each its own")
        .field_path(".containers"),
    validation = Rule::new("self.containers.all(c, !(self.containers.size() == 1 || (has(c.runFlux) && c.runFlux)) || !has(c.command) || c.command == '' || !has(c.commands) || !has(c.commands.script) || c.commands.script == '')")
        .message("the runner has both command and commands.script: keep one; the script is run as the command")
        .field_path(".containers"),
    validation = Rule::new("self.containers.all(c, (has(c.runFlux) && c.runFlux) || self.containers.size() == 1 || !(has(c.batch) && c.batch || has(c.launcher) && c.launcher))")
        .message("batch and launcher belong to the runner: no other container submits jobs")
        .field_path(".containers"),
    validation = Rule::new("self.containers.size() == 1 || self.containers.all(c, (has(c.runFlux) && c.runFlux) || !has(c.ports) || c.ports.size() == 0 || !has(c.name) || !c.name.matches('^[0-9]'))")
        .message("a sidecar with ports needs a name that starts with a letter: its Service has the same name")
        .field_path(".containers"),
    validation = Rule::new("!has(self.services) || self.services.all(s, has(s.name) && s.name != '')")
        .message("every service needs a name")
        .field_path(".services"),
    validation = Rule::new("!has(self.services) || self.services.all(s, !has(s.name) || self.services.exists_one(t, has(t.name) && t.name == s.name))")
        .message("two services have the same name: give each its own")
        .field_path(".services"),
    validation = Rule::new("!has(self.services) || self.services.all(s, !has(s.runFlux) || !s.runFlux)")
        .message("a service cannot have runFlux: its pod is not part of the Flux cluster; move it to containers")
        .field_path(".services"),
    validation = Rule::new("!has(self.services) || self.services.all(s, !has(s.commands) || ((!has(s.commands.pre) || s.commands.pre == '') && (!has(s.commands.brokerPre) || s.commands.brokerPre == '') && (!has(s.commands.workerPre) || s.commands.workerPre == '')))")
        .message("services do not support commands.pre, brokerPre or workerPre: there is no broker beside them")
        .field_path(".services"),
    validation = Rule::new("!has(self.serviceName) || self.serviceName == '' || !has(self.network) || !has(self.network.headlessName) || self.network.headlessName == '' || self.network.headlessName == self.serviceName")
        .message("serviceName is the old name of network.headlessName: keep one of them")
        .field_path(".serviceName")
)]
pub struct MiniClusterSpec {
    /// Containers of every pod of the cluster. Exactly one is the runner, which
    /// runs the Flux broker and the command. A single container is always the runner.
    #[schemars(length(min = 1, max = 32))]
    pub containers: Vec<Container>,

    /// Containers of one extra pod, `<name>-services`, reachable from the cluster
    /// at `<name>-services.<headless name>`.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 32))]
    pub services: Vec<Container>,

    /// Number of brokers, one per pod. Can be changed between 1 and maxSize while
    /// the cluster runs.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100_000))]
    pub size: i32,

    /// Largest size that the cluster can grow to. As many host names are registered
    /// when it boots. Unset or 0: the same as size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub max_size: Option<i32>,

    /// Number of brokers to wait for before the command starts (Flux's quorum).
    /// Unset or 0: all of size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub min_size: Option<i32>,

    /// Total number of tasks of the command. 0: one per node (`-N` without `-n`).
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100_000_000))]
    pub tasks: i32,

    /// Keep the cluster up: start Flux, run no command, wait for jobs to be
    /// submitted.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub interactive: bool,

    /// How Flux is set up, delivered and started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flux: Option<Flux>,

    /// What is written to the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Logging>,

    /// Flux state to restore at the start and save at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,

    /// Names and placement of the pods on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,

    /// Settings of the pods as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSpec>,

    /// Labels of the Job (not of its pods), such as a Kueue queue name.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub job_labels: BTreeMap<String, String>,

    /// Let the containers of a pod see each other's processes.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub share_process_namespace: bool,

    /// Delete the MiniCluster when its command has finished.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub cleanup: bool,

    /// Delete the MiniCluster this many seconds after it has finished. 0 deletes it at once;
    /// unset keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// Longest time in seconds that the cluster may run. 0: no limit of its own.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 0))]
    pub deadline_seconds: i64,

    /// Seconds within which the brokers must reach the quorum. A cluster that does not
    /// releases its nodes and retries after a back-off. The limit does not apply once the
    /// command has started; for a cluster without a command it applies again whenever it
    /// becomes unready. Unset or 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ready_timeout_seconds: Option<i32>,

    /// How often lost pods may be replaced; the old name of restart.limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub backoff_limit: Option<i32>,

    /// When the command may be run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,

    /// Scale with the Flux queue: grow while jobs wait, shrink when nodes are idle. Not
    /// supported yet; an autoscaler of Kubernetes can set size through the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscale>,

    /// Do not start the cluster, or stop it. The command starts from the beginning when
    /// this becomes false.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub suspend: bool,

    /// The FluxSetup in whose queue to wait before anything runs: `name` in this namespace
    /// or in the operator's, or `namespace/name`. If it is set while the cluster runs, the
    /// cluster stops until it is admitted. Unset: it does not wait.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 317), regex(pattern = crate::fluxsetup::QUEUE_NAME_PATTERN))]
    pub queue: String,

    /// Name of the controller that runs the Job, as `domain/name`. Unset:
    /// Kubernetes' own.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/.+$"))]
    pub managed_by: String,

    /// Security profile of the pods. `restricted` sets what a namespace with
    /// that Pod Security Standard requires; unset keeps the image's user.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub pod_security: PodSecurity,

    /// Value of the pod label `job-group` and of the headless Service's selector,
    /// so that several MiniClusters share one network.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(
        length(max = 63),
        regex(pattern = r"^$|^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub job_selector: String,

    /// Name of the headless Service; the old name of network.headlessName.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub service_name: String,

    /// Storage by name, as in v1alpha1: a container mounts an entry by using its
    /// name in its volumes.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 64))]
    pub volumes: BTreeMap<String, StorageVolume>,
}

impl MiniClusterSpec {
    /// Whether hosts are registered that may be down on purpose: size may be less than
    /// maxSize, or other clusters may join. It depends only on fields that cannot change once
    /// the cluster has started, so that it stays the same when the lead is restarted.
    pub fn has_spare_ranks(&self) -> bool {
        let bursting = self.bursting();
        let joins = |it: &Bursting| !it.hostlist.is_empty() || !it.clusters.is_empty();
        bursting.is_some_and(joins)
            || self.max_size.is_some_and(|most| most > 1)
            || self.spare_ranks() > 0
    }

    /// How many hosts are registered only for brokers of other MiniClusters. A user's own host
    /// list names every host, and a joiner's brokers are in the table of another cluster.
    pub fn spare_ranks(&self) -> i32 {
        let bursting = self.bursting();
        if self.is_joiner() || bursting.is_some_and(|it| !it.hostlist.is_empty()) {
            return 0;
        }
        let default = if self.job_selector.is_empty() { 0 } else { DEFAULT_SPARE_RANKS };
        bursting.and_then(|it| it.spare_ranks).unwrap_or(default)
    }

    /// Whether its brokers join the Flux instance of another MiniCluster, in this Kubernetes cluster
    /// or another one.
    pub fn is_joiner(&self) -> bool {
        let joins = self.flux.as_ref().is_some_and(|flux| {
            flux.join.is_some() || !flux.connection.is_empty() || !flux.boot_server.is_empty()
        });
        joins || self.remote_lead().is_some()
    }

    /// The lead in another Kubernetes cluster whose instance its brokers join.
    pub fn remote_lead(&self) -> Option<&LeadBroker> {
        self.bursting()?.lead_broker.as_ref().filter(|lead| !lead.address.is_empty())
    }

    fn bursting(&self) -> Option<&Bursting> {
        self.flux.as_ref()?.bursting.as_ref()
    }
}

/// The number of spare hosts of a MiniCluster that shares its network: enough for a few joiners,
/// few enough to be read in `flux resource list`.
const DEFAULT_SPARE_RANKS: i32 = 8;

impl Default for MiniClusterSpec {
    /// What the API server stores for `{}`, with no container yet.
    fn default() -> Self {
        serde_json::from_value(serde_json::json!({ "containers": [] }))
            .expect("every field but containers has a default")
    }
}

/// When the command may be run again.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// How often the cluster may be restarted after its lead pod was lost.
    /// Unset: 0 with a command (a second run must be requested), 3 without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub limit: Option<i32>,
}

/// The range of sizes of a cluster that scales with its queue.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Autoscale {
    /// The smallest size; 1 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub min_size: Option<i32>,

    /// The largest size; maxSize if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_size: Option<i32>,
}

/// Security profile of the pods.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodSecurity {
    /// The image's user and capabilities, as with the Go operator.
    #[default]
    #[serde(rename = "")]
    Image,
    /// What the Pod Security Standard of that name requires.
    #[serde(rename = "restricted")]
    Restricted,
}

fn one() -> i32 {
    1
}

/// The Go operator's default: a year less ten hours.
fn default_deadline() -> i64 {
    31_500_000
}
