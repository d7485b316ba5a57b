//! Checks that the CRD of FluxSetup cannot express.

use super::labels::{check_labels, check_selector};
use crate::FluxSetup;
use crate::validate::Problem;

/// Everything wrong with a FluxSetup that its CRD accepts.
pub fn check(setup: &FluxSetup) -> Vec<Problem> {
    let spec = &setup.spec;
    let mut problems = Vec::new();
    for (resource, amount) in &spec.quota {
        if amount.0.starts_with('-') {
            problems.push(Problem::new(
                format!("spec.quota.{resource}"),
                format!("is {}: must be at least 0", amount.0),
            ));
        }
    }
    if let Some(nodes) = &spec.quota_from_nodes {
        let path = "spec.quotaFromNodes.nodeSelector";
        check_labels(&nodes.node_selector, path, &mut problems);
    }
    if let Some(selector) = &spec.namespace_selector {
        check_selector(selector, "spec.namespaceSelector", &mut problems);
    }
    problems
}
