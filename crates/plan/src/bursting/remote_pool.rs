//! The objects that run the brokers of an invitation in another Kubernetes cluster, rendered at home.
//!
//! They are those that an operator there would create for the invitation's file: the Secret of the
//! file, the ConfigMap with the boot plan, and the Job. No operator watches them: the agents ask the
//! lender alone for permission, and lost pods are replaced by Kubernetes' own controller of Jobs. There
//! is no headless Service, because these brokers connect to the lead only, at the gateway's address.

use std::collections::BTreeMap;

use flux_operator_api::burst::BurstTarget;
use flux_operator_api::minicluster::{Container, PodSpec};
use flux_operator_api::{MiniCluster, Reason};
use flux_operator_flux::JobRunError;
use flux_operator_wire::BrokerFacts;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::joining::{
    InvitationFile, InvitationFileError, InvitationSecrets, RemoteInstance, invitation_file,
};
use crate::kubernetes::{self, HOLDER_LABEL, LENDER_LABEL, Rendering, Settings, TABLE_LABEL};
use crate::rank_table::RankTableError;
use crate::valid::{Refusal, RefusalReason, Valid, runner_mut};

/// Where and how the pods of a burst run.
#[derive(Clone, Debug)]
pub struct PoolPods<'a> {
    /// The namespace in the other Kubernetes cluster.
    pub namespace: &'a str,
    /// Uid of the Burst. The lender notes it as the user of the invitation.
    pub uid: &'a str,
    /// How many pods there are at first: at most as many as the invitation has ranks. It can be
    /// changed later, see [`resize_patch`].
    pub nodes: i32,
    /// Labels of all objects and pods, by which they are found again. Those of the operator take
    /// precedence.
    pub labels: &'a BTreeMap<String, String>,
    /// The target, of which labels and `pods` are used.
    pub target: &'a BurstTarget,
    /// Seconds after which Kubernetes deletes the pods, whatever becomes of the lender: nothing else
    /// there would. `None`: never.
    pub deadline_seconds: Option<i64>,
}

/// The objects of a burst in another Kubernetes cluster. None has an owner. `Debug` is not derived:
/// the Secret has the certificate.
pub struct RemotePool {
    /// The certificate, the invitation's key and the munge key.
    pub secret: Secret,
    /// The boot plan.
    pub config_map: ConfigMap,
    /// The pods.
    pub job: Job,
}

impl RemotePoolError {
    /// The reason for a condition.
    pub fn reason(&self) -> Reason {
        match self {
            RemotePoolError::Invitation { .. } | RemotePoolError::Nodes { .. } => {
                Reason::LenderNotReady
            }
            RemotePoolError::Direct => Reason::NotExposed,
            RemotePoolError::NotPortable { .. } => Reason::NotPortable,
            RemotePoolError::Refused(_) | RemotePoolError::Hosts { .. } => Reason::TargetRefused,
        }
    }
}

/// Why the objects of a burst cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RemotePoolError {
    /// The invitation is not complete yet.
    #[error("the invitation cannot be used yet")]
    Invitation {
        /// Why.
        source: InvitationFileError,
    },
    /// The lead is exposed without the gateway.
    #[error(
        "the lead is exposed without the gateway, so that brokers without an operator of their own \
         cannot ask for permission: remove expose.direct"
    )]
    Direct,
    /// There are not as many ranks.
    #[error("{nodes} nodes were requested, and the invitation has {ranks} ranks")]
    Nodes {
        /// How many nodes were requested.
        nodes: i32,
        /// How many ranks are leased to the invitation.
        ranks: usize,
    },
    /// The target or the lender's own manifest is not valid for such pods.
    #[error("the pods cannot be created: {0}")]
    Refused(Refusal),
    /// The job cannot run in an instance of its own.
    #[error("the job cannot run elsewhere")]
    NotPortable {
        /// Why.
        source: JobRunError,
    },
    /// The lender's hosts cannot be listed.
    #[error("the hosts cannot be listed")]
    Hosts {
        /// Why.
        source: RankTableError,
    },
}

/// The objects for the brokers of an invitation of `lender`, of which `job` is the Job. The ConfigMap
/// and the Job are named after `name`, the Secret is `<name>-invitation`. `settings` are those of the
/// other Kubernetes cluster; its `report_url` is not used.
///
/// The boot plan has all ranks of the lease. The pods use the first ones, in the lease's order.
pub fn remote_pool(
    lender: &MiniCluster,
    job: Option<&Job>,
    invitation: &str,
    name: &str,
    pods: &PoolPods<'_>,
    secrets: InvitationSecrets,
    settings: &Settings,
) -> Result<RemotePool, RemotePoolError> {
    let file = invitation_file(lender, job, invitation, name, secrets)
        .map_err(|source| RemotePoolError::Invitation { source })?;
    let lead = file.minicluster.spec.remote_lead();
    if lead.and_then(|lead| lead.instance.as_ref()).is_none_or(|lent| lent.direct) {
        return Err(RemotePoolError::Direct);
    }
    let InvitationFile { secret, minicluster, left_out: _ } = file;
    render(Joiner { minicluster, secret, standalone_lead: None }, pods, settings)
}

