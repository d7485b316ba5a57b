//! The life of a FluxJob: requested, waiting, ready, running, finished.
//!
//! What must survive a crash is written to the status before it is acted upon: the quota a job
//! has, that it is evicted, and how the job has finished. So its MiniCluster is deleted
//! one reconciliation after the reason was written.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::fluxjob::{Admission, Requeue};
use flux_operator_api::reason::AnyReason;
use flux_operator_api::{FluxJob, FluxJobStatus, FluxSetupSpec, MiniCluster, Reason};
use flux_operator_queue as queue;
use flux_operator_queue::{EvictReason, SetupName, Waiting};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::job_status::{End, Records, Standing, status};
use super::leaving::because;
use super::minicluster::{belongs_to, changed_fields, is_left_behind};
use super::workload::{Mistake, name_taken};
use super::{Requests, back_off, minicluster_at, news, quantity, requests};
use crate::decision::{
    Conclude, Conclusion, Decision, Failure, FailureKind, Outcome, reported, requeue_at,
};
use crate::reason::{of_eviction, of_waiting};
use crate::status::{Urgency, has_ended};
use crate::step::{Object, Step, Target, TargetKind};
use crate::time::{after, seconds_after};
use crate::verdict::find;

/// How long the status of a job that only waits is not written: most jobs are admitted before.
const WAITING_IS_TOLD_AFTER_SECONDS: i64 = 5;

/// How long the watch may take to show a MiniCluster that exists.
const UNSEEN_SECONDS: i64 = 1;

/// How often a waiting job is reconciled to check whether its reason has changed.
const REFRESH_SECONDS: i64 = 60;

/// Everything that is known of a job.
#[derive(Clone, Debug)]
pub struct JobSeen<'a> {
    /// The job.
    pub job: &'a FluxJob,
    /// The MiniCluster of its name, whoever owns it, being deleted or not.
    pub minicluster: Option<&'a MiniCluster>,
    /// The API server has its MiniCluster, although the watch does not show it.
    pub has_unseen_cluster: bool,
    /// The setup in whose queue it waits, or which admitted it, if that exists.
    pub setup: Option<&'a FluxSetupSpec>,
    /// The setup that its record should name: the one it names, or the successor of that.
    pub record: Option<&'a SetupName>,
    /// Why it cannot be queued, if it cannot.
    pub mistake: Option<&'a Mistake>,
    /// Why it waits, if it does.
    pub waiting: Option<&'a Waiting>,
    /// Its queue evicts it.
    pub evicted: Option<EvictReason>,
    /// Whether this operator runs admitted jobs, and not another controller.
    pub runs_jobs: bool,
    /// Jitter, from 0 to 1, for the back-off.
    pub jitter: f64,
    /// The time.
    pub now: Timestamp,
}

/// Whether the API server must be queried for the job's MiniCluster, although the watch shows
/// none: if it does not exist, the record is removed, and with it the quota.
pub fn must_ask_for_cluster(job: &FluxJob, minicluster: Option<&MiniCluster>) -> bool {
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
    look_again: Option<Timestamp>,
}

/// What the conclusion about a FluxJob is computed from.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    seen: JobSeen<'a>,
    plan: JobPlan,
}

/// Decides what to do about a job. Same arguments, same decision.
pub fn decide(seen: JobSeen<'_>) -> Decision<Facts<'_>> {
    let plan = plan(&seen, None);
    Decision::new(plan.steps.clone(), Facts { seen, plan })
}

impl Conclude for Facts<'_> {
    type Status = FluxJobStatus;

    fn conclude(&self, _: &[Step], outcome: &Outcome) -> Conclusion<FluxJobStatus> {
        let failure = reported(outcome);
        let failed = failure.map(|failure| plan(&self.seen, Some(failure)));
        let JobPlan { status, look_again, .. } = failed.as_ref().unwrap_or(&self.plan);
        let before = self.seen.job.status.clone().unwrap_or_default();
        let urgency = status.as_ref().map_or(Urgency::None, |status| urgency(&before, status));
        // Whether it now waits for another reason. Changes of this job alone are reported
        // at once.
        let stands = status.is_some() && urgency == Urgency::None;
        let refresh = (stands && self.seen.waiting.is_some())
            .then(|| seconds_after(self.seen.now, REFRESH_SECONDS));
        Conclusion {
            events: status
                .as_ref()
                .map(|status| news(&before.conditions, &status.conditions))
                .unwrap_or_default(),
            urgency,
            status: status.clone(),
            requeue_at: requeue_at(outcome, self.seen.now, [*look_again, refresh]),
            retry: failure.is_some(),
        }
    }
}

