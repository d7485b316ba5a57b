//! The life of a FluxJob: requested, waiting, ready, running, finished.
//!
//! What must survive a crash is written to the status before the operator acts on it: the quota
//! of a job, why it is evicted, and how it finished. So its MiniCluster is deleted one
//! reconciliation after the reason was written.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::fluxjob::{Admission, Requeue};
use flux_operator_api::reason::AnyReason;
use flux_operator_api::{FluxJob, FluxJobStatus, FluxSetupSpec, MiniCluster, Reason};
use flux_operator_queue as queue;
use flux_operator_queue::{EvictionReason, SetupName, WaitStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::eviction::describe_cause;
use super::job_status::{JobCompletion, JobStage, Records, status};
use super::minicluster::{belongs_to, changed_fields, is_of_former_job};
use super::workload::{JobRefusal, name_taken};
use super::{Requests, back_off, minicluster_at, new_events, quantity, requests};
use crate::decision::{
    Conclude, Conclusion, Decision, Failure, FailureKind, Outcome, earliest_requeue,
    reportable_failure,
};
use crate::reason::{of_eviction, of_waiting};
use crate::status::{Urgency, finished_at};
use crate::step::{Object, Step, Target, TargetKind};
use crate::time::{after, seconds_after};
use crate::verdict::find;

/// How long after its creation the status of a job that only waits is first written: most jobs
/// are admitted before that.
const WAITING_STATUS_DELAY_SECONDS: i64 = 5;

/// How long the watch may take to show a MiniCluster that exists.
const WATCH_LAG_SECONDS: i64 = 1;

/// How often a waiting job is reconciled to check whether its reason has changed.
const REFRESH_SECONDS: i64 = 60;

/// Everything that is known of a job.
#[derive(Clone, Debug)]
pub struct ObservedJob<'a> {
    /// The job.
    pub job: &'a FluxJob,
    /// The MiniCluster of its name, whatever its owner, being deleted or not.
    pub minicluster: Option<&'a MiniCluster>,
    /// The API server has its MiniCluster, although the watch does not show it.
    pub has_unobserved_cluster: bool,
    /// The setup in whose queue it waits, or which admitted it, if that exists.
    pub setup: Option<&'a FluxSetupSpec>,
    /// The setup that its record should name: the one it names, or the successor of that.
    pub recorded_setup: Option<&'a SetupName>,
    /// Why it cannot be queued, if it cannot.
    pub refusal: Option<&'a JobRefusal>,
    /// Why it waits, if it does.
    pub waiting: Option<&'a WaitStatus>,
    /// Why its queue evicts it, if it does.
    pub evicted: Option<EvictionReason>,
    /// Whether this operator runs admitted jobs, and not another controller.
    pub runs_jobs: bool,
    /// Jitter, from 0 to 1, for the back-off.
    pub jitter: f64,
    /// The time.
    pub now: Timestamp,
}

/// Whether the API server must be queried for the job's MiniCluster, although the watch shows
/// none: if it does not exist, the record is removed, and with it the quota.
pub fn needs_cluster_query(job: &FluxJob, minicluster: Option<&MiniCluster>) -> bool {
    let admission = job.status.as_ref().and_then(|status| status.admission.as_ref());
    let leaves = admission.is_some_and(|admission| !admission.leaving.is_empty());
    leaves && !minicluster.is_some_and(|minicluster| belongs_to(minicluster, job))
}

/// What to do about a job, and its status.
#[derive(Clone, Debug, Default, PartialEq)]
struct JobPlan {
    /// The steps, in order.
    steps: Vec<Step>,
    /// The status; None while there is nothing to report yet, so that the status of a job that
    /// is admitted at once is written once.
    status: Option<FluxJobStatus>,
    /// When to reconcile again if nothing changes.
    requeue_at: Option<Timestamp>,
}

/// What the conclusion about a FluxJob is computed from.
#[derive(Clone, Debug)]
pub struct FluxJobFacts<'a> {
    observed: ObservedJob<'a>,
    plan: JobPlan,
}

