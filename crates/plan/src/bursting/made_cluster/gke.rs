//! A cluster of Google Kubernetes Engine: the program `flux-operator-gke` makes it, as programs of users
//! make theirs.

use flux_operator_api::burst::{BurstTarget, CommandTarget, GkeReleaseChannel, GkeTarget};
use flux_operator_wire::{GKE_CREDENTIALS, GKE_PROGRAM, GKE_SETTINGS, GkeFailure, GkeSettings};
use k8s_openapi::api::batch::v1::{
    Job, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};

use super::super::observed::job_failure;

/// The key of a Secret that has the key of a Google service account.
const CREDENTIALS_KEY: &str = "key.json";

/// The action of a rule that ends a Job, as the message of its failure has it.
const FAIL_JOB: &str = "FailJob";

/// The program for a target, in the administrator's image.
pub fn gke_command(target: &BurstTarget, gke: &GkeTarget, image: &str) -> CommandTarget {
    let words = |verb: &str| vec![GKE_PROGRAM.to_owned(), verb.to_owned()];
    let settings = serde_json::to_string(&settings(target, gke));
    let mut env = vec![EnvVar {
        name: GKE_SETTINGS.to_owned(),
        value: Some(settings.expect("strings and numbers can be serialized")),
        ..EnvVar::default()
    }];
    env.extend(gke.credentials.as_ref().map(|credentials| {
        let key = match credentials.key.as_str() {
            "" => CREDENTIALS_KEY,
            key => key,
        };
        let secret = SecretKeySelector {
            name: credentials.secret.clone(),
            key: key.to_owned(),
            ..SecretKeySelector::default()
        };
        let source = EnvVarSource { secret_key_ref: Some(secret), ..EnvVarSource::default() };
        EnvVar { name: GKE_CREDENTIALS.to_owned(), value_from: Some(source), ..EnvVar::default() }
    }));
    CommandTarget {
        image: image.to_owned(),
        up: words("up"),
        down: words("down"),
        service_account: gke.service_account.clone(),
        env,
        ..CommandTarget::default()
    }
}

fn settings(target: &BurstTarget, gke: &GkeTarget) -> GkeSettings {
    let GkeTarget {
        project,
        location,
        machine_type,
        // In the Job itself.
        service_account: _,
        credentials: _,
        node_service_account,
        disk_size_gb,
        spot,
        network,
        subnetwork,
        version,
        release_channel,
        labels,
        namespace,
    } = gke.clone();
    GkeSettings {
        project,
        location,
        machine_type,
        node_service_account,
        disk_size_gb,
        spot,
        network,
        subnetwork,
        version,
        release_channel: release_channel.map(channel).unwrap_or_default().to_owned(),
        labels,
        namespace,
        autoscaling: target.scaling.as_ref().map(|it| (it.min_nodes, it.max_nodes)),
    }
}

fn channel(channel: GkeReleaseChannel) -> &'static str {
    match channel {
        GkeReleaseChannel::Rapid => "Rapid",
        GkeReleaseChannel::Regular => "Regular",
        GkeReleaseChannel::Stable => "Stable",
        GkeReleaseChannel::Extended => "Extended",
    }
}

/// A Job of the program: it ends at once when another run would fail as well, and what the program said
/// last is in the status of its pod.
pub fn gke_job(mut job: Job) -> Job {
    let Some(spec) = &mut job.spec else { return job };
    let codes = GkeFailure::ALL.iter().map(|it| it.exit_code().into()).collect();
    let on_exit_codes = PodFailurePolicyOnExitCodesRequirement {
        operator: "In".to_owned(),
        values: codes,
        ..PodFailurePolicyOnExitCodesRequirement::default()
    };
    let rule = PodFailurePolicyRule {
        action: FAIL_JOB.to_owned(),
        on_exit_codes: Some(on_exit_codes),
        ..PodFailurePolicyRule::default()
    };
    spec.pod_failure_policy = Some(PodFailurePolicy { rules: vec![rule] });
    for container in spec.template.spec.iter_mut().flat_map(|pod| &mut pod.containers) {
        container.termination_message_policy = Some("FallbackToLogsOnError".to_owned());
    }
    job
}

/// Why a Job of a program has failed, if it has. Only those of [`gke_job`] end because of an exit code.
pub(super) fn program_failure(job: &Job) -> Option<String> {
    let why = job_failure(job, &[])?;
    Some(match explained(&why) {
        Some(text) => text.to_owned(),
        None => why,
    })
}

/// What an exit code means, from the message that Kubernetes writes.
fn explained(message: &str) -> Option<&'static str> {
    let (_, rest) = message.split_once(" failed with exit code ")?;
    let (code, rest) = rest.split_once(' ')?;
    rest.contains(FAIL_JOB).then_some(())?;
    GkeFailure::from_exit_code(code.parse().ok()?).map(GkeFailure::text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_explained_only_if_it_ended_the_job() {
        let message = |code: i32| {
            format!(
                "Container command for pod team/burst-0-up-2-x failed with exit code {code} matching \
                 FailJob rule at index 0"
            )
        };
        for failure in GkeFailure::ALL {
            assert_eq!(explained(&message(failure.exit_code().into())), Some(failure.text()));
        }
        for other in [message(1), "Job has reached the specified backoff limit".into()] {
            assert_eq!(explained(&other), None, "{other}");
        }
    }
}
