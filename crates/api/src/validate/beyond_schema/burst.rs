//! Checks that the CRDs of BurstPolicy and Burst cannot express.

use super::labels::{check_labels, check_selector};
use crate::burst::BurstTarget;
use crate::validate::Problem;
use crate::{Burst, BurstPolicy};

/// Everything wrong with a BurstPolicy that its CRD accepts.
pub fn check_policy(policy: &BurstPolicy) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_selector(&policy.spec.selector, "spec.selector", &mut problems);
    if let Err(message) = policy.spec.check_selector_size() {
        problems.push(Problem::new("spec.selector", message));
    }
    for (index, target) in policy.spec.targets.iter().enumerate() {
        check_target(target, &format!("spec.targets[{index}]"), &mut problems);
    }
    problems
}

/// Everything wrong with a Burst that its CRD accepts.
pub fn check_burst(burst: &Burst) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_target(&burst.spec.target, "spec.target", &mut problems);
    problems
}

fn check_target(target: &BurstTarget, path: &str, problems: &mut Vec<Problem>) {
    check_labels(&target.labels, &format!("{path}.labels"), problems);
    if let Some(cluster_api) = &target.cluster_api
        && let Err(message) = cluster_api.variable_values()
    {
        problems.push(Problem::new(format!("{path}.clusterAPI.variables"), message));
    }
    if let Some(pods) = &target.pods {
        check_labels(&pods.node_selector, &format!("{path}.pods.nodeSelector"), problems);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_has_a_largest_size() {
        let problems = |count: usize| {
            let values: Vec<String> = (0..count).map(|it| it.to_string()).collect();
            let expression = json!({ "key": "a", "operator": "In", "values": values });
            let selector = json!({ "matchLabels": { "b": "c" }, "matchExpressions": [expression] });
            let policy = json!({ "metadata": { "name": "p" },
                "spec": { "selector": selector, "limits": { "nodes": 1 }, "targets": [] } });
            let policy: BurstPolicy = serde_json::from_value(policy).unwrap();
            check_policy(&policy).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(problems(254), Vec::<String>::new());
        let expected = "spec.selector: has 257 labels, expressions and values in total: at most 256 are allowed";
        assert_eq!(problems(255), [expected]);
    }
}
