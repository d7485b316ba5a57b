//! One reconciler for all kinds.
//!
//! ```text
//! watch ──► wait for own writes ──► observe ──► query ──► decide ──► apply steps ──► conclude
//!                                                                        │
//!          back off, or requeue ◄── write Events ◄── write the status ◄──┘
//! ```
//!
//! A [`ReconciledKind`] defines how its objects are stored, observed and decided on; everything
//! else is here. A reconciliation does not depend on what triggered it, may be cut off after any
//! `await`, and writes nothing if nothing has to change. A panic affects only its object: it is
//! logged, reported in the object's condition, and the object is retried with backoff.

mod apply;
mod kind;
mod memory;
mod run;
mod write;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flux_operator_plan::status::Urgency;
use flux_operator_plan::unreconcilable::operator_error;
use flux_operator_plan::{Conclusion, Decision, Failure, Outcome};
use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use crate::replica::ReplicaContext;
use crate::tasks::panic_message;
use flux_operator_service::error_chain::chain;
use write::StatusResult;

pub(crate) use apply::is_terminating;
pub use kind::{ReconciledKind, WriteTime, WrittenObject};
pub(crate) use memory::Memory;
pub use run::run_kind;
pub(crate) use run::{RunLimits, forget_deleted};
pub(crate) use write::{patch_status, replace_status};

/// How long a non-urgent status change is deferred, so that later changes are combined with it.
const COALESCE_DELAY: Duration = Duration::from_millis(500);

/// Added to a requeue delay, so that the requeue is never early.
const REQUEUE_MARGIN: Duration = Duration::from_millis(10);

/// Why a reconciliation failed. It is retried with backoff.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("{}", .0.message)]
    Step(Failure, &'static str),
    #[error("failed to write the status")]
    Status(#[source] kube::Error),
    #[error("a panic: {0}")]
    Panic(String),
}

impl ReconcileError {
    /// Short and bounded: the metric's label.
    fn reason(&self) -> &'static str {
        match self {
            ReconcileError::Step(_, reason) => reason,
            ReconcileError::Status(_) => "Publish",
            ReconcileError::Panic(_) => "Panic",
        }
    }
}

/// Reconciles the objects of one kind.
pub(crate) struct Reconciler<K> {
    kind: K,
    context: ReplicaContext,
    recorder: Recorder,
    memory: Arc<Memory>,
}

impl<K: ReconciledKind> Reconciler<K> {
    pub(crate) fn new(kind: K, common: &ReplicaContext, memory: Arc<Memory>) -> Reconciler<K> {
        let recorder = Recorder::new(common.client.clone(), Reporter::from("flux-operator"));
        Reconciler { kind, context: common.clone(), recorder, memory }
    }

    /// Reconciles an object if this replica is the leader. A new leader reconciles all objects.
    pub(crate) async fn reconcile(&self, stored: &K::Stored) -> Result<Action, ReconcileError> {
        let _under_way = self.context.health.begin(K::NAME);
        if !self.context.leadership.can_start_work() {
            return Ok(Action::await_change());
        }
        let _running = self.context.metrics.start_reconcile();
        let begun = Instant::now();
        let result = AssertUnwindSafe(self.reconcile_stored(stored)).catch_unwind().await;
        let result = match result {
            Ok(result) => result,
            Err(panic) => Err(self.report_panic(stored, panic_message(&*panic)).await),
        };
        self.context.metrics.record_reconcile(K::NAME, begun.elapsed(), result.is_ok());
        if let Err(error) = &result {
            self.context.metrics.record_failure(K::NAME, error.reason());
        }
        result
    }

    /// When to retry a failed reconciliation.
    pub(crate) fn retry(&self, stored: &K::Stored, error: &ReconcileError) -> Action {
        let reference = ObjectRef::from_obj(stored);
        let (name, namespace) = (&reference.name, &reference.namespace);
        // A panic was already logged where it was caught.
        if !matches!(error, ReconcileError::Panic(_)) {
            let (kind, error) = (K::NAME, chain(error));
            tracing::warn!(kind, name, namespace, error, "a reconciliation failed");
        }
        Action::requeue(self.memory.back_off(stored.meta().uid.as_deref().unwrap_or_default()))
    }

