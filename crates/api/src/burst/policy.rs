//! `spec` of a BurstPolicy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{BurstPolicyStatus, BurstTarget};
use crate::embedded::embedded;
use crate::unset::is_unset;

/// When, for which jobs and where to get brokers elsewhere, how many, and when to give them back.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "flux-framework.org",
    version = "v1alpha2",
    kind = "BurstPolicy",
    plural = "burstpolicies",
    singular = "burstpolicy",
    shortname = "bp",
    category = "flux",
    namespaced,
    status = "BurstPolicyStatus",
    derive = "PartialEq",
    doc = "When, for which jobs and where to get brokers elsewhere, how many, and when to give them back.",
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Accepted')].status",
        description = "Whether it is applied"
    ),
    printcolumn(
        name = "Clusters",
        type_ = "integer",
        json_path = ".status.clusters",
        description = "MiniClusters that it serves"
    ),
    printcolumn(
        name = "Jobs",
        type_ = "integer",
        json_path = ".status.pendingJobs",
        description = "Jobs of them that wait and that it selects"
    ),
    printcolumn(
        name = "Bursts",
        type_ = "integer",
        json_path = ".status.bursts",
        description = "Bursts that it has created"
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.nodes",
        description = "Nodes of its bursts"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.targets.all(t, self.targets.exists_one(u, u.name == t.name))")
        .message("two targets have the same name")
        .field_path(".targets"),
    validation = Rule::new("!has(self.limits.costPerDay) || self.limits.costPerDay == '' || self.targets.exists(t, has(t.pricePerNodeHour) && t.pricePerNodeHour != '')")
        .message("costPerDay has no effect unless a target has a pricePerNodeHour")
        .field_path(".limits.costPerDay"),
    validation = Rule::new("self.targets.all(t, !has(t.scaling) || t.scaling.minNodes <= self.limits.nodes)")
        .message("scaling.minNodes of a target must be at most limits.nodes: lower it, or raise limits.nodes")
        .field_path(".targets")
)]
pub struct BurstPolicySpec {
    /// The MiniClusters of its namespace that it serves, by their labels. `{}`: all. Those that are
    /// created after it get spare ranks for its nodes, unless isolated is true.
    #[schemars(schema_with = "selector")]
    pub selector: LabelSelector,

    /// Which jobs it serves. Unset: those with the attribute burstable.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub jobs: JobSelection,

    /// When it serves them.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub when: BurstWhen,

    /// How much it may use.
    pub limits: BurstLimits,

    /// Where to get nodes. The first that has nodes for a job is used.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub targets: Vec<BurstTarget>,

    /// Which of the jobs that it serves run in an instance of their own at a target in another Kubernetes
    /// cluster, instead of getting nodes of the MiniCluster's. Unset: those that need more nodes than
    /// the MiniCluster's rank table has. true: all that cannot start at home; its nodes need no ranks,
    /// so that MiniClusters get no spare ranks for them. false: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,

    /// When to give nodes back.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub give_back: GiveBack,

    /// Get no more nodes. Those that it has are given back as usual.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub suspend: bool,
}

/// Which jobs a policy serves: those that match all fields that are set and, if there is `anyOf`,
/// one of its entries.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct JobSelection {
    /// An attribute that the job must have, whatever its value, as by
    /// `flux submit --setattr=burstable`. Unset: burstable. `*`: none is needed.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63))]
    pub attribute: String,

    /// What else must match.
    #[serde(flatten)]
    pub all: JobMatch,

    /// Alternatives, of which one must match.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 16))]
    pub any_of: Vec<JobMatch>,
}

/// Properties of a job, all of which must match.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.minNodes) || !has(self.maxNodes) || self.minNodes <= self.maxNodes")
        .message("minNodes must be at most maxNodes: no job would match")
)]
pub struct JobMatch {
    /// It has waited for at least this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub waiting_seconds: Option<i32>,

    /// It needs at least this many nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_nodes: Option<i32>,

    /// It needs at most this many nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_nodes: Option<i32>,

    /// It was submitted by one of these users, given by their user ids.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "user_ids")]
    pub users: Vec<i64>,

    /// It is in one of these queues of Flux.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    pub queues: Vec<String>,
}

/// When a policy gets nodes for a job that cannot start at home.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BurstWhen {
    /// For how long nodes must be missing before they are requested. Unset: 5. A job may start at
    /// home a moment after it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub stabilization_seconds: Option<i32>,

    /// Do not wait for a job that the scheduler expects to start before nodes of the target would be
    /// up.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub ignore_estimate: bool,
}

