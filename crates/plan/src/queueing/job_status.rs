//! The status of a FluxJob.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::fluxjob::{Admission, Requeue};
use flux_operator_api::reason::AnyReason;
use flux_operator_api::{FluxJob, FluxJobStatus, MiniCluster, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::given;
use super::leaving::is_taken_back;
use super::workload::Mistake;
use crate::status::stays;
use crate::verdict::{Verdict, as_told, conditions, find, no, unknown, yes};

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
pub(super) enum Standing<'a> {
    /// It has no quota.
    Waits {
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
    HasRoom {
        /// Its MiniCluster, once that exists.
        minicluster: Option<&'a MiniCluster>,
        /// Why it cannot be created: reason and message.
        trouble: Option<(Reason, String)>,
    },
    /// It is being evicted.
    Leaves,
    /// It has finished.
    Ended(End),
}

/// How a job has finished.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) at: Timestamp,
    pub(super) succeeded: bool,
    pub(super) exit_code: Option<i32>,
    pub(super) reason: AnyReason,
    pub(super) message: String,
}

impl End {
    /// The command was not run to completion.
    pub(super) fn failed(at: Timestamp, reason: Reason, message: String) -> End {
        End { at, succeeded: false, exit_code: None, reason: reason.into(), message }
    }
}

/// The status of a job. `refused` is why its spec is not applied as it is.
pub(super) fn status(
    job: &FluxJob,
    standing: &Standing<'_>,
    refused: Option<&Mistake>,
    records: Records,
    now: Timestamp,
) -> FluxJobStatus {
    let before = job.status.clone().unwrap_or_default();
    let verdicts = ConditionType::ALL.into_iter().filter_map(|kind| {
        let verdict = match (kind, refused) {
            (ConditionType::Accepted, Some(mistake)) => no(mistake.reason, &mistake.message),
            // More quota would not help it.
            (ConditionType::JobWaitingForResources, Some(mistake))
                if matches!(standing, Standing::Waits { .. }) =>
            {
                no(mistake.reason, "the job cannot be run as it is")
            }
            _ => verdict(kind, standing, records.admission.as_ref()),
        };
        let told = find(&before.conditions, kind).is_some() || is_told(kind, &verdict, standing);
        told.then(|| (kind.as_str(), verdict))
    });
    let conditions = conditions(verdicts, job.metadata.generation, &before.conditions, now);
    let (phase, reason) = phase(standing, records.admission.as_ref());
    let end = if let Standing::Ended(end) = standing { Some(end) } else { None };
    let queue = match (standing, &records.admission) {
        (Standing::Waits { queue, .. }, _) => queue.clone(),
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
fn is_told(kind: ConditionType, verdict: &Verdict, standing: &Standing<'_>) -> bool {
    let from_the_start = matches!(
        kind,
        ConditionType::Accepted
            | ConditionType::Admitted
            | ConditionType::Ready
            | ConditionType::JobWaitingForResources
    );
    from_the_start || verdict.status == "True" || matches!(standing, Standing::Ended(_))
}

/// The job's id: stable and unique.
fn id(job: &FluxJob) -> String {
    let uid: String = job.uid().unwrap_or_default().chars().take(8).collect();
    format!("{}-{uid}", job.name_any())
}

/// The phase, and the reason.
fn phase(standing: &Standing<'_>, admission: Option<&Admission>) -> (&'static str, String) {
    match standing {
        Standing::Waits { phase, reason, .. } => (phase, reason.to_string()),
        Standing::HasRoom { minicluster, .. } => {
            let ready = ready(standing, admission);
            match minicluster.filter(|_| has_started(&ready, standing)) {
                Some(minicluster) if stays(&minicluster.spec) => ("Ready", String::new()),
                Some(_) => ("Running", String::new()),
                None => ("Waiting", ready.reason.to_string()),
            }
        }
        Standing::Leaves => {
            let cause = leaving(admission);
            let phase = if cause == Reason::Suspended { "Suspended" } else { "Evicted" };
            (phase, cause.to_string())
        }
        Standing::Ended(end) if end.succeeded => ("Finished", String::new()),
        Standing::Ended(end) => ("Failed", end.reason.to_string()),
    }
}

/// Why the job is evicted, as it was recorded.
fn leaving(admission: Option<&Admission>) -> AnyReason {
    AnyReason::read(admission.map(|admission| admission.leaving.as_str()).unwrap_or_default())
}

fn verdict(kind: ConditionType, standing: &Standing<'_>, admission: Option<&Admission>) -> Verdict {
    match kind {
        ConditionType::Accepted => yes(Reason::Accepted, "the job can be run"),
        ConditionType::Admitted => admitted(standing, admission),
        ConditionType::Ready | ConditionType::JobMiniClusterReady => ready(standing, admission),
        ConditionType::Running | ConditionType::JobRunning => running(standing),
        ConditionType::Succeeded => match standing {
            Standing::Ended(end) if end.succeeded => yes(end.reason.clone(), &end.message),
            Standing::Ended(end) => no(end.reason.clone(), &end.message),
            _ => unknown(Reason::NotFinished, "the command has not finished"),
        },
        ConditionType::JobRequested => yes(Reason::Created, "the job was created"),
        ConditionType::JobWaitingForResources => waiting(standing, admission),
        ConditionType::JobFinished => match standing {
            Standing::Ended(end) => yes(end.reason.clone(), &end.message),
            _ => no(Reason::NotFinished, "the job has not finished"),
        },
    }
}

fn admitted(standing: &Standing<'_>, admission: Option<&Admission>) -> Verdict {
    match (standing, admission) {
        (Standing::Waits { reason, message, .. }, _) => no(reason.clone(), message),
        (_, Some(admission)) if !admission.leaving.is_empty() => {
            let cause = AnyReason::read(&admission.leaving);
            let message = is_taken_back(&cause);
            no(cause, &message)
        }
        (_, Some(admission)) => yes(Reason::Admitted, &given(admission)),
        (_, None) => no(Reason::NoRoom, "the job has no quota"),
    }
}

fn ready(standing: &Standing<'_>, admission: Option<&Admission>) -> Verdict {
    let starts = || no(Reason::Starting, "its MiniCluster is being started");
    match standing {
        Standing::Waits { reason, .. } => no(reason.clone(), "the job waits for quota"),
        Standing::HasRoom { trouble: Some((reason, message)), .. } => no(*reason, message),
        Standing::HasRoom { minicluster, .. } => {
            let status = minicluster.and_then(|minicluster| minicluster.status.as_ref());
            let find = |kind| status.and_then(|status| find(&status.conditions, kind));
            // A MiniCluster that cannot be run is never ready; `Accepted` says why.
            let refused = find(ConditionType::Accepted).filter(|told| told.status == "False");
            let told = refused.or_else(|| find(ConditionType::Ready));
            // The MiniCluster's own status shows how its pods start one after the other.
            match told {
                Some(told) if !is_starting(told) => as_told(told),
                _ => starts(),
            }
        }
        Standing::Leaves => no(leaving(admission), "its nodes are being released"),
        Standing::Ended(end) => no(end.reason.clone(), "the job has finished"),
    }
}

/// Whether a condition only says that a cluster is starting.
fn is_starting(condition: &Condition) -> bool {
    AnyReason::read(&condition.reason).known().is_some_and(Reason::is_starting)
}

fn running(standing: &Standing<'_>) -> Verdict {
    let told = match standing {
        Standing::HasRoom { minicluster, .. } => minicluster.and_then(|it| it.status.as_ref()),
        _ => None,
    };
    let told = told.and_then(|status| find(&status.conditions, ConditionType::Running));
    match (standing, told) {
        (Standing::Ended(end), _) => no(end.reason.clone(), "the job has finished"),
        (_, Some(told)) if told.status == "True" => as_told(told),
        _ => no(Reason::NotStarted, "the command has not been started"),
    }
}

/// Whether the cluster of a job has started, ready or not.
fn has_started(ready: &Verdict, standing: &Standing<'_>) -> bool {
    ready.status == "True" || running(standing).status == "True"
}

fn waiting(standing: &Standing<'_>, admission: Option<&Admission>) -> Verdict {
    let not = no(Reason::NotWaiting, "the job does not wait for quota or nodes");
    match standing {
        Standing::Waits { phase: "Suspended", .. } | Standing::Leaves | Standing::Ended(_) => not,
        Standing::Waits { reason, message, .. } => yes(reason.clone(), message),
        Standing::HasRoom { .. } => match ready(standing, admission) {
            ready if has_started(&ready, standing) => not,
            ready => yes(ready.reason, &ready.message),
        },
    }
}