/// Decides what to do about a job. Same arguments, same decision.
pub fn decide(observed: ObservedJob<'_>) -> Decision<FluxJobFacts<'_>> {
    let plan = plan(&observed, None);
    Decision::new(plan.steps.clone(), FluxJobFacts { observed, plan })
}

impl Conclude for FluxJobFacts<'_> {
    type Status = FluxJobStatus;

    fn conclude(&self, _: &[Step], outcome: &Outcome) -> Conclusion<FluxJobStatus> {
        let failure = reportable_failure(outcome);
        let failed = failure.map(|failure| plan(&self.observed, Some(failure)));
        let JobPlan { status, requeue_at, .. } = failed.as_ref().unwrap_or(&self.plan);
        let before = self.observed.job.status.clone().unwrap_or_default();
        let urgency = status.as_ref().map_or(Urgency::None, |status| urgency(&before, status));
        // The reason why it waits may change with other jobs, so it is checked again later.
        // Changes of this job itself are reported at once.
        let stands = status.is_some() && urgency == Urgency::None;
        let refresh = (stands && self.observed.waiting.is_some())
            .then(|| seconds_after(self.observed.now, REFRESH_SECONDS));
        Conclusion {
            events: status
                .as_ref()
                .map(|status| new_events(&before.conditions, &status.conditions))
                .unwrap_or_default(),
            urgency,
            status: status.clone(),
            requeue_at: earliest_requeue(outcome, self.observed.now, [*requeue_at, refresh]),
            retry: failure.is_some(),
        }
    }
}

/// How soon a status must be written. That a job waits is not urgent: `kubectl minicluster why`
/// shows it at once.
fn urgency(before: &FluxJobStatus, now: &FluxJobStatus) -> Urgency {
    // A finished job is cached without its conditions, and its status does not change.
    if before == now || before.finish_time.is_some() {
        return Urgency::None;
    }
    let waits = before.admission.is_none() && now.admission.is_none() && now.finish_time.is_none();
    if waits { Urgency::Later } else { Urgency::Now }
}

fn plan(observed: &ObservedJob<'_>, failure: Option<&Failure>) -> JobPlan {
    let job = observed.job;
    if !observed.runs_jobs && job.status.as_ref().is_some_and(is_admitted_or_finished) {
        // Another controller runs it.
        return JobPlan::default();
    }
    if !job.spec.managed_by.is_empty() || job.metadata.deletion_timestamp.is_some() {
        // Another controller manages it, or Kubernetes deletes what it owns.
        return JobPlan::default();
    }
    let mut before = job.status.clone().unwrap_or_default();
    if let Some(end) = &before.finish_time {
        return clean_up(observed, end.0);
    }
    if let Some((admission, setup)) = before.admission.as_mut().zip(observed.recorded_setup) {
        // It counts there from now on, even if `replaces` is removed again.
        admission.queue = setup.to_string();
    }
    let own = observed.minicluster.filter(|minicluster| belongs_to(minicluster, job));
    if let Some(end) = own.and_then(completion_of) {
        // It is deleted once this is written.
        return report(observed, JobStage::Finished(end), Records::of(&before));
    }
    match before.admission.clone() {
        None => plan_waiting(observed, &before, own),
        Some(admission) if admission.leaving.is_empty() => {
            plan_admitted(observed, failure, &before, admission, own)
        }
        Some(admission) => plan_eviction(observed, &before, admission, own),
    }
}

fn is_admitted_or_finished(status: &FluxJobStatus) -> bool {
    status.admission.is_some() || status.finish_time.is_some()
}

/// The status of a job that is just admitted.
pub(super) fn admitted(job: &FluxJob, admission: Admission, now: Timestamp) -> FluxJobStatus {
    let before = job.status.clone().unwrap_or_default();
    let records = Records { admission: Some(admission), start_time: None, ..Records::of(&before) };
    let stage = JobStage::Admitted { minicluster: None, trouble: None };
    status(job, &stage, None, records, now)
}

