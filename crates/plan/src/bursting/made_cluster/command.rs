//! A cluster that a program makes, the user's or that for Google Kubernetes Engine: a Job that makes it, and
//! another that deletes it.
//!
//! ```text
//! up-2 ─► Secret with the kubeconfig ─► brokers   (up-3 if it grows)
//!                                         │ given back
//! all deleted ◄─ down has finished ◄─ down ◄─ up-… suspended, and without pods
//! ```
//!
//! The status of the Burst records that something may have been made: Jobs can be deleted by others. They
//! do not belong to the Burst, so that Kubernetes does not delete them with it, or before it.

use std::collections::BTreeMap;
use std::fmt::Display;

use flux_operator_api::Burst;
use flux_operator_api::burst::{CommandTarget, RunState};
use flux_operator_wire::{KUBECONFIG_KEY, burst_variable};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::super::names::object_name;
use super::super::observed::Presence;
use super::gke::program_failure;
use super::{cluster_secret, metadata};
use crate::bursting::life::was_prepared;

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

/// The next step of deleting the cluster that a program has made.
#[derive(Clone, Debug, PartialEq)]
pub enum Deletion<'a> {
    /// Suspend these Jobs, which could still make something.
    StopUp(Vec<&'a Job>),
    /// Wait until a program has ended: two at the same time could make again what the other deletes.
    Wait,
    /// Run the program that deletes it.
    RunDown,
    /// That program has failed, for this reason. Delete its Job, so that it is run again.
    RetryDown(&'a Job, String),
    /// The cluster does not exist: delete the Jobs and the Secret.
    RemoveRecords,
}

/// The next step towards a cluster with more nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Growth<'a> {
    /// It has as many nodes.
    Enough,
    /// Wait for the program, which runs: two at the same time could each undo what the other does.
    Wait,
    /// Run the program with this Job.
    Run(Box<Job>),
    /// The program has failed, for this reason. Delete its Job, so that it is run again.
    Retry(&'a Job, String),
}

impl CommandJobs {
    /// Sorts the Jobs of a Burst by their names; others are not of this kind.
    pub fn of(burst: &Burst, jobs: Vec<Job>) -> CommandJobs {
        let object_name = object_name(burst);
        let down = down_name(&object_name);
        let mut sorted = CommandJobs::default();
        for job in jobs {
            match job.name_any() {
                name if name == down => sorted.down = Some(job),
                name if up_nodes(&object_name, &name).is_some() => sorted.up.push(job),
                _ => {}
            }
        }
        sorted
    }

    /// What to do next so that the cluster has at least this many nodes. A program never has fewer to
    /// make: only Flux knows on which nodes jobs run.
    pub fn next_growth(&self, burst: &Burst, target: &CommandTarget, nodes: i32) -> Growth<'_> {
        let object_name = object_name(burst);
        let size = |job: &Job| up_nodes(&object_name, &job.name_any()).unwrap_or(0);
        if self.up.iter().any(may_start_pods) {
            return Growth::Wait;
        }
        let enough = || self.up.iter().filter(|job| size(job) >= nodes);
        if enough().any(|job| is(job, "Complete")) {
            return Growth::Enough;
        }
        match enough().find_map(|job| Some((job, program_failure(job)?))) {
            Some((job, why)) => Growth::Retry(job, why),
            None => Growth::Run(Box::new(up_job(burst, target, nodes))),
        }
    }

    /// What to do next so that nothing is left. `may_exist`: the status of the Burst says that a cluster
    /// was made, and not that it was deleted.
    pub fn next_deletion(&self, may_exist: bool) -> Deletion<'_> {
        match &self.down {
            Some(down) if is(down, "Complete") => return Deletion::RemoveRecords,
            Some(down) => {
                return match program_failure(down) {
                    Some(why) => Deletion::RetryDown(down, why),
                    None => Deletion::Wait,
                };
            }
            None if !may_exist => return Deletion::RemoveRecords,
            None => {}
        }
        let running: Vec<&Job> = self.up.iter().filter(|job| may_start_pods(job)).collect();
        match running.is_empty() {
            false => Deletion::StopUp(running),
            true if self.up.iter().all(has_no_pods) => Deletion::RunDown,
            true => Deletion::Wait,
        }
    }
}

/// Whether a Job could still start a pod.
fn may_start_pods(job: &Job) -> bool {
    let is_suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
    !is_suspended && !is(job, "Complete") && program_failure(job).is_none()
}

/// Whether a Job has no pod, and starts none.
fn has_no_pods(job: &Job) -> bool {
    let status = job.status.clone().unwrap_or_default();
    let has_pods = [status.active, status.terminating].iter().any(|it| it.unwrap_or(0) > 0);
    ["Complete", "Failed", "Suspended"].iter().any(|it| is(job, it)) && !has_pods
}

