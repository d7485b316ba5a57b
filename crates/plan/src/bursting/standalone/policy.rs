//! What a policy cannot ask of an instance outside Kubernetes.

use flux_operator_api::BurstPolicy;
use flux_operator_api::burst::{BurstTarget, TargetKind};
use kube::ResourceExt;

/// Why a policy cannot be applied to an instance outside Kubernetes, if it cannot. `has_template`:
/// whether a MiniCluster says what image brokers have.
pub fn standalone_problem(policy: &BurstPolicy, has_template: bool) -> Option<String> {
    let name = policy.name_any();
    if policy.spec.isolated == Some(true) {
        return Some(format!(
            "BurstPolicy {name:?} has isolated: true, and jobs run in an instance of their own only if \
             home is a MiniCluster: remove it"
        ));
    }
    let mut targets = policy.spec.targets.iter();
    let problem = targets.find_map(|target| problem_of(target, has_template))?;
    Some(format!("BurstPolicy {name:?}: {problem}"))
}

fn problem_of(target: &BurstTarget, has_template: bool) -> Option<String> {
    let name = &target.name;
    let kind = match target.kind() {
        TargetKind::Mock(_) => return None,
        TargetKind::Kubeconfig(_) => {
            let has_image = target.pods.as_ref().is_some_and(|pods| !pods.image.is_empty());
            return (!has_image && !has_template).then(|| {
                format!(
                    "target {name:?} has no image with Flux: set pods.image, or add a MiniCluster to the \
                     file, whose image and Flux the brokers then have"
                )
            });
        }
        TargetKind::Cluster => "cluster",
        TargetKind::ClusterApi(_) => "clusterAPI",
        TargetKind::Command(_) => "command",
        TargetKind::Gke(_) => "gke",
    };
    Some(format!(
        "target {name:?} is {kind}, which needs the Kubernetes cluster of a MiniCluster: use kubeconfig"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn problem(spec: Value, has_template: bool) -> Option<String> {
        let mut policy = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "metadata": { "name": "p" }, "spec": { "selector": {}, "limits": { "nodes": 1 } } });
        flux_operator_testkit::merge(&mut policy, &json!({ "spec": spec }));
        standalone_problem(&serde_json::from_value(policy).unwrap(), has_template)
    }

    #[test]
    fn what_only_kubernetes_can_do_is_refused_by_name() {
        let target = |kind: Value| {
            let mut target = json!({ "name": "t", "maxNodes": 1 });
            flux_operator_testkit::merge(&mut target, &kind);
            json!({ "targets": [target] })
        };
        let kubeconfig = json!({ "kubeconfig": { "secret": "away" } });
        assert_eq!(problem(target(kubeconfig.clone()), true), None);
        assert!(problem(target(kubeconfig.clone()), false).unwrap().contains("pods.image"));
        let with_image = json!({ "kubeconfig": { "secret": "a" }, "pods": { "image": "i" } });
        assert_eq!(problem(target(with_image), false), None);
        assert!(problem(target(json!({ "cluster": {} })), true).unwrap().contains("is cluster"));
        let mut isolated = target(kubeconfig);
        isolated["isolated"] = true.into();
        assert!(problem(isolated, true).unwrap().contains("isolated: true"));
    }
}
