//! The status of a MiniCluster, computed from what was observed.
//!
//! Whether it runs or has finished follows from the Job and its pods alone; reports add what
//! only Flux knows. An operator that was down in between computes the same status.

mod completion;
mod conditions;
mod events;
mod pods;
mod run;
mod trouble;

use flux_operator_api::condition::ConditionType;
use flux_operator_api::fluxjob::Admission;
use flux_operator_api::minicluster::External;
use flux_operator_api::validate::{self, Problem};
use flux_operator_api::{MiniCluster, MiniClusterStatus, Reason};
use flux_operator_flux::{IdSet, JobId};
use flux_operator_queue::WaitStatus;
use flux_operator_wire::{BlockingJob, InstanceState};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::cluster::Mode;
use crate::exposing::{ExposeState, expose, exposed_lead_address};
use crate::joining::{JoinState, LeaseDecision};
use crate::kubernetes::selector;
use crate::last_report::{LastReport, first_report_due, may_still_report};
use crate::observed::Observed;
use crate::queueing::{admission_of, is_waiting};
use crate::ready_timeout::released_at;
use crate::resize::Shrinking;
use crate::stamp;
use crate::steps::Blocker;
use crate::valid::{Refusal, RefusalReason, runner};
use crate::verdict::find;

use completion::ClusterCompletion;
use conditions::{BUT_ONLINE, conditions};
use pods::Pods;

pub use events::{NewEvent, Urgency};
pub(crate) use events::{condition_events, new_events, urgency};
pub(crate) use pods::{is_ready, ready_since};
pub use run::{RunEnd, RunView, run_view};
pub use trouble::Trouble;
pub(crate) use trouble::{condition, of_pod};

/// The result of reconciling a MiniCluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReconcileSummary<'a> {
    /// Why it is not run at all.
    pub(crate) refusal: Option<&'a Refusal>,
    /// Why its spec is not applied as it is.
    pub(crate) blocker: Option<&'a Blocker>,
    /// The ranks that are removed, and what they wait for.
    pub(crate) shrinking: Option<&'a Shrinking>,
    /// What went wrong when its objects were applied.
    pub(crate) failure: Option<ReportedFailure<'a>>,
    /// Its Job has just been created, and has not been observed yet.
    pub(crate) created: bool,
    /// The leases from now on; `None` if that was not decided.
    pub(crate) leases: Option<&'a LeaseDecision>,
    /// How it stands in the instance that it joins.
    pub(crate) join: Option<&'a JoinState>,
    /// How others reach it; `None` if that was not decided.
    pub(crate) expose: Option<&'a ExposeState>,
}

/// A step that failed, as it is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedFailure<'a> {
    /// The reason of the condition.
    pub(crate) reason: Reason,
    /// What happened, and what to do about it.
    pub(crate) message: &'a str,
}

/// Everything the conditions are computed from.
#[derive(Debug)]
struct StatusInput<'a> {
    summary: ReconcileSummary<'a>,
    warnings: Vec<Problem>,
    suspended: bool,
    waits_for_quota: bool,
    wait_status: Option<&'a WaitStatus>,
    admission: Option<&'a Admission>,
    has_released_nodes: bool,
    created: bool,
    pods: Pods,
    trouble: Option<Trouble>,
    /// The command was started by the current lead.
    has_started_command: bool,
    completion: Option<ClusterCompletion>,
    is_interactive: bool,
    is_joiner: bool,
    is_exposed: bool,
    last_error: &'a str,
}

