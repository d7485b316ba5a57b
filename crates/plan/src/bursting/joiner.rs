//! The brokers of a Burst in the MiniCluster's own Kubernetes cluster: a joiner.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::minicluster::{Join, PodSpec};
use flux_operator_api::{Burst, MiniCluster, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::names::{burst_annotations, burst_labels, object_name};
use super::remote_pool::pods_of;
use crate::joining::broker_spec;

/// The merge patch of a joiner that has `nodes` nodes afterwards. Without any it is suspended: the operator
/// drains its ranks, and waits for the jobs on them.
pub fn joiner_patch(nodes: i32) -> Value {
    match nodes {
        0 => json!({ "spec": { "suspend": true } }),
        _ => json!({ "spec": { "size": nodes, "suspend": false } }),
    }
}

/// How many nodes a joiner should have.
pub fn joiner_nodes(joiner: &MiniCluster) -> i32 {
    if joiner.spec.suspend { 0 } else { joiner.spec.size }
}

/// The MiniCluster that joins `cluster`, with the brokers of a Burst. What names objects of the
/// namespace, such as volumes, is left out, as in other clusters: another node pool may not have them.
pub fn joiner(cluster: &MiniCluster, burst: &Burst) -> MiniCluster {
    let (mut spec, _) = broker_spec(cluster, burst.spec.nodes);
    let target = &burst.spec.target;
    let labels = burst_labels(burst, &cluster.uid().unwrap_or_default());
    spec.pod = Some(PodSpec {
        // How long the operator waits for jobs on its ranks.
        termination_grace_period_seconds: Some(i64::from(burst.spec.grace_seconds())),
        ..pods_of(target, &labels, &mut spec.containers)
    });
    // It uses quota of the same queue.
    spec.queue.clone_from(&cluster.spec.queue);
    let join = Join { name: cluster.name_any(), ranks: target.ranks.clone(), ..Join::default() };
    spec.flux.get_or_insert_default().join = Some(join);
    let name = object_name(burst);
    let mut joiner = MiniCluster::new(&name, spec);
    joiner.metadata = ObjectMeta {
        name: Some(name),
        namespace: burst.namespace(),
        labels: Some(labels),
        annotations: Some(burst_annotations(burst)),
        ..ObjectMeta::default()
    };
    joiner
}

/// Why a joiner has not joined, if only a user or more nodes can change that.
pub fn joiner_trouble(joiner: &MiniCluster) -> Option<(Reason, String)> {
    let conditions = &joiner.status.as_ref()?.conditions;
    let kinds = [ConditionType::Accepted, ConditionType::Joined, ConditionType::Ready];
    let is_about = |it: &Condition| kinds.iter().any(|kind| it.type_ == kind.as_str());
    let failing = conditions.iter().filter(|it| is_about(it) && it.status != "True");
    failing
        .filter_map(|it| Some((it.reason.parse::<Reason>().ok()?, it.message.clone())))
        .find(|(reason, _)| !reason.is_progress())
        .map(|(reason, message)| match reason {
            Reason::Unschedulable => (Reason::OutOfCapacity, message),
            reason => (reason, message),
        })
}