/// How a job has finished, if its MiniCluster has.
fn completion_of(minicluster: &MiniCluster) -> Option<JobCompletion> {
    let at = finished_at(minicluster)?;
    let status = minicluster.status.as_ref()?;
    let succeeded = find(&status.conditions, ConditionType::Succeeded)?;
    Some(JobCompletion {
        at,
        succeeded: succeeded.status == "True",
        exit_code: status.exit_code,
        reason: AnyReason::read(&succeeded.reason),
        message: succeeded.message.clone(),
    })
}

/// Cleans up, and deletes the job after the requested time.
fn clean_up(observed: &ObservedJob<'_>, end: Timestamp) -> JobPlan {
    let spec = &observed.job.spec;
    let retention = observed.setup.and_then(|setup| setup.retention_seconds);
    let kept = spec.ttl_seconds_after_finished.or(retention);
    let until = kept.map(|seconds| seconds_after(end, seconds));
    if until.is_some_and(|until| observed.now >= until) {
        return JobPlan { steps: vec![Step::DeleteSelf], ..JobPlan::default() };
    }
    let own = observed.minicluster.filter(|minicluster| belongs_to(minicluster, observed.job));
    let steps = if spec.keep_cluster { Vec::new() } else { delete(own) };
    // The MiniCluster may be deleted, and with it everything the status could be computed from.
    JobPlan { steps, status: observed.job.status.clone(), requeue_at: until }
}

fn delete(own: Option<&MiniCluster>) -> Vec<Step> {
    let own = own.filter(|own| own.metadata.deletion_timestamp.is_none());
    let target = own.map(|own| Target::of(TargetKind::MiniCluster, own));
    target.map(Step::Delete).into_iter().collect()
}

/// The plan for a job without quota.
fn plan_waiting(
    observed: &ObservedJob<'_>,
    before: &FluxJobStatus,
    own: Option<&MiniCluster>,
) -> JobPlan {
    let job = observed.job;
    let reported_before = find(&before.conditions, ConditionType::Admitted);
    let until = before.requeue.as_ref().and_then(|requeue| requeue.until.as_ref());
    let until = until.map(|until| until.0).filter(|until| *until > observed.now);
    let (phase, reason, mut message) = match (observed.refusal, observed.waiting) {
        (Some(refusal), _) => ("Waiting", refusal.reason.into(), refusal.message.clone()),
        _ if job.spec.suspend => {
            ("Suspended", Reason::Suspended.into(), queue::WaitReason::Suspended.to_string())
        }
        // Why it was evicted is shown until its back-off ends.
        _ if until.is_some() && before.phase == "Evicted" => {
            let message =
                reported_before.map(|reported| reported.message.clone()).unwrap_or_default();
            ("Evicted", AnyReason::read(&before.reason), message)
        }
        (None, Some(WaitStatus { reason: queue::WaitReason::Pending, .. }) | None) => {
            ("Requested", Reason::Pending.into(), queue::WaitReason::Pending.to_string())
        }
        (None, Some(WaitStatus { reason, .. })) => {
            ("Waiting", of_waiting(reason).into(), reason.to_string())
        }
    };
    // Amounts change with every other job; they are served on request, but not written.
    let same = reported_before.filter(|reported| {
        reported.reason == reason.as_str()
            && reported.observed_generation == job.metadata.generation
    });
    if let Some(same) = same {
        message.clone_from(&same.message);
    }
    // A MiniCluster without a record is one whose record the watch does not show yet, or one
    // that was restored: it is admitted again soon. Only the user may stop it.
    let steps = if job.spec.suspend { delete(own) } else { Vec::new() };
    let created = job.creation_timestamp().map_or(observed.now, |created| created.0);
    let report_after = seconds_after(created, WAITING_STATUS_DELAY_SECONDS);
    let can_wait = observed.refusal.is_none()
        && !observed.waiting.is_some_and(|waiting| needs_prompt_report(&waiting.reason));
    if before.conditions.is_empty() && can_wait && observed.now < report_after {
        return JobPlan { steps, status: None, requeue_at: Some(report_after) };
    }
    let queue = observed.waiting.and_then(|waiting| waiting.queue.as_ref());
    let queue = queue.map(|queue| queue.to_string()).unwrap_or_default();
    let stage = JobStage::Waiting { phase, reason, message, queue };
    let plan = report(observed, stage, Records::of(before));
    JobPlan { steps, requeue_at: until, ..plan }
}