/// Computes the status. `now` in what was observed is the time of every change since the
/// current status of `minicluster`.
pub(crate) fn status(
    minicluster: &MiniCluster,
    observed: &Observed,
    summary: &ReconcileSummary<'_>,
) -> MiniClusterStatus {
    let spec = &minicluster.spec;
    let before = minicluster.status.clone().unwrap_or_default();
    let mut pods = Pods::of(observed.job_pods());
    if spec.is_joiner() {
        // Index 0 is not the lead: the brokers are ready when all are part of the instance.
        pods.lead_ready = summary.join.is_some_and(|join| join.is_joined);
    }
    let job = observed.job.as_deref().filter(|job| job.metadata.deletion_timestamp.is_none());
    let completion = ClusterCompletion::of(job, &pods, &before);
    let has_released_nodes = job.is_some_and(|job| released_at(job).is_some());
    let reported = LeadReport::from_last_report(minicluster, observed, &pods, &before);
    let facts = StatusInput {
        summary: *summary,
        warnings: [
            validate::warnings(minicluster),
            summary.join.map(|join| join.warnings.clone()).unwrap_or_default(),
        ]
        .concat(),
        suspended: spec.suspend,
        waits_for_quota: is_waiting(minicluster),
        wait_status: observed.waiting.as_ref(),
        admission: admission_of(minicluster),
        has_released_nodes,
        trouble: match has_released_nodes {
            // Its pods are deleted because of it.
            true => Some(ready_timeout_trouble()),
            false => observed
                .trouble(minicluster)
                .or_else(|| pods.trouble.clone())
                .or_else(|| reported.blocked_queue.clone()),
        },
        created: summary.created || job.is_some(),
        has_started_command: has_started_command(&pods, &before),
        is_interactive: is_interactive(spec),
        is_joiner: spec.is_joiner(),
        is_exposed: expose(minicluster).is_some(),
        last_error: reported.last_error,
        pods,
        completion,
    };
    let pods = Online { own: facts.pods.ready, joined: 0 };
    let online = reported.online.filter(|_| facts.completion.is_none()).unwrap_or(pods);
    let online = match summary.join {
        Some(join) => Online { own: join.online, joined: 0 },
        None => online,
    };
    let highest = before.maximum_size.max(spec.max_size.unwrap_or_default()).max(spec.size);
    MiniClusterStatus {
        phase: phase(&facts).to_owned(),
        ready: format!("{}/{}", online.own, spec.size),
        joined: online.joined,
        online: reported.ranks.filter(|_| facts.completion.is_none()).unwrap_or_default(),
        leases: summary.leases.map_or(before.leases.clone(), LeaseDecision::to_status),
        external: external(minicluster, observed, summary, &before),
        lender: summary.join.map_or(before.lender.clone(), |join| join.lender.clone()),
        ranks: summary.join.map_or(before.ranks.clone(), |join| join.ranks.to_string()),
        exit_code: facts.completion.as_ref().and_then(|finished| finished.exit_code),
        size: i32::try_from(facts.pods.active).unwrap_or(i32::MAX),
        selector: selector(&minicluster.name_any()),
        maximum_size: highest,
        jobid: command_job(minicluster, observed, &before.jobid),
        admission: before.admission.clone().filter(|_| keeps_quota(minicluster, job, &facts)),
        observed_generation: minicluster.metadata.generation,
        conditions: conditions(
            &facts,
            minicluster.metadata.generation,
            &before.conditions,
            observed.now,
        ),
    }
}

/// Where others reach the cluster: as before if that was not decided. The lead is always the current
/// one: the gateway must not forward to an address that another pod may have by now.
fn external(
    minicluster: &MiniCluster,
    observed: &Observed,
    summary: &ReconcileSummary<'_>,
    before: &MiniClusterStatus,
) -> Option<External> {
    expose(minicluster)?;
    let decided = summary.expose.map(|state| state.external.clone());
    let external = decided.or_else(|| before.external.clone())?;
    Some(External { lead_address: exposed_lead_address(minicluster, observed), ..external })
}

/// What only the lead knows, from a recent report.
#[derive(Default)]
struct LeadReport<'a> {
    online: Option<Online>,
    /// The ranks that are online.
    ranks: Option<String>,
    /// A pending job that needs ranks that are not leased, and that the scheduler does not skip.
    blocked_queue: Option<Trouble>,
    last_error: &'a str,
}

/// Whether what the lead has reported to an earlier operator still counts.
fn is_kept(observed: &Observed, pods: &Pods) -> bool {
    let lead_was_up = pods.lead_started.is_some_and(|at| at < observed.watching_since);
    lead_was_up
        && observed.report.is_none()
        && may_still_report(observed.watching_since, observed.now)
}

/// Until when that counts. Then the status is computed without it, although nothing else happens.
pub(crate) fn kept_until(observed: &Observed) -> Option<Timestamp> {
    let is_kept = is_kept(observed, &Pods::of(observed.job_pods()));
    is_kept.then(|| first_report_due(observed.watching_since))
}

/// How many brokers are online.
#[derive(Clone, Copy)]
struct Online {
    /// Those of the cluster's own Job.
    own: u32,
    /// Those of others.
    joined: i32,
}