    async fn reconcile_stored(&self, stored: &K::Stored) -> Result<Action, ReconcileError> {
        let object = match K::open(stored) {
            Ok(object) => object,
            Err(invalid) => return self.report_unreadable(invalid).await,
        };
        let metadata = object.meta();
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let observed_version = |written: &WrittenObject| match written.is_version_of(&*object) {
            true => metadata.resource_version.clone(),
            false => self.kind.observed_version(&object, written),
        };
        if let Some(wait) = self.memory.own_write_wait(uid, observed_version) {
            // The watch triggers the next reconciliation; the requeue is for a disconnected watch.
            return Ok(Action::requeue(wait));
        }
        let now = Timestamp::now();
        let Some(mut observed) = self.kind.observe(&object, now) else {
            // The watch triggers the next reconciliation once more is known.
            return Ok(Action::await_change());
        };
        self.kind.query(&self.context.client, &object, &mut observed).await;
        let decision = self.kind.decide(&object, &observed);
        self.kind.assign(&object, decision.lead_work.as_ref());
        let result = self.apply(&object, &decision).await;
        let Some((outcome, reason)) = result else { return Ok(Action::await_change()) };
        if decision.steps.iter().take(outcome.done).any(|step| step.changes_self()) {
            // The decision was computed from an outdated object; the watch delivers the new one.
            self.memory.reset_failures(uid);
            return Ok(Action::await_change());
        }
        let conclusion = decision.conclude(&outcome);
        let deferred = self.publish(&object, &conclusion).await?;
        if let (true, Some(failure)) = (conclusion.retry, &outcome.failure) {
            return Err(ReconcileError::Step(failure.clone(), reason));
        }
        if outcome.failure.is_some() {
            // A transient failure, which may take a while to resolve.
            return Ok(Action::requeue(self.memory.back_off_transient(uid)));
        }
        self.memory.reset_failures(uid);
        let until = conclusion.requeue_at.map(|requeue_delay| {
            let left = requeue_delay.duration_since(now);
            Duration::try_from(left).unwrap_or_default() + REQUEUE_MARGIN
        });
        Ok(match [deferred, until].into_iter().flatten().min() {
            Some(delay) => Action::requeue(delay),
            None => Action::await_change(),
        })
    }

    /// Applies steps until one fails; None if this replica is no longer the leader. Also returns
    /// the reason of a failure, for the metric.
    async fn apply<F>(
        &self,
        object: &K::Object,
        decision: &Decision<F>,
    ) -> Option<(Outcome, &'static str)> {
        let uid = object.meta().uid.as_deref().unwrap_or_default();
        for (done, step) in decision.steps.iter().enumerate() {
            if !self.context.leadership.is_leader() {
                return None;
            }
            match apply::apply(&self.context.client, object, step).await {
                Ok(written) => {
                    written.into_iter().for_each(|it| self.memory.expect(uid, it));
                    if step.changes_self() {
                        // The remaining steps were computed from the object as it was before.
                        return Some((Outcome { done: done + 1, failure: None }, ""));
                    }
                }
                Err(error) => {
                    let failure = Some(error.to_failure());
                    return Some((Outcome { done, failure }, error.reason()));
                }
            }
        }
        Some((Outcome::all(&decision.steps), ""))
    }

