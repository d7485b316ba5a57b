//! A cluster that a program of the user's makes: a Job that makes it, and another that deletes it.
//!
//! ```text
//! up-2 ─► Secret with the kubeconfig ─► brokers   (up-3 if it grows)
//!                                         │ given back
//! all deleted ◄─ down has finished ◄─ down ◄─ up-… suspended, and without pods
//! ```
//!
//! While a Job of the one kind exists, something may have been made, so `down` is deleted last.

use std::collections::BTreeMap;

use flux_operator_api::Burst;
use flux_operator_api::burst::CommandTarget;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::super::names::object_name;
use super::super::observed::{Presence, job_failure};
use super::{cluster_secret, metadata};

/// How often a program that fails is started again, by Kubernetes.
const RETRIES: i32 = 3;

/// The Jobs of a Burst that make or delete its cluster.
#[derive(Clone, Debug, Default)]
pub struct CommandJobs {
    /// Those that make it.
    pub up: Vec<Job>,
    /// The one that deletes it.
    pub down: Option<Job>,
}

impl CommandJobs {
    /// Sorts the Jobs of a Burst by their names; others are not of this kind.
    pub fn of(burst: &Burst, jobs: Vec<Job>) -> CommandJobs {
        let (up, down) = (up_prefix(burst), down_name(burst));
        let mut sorted = CommandJobs::default();
        for job in jobs {
            match job.name_any() {
                name if name == down => sorted.down = Some(job),
                name if name.starts_with(&up) => sorted.up.push(job),
                _ => {}
            }
        }
        sorted
    }

    /// Whether a Job for this many nodes exists.
    pub fn has_up(&self, burst: &Burst, nodes: i32) -> bool {
        let name = format!("{}{nodes}", up_prefix(burst));
        self.up.iter().any(|job| job.name_any() == name)
    }

    /// Those that make it and could still start a pod.
    pub fn unfinished_up(&self) -> impl Iterator<Item = &Job> {
        self.up.iter().filter(|job| {
            let is_suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
            !is_suspended && !is_complete(job) && job_failure(job).is_none()
        })
    }

    /// Whether no pod that makes it runs, nor will.
    pub fn is_up_stopped(&self) -> bool {
        self.up.iter().all(|job| {
            let status = job.status.clone().unwrap_or_default();
            let has_pods = [status.active, status.terminating].iter().any(|it| it.unwrap_or(0) > 0);
            let has_ended = ["Complete", "Failed", "Suspended"].iter().any(|it| is(job, it));
            has_ended && !has_pods
        })
    }

    /// Whether it has been deleted.
    pub fn is_down(&self) -> bool {
        self.down.as_ref().is_some_and(is_complete)
    }

    /// Why it could not be deleted, if it could not.
    pub fn down_failure(&self) -> Option<String> {
        self.down.as_ref().and_then(job_failure)
    }
}

fn is_complete(job: &Job) -> bool {
    is(job, "Complete")
}

/// Whether a Job has a condition.
fn is(job: &Job, kind: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|it| it.iter().any(|it| it.type_ == kind && it.status == "True"))
}

fn up_prefix(burst: &Burst) -> String {
    format!("{}-up-", object_name(burst))
}

fn down_name(burst: &Burst) -> String {
    format!("{}-down", object_name(burst))
}

/// The Job that makes the cluster of a Burst, with this many nodes.
pub fn up_job(burst: &Burst, target: &CommandTarget, nodes: i32) -> Job {
    job(burst, target, &format!("{}{nodes}", up_prefix(burst)), &target.up, nodes)
}

/// The Job that deletes it.
pub fn down_job(burst: &Burst, target: &CommandTarget) -> Job {
    job(burst, target, &down_name(burst), &target.down, burst.spec.nodes)
}

fn job(burst: &Burst, target: &CommandTarget, name: &str, argv: &[String], nodes: i32) -> Job {
    let container = Container {
        name: "command".to_owned(),
        image: Some(target.image.clone()),
        // The image's entrypoint would get them as arguments otherwise.
        command: Some(argv.to_vec()),
        env: Some(environment(burst, target, nodes)),
        env_from: Some(target.env_from.clone()).filter(|it| !it.is_empty()),
        ..Container::default()
    };
    let pod = PodSpec {
        containers: vec![container],
        service_account_name: Some(target.service_account.clone()),
        restart_policy: Some("Never".to_owned()),
        ..PodSpec::default()
    };
    let metadata = metadata(burst, name);
    let pod_metadata = ObjectMeta { labels: metadata.labels.clone(), ..ObjectMeta::default() };
    Job {
        metadata,
        spec: Some(JobSpec {
            backoff_limit: Some(RETRIES),
            active_deadline_seconds: Some(target.timeout_seconds()),
            template: PodTemplateSpec { metadata: Some(pod_metadata), spec: Some(pod) },
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// The environment of the program: the user's, and ours, which wins.
fn environment(burst: &Burst, target: &CommandTarget, nodes: i32) -> Vec<EnvVar> {
    let ours = BTreeMap::from([
        ("BURST_NAME", object_name(burst)),
        ("BURST_NODES", nodes.to_string()),
        ("BURST_SECRET", cluster_secret(burst)),
        ("BURST_NAMESPACE", burst.namespace().unwrap_or_default()),
        ("BURST_CLUSTER", burst.spec.cluster.clone()),
    ]);
    let users = target.env.iter().filter(|it| !ours.contains_key(it.name.as_str())).cloned();
    let ours = ours.iter().map(|(name, value)| EnvVar {
        name: (*name).to_owned(),
        value: Some(value.clone()),
        ..EnvVar::default()
    });
    users.chain(ours).collect()
}

/// How far the program is, and why its cluster will never come, if it will not. `has_secret`: it has
/// written the kubeconfig.
pub fn command_presence(
    burst: &Burst,
    jobs: &CommandJobs,
    has_secret: bool,
) -> (Presence, Option<String>) {
    if jobs.up.is_empty() && jobs.down.is_none() {
        // A Secret alone is a leftover that is deleted in the end.
        return (Presence::Nothing, None);
    }
    if jobs.down.is_some() {
        let presence = match jobs.is_down() || jobs.down_failure().is_some() {
            // There is something to do about it.
            true => Presence::ClusterReady,
            false => Presence::Leaving,
        };
        return (presence, None);
    }
    let is_made = jobs.up.iter().any(is_complete);
    if is_made && has_secret {
        return (Presence::ClusterReady, None);
    }
    let namespace = burst.namespace().unwrap_or_default();
    let failed = jobs.up.iter().find_map(|job| {
        let why = job_failure(job)?;
        Some(format!("{why}; see kubectl logs -n {namespace} job/{}", job.name_any()))
    });
    let failed = failed.or_else(|| {
        is_made.then(|| {
            let secret = cluster_secret(burst);
            format!("the command has finished and has not written Secret {secret}, key kubeconfig")
        })
    });
    let names: Vec<String> = jobs.up.iter().map(ResourceExt::name_any).collect();
    let text = format!("Job {} makes the cluster", names.join(", "));
    (Presence::ClusterComing(text), failed)
}