impl<'a> LeadReport<'a> {
    /// What the lead has reported. If it was running before the operator started, its last
    /// status is kept until it has had the time to report: a restart changes no status.
    fn from_last_report(
        minicluster: &MiniCluster,
        observed: &'a Observed,
        pods: &Pods,
        before: &'a MiniClusterStatus,
    ) -> LeadReport<'a> {
        match &observed.report {
            Some(report) if report.is_stale(observed.now) => LeadReport::default(),
            Some(LastReport { state, .. }) => LeadReport {
                online: state.online.as_ref().map(|ranks| Online::of(ranks, minicluster, observed)),
                ranks: state.online.as_ref().map(ToString::to_string),
                blocked_queue: blocked_queue(state),
                last_error: &state.last_error,
            },
            None if is_kept(observed, pods) => {
                let own = before.ready.split_once('/').and_then(|(own, _)| own.parse().ok());
                let ready = find(&before.conditions, ConditionType::Ready);
                let message = |reason: Reason| {
                    ready.filter(|it| it.reason == reason.as_str()).map(|it| it.message.as_str())
                };
                let blocked = message(Reason::BlockedByJob)
                    .map(|message| message.strip_prefix(BUT_ONLINE).unwrap_or(message));
                LeadReport {
                    online: own.map(|own| Online { own, joined: before.joined }),
                    ranks: Some(before.online.clone()),
                    blocked_queue: blocked
                        .map(|message| Trouble::new(Reason::BlockedByJob, message.to_owned())),
                    last_error: message(Reason::BrokersStarting).unwrap_or_default(),
                }
            }
            None => LeadReport::default(),
        }
    }
}

impl Online {
    /// Counts ranks that are online, by their owner.
    fn of(ranks: &IdSet, minicluster: &MiniCluster, observed: &Observed) -> Online {
        // A spec without a valid table was refused, and then no broker is online.
        let table = stamp::booted_rank_table(minicluster, observed.job.as_deref());
        let own = table.map(|table| table.own_ranks()).unwrap_or_default();
        let leased = minicluster.status.iter().flat_map(|status| &status.leases);
        let leased: Vec<IdSet> = leased.map(|lease| lease.rank_list().to_set()).collect();
        let own = own.difference(&IdSet::union_all(&leased));
        let others = ranks.difference(&own).len();
        let own = ranks.len().saturating_sub(others);
        Online {
            own: u32::try_from(own).unwrap_or(u32::MAX),
            joined: i32::try_from(others).unwrap_or(i32::MAX),
        }
    }
}

/// The Flux job id of the command, if the command is a single job: that of its last run.
fn command_job(minicluster: &MiniCluster, observed: &Observed, before: &str) -> String {
    let spec = &minicluster.spec;
    let mode = runner(&spec.containers).map(|runner| Mode::of(spec, runner));
    let reported = observed.report.as_ref().map(|report| report.state.first_job.as_str());
    match (mode, reported) {
        (Some(Mode::Submit | Mode::Batch), Some(job)) if !job.is_empty() => job.to_owned(),
        _ => before.to_owned(),
    }
}

/// The status of an object that cannot be decoded as a MiniCluster, for example because it was
/// stored under another schema.
pub fn undecodable(error: &str, generation: Option<i64>, now: Timestamp) -> MiniClusterStatus {
    let problem = Problem { path: "spec".into(), message: error.to_owned() };
    let refusal = Refusal { reason: RefusalReason::Invalid, problems: vec![problem] };
    let facts = StatusInput {
        summary: ReconcileSummary { refusal: Some(&refusal), ..ReconcileSummary::default() },
        warnings: Vec::new(),
        suspended: false,
        waits_for_quota: false,
        wait_status: None,
        admission: None,
        has_released_nodes: false,
        created: false,
        has_started_command: false,
        is_interactive: false,
        is_joiner: false,
        is_exposed: false,
        last_error: "",
        pods: Pods::default(),
        trouble: None,
        completion: None,
    };
    MiniClusterStatus {
        phase: phase(&facts).to_owned(),
        observed_generation: generation,
        conditions: conditions(&facts, generation, &[], now),
        ..MiniClusterStatus::default()
    }
}

/// The readiness of the lead.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readiness {
    /// Enough brokers are online.
    pub(crate) ready: bool,
    /// The current lead has started the command, or may still finish it while it terminates.
    pub(crate) command_started: bool,
    /// Since when it is not ready, if it was ready before.
    pub(crate) unready_since: Option<Timestamp>,
}

