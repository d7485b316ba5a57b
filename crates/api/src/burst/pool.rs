//! `spec` of a Burst.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{BurstConditionType, BurstRun, BurstStatus, BurstTarget};
use crate::MiniCluster;
use crate::unset::is_unset;

/// Brokers at one target that join the Flux instance of a MiniCluster.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "flux-framework.org",
    version = "v1alpha2",
    kind = "Burst",
    plural = "bursts",
    singular = "burst",
    shortname = "bu",
    category = "flux",
    namespaced,
    status = "BurstStatus",
    derive = "PartialEq",
    doc = "Brokers at one target that join the Flux instance of a MiniCluster.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.cluster",
        description = "The MiniCluster"
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".spec.target.name",
        description = "Where its nodes are"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.phase",
        description = "What it is doing, or why it waits"
    ),
    printcolumn(
        name = "Nodes",
        type_ = "string",
        json_path = ".status.ready",
        description = "Nodes that have joined, and those that are requested"
    ),
    printcolumn(
        name = "Jobs",
        type_ = "integer",
        json_path = ".status.jobs",
        description = "Jobs that run on its nodes"
    ),
    printcolumn(
        name = "Node-Hours",
        type_ = "string",
        json_path = ".status.nodeHours",
        description = "What it has used"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.cluster == oldSelf.cluster && self.target == oldSelf.target && has(self.policy) == has(oldSelf.policy) && (!has(self.policy) || self.policy == oldSelf.policy)")
        .message("cluster, target and policy of a burst cannot be changed: delete it, and create another"),
    validation = Rule::new("has(self.lifetimeSeconds) == has(oldSelf.lifetimeSeconds) && (!has(self.lifetimeSeconds) || self.lifetimeSeconds == oldSelf.lifetimeSeconds) && has(self.graceSeconds) == has(oldSelf.graceSeconds) && (!has(self.graceSeconds) || self.graceSeconds == oldSelf.graceSeconds)")
        .message("lifetimeSeconds and graceSeconds of a burst cannot be changed: its lease ends with them"),
    validation = Rule::new("has(self.isolatedJob) == has(oldSelf.isolatedJob) && (!has(self.isolatedJob) || self.isolatedJob == oldSelf.isolatedJob)")
        .message("isolatedJob of a burst cannot be changed: delete it, and create another"),
    validation = Rule::new("!has(self.isolatedJob) || self.isolatedJob == '' || ((has(self.target.kubeconfig) || has(self.target.clusterAPI) || has(self.target.command) || has(self.target.gke)) && !has(self.target.scaling))")
        .message("a job runs in an instance of its own only in another Kubernetes cluster: use a target with kubeconfig, clusterAPI, command or gke, without scaling")
        .field_path(".isolatedJob"),
    validation = Rule::new("has(self.target.scaling) ? self.nodes >= self.target.scaling.minNodes && self.nodes <= self.target.scaling.maxNodes : self.nodes <= self.target.maxNodes")
        .message("nodes must be within target.scaling, or at most target.maxNodes")
        .field_path(".nodes"),
    validation = Rule::new("self.nodes == oldSelf.nodes || has(self.target.scaling)")
        .message("nodes of a burst without target.scaling cannot be changed")
        .field_path(".nodes")
)]
pub struct BurstSpec {
    /// The MiniCluster of the same namespace whose instance its brokers join.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub cluster: String,

    /// The policy that has created it. Empty: a user has, and it is not given back before its
    /// lifetime ends unless idleSeconds is set.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub policy: String,

    /// Where its brokers run.
    pub target: BurstTarget,

    /// How many nodes it should have.
    #[schemars(range(min = 1, max = 1024))]
    pub nodes: i32,

    /// How long it may exist. Then it is given back. Unset: 86400, one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 2_592_000))]
    pub lifetime_seconds: Option<i32>,

    /// Give it back when no job has run on its nodes for this long. Unset: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub idle_seconds: Option<i32>,