    /// Writes the status unless it is unchanged or deferred, and then the Events. Returns how long
    /// the status is deferred.
    async fn publish(
        &self,
        object: &K::Object,
        conclusion: &Conclusion<K::Status>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let uid = object.meta().uid.as_deref().unwrap_or_default();
        let Some(status) = &conclusion.status else { return Ok(None) };
        let write_time = match conclusion.urgency {
            Urgency::None => {
                self.memory.clear_deferred(uid);
                return Ok(None);
            }
            Urgency::Now => WriteTime::Now,
            Urgency::Soon => self.memory.defer(uid, COALESCE_DELAY),
            Urgency::Later => self.kind.status_turn(object),
        };
        match write_time {
            WriteTime::Now => {}
            WriteTime::After(wait) => return Ok(Some(wait)),
            WriteTime::WhenRequested => return Ok(None),
        }
        if !self.context.leadership.is_leader() {
            return Ok(None);
        }
        match write::write_status(&self.context.client, object, status).await {
            Ok(StatusResult::Written(written)) => {
                self.memory.clear_deferred(uid);
                self.memory.expect(uid, written);
                self.kind.on_status_written(object, status);
                let about = object.object_ref(&());
                write::write_events(&self.recorder, &about, &conclusion.events).await;
                Ok(None)
            }
            // The object has changed or is deleted; the watch triggers the next reconciliation.
            Ok(StatusResult::Outdated) => Ok(None),
            Err(error) => Err(ReconcileError::Status(error)),
        }
    }

    /// Reports why an object cannot be deserialized, once per generation: its current status cannot
    /// be read to see whether it was reported.
    async fn report_unreadable(
        &self,
        invalid: &kube::core::error_boundary::InvalidObject,
    ) -> Result<Action, ReconcileError> {
        let metadata: &ObjectMeta = &invalid.metadata;
        let uid = metadata.uid.as_deref().unwrap_or_default();
        if metadata.deletion_timestamp.is_some() {
            // Nothing is known about it that could be waited for.
            let client = &self.context.client;
            let removed = write::remove_finalizer::<K::Object>(client, metadata, K::FINALIZER);
            removed.await.map_err(ReconcileError::Status)?;
            return Ok(Action::await_change());
        }
        if !self.memory.is_reported(uid, metadata.generation) {
            let (kind, error) = (K::NAME, &invalid.error);
            let (name, namespace) = (&metadata.name, &metadata.namespace);
            tracing::warn!(kind, name, namespace, error, "failed to deserialize an object");
            let status = K::unreadable_status(invalid, Timestamp::now());
            let written =
                write::patch_own_status::<K::Object>(&self.context.client, metadata, status);
            if let StatusResult::Written(_) = written.await.map_err(ReconcileError::Status)? {
                self.memory.set_reported(uid, metadata.generation);
            }
        }
        Ok(Action::await_change())
    }

    /// Reports a panic in the object's condition. It is logged once per generation.
    async fn report_panic(&self, stored: &K::Stored, message: String) -> ReconcileError {
        let reference = ObjectRef::from_obj(stored);
        let (name, namespace) = (&reference.name, &reference.namespace);
        let kind = K::NAME;
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| K::open(stored).ok()));
        if let Ok(Some(object)) = opened
            && let Some(before) = K::conditions(&object)
        {
            let (uid, generation) = (object.uid().unwrap_or_default(), object.meta().generation);
            if !self.memory.is_reported(&uid, generation) {
                tracing::error!(
                    kind,
                    name,
                    namespace,
                    panic = message,
                    "a reconciliation panicked"
                );
                let (metadata, now) = (object.meta(), Timestamp::now());
                let status = operator_error(K::CONDITION, metadata, &message, before, now);
                let written =
                    write::patch_own_status::<K::Object>(&self.context.client, metadata, status);
                match written.await {
                    Ok(StatusResult::Written(_)) => self.memory.set_reported(&uid, generation),
                    // The watch delivers what has changed, and the panic is reported then.
                    Ok(StatusResult::Outdated) => {}
                    Err(error) => {
                        let error = chain(&error);
                        tracing::warn!(kind, name, namespace, error, "failed to report a panic");
                    }
                }
            }
        } else {
            tracing::error!(kind, name, namespace, panic = message, "a reconciliation panicked");
        }
        ReconcileError::Panic(message)
    }
}
