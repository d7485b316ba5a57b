//! Which policies are applied, and to which MiniClusters.

use std::collections::HashMap;
use std::sync::Arc;

use flux_operator_api::{BurstPolicy, MiniCluster};
use flux_operator_plan::bursting::{MAX_POLICIES, ServedClusters, Service};
use kube::ResourceExt;

/// The policies that are applied, the oldest first, by namespace.
#[derive(Default)]
pub(crate) struct AppliedPolicies(HashMap<String, Vec<(Arc<BurstPolicy>, ServedClusters)>>);

impl AppliedPolicies {
    /// Those of namespaces that are served: of each the oldest.
    pub(crate) fn of(
        mut policies: Vec<Arc<BurstPolicy>>,
        is_served: impl Fn(&str) -> bool,
    ) -> AppliedPolicies {
        policies.retain(|policy| policy.metadata.deletion_timestamp.is_none());
        policies.sort_by_key(|it| (it.creation_timestamp(), it.name_any()));
        let mut applied = AppliedPolicies::default();
        for policy in policies {
            let namespace = policy.namespace().unwrap_or_default();
            if !is_served(&namespace) {
                continue;
            }
            let of_namespace = applied.0.entry(namespace).or_default();
            if of_namespace.len() < MAX_POLICIES {
                let clusters = ServedClusters::of(&policy);
                of_namespace.push((policy, clusters));
            }
        }
        applied
    }

    /// Those that serve a MiniCluster.
    pub(crate) fn serving(&self, cluster: &MiniCluster) -> Vec<Arc<BurstPolicy>> {
        let of_namespace = self.0.get(&cluster.namespace().unwrap_or_default());
        let all = of_namespace.into_iter().flatten().filter(|_| !cluster.spec.is_joiner());
        let serving = all.filter(|(_, clusters)| clusters.contains(cluster));
        serving.map(|(policy, _)| Arc::clone(policy)).collect()
    }

    /// Whether a policy of a namespace that is served is applied. One that is being deleted counts as
    /// such.
    pub(crate) fn service(&self, policy: &BurstPolicy) -> Service<'static> {
        let of_namespace = self.0.get(&policy.namespace().unwrap_or_default());
        let mut applied = of_namespace.into_iter().flatten();
        let is_applied = policy.metadata.deletion_timestamp.is_some()
            || applied.any(|(it, _)| it.name_any() == policy.name_any());
        if is_applied { Service::Applied } else { Service::TooMany }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A policy, created at a second of 2026, that serves all MiniClusters of its namespace.
    pub(crate) fn policy(namespace: &str, second: usize) -> Arc<BurstPolicy> {
        let created = format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60);
        let policy = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "metadata": { "name": format!("p{second}"), "namespace": namespace, "generation": 1,
                "creationTimestamp": created },
            "spec": { "selector": {}, "limits": { "nodes": 4 },
                "targets": [{ "name": "t", "maxNodes": 4, "cluster": {} }] } });
        Arc::new(serde_json::from_value(policy).unwrap())
    }

    fn cluster(namespace: &str) -> MiniCluster {
        let mut cluster = MiniCluster::new("fs", flux_operator_api::MiniClusterSpec::default());
        cluster.metadata.namespace = Some(namespace.to_owned());
        cluster
    }

    #[test]
    fn the_oldest_policies_of_each_namespace_are_applied() {
        let many: Vec<_> = (0..MAX_POLICIES + 10).rev().map(|it| policy("greedy", it)).collect();
        let others = [policy("other", 5), policy("unserved", 1)];
        let all = many.iter().chain(&others).cloned().collect();
        let applied = AppliedPolicies::of(all, |namespace| namespace != "unserved");
        let names = |namespace: &str| {
            let serving = applied.serving(&cluster(namespace));
            serving.iter().map(|it| it.name_any()).collect::<Vec<_>>()
        };
        let expected: Vec<String> = (0..MAX_POLICIES).map(|it| format!("p{it}")).collect();
        assert_eq!(names("greedy"), expected);
        assert_eq!(names("other"), ["p5"]);
        assert_eq!(names("unserved"), [""; 0]);
        assert_eq!(applied.service(&many[0]), Service::TooMany, "the youngest");
        assert_eq!(applied.service(&others[0]), Service::Applied);
    }
}