/// How soon a status must be written. That a job waits is not urgent: users who want to
/// know at once can ask.
fn urgency(before: &FluxJobStatus, now: &FluxJobStatus) -> Urgency {
    // A finished job is cached without its conditions, and its status does not change.
    if before == now || before.finish_time.is_some() {
        return Urgency::None;
    }
    let waits = before.admission.is_none() && now.admission.is_none() && now.finish_time.is_none();
    if waits { Urgency::Later } else { Urgency::Now }
}

fn plan(seen: &JobSeen<'_>, failure: Option<&Failure>) -> JobPlan {
    let job = seen.job;
    if !seen.runs_jobs && job.status.as_ref().is_some_and(has_room_or_ended) {
        // Another controller runs it.
        return JobPlan::default();
    }
    if !job.spec.managed_by.is_empty() || job.metadata.deletion_timestamp.is_some() {
        // Another controller manages it, or Kubernetes deletes what it owns.
        return JobPlan::default();
    }
    let mut before = job.status.clone().unwrap_or_default();
    if let Some(end) = &before.finish_time {
        return after_the_end(seen, end.0);
    }
    if let Some((admission, setup)) = before.admission.as_mut().zip(seen.record) {
        // It counts there from now on, even if no setup says any more which one replaced which.
        admission.queue = setup.to_string();
    }
    let own = seen.minicluster.filter(|minicluster| belongs_to(minicluster, job));
    if let Some(end) = own.and_then(end_of) {
        // It is deleted once this is written.
        return tell(seen, Standing::Ended(end), Records::of(&before));
    }
    match before.admission.clone() {
        None => waits(seen, &before, own),
        Some(admission) if admission.leaving.is_empty() => {
            has_room(seen, failure, &before, admission, own)
        }
        Some(admission) => leaves(seen, &before, admission, own),
    }
}

fn has_room_or_ended(status: &FluxJobStatus) -> bool {
    status.admission.is_some() || status.finish_time.is_some()
}

/// The status of a job that is just admitted.
pub(super) fn admitted(job: &FluxJob, admission: Admission, now: Timestamp) -> FluxJobStatus {
    let before = job.status.clone().unwrap_or_default();
    let records = Records { admission: Some(admission), start_time: None, ..Records::of(&before) };
    let standing = Standing::HasRoom { minicluster: None, trouble: None };
    status(job, &standing, None, records, now)
}

/// How a job has finished, if its MiniCluster has.
fn end_of(minicluster: &MiniCluster) -> Option<End> {
    let at = has_ended(minicluster)?;
    let status = minicluster.status.as_ref()?;
    let succeeded = find(&status.conditions, ConditionType::Succeeded)?;
    Some(End {
        at,
        succeeded: succeeded.status == "True",
        exit_code: status.exit_code,
        reason: AnyReason::read(&succeeded.reason),
        message: succeeded.message.clone(),
    })
}

/// Cleans up, and deletes the job after the requested time.
fn after_the_end(seen: &JobSeen<'_>, end: Timestamp) -> JobPlan {
    let spec = &seen.job.spec;
    let retention = seen.setup.and_then(|setup| setup.retention_seconds);
    let kept = spec.ttl_seconds_after_finished.or(retention);
    let until = kept.map(|seconds| seconds_after(end, seconds));
    if until.is_some_and(|until| seen.now >= until) {
        return JobPlan { steps: vec![Step::DeleteSelf], ..JobPlan::default() };
    }
    let own = seen.minicluster.filter(|minicluster| belongs_to(minicluster, seen.job));
    let steps = if spec.keep_cluster { Vec::new() } else { delete(own) };
    // The MiniCluster may be deleted, and with it everything the status could be computed from.
    JobPlan { steps, status: seen.job.status.clone(), look_again: until }
}

fn delete(own: Option<&MiniCluster>) -> Vec<Step> {
    let own = own.filter(|own| own.metadata.deletion_timestamp.is_none());
    let target = own.map(|own| Target::of(TargetKind::MiniCluster, own));
    target.map(Step::Delete).into_iter().collect()
}