/// Whether a Job has a condition.
fn is(job: &Job, kind: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|it| it.iter().any(|it| it.type_ == kind && it.status == "True"))
}

fn up_name(object_name: &str, nodes: impl Display) -> String {
    format!("{object_name}-up-{nodes}")
}

fn down_name(object_name: &str) -> String {
    format!("{object_name}-down")
}

/// For how many nodes the Job of this name makes a cluster, if it makes one.
fn up_nodes(object_name: &str, job: &str) -> Option<i32> {
    job.strip_prefix(&up_name(object_name, ""))?.parse().ok()
}

/// Whether the Job of this name makes or deletes the cluster of the Burst with this object name. Brokers
/// have the same label, and other names.
pub fn is_command_job(object_name: &str, job: &str) -> bool {
    job == down_name(object_name) || up_nodes(object_name, job).is_some()
}

/// The Job that makes the cluster of a Burst, with this many nodes.
pub fn up_job(burst: &Burst, target: &CommandTarget, nodes: i32) -> Job {
    job(burst, target, &up_name(&object_name(burst), nodes), &target.up, nodes)
}

/// The Job that deletes it.
pub fn down_job(burst: &Burst, target: &CommandTarget) -> Job {
    job(burst, target, &down_name(&object_name(burst)), &target.down, burst.spec.nodes)
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
        (burst_variable::NAME, object_name(burst)),
        (burst_variable::NODES, nodes.to_string()),
        (burst_variable::SECRET, cluster_secret(burst)),
        (burst_variable::NAMESPACE, burst.namespace().unwrap_or_default()),
        (burst_variable::CLUSTER, burst.spec.cluster.clone()),
    ]);
    let users = target.env.iter().filter(|it| !ours.contains_key(it.name.as_str())).cloned();
    let ours = ours.iter().map(|(name, value)| EnvVar {
        name: (*name).to_owned(),
        value: Some(value.clone()),
        ..EnvVar::default()
    });
    users.chain(ours).collect()
}

/// Whether the cluster of a Burst may exist.
pub fn may_exist(burst: &Burst) -> bool {
    burst.status.as_ref().is_some_and(|status| status.cluster_made)
}

/// Whether nothing is done about a Burst before an administrator allows its program. What may have been
/// made is deleted without that.
pub fn needs_permission(burst: &Burst) -> bool {
    burst.metadata.deletion_timestamp.is_none() && !may_exist(burst)
}

/// Whether a run may have started in its cluster, or is over: it is not made again.
fn was_used_by_run(burst: &Burst) -> bool {
    burst.run().is_some_and(|run| {
        run.may_have_run || run.state == RunState::Finishing || run.state.is_over()
    })
}

/// How far the program is. `has_secret`: it has written the kubeconfig.
pub fn command_presence(burst: &Burst, jobs: &CommandJobs, has_secret: bool) -> Presence {
    if jobs.down.is_some() {
        return match jobs.next_deletion(may_exist(burst)) {
            Deletion::Wait => Presence::Leaving,
            Deletion::RemoveRecords => Presence::ClusterDeleted,
            _ => Presence::ClusterDeletionFailed,
        };
    }
    let is_made = jobs.up.iter().any(|job| is(job, "Complete"));
    if jobs.up.is_empty() {
        // Others have deleted the Jobs. What may exist is still needed, or has to be deleted.
        let is_deleting = burst.metadata.deletion_timestamp.is_some();
        let is_used = has_secret || is_deleting || was_used_by_run(burst);
        return match may_exist(burst) && is_used {
            true => Presence::ClusterReady,
            // A Secret alone is a leftover that is deleted in the end.
            false => Presence::Nothing,
        };
    }
    // If it was there before, credentials are missing.
    if is_made && (has_secret || was_prepared(burst) || was_used_by_run(burst)) {
        return Presence::ClusterReady;
    }
    let namespace = burst.namespace().unwrap_or_default();
    let failed = jobs.up.iter().find_map(|job| {
        let why = program_failure(job)?;
        Some(format!("{why}; see kubectl logs -n {namespace} job/{}", job.name_any()))
    });
    let failed = failed.or_else(|| {
        let has_finished = is_made && jobs.up.iter().all(has_no_pods);
        has_finished.then(|| {
            let secret = cluster_secret(burst);
            format!(
                "the command has finished and has not written Secret {secret}, key {KUBECONFIG_KEY}"
            )
        })
    });
    if let Some(why) = failed {
        return Presence::ClusterFailed(why);
    }
    let names: Vec<String> = jobs.up.iter().map(ResourceExt::name_any).collect();
    Presence::ClusterComing(format!("Job {} makes the cluster", names.join(", ")))
}