/// How much the bursts of a policy may use.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BurstLimits {
    /// Nodes at the same time, of all its bursts together. A MiniCluster that is created after the
    /// policy gets as many spare ranks, unless isolated is true.
    #[schemars(range(min = 1, max = 1024))]
    pub nodes: i32,

    /// Bursts at the same time. Unset: 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub bursts: Option<i32>,

    /// How long a burst may exist. Then it is given back, and jobs on its nodes fail. Unset: 86400,
    /// one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 2_592_000))]
    pub lifetime_seconds: Option<i32>,

    /// Node-hours on one day, in UTC. At the limit no more nodes are requested, and bursts are given
    /// back as soon as no job runs on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub node_hours_per_day: Option<i32>,

    /// Cost on one day, in UTC, by the prices of the targets. At the limit the same happens.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 16), regex(pattern = r"^$|^[0-9]+(\.[0-9]+)?$"))]
    pub cost_per_day: String,
}

/// When nodes are given back.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GiveBack {
    /// How long a node must have been without a job. Unset: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub idle_seconds: Option<i32>,

    /// How long to wait for jobs on nodes that are given back before they are idle, such as at the
    /// end of their lifetime. Unset: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub grace_seconds: Option<i32>,
}

impl BurstPolicySpec {
    /// How many labels, expressions and values the selector may have in total. It is compared with each
    /// MiniCluster of the namespace.
    pub const MAX_SELECTOR_PARTS: usize = 256;

    /// Whether the selector is small enough. The error is what is wrong with it.
    pub fn check_selector_size(&self) -> Result<(), String> {
        let labels = self.selector.match_labels.as_ref().map_or(0, |it| it.len());
        let expressions = self.selector.match_expressions.iter().flatten();
        let parts = expressions.map(|it| it.values.as_ref().map_or(0, Vec::len).saturating_add(1));
        match parts.fold(labels, usize::saturating_add) {
            0..=Self::MAX_SELECTOR_PARTS => Ok(()),
            parts => Err(format!(
                "has {parts} labels, expressions and values in total: at most {} are allowed",
                Self::MAX_SELECTOR_PARTS
            )),
        }
    }
}

impl JobSelection {
    /// The attribute that jobs must have; `None` if they need none.
    pub fn attribute(&self) -> Option<&str> {
        match self.attribute.as_str() {
            "" => Some("burstable"),
            "*" => None,
            name => Some(name),
        }
    }
}

impl BurstWhen {
    /// For how long nodes must be missing.
    pub fn stabilization_seconds(&self) -> i64 {
        i64::from(self.stabilization_seconds.unwrap_or(5))
    }
}

impl BurstLimits {
    /// Bursts at the same time.
    pub fn bursts(&self) -> usize {
        usize::try_from(self.bursts.unwrap_or(4)).unwrap_or_default()
    }

    /// How long a burst may exist.
    pub fn lifetime_seconds(&self) -> i32 {
        self.lifetime_seconds.unwrap_or(86_400)
    }

    /// Cost on one day, if it is limited.
    pub fn cost_per_day(&self) -> Option<f64> {
        self.cost_per_day.parse().ok()
    }
}

impl GiveBack {
    /// How long a node must have been without a job.
    pub fn idle_seconds(&self) -> i32 {
        self.idle_seconds.unwrap_or(300)
    }

    /// How long to wait for jobs.
    pub fn grace_seconds(&self) -> i32 {
        self.grace_seconds.unwrap_or(300)
    }
}

/// A selector of which every list has a largest size: an empty text has 3 bytes in JSON, and 24 in memory.
/// [`BurstPolicySpec::check_selector_size`] limits them together.
fn selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = embedded::<LabelSelector>(generator);
    for (path, keyword, limit) in [
        ("/properties/matchLabels", "maxProperties", 64),
        ("/properties/matchLabels/additionalProperties", "maxLength", 63),
        ("/properties/matchExpressions", "maxItems", 64),
        ("/properties/matchExpressions/items/properties/key", "maxLength", 317),
        ("/properties/matchExpressions/items/properties/operator", "maxLength", 16),
        ("/properties/matchExpressions/items/properties/values", "maxItems", 256),
        ("/properties/matchExpressions/items/properties/values/items", "maxLength", 63),
    ] {
        let part = schema.pointer_mut(path).and_then(|part| part.as_object_mut());
        part.expect("a selector has labels and expressions")
            .insert(keyword.to_owned(), limit.into());
    }
    schema
}

/// A list of user ids. Its title is what `validate` calls an entry that is none, such as a user's name.
fn user_ids(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 256,
        "items": { "type": "integer", "format": "int64", "title": "a user id such as 1000" },
    })
}
