//! The reconciler's [`ReconciledKind`] for FluxJobs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::condition::ConditionType;
use flux_operator_api::{FluxJob, FluxJobStatus, MiniCluster};
use flux_operator_plan::Decision;
use flux_operator_plan::queueing::job::{FluxJobFacts, ObservedJob, decide, needs_cluster_query};
use flux_operator_queue::SetupName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::core::error_boundary::InvalidObject;
use kube::{Client, Resource, ResourceExt};

use super::ledger::{JobQueueState, uid_of};
use super::packed::PackedJob;
use super::queues::Queues;
use crate::metrics::{JobDurations, Metrics};
use crate::reconciler::{ReconciledKind, WriteTime, WrittenObject};
use crate::stores::GuardedMiniCluster;
use flux_operator_service::error_chain::chain;

/// Gives the reconciler access to FluxJobs and their MiniClusters.
pub(super) struct FluxJobKind {
    pub(super) queues: Queues,
    pub(super) metrics: Metrics,
    /// Whether this operator runs admitted jobs, instead of another controller.
    pub(super) runs_jobs: bool,
}

/// The observed state of a job.
pub(super) struct JobObservation {
    minicluster: Option<Arc<GuardedMiniCluster>>,
    has_unobserved_cluster: bool,
    facts: JobQueueState,
    jitter: f64,
    now: Timestamp,
}

impl JobObservation {
    /// The MiniCluster with the job's name, whatever its owner.
    fn minicluster(&self) -> Option<&MiniCluster> {
        self.minicluster.as_deref().and_then(|named| named.0.as_ref().ok())
    }
}

impl ReconciledKind for FluxJobKind {
    type Stored = PackedJob;
    type Object = FluxJob;
    type Status = FluxJobStatus;
    type Observed = JobObservation;
    type Facts<'a> = FluxJobFacts<'a>;

    const NAME: &'static str = "FluxJob";
    const CONDITION: &'static str = "Accepted";

    fn open(stored: &PackedJob) -> Result<Cow<'_, FluxJob>, &InvalidObject> {
        stored.unpack().map(Cow::Owned)
    }

    /// Returns None for a job that is not in the ledger yet; it is reconciled once it is.
    fn observe(&self, job: &FluxJob, now: Timestamp) -> Option<JobObservation> {
        let recorded = job.status.as_ref().and_then(recorded_queue);
        let facts = {
            let ledger = self.queues.ledger();
            ledger.job(&uid_of(job), recorded.as_ref(), now.as_millisecond())?
        };
        let minicluster = self.queues.minicluster_named_like(job);
        let has_unseen_cluster = false;
        Some(JobObservation {
            minicluster,
            has_unobserved_cluster: has_unseen_cluster,
            facts,
            jitter: jitter(),
            now,
        })
    }

    async fn query(&self, client: &Client, job: &FluxJob, observed: &mut JobObservation) {
        if !needs_cluster_query(job, observed.minicluster()) {
            return;
        }
        let namespace = job.namespace().unwrap_or_default();
        let miniclusters: Api<MiniCluster> = Api::namespaced(client.clone(), &namespace);
        match miniclusters.get_metadata_opt(&job.name_any()).await {
            Ok(found) => {
                let owners = found.iter().flat_map(|found| found.owner_references());
                observed.has_unobserved_cluster =
                    owners.into_iter().any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref());
            }
            Err(error) => {
                let (job, error) = (job.name_any(), chain(&error));
                tracing::warn!(job, namespace, error, "failed to read a job's MiniCluster");
                // The job keeps its quota until the API server can be queried.
                observed.has_unobserved_cluster = true;
            }
        }
    }

    fn decide<'a>(
        &'a self,
        job: &'a FluxJob,
        observed: &'a JobObservation,
    ) -> Decision<FluxJobFacts<'a>> {
        let JobObservation {
            minicluster: _,
            has_unobserved_cluster: has_unseen_cluster,
            facts,
            jitter,
            now,
        } = observed;
        decide(ObservedJob {
            job,
            minicluster: observed.minicluster(),
            has_unobserved_cluster: *has_unseen_cluster,
            setup: facts.setup.as_ref().map(|setup| &setup.spec),
            recorded_setup: facts.record.as_ref(),
            refusal: facts.eligibility.refusal(),
            waiting: facts.waiting.as_ref(),
            evicted: facts.evicted,
            runs_jobs: self.runs_jobs,
            jitter: *jitter,
            now: *now,
        })
    }

    /// A job's only written object is its MiniCluster.
    fn observed_version(&self, job: &FluxJob, _: &WrittenObject) -> Option<String> {
        self.queues.minicluster_named_like(job)?.meta().resource_version.clone()
    }

    /// Writing the status of thousands of waiting jobs would cost the API server more than
    /// admitting them, so waiting jobs are written one after the other.
    fn status_turn(&self, job: &FluxJob) -> WriteTime {
        if self.queues.status_turns.take_turn(&uid_of(job)) {
            WriteTime::Now
        } else {
            WriteTime::WhenRequested
        }
    }

    fn on_status_written(&self, job: &FluxJob, status: &FluxJobStatus) {
        let before = job.status.clone().unwrap_or_default();
        if let Some(queue) = recorded_queue(status).or_else(|| recorded_queue(&before)) {
            self.metrics.queue().record_durations(&queue, durations_between(job, &before, status));
        }
    }

    /// The conditions of a finished job are not kept.
    fn conditions(job: &FluxJob) -> Option<&[Condition]> {
        match &job.status {
            Some(status) if status.finish_time.is_some() => None,
            Some(status) => Some(&status.conditions),
            None => Some(&[]),
        }
    }
}

/// A random number from 0 to 1. If the operating system has no random bytes, all jobs that were
/// evicted together come back together.
fn jitter() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

/// The FluxSetup that admitted a job.
fn recorded_queue(status: &FluxJobStatus) -> Option<SetupName> {
    status.admission.as_ref()?.queue.parse().ok()
}

/// The durations of milestones that a job has reached between two statuses.
fn durations_between(job: &FluxJob, before: &FluxJobStatus, now: &FluxJobStatus) -> JobDurations {
    let since = |from: Option<&Time>, to: &Time| -> Option<Duration> {
        to.0.duration_since(from?.0).try_into().ok()
    };
    let ready = ready_since(now).filter(|_| ready_since(before).is_none());
    let admitted = now.admission.as_ref().and_then(|admission| admission.time.as_ref());
    let created = job.metadata.creation_timestamp.as_ref();
    let finished = now.finish_time.as_ref().filter(|_| before.finish_time.is_none());
    JobDurations {
        created_to_ready: ready.and_then(|ready| since(created, ready)),
        admitted_to_ready: ready.and_then(|ready| since(admitted, ready)),
        started_to_finished: finished.and_then(|it| since(now.start_time.as_ref(), it)),
    }
}

/// Since when a job's brokers have been ready.
fn ready_since(status: &FluxJobStatus) -> Option<&Time> {
    let ready = |condition: &&Condition| {
        condition.type_ == ConditionType::Ready.as_str() && condition.status == "True"
    };
    status.conditions.iter().find(ready).map(|condition| &condition.last_transition_time)
}