/// The plan for a job without quota.
fn waits(seen: &JobSeen<'_>, before: &FluxJobStatus, own: Option<&MiniCluster>) -> JobPlan {
    let job = seen.job;
    let told_before = find(&before.conditions, ConditionType::Admitted);
    let until = before.requeue.as_ref().and_then(|requeue| requeue.until.as_ref());
    let until = until.map(|until| until.0).filter(|until| *until > seen.now);
    let (phase, reason, mut message) = match (seen.mistake, seen.waiting) {
        (Some(mistake), _) => ("Waiting", mistake.reason.into(), mistake.message.clone()),
        _ if job.spec.suspend => {
            ("Suspended", Reason::Suspended.into(), queue::Reason::Suspended.to_string())
        }
        // Why it was evicted is shown until its back-off ends.
        _ if until.is_some() && before.phase == "Evicted" => {
            let message = told_before.map(|told| told.message.clone()).unwrap_or_default();
            ("Evicted", AnyReason::read(&before.reason), message)
        }
        (None, Some(Waiting { reason: queue::Reason::Pending, .. }) | None) => {
            ("Requested", Reason::Pending.into(), queue::Reason::Pending.to_string())
        }
        (None, Some(Waiting { reason, .. })) => {
            ("Waiting", of_waiting(reason).into(), reason.to_string())
        }
    };
    // Amounts change with every other job; they are served on request, but not written.
    let same = told_before.filter(|told| {
        told.reason == reason.as_str() && told.observed_generation == job.metadata.generation
    });
    if let Some(same) = same {
        message.clone_from(&same.message);
    }
    // A MiniCluster without a record is one whose record the watch does not show yet, or one
    // that was restored: it is admitted again soon. Only the user may stop it.
    let steps = if job.spec.suspend { delete(own) } else { Vec::new() };
    let created = job.creation_timestamp().map_or(seen.now, |created| created.0);
    let tell_after = seconds_after(created, WAITING_IS_TOLD_AFTER_SECONDS);
    let patient =
        seen.mistake.is_none() && !seen.waiting.is_some_and(|waiting| is_final(&waiting.reason));
    if before.conditions.is_empty() && patient && seen.now < tell_after {
        return JobPlan { steps, status: None, look_again: Some(tell_after) };
    }
    let queue = seen.waiting.and_then(|waiting| waiting.queue.as_ref());
    let queue = queue.map(|queue| queue.to_string()).unwrap_or_default();
    let standing = Standing::Waits { phase, reason, message, queue };
    let plan = tell(seen, standing, Records::of(before));
    JobPlan { steps, look_again: until, ..plan }
}

/// Whether waiting cannot help. A job without a queue gets some time: its FluxSetup is
/// often created right after it.
fn is_final(reason: &queue::Reason) -> bool {
    let reason = of_waiting(reason);
    reason.needs_user_of_job() && reason != Reason::NoQueue
}

/// The plan for an admitted job that is not being evicted.
fn has_room(
    seen: &JobSeen<'_>,
    failure: Option<&Failure>,
    before: &FluxJobStatus,
    admission: Admission,
    own: Option<&MiniCluster>,
) -> JobPlan {
    let records = Records { admission: Some(admission.clone()), ..Records::of(before) };
    let planned = own.is_none().then(|| minicluster_at(seen.job, seen.setup, admission.size));
    if let Some(cause) = cause_to_leave(seen, &admission, own, planned.as_ref()) {
        // It is written before it is done.
        let admission = Admission { leaving: cause.to_string(), ..admission };
        return tell(seen, Standing::Leaves, Records { admission: Some(admission), ..records });
    }
    let Some(planned) = planned else {
        let start_time = before.start_time.clone().or_else(|| own.and_then(running_since));
        let standing = Standing::HasRoom { minicluster: own, trouble: None };
        return tell(seen, standing, Records { start_time, ..records });
    };
    if before.start_time.is_some() {
        // A second run of a user's command must be requested.
        let message = "its MiniCluster was deleted after the command had started, and the command \
            is not run a second time: create the job again to run it";
        let end = End::failed(seen.now, Reason::ClusterLost, message.into());
        return tell(seen, Standing::Ended(end), records);
    }
    let trouble = failure.map(|failure| match failure.kind {
        FailureKind::NotOurs => (Reason::NameTaken, name_taken(seen.job).message),
        _ => (Reason::CreateFailed, failure.message.clone()),
    });
    let plan = tell(seen, Standing::HasRoom { minicluster: None, trouble }, records);
    // A MiniCluster of a former job with this name is deleted with that job.
    let steps = match seen.minicluster {
        Some(_) => Vec::new(),
        None => vec![Step::Create(Object::MiniCluster(Box::new(planned)))],
    };
    JobPlan { steps, ..plan }
}