/// The readiness of the lead. It comes from its pod, which is right even if the operator was
/// down, or from the last status if that pod was deleted.
pub(crate) fn readiness(minicluster: &MiniCluster, observed: &Observed) -> Readiness {
    let pods = Pods::of(observed.job_pods());
    let before = minicluster.status.clone().unwrap_or_default();
    let reported = observed.report.as_ref().is_some_and(|report| report.state.program_started);
    let was_ready =
        pods.lead_unready_since.is_some() || has_started_command(&pods, &before) || reported;
    let unready_since = find(&before.conditions, ConditionType::Ready);
    let reported = unready_since.and_then(|ready| match ready.status.as_str() {
        // The stored status is older than this observation: it became unready just now.
        "True" => Some(observed.now),
        "False" => Some(ready.last_transition_time.0),
        _ => None,
    });
    Readiness {
        ready: pods.lead_ready,
        command_started: (was_ready || pods.lead_terminating) && !is_interactive(&minicluster.spec),
        unready_since: pods.lead_unready_since.or(reported),
    }
}

/// Whether the status says that the current lead runs the command.
fn has_started_command(pods: &Pods, before: &MiniClusterStatus) -> bool {
    let running = find(&before.conditions, ConditionType::Running);
    let reported = running.filter(|it| it.status == "True").map(|it| it.last_transition_time.0);
    pods.lead_started.zip(reported).is_some_and(|(started, reported)| started <= reported)
}

impl StatusInput<'_> {
    /// Whether the command was started and nothing says that it does not run any more, although
    /// its lead is not ready: it is finishing and its Job does not show it yet, or it is slow
    /// to answer.
    fn may_still_run(&self) -> bool {
        self.has_started_command && self.trouble.is_none() && !self.is_interactive
    }
}

/// A pending job that needs ranks that are not leased, and that the scheduler does not skip.
fn blocked_queue(state: &InstanceState) -> Option<Trouble> {
    let BlockingJob { job, nodes } = state.blocking_job?;
    let online = state.online.as_ref().map_or(0, IdSet::len);
    let message = format!(
        "job {} needs {nodes} nodes and {online} are online: Flux's simple scheduler starts nothing \
         behind it until more brokers join, or it is cancelled",
        JobId::from(job)
    );
    Some(Trouble::new(Reason::BlockedByJob, message))
}

fn ready_timeout_trouble() -> Trouble {
    let message = "too few brokers were online within spec.readyTimeoutSeconds: the nodes were released, and it tries again soon";
    Trouble::new(Reason::ReadyTimeout, message)
}

/// The phase to show.
fn phase(facts: &StatusInput<'_>) -> &'static str {
    match &facts.completion {
        Some(finished) if finished.succeeded => "Succeeded",
        Some(_) => "Failed",
        None if facts.summary.refusal.is_some() => "Refused",
        None if facts.suspended => "Suspended",
        None if facts.has_released_nodes || facts.waits_for_quota => "Waiting",
        None if facts.summary.join.is_some_and(|join| join.is_joined) => "Joined",
        None if facts.summary.join.is_some() && !facts.created => "Waiting",
        None if facts.summary.join.is_some_and(|join| join.reason == Reason::Leaving) => "Leaving",
        None if facts.summary.failure.is_some() => "Blocked",
        None if facts.pods.lead_ready && facts.is_interactive => "Ready",
        None if facts.pods.lead_ready || facts.may_still_run() => "Running",
        None if facts.pods.started > 0 => "Starting",
        None => "Pending",
    }
}

/// Whether an admitted cluster keeps its quota: not once it is suspended or being evicted and
/// its pods are deleted.
fn keeps_quota(minicluster: &MiniCluster, job: Option<&Job>, facts: &StatusInput<'_>) -> bool {
    let stopped =
        job.is_none_or(|job| job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true)));
    let stopped = stopped && facts.pods.active == 0;
    !((minicluster.spec.suspend || facts.waits_for_quota) && stopped && facts.completion.is_none())
}

/// Whether there is no command, and the cluster waits for jobs.
pub(crate) fn is_interactive(spec: &flux_operator_api::MiniClusterSpec) -> bool {
    spec.is_joiner()
        || runner(&spec.containers)
            .is_some_and(|runner| Mode::of(spec, runner) == Mode::Interactive)
}