    /// How long to wait for jobs on its nodes when it is given back. Unset: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub grace_seconds: Option<i32>,

    /// Start no more jobs on its nodes, and give it back when those that run there have finished. A
    /// policy sets it at a limit of the day.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub drain: bool,

    /// Id of the job, such as f2bGzJKq, that runs there in an instance of its own. Empty: its brokers
    /// join the instance of the MiniCluster.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 32), regex(pattern = r"^[0-9A-Za-z.]*$"))]
    pub isolated_job: String,

    /// The jobs for which it was created, at most 50. If a policy has created it, and one of them still
    /// waits when it is given back, the policy does not try its target again for two minutes.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 50), inner(length(max = 64)))]
    pub jobs: Vec<String>,
}

/// The shortest time without a job after which a Burst is idle, in seconds: the scheduler needs a
/// moment to start a job on nodes that have joined.
pub const MIN_IDLE_SECONDS: i32 = 5;

impl Burst {
    /// The policy that has created it; `None` if a user has, even if that one names a policy.
    pub fn owning_policy(&self) -> Option<&str> {
        let mut owners = self.metadata.owner_references.iter().flatten();
        let is_owned =
            owners.any(|owner| owner.kind == "BurstPolicy" && owner.name == self.spec.policy);
        (is_owned && !self.spec.policy.is_empty()).then_some(&self.spec.policy)
    }

    /// Whether it is for this MiniCluster, rather than for one of the same name that was deleted: jobs of
    /// another instance may have the same ids.
    pub fn is_for(&self, cluster: &MiniCluster) -> bool {
        let started_for =
            self.status.as_ref().map(|it| it.cluster_uid.as_str()).unwrap_or_default();
        started_for.is_empty() || cluster.metadata.uid.as_deref() == Some(started_for)
    }

    /// When it was created.
    pub fn created(&self) -> Timestamp {
        self.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    }

    /// Until when its brokers should have joined: since it was created, or since some are missing again.
    /// Then they are not waited for any more. If all have joined, there is no such time.
    pub fn join_deadline(&self) -> Timestamp {
        let status = self.status.as_ref();
        let joined = status.and_then(|status| status.condition(BurstConditionType::Joined));
        let since = match joined {
            Some(joined) if joined.status == "True" => return Timestamp::MAX,
            Some(joined) => joined.last_transition_time.0,
            None => self.created(),
        };
        let seconds = SignedDuration::from_secs(self.spec.target.join_seconds());
        since.saturating_add(seconds).unwrap_or(Timestamp::MAX)
    }

    /// Whether it runs a job in an instance of its own.
    pub fn is_isolated(&self) -> bool {
        !self.spec.isolated_job.is_empty()
    }

    /// The run of its job.
    pub fn run(&self) -> Option<&BurstRun> {
        self.status.as_ref()?.run.as_ref()
    }

    /// Whether it is only the record of a run that is over: it has no nodes.
    pub fn is_record(&self) -> bool {
        self.run().is_some_and(|run| run.state.is_over())
    }

    /// Whether its status is not for its present spec yet.
    pub fn is_changed(&self) -> bool {
        let observed = self.status.as_ref().and_then(|status| status.observed_generation);
        observed != self.metadata.generation
    }
}

impl BurstSpec {
    /// Its largest size.
    pub fn max_nodes(&self) -> i32 {
        self.target.scaling.as_ref().map_or(self.nodes, |scaling| scaling.max_nodes)
    }

    /// How many ranks are leased for it.
    pub fn leased_ranks(&self) -> i32 {
        if self.target.leases_largest_size() { self.max_nodes() } else { self.nodes }
    }

    /// How long it may exist.
    pub fn lifetime_seconds(&self) -> i32 {
        self.lifetime_seconds.unwrap_or(86_400)
    }

    /// How long to wait for jobs.
    pub fn grace_seconds(&self) -> i32 {
        self.grace_seconds.unwrap_or(300)
    }
}
