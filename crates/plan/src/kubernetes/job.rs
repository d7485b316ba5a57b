//! The Indexed Job that runs the pods, and the policies by which it finishes.
//!
//! Sidecars are init containers, so a pod finishes when its runner exits.
//! The Job is complete when its lead (index 0) is, and Kubernetes then deletes
//! the workers. A worker never finishes by itself: an index that completed is never
//! started again, and a restarted lead would wait for it forever.

use flux_operator_wire::REPLACED_EXIT_CODES;
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule, SuccessPolicy, SuccessPolicyRule,
};
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::Rendering;
use super::labels;
use super::pod_template::pod_template;
use crate::observed::LEAD_INDEX;
use crate::queueing::is_waiting;

/// The Go operator's default for the number of pods that may be lost.
const BACKOFF_LIMIT: i32 = 100;

/// The Job of a cluster. It has no `ttlSecondsAfterFinished`: the MiniCluster
/// has one, and its Job is deleted with it.
pub fn job(rendering: &Rendering<'_>) -> Job {
    let spec = &rendering.minicluster.spec;
    let mut metadata = rendering.metadata(rendering.name().to_owned());
    metadata.labels = Some(labels::of_job(rendering));
    let never_restarts = spec.pod.as_ref().map(|pod| pod.restart_policy).unwrap_or_default()
        != flux_operator_api::minicluster::PodRestartPolicy::OnFailure;
    let template: PodTemplateSpec = pod_template(rendering);
    let backoff_limit = spec.backoff_limit.filter(|limit| *limit > 0).unwrap_or(BACKOFF_LIMIT);
    Job {
        metadata,
        spec: Some(JobSpec {
            completion_mode: Some("Indexed".into()),
            completions: Some(spec.size),
            parallelism: Some(spec.size),
            backoff_limit: Some(backoff_limit),
            // The agent counts how often the lead was lost; each worker may be lost
            // as often as the whole cluster may lose pods.
            backoff_limit_per_index: never_restarts.then_some(backoff_limit),
            active_deadline_seconds: Some(spec.deadline_seconds).filter(|seconds| *seconds > 0),
            suspend: (spec.suspend || is_waiting(rendering.minicluster)).then_some(true),
            managed_by: Some(spec.managed_by.clone()).filter(|name| !name.is_empty()),
            // A joiner's pods have no lead among them, and run until they are deleted.
            success_policy: rendering.cluster.joining.is_none().then(lead_decides),
            // Kubernetes allows a failure policy only where pods are never restarted.
            pod_failure_policy: never_restarts.then(|| failure_policy(rendering.name())),
            template,
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

fn lead_decides() -> SuccessPolicy {
    SuccessPolicy {
        rules: vec![SuccessPolicyRule {
            succeeded_indexes: Some(LEAD_INDEX.into()),
            ..SuccessPolicyRule::default()
        }],
    }
}

/// The first rule that matches decides: an exit code of the program's own fails the Job at
/// once; a pod that was evicted is replaced and does not count as a failure.
fn failure_policy(runner: &str) -> PodFailurePolicy {
    PodFailurePolicy {
        rules: vec![
            PodFailurePolicyRule {
                action: "FailJob".into(),
                on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
                    container_name: Some(runner.to_owned()),
                    operator: "NotIn".into(),
                    values: REPLACED_EXIT_CODES.map(i32::from).to_vec(),
                }),
                ..PodFailurePolicyRule::default()
            },
            PodFailurePolicyRule {
                action: "Ignore".into(),
                on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                    status: Some("True".into()),
                    type_: "DisruptionTarget".into(),
                }]),
                ..PodFailurePolicyRule::default()
            },
        ],
    }
}