/// Whether waiting cannot help. A job without a queue gets some time: its FluxSetup is
/// often created right after it.
fn needs_prompt_report(reason: &queue::WaitReason) -> bool {
    let reason = of_waiting(reason);
    reason.needs_job_owner() && reason != Reason::NoQueue
}

/// The plan for an admitted job that is not being evicted.
fn plan_admitted(
    observed: &ObservedJob<'_>,
    failure: Option<&Failure>,
    before: &FluxJobStatus,
    admission: Admission,
    own: Option<&MiniCluster>,
) -> JobPlan {
    let records = Records { admission: Some(admission.clone()), ..Records::of(before) };
    let planned =
        own.is_none().then(|| minicluster_at(observed.job, observed.setup, admission.size));
    if let Some(cause) = eviction_cause(observed, &admission, own, planned.as_ref()) {
        // The cause is recorded before anything is deleted.
        let admission = Admission { leaving: cause.to_string(), ..admission };
        return report(
            observed,
            JobStage::Evicting,
            Records { admission: Some(admission), ..records },
        );
    }
    let Some(planned) = planned else {
        let start_time = before.start_time.clone().or_else(|| own.and_then(running_since));
        let stage = JobStage::Admitted { minicluster: own, trouble: None };
        return report(observed, stage, Records { start_time, ..records });
    };
    if before.start_time.is_some() {
        // A second run of a user's command must be requested.
        let message = "its MiniCluster was deleted after the command had started, and the command \
            is not run a second time: create the job again to run it";
        let end = JobCompletion::failed(observed.now, Reason::ClusterLost, message.into());
        return report(observed, JobStage::Finished(end), records);
    }
    let trouble = failure.map(|failure| match failure.kind {
        FailureKind::NotOurs => (Reason::NameTaken, name_taken(observed.job).message),
        _ => (Reason::CreateFailed, failure.message.clone()),
    });
    let plan = report(observed, JobStage::Admitted { minicluster: None, trouble }, records);
    // A MiniCluster of a former job with this name is deleted with that job.
    let steps = match observed.minicluster {
        Some(_) => Vec::new(),
        None => vec![Step::Create(Object::MiniCluster(Box::new(planned)))],
    };
    JobPlan { steps, ..plan }
}

/// Why a job has to be evicted, if it has.
fn eviction_cause(
    observed: &ObservedJob<'_>,
    admission: &Admission,
    own: Option<&MiniCluster>,
    planned: Option<&MiniCluster>,
) -> Option<Reason> {
    if observed.job.spec.suspend {
        return Some(Reason::Suspended);
    }
    let evicted = observed.evicted.map(of_eviction);
    let status = own.and_then(|own| own.status.as_ref());
    let ready = status.and_then(|status| find(&status.conditions, ConditionType::Ready));
    let late = ready.is_some_and(|ready| {
        ready.status == "False" && AnyReason::read(&ready.reason) == Reason::ReadyTimeout
    });
    let foreign = observed.minicluster.filter(|_| own.is_none());
    let foreign = foreign.is_some_and(|foreign| !is_of_former_job(foreign, observed.job));
    let outgrown = planned.is_some_and(|planned| exceeds_admission(planned, admission));
    evicted
        .or(late.then_some(Reason::NotReady))
        .or(foreign.then(|| name_taken(observed.job).reason))
        .or(outgrown.then_some(Reason::Changed))
}

/// Whether a MiniCluster uses more than the job was granted: the job was changed in between.
fn exceeds_admission(planned: &MiniCluster, admission: &Admission) -> bool {
    let Requests { per_node, per_job: once } = requests(planned);
    let mut all = per_node.times(u32::try_from(admission.size).unwrap_or_default());
    all.add(&once);
    quantity::amounts(&admission.resources).is_ok_and(|given| !all.fits(&given))
}

