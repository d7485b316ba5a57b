//! What is true of a MiniCluster, from what was observed.
//!
//! Life and death come from the Job and its pods alone; reports add what only
//! Flux knows. An operator that missed everything in between arrives at the
//! same status.

mod conditions;
mod ended;
mod pods;

use flux_operator_api::{MiniCluster, MiniClusterStatus};
use flux_operator_wire::Report;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::kubernetes::selector;
use crate::valid::Refusal;

use conditions::conditions;
use ended::Ended;
use pods::Pods;

/// What was seen of a MiniCluster's objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed<'a> {
    /// Its Job, if there is one.
    pub job: Option<&'a Job>,
    /// The Job's pods.
    pub pods: &'a [Pod],
    /// The lead's last report.
    pub report: Option<&'a Report>,
    /// Why it is not carried out.
    pub refusal: Option<&'a Refusal>,
    /// What went wrong when its objects were applied.
    pub failure: Option<&'a str>,
}

/// Everything the conditions are made from.
#[derive(Debug)]
struct Facts<'a> {
    refusal: Option<&'a Refusal>,
    failure: Option<&'a str>,
    suspended: bool,
    created: bool,
    pods: Pods<'a>,
    ended: Option<Ended>,
    stays: bool,
    last_error: &'a str,
}

/// The status to show. `now` is used for what has changed since `minicluster`'s
/// own status.
pub fn status(minicluster: &MiniCluster, seen: &Observed<'_>, now: &Time) -> MiniClusterStatus {
    let spec = &minicluster.spec;
    let before = minicluster.status.clone().unwrap_or_default();
    let pods = Pods::of(seen.pods);
    let ended = Ended::of(seen.job, &pods, &before);
    let facts = Facts {
        refusal: seen.refusal,
        failure: seen.failure,
        suspended: spec.suspend,
        created: seen.job.is_some(),
        stays: stays(spec),
        last_error: seen.report.map(|report| report.last_error.as_str()).unwrap_or_default(),
        pods,
        ended,
    };
    let online = match seen.report.and_then(|report| report.brokers) {
        Some(brokers) if facts.ended.is_none() => brokers.online,
        _ => facts.pods.ready,
    };
    let highest = before.maximum_size.max(spec.max_size.unwrap_or_default()).max(spec.size);
    MiniClusterStatus {
        phase: phase(&facts).to_owned(),
        ready: format!("{online}/{}", spec.size),
        exit_code: facts.ended.as_ref().and_then(|ended| ended.exit_code),
        size: i32::try_from(facts.pods.living).unwrap_or(i32::MAX),
        selector: selector(&minicluster.name_any()),
        maximum_size: highest,
        jobid: before.jobid.clone(),
        observed_generation: minicluster.metadata.generation,
        conditions: conditions(&facts, minicluster.metadata.generation, &before.conditions, now),
    }
}

/// One word for people.
fn phase(facts: &Facts<'_>) -> &'static str {
    match &facts.ended {
        _ if facts.refusal.is_some() => "Refused",
        Some(ended) if ended.succeeded => "Succeeded",
        Some(_) => "Failed",
        None if facts.suspended => "Suspended",
        None if facts.failure.is_some() => "Blocked",
        None if facts.pods.lead_ready && facts.stays => "Ready",
        None if facts.pods.lead_ready => "Running",
        None if facts.pods.started > 0 => "Starting",
        None => "Pending",
    }
}

/// Whether nothing is run and the cluster waits for jobs.
fn stays(spec: &flux_operator_api::MiniClusterSpec) -> bool {
    let runner = crate::cluster::runner(&spec.containers);
    crate::cluster::Mode::of(spec, runner) == crate::cluster::Mode::Interactive
}
