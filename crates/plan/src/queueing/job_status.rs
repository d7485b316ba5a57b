//! The status of a FluxJob.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::fluxjob::{Admission, Requeue};
use flux_operator_api::reason::AnyReason;
use flux_operator_api::{FluxJob, FluxJobStatus, MiniCluster, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::eviction::eviction_message;
use super::grant_message;
use super::workload::JobRefusal;
use crate::status::is_interactive;
use crate::verdict::{Verdict, conditions, copied_from, find, no, unknown, yes};

/// The parts of a status that are read back.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    pub(super) admission: Option<Admission>,
    pub(super) requeue: Option<Requeue>,
    pub(super) start_time: Option<Time>,
}

impl Records {
    pub(super) fn of(status: &FluxJobStatus) -> Records {
        let FluxJobStatus { admission, requeue, start_time, .. } = status.clone();
        Records { admission, requeue, start_time }
    }
}

/// The stage of a job.
#[derive(Clone, Debug)]
pub(super) enum JobStage<'a> {
    /// It has no quota.
    Waiting {
        /// The phase to show.
        phase: &'static str,
        /// The reason of the condition.
        reason: AnyReason,
        /// The message of the condition.
        message: String,
        /// The setup in whose queue it waits, if there is one.
        queue: String,
    },
    /// It is admitted.
    Admitted {
        /// Its MiniCluster, once that exists.
        minicluster: Option<&'a MiniCluster>,
        /// Why it cannot be created: reason and message.
        trouble: Option<(Reason, String)>,
    },
    /// It is being evicted.
    Evicting,
    /// It has finished.
    Finished(JobCompletion),
}

/// How a job has finished.
#[derive(Clone, Debug)]
pub(super) struct JobCompletion {
    pub(super) at: Timestamp,
    pub(super) succeeded: bool,
    pub(super) exit_code: Option<i32>,
    pub(super) reason: AnyReason,
    pub(super) message: String,
}

impl JobCompletion {
    /// The command was not run to completion.
    pub(super) fn failed(at: Timestamp, reason: Reason, message: String) -> JobCompletion {
        JobCompletion { at, succeeded: false, exit_code: None, reason: reason.into(), message }
    }
}

/// The status of a job. `refused` says why its spec is not applied as it is.
pub(super) fn status(
    job: &FluxJob,
    stage: &JobStage<'_>,
    refused: Option<&JobRefusal>,
    records: Records,
    now: Timestamp,
) -> FluxJobStatus {
    let before = job.status.clone().unwrap_or_default();
    // `Ready` of a job that joins another cluster says whether it has joined.
    let kinds = ConditionType::ALL.into_iter();
    let kinds =
        kinds.filter(|kind| !matches!(kind, ConditionType::Joined | ConditionType::Exposed));
    let verdicts = kinds.filter_map(|kind| {
        let verdict = match (kind, refused) {
            (ConditionType::Accepted, Some(mistake)) => no(mistake.reason, &mistake.message),
            // More quota would not help it.
            (ConditionType::JobWaitingForResources, Some(mistake))
                if matches!(stage, JobStage::Waiting { .. }) =>
            {
                no(mistake.reason, "the job cannot be run as it is")
            }
            _ => verdict(kind, stage, records.admission.as_ref()),
        };
        let reported =
            find(&before.conditions, kind).is_some() || is_reported(kind, &verdict, stage);
        reported.then(|| (kind.as_str(), verdict))
    });
    let conditions = conditions(verdicts, job.metadata.generation, &before.conditions, now);
    let (phase, reason) = phase(stage, records.admission.as_ref());
    let end = if let JobStage::Finished(end) = stage { Some(end) } else { None };
    let queue = match (stage, &records.admission) {
        (JobStage::Waiting { queue, .. }, _) => queue.clone(),
        (_, Some(admission)) => admission.queue.clone(),
        (_, None) => before.queue.clone(),
    };
    FluxJobStatus {
        phase: phase.into(),
        reason,
        jobid: id(job),
        queue,
        admission: records.admission,
        requeue: records.requeue,
        start_time: records.start_time,
        finish_time: end.map(|end| Time(end.at)),
        exit_code: end.and_then(|end| end.exit_code),
        observed_generation: job.metadata.generation,
        conditions,
    }
}

/// Whether a condition that was not reported yet is reported now. Conditions about the future
/// are left out until the job has finished: most jobs wait, and every condition is read and
/// written with each of their changes.
fn is_reported(kind: ConditionType, verdict: &Verdict, stage: &JobStage<'_>) -> bool {
    let from_the_start = matches!(
        kind,
        ConditionType::Accepted
            | ConditionType::Admitted
            | ConditionType::Ready
            | ConditionType::JobWaitingForResources
    );
    from_the_start || verdict.status == "True" || matches!(stage, JobStage::Finished(_))
}

/// The job's id: stable and unique.
fn id(job: &FluxJob) -> String {
    let uid: String = job.uid().unwrap_or_default().chars().take(8).collect();
    format!("{}-{uid}", job.name_any())
}

