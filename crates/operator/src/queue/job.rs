//! One pass over a FluxJob: observe, plan, carry out, report.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::condition::ConditionType;
use flux_operator_api::{FluxJob, FluxJobStatus, MiniCluster};
use flux_operator_plan::queueing::job::{JobSeen, JobStep, plan};
use flux_operator_plan::queueing::{JOB_LABEL, admission, news};
use flux_operator_queue::SetupName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::runtime::events::Recorder;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};

use super::ledger::{JobFacts, Standing, uid_of};
use super::packed::PackedJob;
use super::queues::Queues;
use super::unreadable;
use crate::apply::{ApplyError, create_once, delete};
use crate::backoff::Backoff;
use crate::errors::chain;
use crate::expected::{Expected, Written};
use crate::metrics::{Metrics, Stations};
use crate::status::{Unreadable, replace_status, tell};

/// How often a job that waits is looked at for another reason than before. What changes
/// for one job alone it is told at once.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// How long Kubernetes may take to delete what a namesake has left behind.
const LEFTOVERS: Duration = Duration::from_millis(250);

/// What a pass works with.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) queues: Queues,
    pub(super) backoff: Backoff<ObjectRef<PackedJob>>,
    pub(super) expected: Expected,
    pub(super) unreadable: Unreadable,
    pub(super) metrics: Metrics,
    /// Whether admitted jobs are carried out here, and not by somebody else.
    pub(super) make_miniclusters: bool,
}

/// Why a pass failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    #[error(transparent)]
    Apply(ApplyError),
    #[error("failed to write the status")]
    Publish { source: kube::Error },
}

/// When a failed pass is tried again.
pub(super) fn retry(packed: Arc<PackedJob>, error: &JobError, context: Arc<Context>) -> Action {
    let reference = ObjectRef::from_obj(&*packed);
    let (job, namespace) = (&reference.name, &reference.namespace);
    tracing::warn!(job, namespace, error = chain(error), "a pass over a FluxJob failed");
    Action::requeue(context.backoff.next(reference))
}

pub(super) async fn reconcile(
    packed: Arc<PackedJob>,
    context: Arc<Context>,
) -> Result<Action, JobError> {
    let job = match packed.open() {
        Ok(job) => job,
        Err(invalid) => {
            let status = unreadable("Accepted", invalid);
            let told = context.unreadable.tell::<FluxJob>(&context.client, invalid, status).await;
            told.map_err(|source| JobError::Publish { source })?;
            return Ok(Action::await_change());
        }
    };
    let action = context.pass(&job).await?;
    context.backoff.reset(&ObjectRef::from_obj(&*packed));
    Ok(action)
}

impl Context {
    async fn pass(&self, job: &FluxJob) -> Result<Action, JobError> {
        let status = job.status.as_ref();
        let is_going = job.metadata.deletion_timestamp.is_some();
        let is_elsewhere =
            status.is_some_and(|it| it.admission.is_some() || it.finish_time.is_some());
        if is_going || is_elsewhere && !self.make_miniclusters {
            // Kubernetes deletes what it owns; or another one sees to it.
            return Ok(Action::await_change());
        }
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let named = self.queues.minicluster_named_as(job);
        let shown = |_: &Written| named.as_ref().and_then(|it| it.meta().resource_version.clone());
        if let Some(wait) = self.expected.wait(uid, shown) {
            return Ok(Action::requeue(wait));
        }
        let now = Timestamp::now();
        let recorded = status.and_then(recorded_queue);
        let facts = self.queues.ledger().job(&uid_of(job), recorded.as_ref(), now.as_millisecond());
        // One that the ledger has not been told of yet is passed over when it has.
        let Some(facts) = facts.filter(|facts| facts.standing != Standing::Foreign) else {
            return Ok(Action::await_change());
        };
        let minicluster = named.as_deref().and_then(|named| named.0.as_ref().ok());
        let seen = seen(job, minicluster, &facts, now);
        let planned = plan(&seen);
        let carried = self.carry_out(job, minicluster, &planned.steps).await;
        let failure = carried.as_ref().err().filter(|error| !error.passes()).map(|it| chain(it));
        let planned = match &failure {
            Some(failure) => plan(&JobSeen { failure: Some(failure), ..seen }),
            None => planned,
        };
        let told = match &planned.status {
            Some(_) if planned.steps.contains(&JobStep::DeleteJob) => false,
            Some(status) => self.publish(job, status).await?,
            None => false,
        };
        let leftovers = match carried {
            Ok(()) => None,
            Err(error) if error.passes() => Some(LEFTOVERS),
            Err(error) => return Err(JobError::Apply(error)),
        };
        let until = planned.look_again.map(|until| {
            // Neither in the past nor so soon that it comes before its time.
            Duration::try_from(until.duration_since(now)).unwrap_or_default()
                + Duration::from_millis(10)
        });
        let told_to_wait = (told && facts.waiting.is_some()).then_some(LOOK_AGAIN);
        let delays = [leftovers, until, told_to_wait];
        Ok(match delays.into_iter().flatten().min() {
            Some(delay) => Action::requeue(delay),
            None => Action::await_change(),
        })
    }

