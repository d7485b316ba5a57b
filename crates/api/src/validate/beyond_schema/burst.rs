//! Checks that the CRDs of BurstPolicy and Burst cannot express.

use super::labels::{check_labels, check_selector};
use crate::burst::BurstTarget;
use crate::validate::Problem;
use crate::{Burst, BurstPolicy};

/// Everything wrong with a BurstPolicy that its CRD accepts.
pub fn check_policy(policy: &BurstPolicy) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_selector(&policy.spec.selector, "spec.selector", &mut problems);
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
