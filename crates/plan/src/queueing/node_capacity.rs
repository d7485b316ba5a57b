//! The capacity of nodes.

use std::collections::{BTreeMap, HashSet};

use flux_operator_queue::{Resource, Resources};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

use super::requests::{add, gpus_of, of_pod};

/// The capacity of the nodes with these labels: what is allocatable on them, less
/// what `others` on them request. A node that accepts no pods does not count.
pub fn node_capacity<'a>(
    labels: &BTreeMap<String, String>,
    nodes: impl Iterator<Item = &'a Node>,
    others: impl Iterator<Item = &'a Pod>,
) -> Resources {
    let has_labels =
        |node: &&Node| labels.iter().all(|(name, value)| node.labels().get(name) == Some(value));
    let mut names = HashSet::new();
    let mut sum = BTreeMap::new();
    for node in nodes.filter(has_labels).filter(|node| is_schedulable(node)) {
        names.insert(node.name_any());
        let status = node.status.clone().unwrap_or_default();
        add(&mut sum, &status.allocatable);
    }
    sum.insert(Resource::Nodes, i64::try_from(names.len()).unwrap_or(i64::MAX));
    sum.insert(Resource::Gpus, gpus_of(&sum));
    for pod in others.filter(|pod| uses_capacity_of(pod, &names)) {
        let spec = pod.spec.clone().unwrap_or_default();
        for (resource, requested) in of_pod(&spec, 0).iter() {
            if let Some(left) = sum.get_mut(resource) {
                *left = left.saturating_sub(requested).max(0);
            }
        }
    }
    Resources::of(sum)
}

fn is_schedulable(node: &Node) -> bool {
    let closed = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let mut conditions = node.status.iter().filter_map(|it| it.conditions.as_ref()).flatten();
    !closed && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether a pod uses capacity of one of these nodes: a pod that has finished uses none.
fn uses_capacity_of(pod: &Pod, nodes: &HashSet<String>) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    node.is_some_and(|node| nodes.contains(node)) && !matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str, changes: Value) -> Node {
        let mut node = json!({
            "metadata": { "name": name, "labels": { "kind": "cpu" } },
            "spec": {},
            "status": {
                "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        flux_operator_testkit::merge(&mut node, &changes);
        serde_json::from_value(node).unwrap()
    }

    fn pod(node: &str, phase: &str) -> Pod {
        let resources =
            json!({ "requests": { "cpu": "500m" }, "limits": { "nvidia.com/gpu": "1" } });
        serde_json::from_value(json!({
            "metadata": { "name": "p" },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "resources": resources }] },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn q20_capacity_is_what_other_pods_leave_of_schedulable_nodes() {
        let nodes = [
            node("a", json!({})),
            node("b", json!({})),
            node("closed", json!({ "spec": { "unschedulable": true } })),
            node(
                "lost",
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
            ),
            node("other", json!({ "metadata": { "labels": { "kind": "gpu" } } })),
        ];
        let pods = [pod("a", "Running"), pod("b", "Succeeded"), pod("other", "Running")];
        let labels = [("kind".to_owned(), "cpu".to_owned())].into();
        let capacity = node_capacity(&labels, nodes.iter(), pods.iter());
        for (resource, amount) in [
            (Resource::Nodes, 2),
            (Resource::Pods, 19),
            (Resource::Cpu, 7500),
            (Resource::Memory, 16 << 30),
            (Resource::Gpus, 3),
            (Resource::Other("nvidia.com/gpu".into()), 3000),
        ] {
            assert_eq!(capacity.amount(&resource), amount, "{resource}");
        }
        assert_eq!(node_capacity(&labels, [].iter(), [].iter()).amount(&Resource::Nodes), 0);
    }
}