    async fn carry_out(
        &self,
        job: &FluxJob,
        minicluster: Option<&MiniCluster>,
        steps: &[JobStep],
    ) -> Result<(), ApplyError> {
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        for step in steps {
            match step {
                JobStep::CreateMiniCluster(minicluster) => {
                    let written = create_once(&self.client, &**minicluster, JOB_LABEL).await?;
                    self.expected.add(job.metadata.uid.as_deref().unwrap_or_default(), written);
                }
                JobStep::DeleteMiniCluster => {
                    let uid = minicluster.and_then(|minicluster| minicluster.uid());
                    delete::<MiniCluster>(&self.client, &namespace, &name, uid).await?;
                }
                JobStep::DeleteJob => {
                    delete::<FluxJob>(&self.client, &namespace, &name, job.uid()).await?;
                }
            }
        }
        Ok(())
    }

    /// Writes a status, if it is not there already, and tells what is news. Returns whether
    /// it is there now: that a job waits is written when it is its turn.
    async fn publish(&self, job: &FluxJob, status: &FluxJobStatus) -> Result<bool, JobError> {
        let before = job.status.clone().unwrap_or_default();
        // What is over is kept without its conditions, and stays as it was told.
        if before == *status || before.finish_time.is_some() {
            return Ok(true);
        }
        let only_waits = before.admission.is_none() && status.admission.is_none();
        if only_waits
            && status.finish_time.is_none()
            && !self.queues.untold.is_turn_of(&uid_of(job))
        {
            return Ok(false);
        }
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        let object = admission::with_status(job, status);
        match replace_status::<FluxJob>(&self.client, &namespace, &name, &object).await {
            Ok(()) => {}
            // The watch shows what has changed, and starts the next pass.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => return Ok(false),
            Err(source) => return Err(JobError::Publish { source }),
        }
        if let Some(queue) = recorded_queue(status).or_else(|| recorded_queue(&before)) {
            self.metrics.queue().came_to(&queue, stations(job, &before, status));
        }
        let told = news(&before.conditions, &status.conditions);
        tell(&self.recorder, &job.object_ref(&()), told).await;
        Ok(true)
    }
}

fn seen<'a>(
    job: &'a FluxJob,
    minicluster: Option<&'a MiniCluster>,
    facts: &'a JobFacts,
    now: Timestamp,
) -> JobSeen<'a> {
    JobSeen {
        job,
        minicluster,
        setup: facts.setup.as_ref().map(|setup| &setup.spec),
        record: facts.record.as_ref(),
        mistake: facts.standing.mistake(),
        waiting: facts.waiting.as_ref(),
        evicted: facts.evicted,
        failure: None,
        chance: chance(),
        now,
    }
}

/// From 0 to 1. Where the system gives no randomness, jobs come back together.
fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

/// The setup that has admitted a job.
fn recorded_queue(status: &FluxJobStatus) -> Option<SetupName> {
    status.admission.as_ref()?.queue.parse().ok()
}

/// The stations that a job has reached between two statuses.
fn stations(job: &FluxJob, before: &FluxJobStatus, now: &FluxJobStatus) -> Stations {
    let since = |from: Option<&Time>, to: &Time| -> Option<Duration> {
        to.0.duration_since(from?.0).try_into().ok()
    };
    let ready = is_ready(now).filter(|_| is_ready(before).is_none());
    let admitted = now.admission.as_ref().and_then(|admission| admission.time.as_ref());
    let created = job.metadata.creation_timestamp.as_ref();
    let finished = now.finish_time.as_ref().filter(|_| before.finish_time.is_none());
    Stations {
        created_to_ready: ready.and_then(|ready| since(created, ready)),
        admitted_to_ready: ready.and_then(|ready| since(admitted, ready)),
        started_to_finished: finished.and_then(|it| since(now.start_time.as_ref(), it)),
    }
}

/// Since when a job's brokers are ready.
fn is_ready(status: &FluxJobStatus) -> Option<&Time> {
    let ready = |condition: &&Condition| {
        condition.type_ == ConditionType::Ready.as_str() && condition.status == "True"
    };
    status.conditions.iter().find(ready).map(|condition| &condition.last_transition_time)
}