fn running_since(minicluster: &MiniCluster) -> Option<Time> {
    let conditions = &minicluster.status.as_ref()?.conditions;
    let running = find(conditions, ConditionType::Running)?;
    (running.status == "True").then(|| running.last_transition_time.clone())
}

/// The plan for a job that is being evicted: first its MiniCluster is deleted, then the record.
fn plan_eviction(
    observed: &ObservedJob<'_>,
    before: &FluxJobStatus,
    admission: Admission,
    own: Option<&MiniCluster>,
) -> JobPlan {
    let cause = AnyReason::read(&admission.leaving);
    if own.is_some() || observed.has_unobserved_cluster {
        let plan = report(observed, JobStage::Evicting, Records::of(before));
        let requeue_at =
            observed.has_unobserved_cluster.then(|| seconds_after(observed.now, WATCH_LAG_SECONDS));
        return JobPlan { steps: delete(own), requeue_at, ..plan };
    }
    let reported = before.requeue.clone().unwrap_or_default();
    let policy = observed.setup.and_then(|setup| setup.requeue.clone()).unwrap_or_default();
    let requeue = match cause.known() {
        // It was not evicted by its queue, so it keeps its position.
        Some(Reason::Changed) => Requeue { until: None, ..reported },
        Some(Reason::Suspended) => {
            Requeue { since: Some(Time(observed.now)), until: None, ..reported }
        }
        _ => {
            let stays_out = back_off(&policy, reported.count, observed.jitter);
            let until = Some(Time(after(observed.now, stays_out)));
            Requeue {
                count: reported.count.saturating_add(1),
                since: Some(Time(observed.now)),
                until,
            }
        }
    };
    let records = Records { admission: None, start_time: None, ..Records::of(before) };
    let mut records = Records { requeue: Some(requeue.clone()), ..records };
    if policy.limit.is_some_and(|limit| requeue.count > limit) {
        records.admission = Some(admission);
        let message = format!(
            "it lost its quota {} times, the last time because {}: see requeue.limit of its FluxSetup",
            requeue.count,
            describe_cause(&cause)
        );
        let end = JobCompletion::failed(observed.now, Reason::RequeueLimit, message);
        return report(observed, JobStage::Finished(end), records);
    }
    let stage = match cause.known() {
        Some(Reason::Suspended) => JobStage::Waiting {
            phase: "Suspended",
            message: queue::WaitReason::Suspended.to_string(),
            reason: cause,
            queue: admission.queue,
        },
        known => JobStage::Waiting {
            phase: if known == Some(Reason::Changed) { "Waiting" } else { "Evicted" },
            message: format!(
                "it lost its quota because {}: it waits again",
                describe_cause(&cause)
            ),
            reason: cause,
            queue: admission.queue,
        },
    };
    let plan = report(observed, stage, records);
    JobPlan { requeue_at: requeue.until.map(|until| until.0), ..plan }
}

fn report(observed: &ObservedJob<'_>, stage: JobStage<'_>, records: Records) -> JobPlan {
    let refused = match (&stage, observed.refusal) {
        (JobStage::Waiting { .. }, Some(refusal)) => Some(refusal.clone()),
        (JobStage::Admitted { minicluster: Some(minicluster), .. }, _) => {
            immutable_refusal(changed_fields(minicluster, observed.job))
        }
        _ => None,
    };
    let status = status(observed.job, &stage, refused.as_ref(), records, observed.now);
    JobPlan { status: Some(status), ..JobPlan::default() }
}

fn immutable_refusal(fields: Vec<String>) -> Option<JobRefusal> {
    (!fields.is_empty()).then(|| JobRefusal {
        reason: Reason::Immutable,
        message: format!(
            "{} cannot change while the job is admitted: change it back, suspend the job, or create it again",
            fields.join(", ")
        ),
    })
}