/// The phase, and the reason.
fn phase(stage: &JobStage<'_>, admission: Option<&Admission>) -> (&'static str, String) {
    match stage {
        JobStage::Waiting { phase, reason, .. } => (phase, reason.to_string()),
        JobStage::Admitted { minicluster, .. } => {
            let ready = ready(stage, admission);
            match minicluster.filter(|_| has_started(&ready, stage)) {
                Some(minicluster) if is_interactive(&minicluster.spec) => ("Ready", String::new()),
                Some(_) => ("Running", String::new()),
                None => ("Waiting", ready.reason.to_string()),
            }
        }
        JobStage::Evicting => {
            let cause = eviction_reason(admission);
            let phase = if cause == Reason::Suspended { "Suspended" } else { "Evicted" };
            (phase, cause.to_string())
        }
        JobStage::Finished(end) if end.succeeded => ("Finished", String::new()),
        JobStage::Finished(end) => ("Failed", end.reason.to_string()),
    }
}

/// Why the job is evicted, as it was recorded.
fn eviction_reason(admission: Option<&Admission>) -> AnyReason {
    AnyReason::read(admission.map(|admission| admission.leaving.as_str()).unwrap_or_default())
}

fn verdict(kind: ConditionType, stage: &JobStage<'_>, admission: Option<&Admission>) -> Verdict {
    match kind {
        ConditionType::Accepted => yes(Reason::Accepted, "the job can be run"),
        ConditionType::Admitted => admitted(stage, admission),
        ConditionType::Joined
        | ConditionType::Exposed
        | ConditionType::Ready
        | ConditionType::JobMiniClusterReady => ready(stage, admission),
        ConditionType::Running | ConditionType::JobRunning => running(stage),
        ConditionType::Succeeded => match stage {
            JobStage::Finished(end) if end.succeeded => yes(end.reason.clone(), &end.message),
            JobStage::Finished(end) => no(end.reason.clone(), &end.message),
            _ => unknown(Reason::NotFinished, "the command has not finished"),
        },
        ConditionType::JobRequested => yes(Reason::Created, "the job was created"),
        ConditionType::JobWaitingForResources => waiting(stage, admission),
        ConditionType::JobFinished => match stage {
            JobStage::Finished(end) => yes(end.reason.clone(), &end.message),
            _ => no(Reason::NotFinished, "the job has not finished"),
        },
    }
}

fn admitted(stage: &JobStage<'_>, admission: Option<&Admission>) -> Verdict {
    match (stage, admission) {
        (JobStage::Waiting { reason, message, .. }, _) => no(reason.clone(), message),
        (_, Some(admission)) if !admission.leaving.is_empty() => {
            let cause = AnyReason::read(&admission.leaving);
            let message = eviction_message(&cause);
            no(cause, &message)
        }
        (_, Some(admission)) => yes(Reason::Admitted, &grant_message(admission)),
        (_, None) => no(Reason::NoRoom, "the job has no quota"),
    }
}

fn ready(stage: &JobStage<'_>, admission: Option<&Admission>) -> Verdict {
    let starts = || no(Reason::Starting, "its MiniCluster is being started");
    match stage {
        JobStage::Waiting { reason, .. } => no(reason.clone(), "the job waits for quota"),
        JobStage::Admitted { trouble: Some((reason, message)), .. } => no(*reason, message),
        JobStage::Admitted { minicluster, .. } => {
            let status = minicluster.and_then(|minicluster| minicluster.status.as_ref());
            let find = |kind| status.and_then(|status| find(&status.conditions, kind));
            // A MiniCluster that cannot be run is never ready; `Accepted` says why.
            let refused =
                find(ConditionType::Accepted).filter(|reported| reported.status == "False");
            let reported = refused.or_else(|| find(ConditionType::Ready));
            // The MiniCluster's own status shows how its pods start one after the other.
            match reported {
                Some(reported) if !is_starting(reported) => copied_from(reported),
                _ => starts(),
            }
        }
        JobStage::Evicting => no(eviction_reason(admission), "its nodes are being released"),
        JobStage::Finished(end) => no(end.reason.clone(), "the job has finished"),
    }
}

/// Whether a condition only says that a cluster is starting.
fn is_starting(condition: &Condition) -> bool {
    AnyReason::read(&condition.reason).known().is_some_and(Reason::is_starting)
}

fn running(stage: &JobStage<'_>) -> Verdict {
    let reported = match stage {
        JobStage::Admitted { minicluster, .. } => minicluster.and_then(|it| it.status.as_ref()),
        _ => None,
    };
    let reported = reported.and_then(|status| find(&status.conditions, ConditionType::Running));
    match (stage, reported) {
        (JobStage::Finished(end), _) => no(end.reason.clone(), "the job has finished"),
        (_, Some(reported)) if reported.status == "True" => copied_from(reported),
        _ => no(Reason::NotStarted, "the command has not been started"),
    }
}

/// Whether the cluster of a job has started, ready or not.
fn has_started(ready: &Verdict, stage: &JobStage<'_>) -> bool {
    ready.status == "True" || running(stage).status == "True"
}

fn waiting(stage: &JobStage<'_>, admission: Option<&Admission>) -> Verdict {
    let not = no(Reason::NotWaiting, "the job does not wait for quota or nodes");
    match stage {
        JobStage::Waiting { phase: "Suspended", .. }
        | JobStage::Evicting
        | JobStage::Finished(_) => not,
        JobStage::Waiting { reason, message, .. } => yes(reason.clone(), message),
        JobStage::Admitted { .. } => match ready(stage, admission) {
            ready if has_started(&ready, stage) => not,
            ready => yes(ready.reason, &ready.message),
        },
    }
}
