//! FluxJobs and MiniClusters as the scheduler sees them.

use flux_operator_api::fluxjob::Admission as Record;
use flux_operator_api::fluxsetup::JobDefaults;
use flux_operator_api::validate::{Problem, Validate};
use flux_operator_api::{FluxJob, MiniCluster, Reason};
use flux_operator_queue::{Admission, Kind, Millis, SetupName, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;

use super::minicluster::{belongs_to, is_of_former_job, is_owned_by_job};
use super::{Requests, minicluster_of, quantity, requests};
use crate::Valid;
use crate::kubernetes::has_kueue_label;
use crate::status::finished_at;

/// The pod of the services is called `<name>-services`, and a host name has at most 63 characters.
const MAX_NAME_WITH_SERVICES: usize = 54;

/// What is needed besides a job to read it.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobContext<'a> {
    /// The MiniCluster of the job's name, if there is one.
    pub minicluster: Option<&'a MiniCluster>,
    /// The value of the PriorityClass that it names, if that exists.
    pub class_value: Option<i32>,
}

/// Why a job cannot be queued: a condition `Accepted=False`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRefusal {
    /// The condition's reason.
    pub reason: Reason,
    /// What to do about it.
    pub message: String,
}

/// The workload of a FluxJob. None if another controller manages it, or if it is being deleted
/// and was never admitted.
///
/// An admitted job is never refused: whatever its spec says now, its quota counts.
pub fn of_job(job: &FluxJob, context: JobContext<'_>) -> Result<Option<Workload>, JobRefusal> {
    let spec = &job.spec;
    if !spec.managed_by.is_empty() {
        return Ok(None);
    }
    let status = job.status.clone().unwrap_or_default();
    let own = context.minicluster.filter(|minicluster| belongs_to(minicluster, job));
    let size = size(job);
    let planned = minicluster_of(job, &JobDefaults::default(), size.unwrap_or(1));
    let is_finished = status.finish_time.is_some();
    if status.admission.is_none() && !is_finished {
        if job.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        if let Some(refusal) = refusal(job, context, &planned) {
            return Err(refusal);
        }
    }
    let limit = spec.max_runtime_seconds.filter(|seconds| *seconds > 0);
    let admitted = status.admission.as_ref().map_or(i32::MAX, |admission| admission.size);
    let requeue = status.requeue.unwrap_or_default();
    // What a finished job requests does not matter, and most jobs have finished.
    let Requests { per_node, per_job } =
        if is_finished { Requests::default() } else { requests(&planned) };
    Ok(Some(Workload {
        queue: spec.queue.as_str().into(),
        priority: spec.priority.or(context.class_value).unwrap_or_default(),
        waiting_since: requeue.since.map_or_else(|| created(&job.metadata), |since| millis(&since)),
        not_before: requeue.until.as_ref().map(millis),
        suspended: spec.suspend,
        size: size.map(count),
        min_size: spec.min_size.map(count),
        max_runtime: limit.map(|_| planned.spec.deadline_seconds.saturating_mul(1000)),
        admission: status.admission.as_ref().map(|record| admission(record, &job.metadata)),
        pods_exist: own.is_some_and(|minicluster| pod_count(minicluster) >= admitted),
        finished: is_finished || own.is_some_and(|own| finished_at(own).is_some()),
        ..base_workload(Kind::FluxJob, &job.metadata, per_node, per_job)
    }))
}

/// The workload of a MiniCluster. None if it names no queue, belongs to a FluxJob, is managed by
/// another controller, has Kueue's label or is refused: then our queues do not admit it.
pub fn of_minicluster(minicluster: &MiniCluster) -> Option<Workload> {
    let spec = &minicluster.spec;
    let status = minicluster.status.clone().unwrap_or_default();
    if spec.queue.is_empty()
        || is_owned_by_job(minicluster)
        || !spec.managed_by.is_empty()
        || has_kueue_label(&spec.job_labels)
    {
        return None;
    }
    let is_new = status.admission.is_none();
    let is_terminating = minicluster.metadata.deletion_timestamp.is_some();
    if is_new && (is_terminating || Valid::check(minicluster.clone()).is_err()) {
        return None;
    }
    let Requests { per_node, per_job: once } = requests(minicluster);
    let limit = Some(spec.deadline_seconds).filter(|seconds| *seconds > 0);
    Some(Workload {
        queue: spec.queue.as_str().into(),
        suspended: spec.suspend,
        size: Some(count(spec.size)),
        max_runtime: limit.map(|seconds| seconds.saturating_mul(1000)),
        admission: status.admission.as_ref().map(|it| admission(it, &minicluster.metadata)),
        pods_exist: pod_count(minicluster) >= spec.size,
        finished: finished_at(minicluster).is_some(),
        ..base_workload(Kind::MiniCluster, &minicluster.metadata, per_node, once)
    })
}

/// The quota in the record of a job, for a job that cannot be read as a whole.
pub(super) fn of_job_record(job: &FluxJob) -> Option<Workload> {
    let status = job.status.as_ref().filter(|_| job.spec.managed_by.is_empty())?;
    let finished = status.finish_time.is_some();
    Some(of_record(Kind::FluxJob, &job.metadata, status.admission.as_ref()?, finished))
}

/// The quota in the record of a MiniCluster, for one that cannot be read as a whole.
pub(super) fn of_minicluster_record(minicluster: &MiniCluster) -> Option<Workload> {
    let status = minicluster.status.as_ref()?;
    let finished = finished_at(minicluster).is_some();
    let record = status.admission.as_ref()?;
    Some(of_record(Kind::MiniCluster, &minicluster.metadata, record, finished))
}

