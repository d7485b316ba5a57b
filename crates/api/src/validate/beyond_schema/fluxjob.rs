//! Checks that the CRD of FluxJob cannot express.

use super::labels::{check_key, check_labels};
use super::minicluster;
use crate::validate::Problem;
use crate::{FluxJob, MiniCluster};

/// Everything wrong with a FluxJob that its CRD accepts.
pub fn check(job: &FluxJob) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(template) = &job.spec.template else { return problems };
    check_labels(&template.labels, "spec.template.labels", &mut problems);
    for name in template.annotations.keys() {
        check_key(name, "spec.template.annotations", &mut problems);
    }
    // The MiniCluster is created later; a problem with it is a problem of the template.
    let planned = MiniCluster::new("template", template.spec.clone());
    problems.extend(minicluster::check(&planned).into_iter().map(|problem| Problem {
        path: format!("spec.template.{}", problem.path),
        message: problem.message,
    }));
    problems
}