/// When the cluster finished, if its status says so.
pub fn finished_at(minicluster: &MiniCluster) -> Option<Timestamp> {
    let conditions = &minicluster.status.as_ref()?.conditions;
    let finished = find(conditions, ConditionType::JobFinished)?;
    (finished.status == "True").then_some(finished.last_transition_time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// The status of a cluster that was running since second 20, when its lead has this
    /// state and its Job has not finished.
    fn status_of(lead: Value) -> MiniClusterStatus {
        let running = json!({ "type": "Running", "status": "True", "reason": "CommandStarted",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:20Z" });
        let mut minicluster = smallest_minicluster("fs");
        let command = json!([{ "image": "a", "command": "hostname" }]);
        merge(
            &mut minicluster,
            &json!({ "spec": { "containers": command }, "status": { "conditions": [running] } }),
        );
        let container = json!({ "name": "fs", "image": "a", "imageID": "", "ready": false,
            "restartCount": 0, "state": lead });
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "fs", "uid": "u" });
        let pod = json!({
            "metadata": { "ownerReferences": [owner], "name": "fs-0-x", "labels": { "job-name": "fs" },
                "annotations": { crate::observed::INDEX_ANNOTATION: "0" } },
            "status": { "phase": "Running", "containerStatuses": [container] },
        });
        let job = json!({ "metadata": { "name": "fs", "uid": "u" } });
        let observed = Observed {
            job: Some(Arc::new(serde_json::from_value(job).unwrap())),
            pods: vec![Arc::new(serde_json::from_value(pod).unwrap())],
            ..Observed::empty("2026-01-01T00:00:30Z".parse().unwrap())
        };
        status(
            &serde_json::from_value(minicluster).unwrap(),
            &observed,
            &ReconcileSummary::default(),
        )
    }

    #[test]
    fn a_finishing_cluster_is_not_shown_as_starting() {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
        let finished = json!({ "terminated": { "exitCode": 0, "startedAt": at(18) } });
        let silent = json!({ "running": { "startedAt": at(18) } });
        for state in [finished, silent] {
            let status = status_of(state);
            assert_eq!(status.phase, "Running");
            let ready = find(&status.conditions, ConditionType::Ready).unwrap();
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "LeadNotReady"));
            let running = find(&status.conditions, ConditionType::Running).unwrap();
            assert_eq!(running.status, "True");
        }
    }

    #[test]
    fn an_accepted_manifest_may_have_a_warning() {
        let reported = |spec: Value| {
            let mut minicluster = smallest_minicluster("fs");
            merge(&mut minicluster, &json!({ "spec": spec }));
            let observed = Observed::empty("2026-01-01T00:00:00Z".parse().unwrap());
            let minicluster = serde_json::from_value(minicluster).unwrap();
            let status = status(&minicluster, &observed, &ReconcileSummary::default());
            find(&status.conditions, ConditionType::Accepted).unwrap().clone()
        };
        let flux = json!({ "scheduler": { "queuePolicy": "fcfs" } });
        let accepted = reported(json!({ "size": 2, "maxSize": 4, "flux": flux }));
        assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("True", "Accepted"));
        let warning = "; warning: spec.flux.scheduler.queuePolicy: is \"fcfs\"";
        assert!(accepted.message.contains(warning), "{}", accepted.message);
        assert!(!reported(json!({ "size": 2, "flux": flux })).message.contains("warning"));
    }

    /// Its grace period may be hours, and the command may finish successfully within it.
    #[test]
    fn a_lead_that_terminates_may_still_run_its_command() {
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "fs", "uid": "u" });
        let mut pod = json!({
            "metadata": { "ownerReferences": [owner], "annotations": { crate::observed::INDEX_ANNOTATION: "0" } },
            "status": { "phase": "Running" },
        });
        let started = |pod: &Value, program_started, command: &str| {
            let mut minicluster = smallest_minicluster("fs");
            let containers = json!([{ "image": "a", "command": command }]);
            merge(&mut minicluster, &json!({ "spec": { "containers": containers } }));
            let job = json!({ "metadata": { "uid": "u" } });
            let state = InstanceState { program_started, ..InstanceState::default() };
            let received = "2026-01-01T00:00:00Z".parse().unwrap();
            let observed = Observed {
                job: Some(Arc::new(serde_json::from_value(job).unwrap())),
                pods: vec![Arc::new(serde_json::from_value(pod.clone()).unwrap())],
                report: Some(LastReport { state, received }),
                ..Observed::empty("2026-01-01T00:00:00Z".parse().unwrap())
            };
            readiness(&serde_json::from_value(minicluster).unwrap(), &observed).command_started
        };
        assert!(!started(&pod, false, "hostname"));
        assert!(started(&pod, true, "hostname"), "its agent has reported it");
        assert!(!started(&pod, true, ""), "there is no command");
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(started(&pod, false, "hostname"));
        pod["status"]["phase"] = json!("Failed");
        assert!(!started(&pod, false, "hostname"), "it has finished");
    }

    #[test]
    fn a_replaced_lead_is_starting() {
        let status = status_of(json!({ "running": { "startedAt": "2026-01-01T00:00:25Z" } }));
        assert_eq!(status.phase, "Starting");
        let running = find(&status.conditions, ConditionType::Running).unwrap();
        assert_eq!(running.status, "False");
    }
}