fn of_record(kind: Kind, metadata: &ObjectMeta, record: &Record, finished: bool) -> Workload {
    let admission = Some(admission(record, metadata));
    let Requests { per_node, per_job: once } = Requests::default();
    Workload { admission, finished, ..base_workload(kind, metadata, per_node, once) }
}

/// The refusal of a job whose reading panicked.
pub(super) fn panic_refusal(panic: &str) -> JobRefusal {
    let message = format!(
        "the operator failed to read the object and ignores it until it changes; \
         please report this: {panic}"
    );
    JobRefusal { reason: Reason::OperatorError, message }
}

/// The number of nodes that a job requests; none if the setup decides.
fn size(job: &FluxJob) -> Option<i32> {
    // 1 is also what Kubernetes writes into a template without a size.
    let template = job.spec.template.as_ref().map(|template| template.spec.size);
    job.spec.size.or(template.filter(|size| *size > 1))
}

/// Why a job cannot be queued, if it cannot.
fn refusal(job: &FluxJob, context: JobContext<'_>, planned: &MiniCluster) -> Option<JobRefusal> {
    let class = &job.spec.priority_class_name;
    if !class.is_empty() && context.class_value.is_none() {
        let message = format!(
            "PriorityClass {class:?} does not exist or cannot be read: create it, or use priority"
        );
        return Some(JobRefusal { reason: Reason::UnknownPriorityClass, message });
    }
    if let Some(other) = context.minicluster
        && !belongs_to(other, job)
        && !is_of_former_job(other, job)
    {
        return Some(name_taken(job));
    }
    if has_kueue_label(&planned.spec.job_labels) {
        let message = "template.spec.jobLabels has Kueue's queue name: a FluxJob waits in a \
            FluxSetup's queue, so remove the label, or create a MiniCluster for Kueue";
        return Some(JobRefusal { reason: Reason::TwoQueues, message: message.into() });
    }
    let checked = || Valid::check_planned(planned.clone()).err().map(|refusal| refusal.to_string());
    let problems = name_problem(planned).or_else(|| schema_problems(job)).or_else(checked)?;
    let message = format!("the MiniCluster of the template cannot be run: {problems}");
    Some(JobRefusal { reason: Reason::InvalidTemplate, message })
}

/// Problems of the job that the API server could not check when it was stored.
fn schema_problems(job: &FluxJob) -> Option<String> {
    let problems: Vec<String> = job.check_beyond_schema().iter().map(Problem::to_string).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// Why the API server would refuse the name of the MiniCluster, if it would. A template has no
/// name, so the rules of its MiniCluster are not checked when the job is stored, and a rule of
/// the job would cost more than this check.
fn name_problem(planned: &MiniCluster) -> Option<String> {
    let name = planned.name_any();
    if !planned.spec.services.is_empty() && name.len() > MAX_NAME_WITH_SERVICES {
        return Some(format!(
            "metadata.name may have at most {MAX_NAME_WITH_SERVICES} characters with services, \
             because their pod is called <name>-services"
        ));
    }
    let sidecars = || planned.spec.containers.iter().filter(|container| !container.run_flux);
    let clash = planned.spec.containers.len() > 1 && sidecars().any(|it| it.name == name);
    clash.then(|| format!("a sidecar is called {name:?}, like the job and its runner"))
}

/// The refusal of a job whose name is that of a MiniCluster with another owner.
pub(super) fn name_taken(job: &FluxJob) -> JobRefusal {
    let message = format!(
        "a MiniCluster {:?} exists and has another owner: rename the job, or delete that MiniCluster",
        job.name_any()
    );
    JobRefusal { reason: Reason::NameTaken, message }
}

/// The fields that are the same for both kinds.
fn base_workload(
    kind: Kind,
    metadata: &ObjectMeta,
    per_node: flux_operator_queue::Resources,
    per_job: flux_operator_queue::Resources,
) -> Workload {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Workload {
        uid: text(&metadata.uid).as_str().into(),
        kind,
        namespace: text(&metadata.namespace).into(),
        name: text(&metadata.name).into(),
        queue: "".into(),
        priority: 0,
        waiting_since: created(metadata),
        not_before: None,
        suspended: false,
        size: None,
        min_size: None,
        per_node,
        per_job,
        max_runtime: None,
        admission: None,
        pods_exist: false,
        finished: false,
    }
}

fn admission(record: &Record, metadata: &ObjectMeta) -> Admission {
    // A name that is not valid counts nowhere, and does no harm.
    let nowhere =
        || SetupName::new(metadata.namespace.as_deref().unwrap_or_default(), &record.queue);
    Admission {
        queue: record.queue.parse().unwrap_or_else(|_| nowhere()),
        size: count(record.size),
        resources: quantity::amounts(&record.resources).unwrap_or_default(),
        at: record.time.as_ref().map_or_else(|| created(metadata), millis),
    }
}

/// Pods that exist, as the MiniCluster's status counts them.
fn pod_count(minicluster: &MiniCluster) -> i32 {
    minicluster.status.as_ref().map_or(0, |status| status.size)
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

fn created(metadata: &ObjectMeta) -> Millis {
    metadata.creation_timestamp.as_ref().map_or(0, millis)
}

fn millis(time: &Time) -> Millis {
    time.0.as_millisecond()
}