/// Why a job has to be evicted, if it has.
fn cause_to_leave(
    seen: &JobSeen<'_>,
    admission: &Admission,
    own: Option<&MiniCluster>,
    planned: Option<&MiniCluster>,
) -> Option<Reason> {
    if seen.job.spec.suspend {
        return Some(Reason::Suspended);
    }
    let evicted = seen.evicted.map(of_eviction);
    let status = own.and_then(|own| own.status.as_ref());
    let ready = status.and_then(|status| find(&status.conditions, ConditionType::Ready));
    let late = ready.is_some_and(|ready| {
        ready.status == "False" && AnyReason::read(&ready.reason) == Reason::ReadyTimeout
    });
    let foreign = seen.minicluster.filter(|_| own.is_none());
    let foreign = foreign.is_some_and(|foreign| !is_left_behind(foreign, seen.job));
    let outgrown = planned.is_some_and(|planned| outgrows(planned, admission));
    evicted
        .or(late.then_some(Reason::NotReady))
        .or(foreign.then(|| name_taken(seen.job).reason))
        .or(outgrown.then_some(Reason::Changed))
}

/// Whether a MiniCluster uses more than the job was granted: the job was changed in between.
fn outgrows(planned: &MiniCluster, admission: &Admission) -> bool {
    let Requests { each, once } = requests(planned);
    let mut all = each.times(u32::try_from(admission.size).unwrap_or_default());
    all.add(&once);
    quantity::amounts(&admission.resources).is_ok_and(|given| !all.fits(&given))
}

fn running_since(minicluster: &MiniCluster) -> Option<Time> {
    let conditions = &minicluster.status.as_ref()?.conditions;
    let running = find(conditions, ConditionType::Running)?;
    (running.status == "True").then(|| running.last_transition_time.clone())
}

/// The plan for a job that is being evicted: first its MiniCluster is deleted, then the record.
fn leaves(
    seen: &JobSeen<'_>,
    before: &FluxJobStatus,
    admission: Admission,
    own: Option<&MiniCluster>,
) -> JobPlan {
    let cause = AnyReason::read(&admission.leaving);
    if own.is_some() || seen.has_unseen_cluster {
        let plan = tell(seen, Standing::Leaves, Records::of(before));
        let look_again = seen.has_unseen_cluster.then(|| seconds_after(seen.now, UNSEEN_SECONDS));
        return JobPlan { steps: delete(own), look_again, ..plan };
    }
    let told = before.requeue.clone().unwrap_or_default();
    let policy = seen.setup.and_then(|setup| setup.requeue.clone()).unwrap_or_default();
    let requeue = match cause.known() {
        // It is not the job's fault: it keeps its position.
        Some(Reason::Changed) => Requeue { until: None, ..told },
        Some(Reason::Suspended) => Requeue { since: Some(Time(seen.now)), until: None, ..told },
        _ => {
            let stays_out = back_off(&policy, told.count, seen.jitter);
            let until = Some(Time(after(seen.now, stays_out)));
            Requeue { count: told.count.saturating_add(1), since: Some(Time(seen.now)), until }
        }
    };
    let records = Records { admission: None, start_time: None, ..Records::of(before) };
    let mut records = Records { requeue: Some(requeue.clone()), ..records };
    if policy.limit.is_some_and(|limit| requeue.count > limit) {
        records.admission = Some(admission);
        let message = format!(
            "it lost its quota {} times, the last time because {}: see requeue.limit of its FluxSetup",
            requeue.count,
            because(&cause)
        );
        let end = End::failed(seen.now, Reason::RequeueLimit, message);
        return tell(seen, Standing::Ended(end), records);
    }
    let standing = match cause.known() {
        Some(Reason::Suspended) => Standing::Waits {
            phase: "Suspended",
            message: queue::Reason::Suspended.to_string(),
            reason: cause,
            queue: admission.queue,
        },
        known => Standing::Waits {
            phase: if known == Some(Reason::Changed) { "Waiting" } else { "Evicted" },
            message: format!("it lost its quota because {}: it waits again", because(&cause)),
            reason: cause,
            queue: admission.queue,
        },
    };
    let plan = tell(seen, standing, records);
    JobPlan { look_again: requeue.until.map(|until| until.0), ..plan }
}

fn tell(seen: &JobSeen<'_>, standing: Standing<'_>, records: Records) -> JobPlan {
    let refused = match (&standing, seen.mistake) {
        (Standing::Waits { .. }, Some(mistake)) => Some(mistake.clone()),
        (Standing::HasRoom { minicluster: Some(minicluster), .. }, _) => {
            immutable(changed_fields(minicluster, seen.job))
        }
        _ => None,
    };
    let status = status(seen.job, &standing, refused.as_ref(), records, seen.now);
    JobPlan { status: Some(status), ..JobPlan::default() }
}

fn immutable(fields: Vec<String>) -> Option<Mistake> {
    (!fields.is_empty()).then(|| Mistake {
        reason: Reason::Immutable,
        message: format!(
            "{} cannot change while the job is admitted: change it back, suspend the job, or create it again",
            fields.join(", ")
        ),
    })
}