/// Brokers that join an instance elsewhere.
pub(super) struct Joiner {
    /// Their MiniCluster, which names the instance and the ranks.
    pub(super) minicluster: MiniCluster,
    /// Their keys.
    pub(super) secret: Secret,
    /// The lead of an instance outside Kubernetes.
    pub(super) standalone_lead: Option<BrokerFacts>,
}

/// The objects of such brokers.
pub(super) fn render(
    joiner: Joiner,
    pods: &PoolPods<'_>,
    settings: &Settings,
) -> Result<RemotePool, RemotePoolError> {
    let Joiner { minicluster, mut secret, standalone_lead } = joiner;
    let joiner = with_pods(minicluster, pods);
    let instance = match RemoteInstance::of(&with_size(&joiner, 1)) {
        Some(Ok(instance)) => instance,
        found => {
            let problems = found.and_then(Result::err).unwrap_or_default();
            let reason = RefusalReason::Invalid;
            return Err(RemotePoolError::Refused(Refusal { reason, problems }));
        }
    };
    let (nodes, ranks) = (pods.nodes, instance.ranks.len());
    if nodes < 1 || usize::try_from(nodes).is_ok_and(|nodes| nodes > ranks) {
        return Err(RemotePoolError::Nodes { nodes, ranks });
    }
    let valid = Valid::check(joiner).map_err(RemotePoolError::Refused)?;
    let cluster = Cluster::of(&valid).map_err(|source| RemotePoolError::Hosts { source })?;
    let mut cluster = instance.join(&valid, cluster);
    let joining = cluster.joining.as_mut();
    if let Some(remote) = joining.and_then(|joining| joining.remote.as_mut()) {
        remote.standalone_lead = standalone_lead;
    }
    let settings = Settings { report_url: None, ..settings.clone() };
    let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings: &settings };
    let mut config_map = kubernetes::config_map(&rendering);
    let mut job = kubernetes::job(&rendering);
    job.metadata.labels.iter_mut().for_each(remove_joiner_labels);
    if let Some(spec) = &mut job.spec {
        spec.active_deadline_seconds = pods.deadline_seconds;
        let metadata = spec.template.metadata.as_mut();
        metadata.and_then(|it| it.labels.as_mut()).into_iter().for_each(remove_joiner_labels);
    }
    secret.metadata = ObjectMeta { name: secret.metadata.name, ..config_map.metadata.clone() };
    for metadata in [&mut secret.metadata, &mut config_map.metadata, &mut job.metadata] {
        move_to_target(metadata, pods.labels);
    }
    Ok(RemotePool { secret, config_map, job })
}

/// Makes the metadata of a rendered object that of one at a target.
pub(super) fn move_to_target(metadata: &mut ObjectMeta, labels: &BTreeMap<String, String>) {
    // The Burst is in another Kubernetes cluster: an owner that does not exist here would have the object
    // deleted.
    metadata.owner_references = None;
    let ours = metadata.labels.take().unwrap_or_default();
    metadata.labels = Some(labels.clone().into_iter().chain(ours).collect());
}

/// The merge patch of the Job of a pool that has `nodes` pods afterwards, at most as many as its
/// lease has ranks. Kubernetes requires both numbers to change together.
pub fn resize_patch(nodes: i32) -> Value {
    json!({ "spec": { "completions": nodes, "parallelism": nodes } })
}

/// Removes the labels by which an operator finds the pods of joiners. If the other Kubernetes cluster
/// is the lender's own, its operator would take these pods for those of a joiner without a lease, and
/// lend nothing while they exist.
fn remove_joiner_labels(labels: &mut BTreeMap<String, String>) {
    for label in [HOLDER_LABEL, LENDER_LABEL, TABLE_LABEL] {
        labels.remove(label);
    }
}

/// The MiniCluster of an invitation's file, with the pods of a target.
pub(super) fn with_pods(mut joiner: MiniCluster, pods: &PoolPods<'_>) -> MiniCluster {
    let PoolPods { namespace, uid, nodes, labels, target, deadline_seconds: _ } = pods;
    joiner.metadata.namespace = Some((*namespace).to_owned());
    joiner.metadata.uid = Some((*uid).to_owned());
    joiner.spec.size = *nodes;
    joiner.spec.pod = Some(pods_of(target, labels, &mut joiner.spec.containers));
    joiner
}

/// The pods of a target: where they run, and in these containers, with which image and resources.
pub(super) fn pods_of(
    target: &BurstTarget,
    labels: &BTreeMap<String, String>,
    containers: &mut [Container],
) -> PodSpec {
    let given = target.pods.clone().unwrap_or_default();
    if let Some(Container { image, resources, .. }) = runner_mut(containers) {
        *resources = given.resources.or_else(|| resources.take());
        if !given.image.is_empty() {
            *image = given.image;
        }
    }
    PodSpec {
        labels: target.labels.clone().into_iter().chain(labels.clone()).collect(),
        node_selector: given.node_selector,
        tolerations: given.tolerations,
        priority_class_name: given.priority_class_name,
        ..PodSpec::default()
    }
}

/// The same MiniCluster with this size.
fn with_size(joiner: &MiniCluster, size: i32) -> MiniCluster {
    let mut joiner = joiner.clone();
    joiner.spec.size = size;
    joiner
}
