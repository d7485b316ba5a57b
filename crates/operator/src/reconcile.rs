//! One pass: observe, validate, plan, apply, report.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{Rendering, Settings};
use flux_operator_plan::status::{Outcome, status};
use flux_operator_plan::{
    Cluster, Hold, RankTableError, Refusal, Seen, Shrinking, Step, Valid, as_booted, keys_lost,
    plan,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::runtime::controller::Action;
use kube::runtime::events::Recorder;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};

use crate::apply::{ApplyError, carry_out, is_going};
use crate::backoff::Backoff;
use crate::errors::chain;
use crate::expected::{Expected, Written};
use crate::look::Looks;
use crate::metrics::{Metrics, first_ready};
use crate::publish::{PublishError, Publisher};
use crate::reports::Reports;
use crate::stores::{Guarded, Stores};

/// What a pass works with.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) recorder: Recorder,
    pub(crate) settings: Settings,
    pub(crate) stores: Stores,
    pub(crate) reports: Reports,
    pub(crate) publisher: Publisher,
    pub(crate) backoff: Backoff<ObjectRef<Guarded>>,
    pub(crate) expected: Expected,
    pub(crate) metrics: Metrics,
    pub(crate) looks: Looks,
}

/// Why a pass failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error(transparent)]
    Carry(CarryError),
    #[error(transparent)]
    Publish(PublishError),
}

impl ReconcileError {
    /// Short and bounded: the metric's label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            ReconcileError::Carry(CarryError::Apply(error)) => error.reason(),
            ReconcileError::Carry(CarryError::Ranks(_)) => "Ranks",
            ReconcileError::Publish(_) => "Publish",
        }
    }
}

/// Why a cluster could not be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CarryError {
    #[error(transparent)]
    Apply(ApplyError),
    #[error(transparent)]
    Ranks(RankTableError),
}

/// How long Kubernetes may take to delete what a namesake has left behind, until we
/// look again.
const LEFTOVERS: SignedDuration = SignedDuration::from_millis(250);

/// What became of carrying a cluster out.
#[derive(Default)]
struct Carried {
    refusal: Option<Refusal>,
    hold: Option<Hold>,
    shrinking: Option<Shrinking>,
    failure: Option<CarryError>,
    created: bool,
    look_again: Option<Timestamp>,
}

pub(crate) async fn reconcile(
    guarded: Arc<Guarded>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let minicluster = match &guarded.0 {
        Ok(minicluster) => minicluster,
        Err(invalid) => {
            context.publisher.refuse(invalid).await.map_err(ReconcileError::Publish)?;
            return Ok(Action::await_change());
        }
    };
    if minicluster.metadata.deletion_timestamp.is_some() {
        // Kubernetes deletes what we own.
        return Ok(Action::await_change());
    }
    let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
    let version = |written: &Written| context.stores.version(minicluster, written);
    if let Some(wait) = context.expected.wait(uid, version) {
        // The watch starts the next pass, unless it stays silent.
        return Ok(Action::requeue(wait));
    }
    let (seen, ask_again) = context.observe(minicluster).await;
    let carried = context.carry_out(minicluster, &seen).await;
    let failure = carried.failure.as_ref().map(|error| chain(error));
    let outcome = Outcome {
        refusal: carried.refusal.as_ref(),
        hold: carried.hold.as_ref(),
        shrinking: carried.shrinking.as_ref(),
        failure: failure.as_deref(),
        created: carried.created,
    };
    let status = status(minicluster, &seen, &outcome);
    let wait = context.publisher.publish(&context.recorder, minicluster, &status).await;
    let wait = wait.map_err(ReconcileError::Publish)?;
    if let Some(duration) = first_ready(minicluster, &status) {
        context.metrics.brought_up(duration);
    }
    if let Some(failure) = carried.failure {
        return Err(ReconcileError::Carry(failure));
    }
    context.backoff.reset(&ObjectRef::from_obj(&*guarded));
    let look_again = [carried.look_again, ask_again].into_iter().flatten().min();
    let until = look_again.map(|until| {
        // Neither in the past nor so soon that it comes before its time.
        Duration::try_from(until - seen.now).unwrap_or_default() + Duration::from_millis(10)
    });
    Ok(match [wait, until].into_iter().flatten().min() {
        Some(delay) => Action::requeue(delay),
        None => Action::await_change(),
    })
}

/// When a failed pass is tried again.
pub(crate) fn retry(
    guarded: Arc<Guarded>,
    error: &ReconcileError,
    context: Arc<Context>,
) -> Action {
    let reference = ObjectRef::from_obj(&*guarded);
    let error = chain(error);
    tracing::warn!(
        cluster = reference.name,
        namespace = reference.namespace,
        error,
        "a pass failed"
    );
    Action::requeue(context.backoff.next(reference))
}

impl Context {
    /// What is seen now, from memory, and when to ask again. The API server is asked
    /// only where a pod that goes may mean that the namespace does, and where one does
    /// not come or does not start.
    async fn observe(&self, minicluster: &MiniCluster) -> (Seen, Option<Timestamp>) {
        let mut seen = self.stores.seen(minicluster, &self.reports, Timestamp::now());
        if seen.may_lose_its_namespace() {
            let namespace = minicluster.namespace().unwrap_or_default();
            seen.namespace_is_going = is_going(&self.client, &namespace).await;
        }
        let there = || self.stores.uids();
        let heard = self.looks.ask(&self.client, minicluster, &seen, there).await;
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        let lost = self.reports.has_lost_key(uid).then(|| keys_lost(minicluster));
        seen.told = lost.or(heard.trouble);
        (seen, heard.again)
    }

    async fn carry_out(&self, minicluster: &MiniCluster, seen: &Seen) -> Carried {
        let valid = match Valid::check(minicluster.clone()) {
            Ok(valid) => as_booted(valid, seen),
            Err(refusal) => return Carried { refusal: Some(refusal), ..Carried::default() },
        };
        let cluster = match Cluster::of(&valid) {
            Ok(cluster) => cluster,
            Err(error) => {
                return Carried { failure: Some(CarryError::Ranks(error)), ..Carried::default() };
            }
        };
        let rendering =
            Rendering { minicluster: &valid, cluster: &cluster, settings: &self.settings };
        let plan = plan(minicluster, &rendering, seen);
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        self.reports.set_drain(uid, plan.drain);
        let mut carried = Carried {
            hold: plan.hold,
            shrinking: plan.shrinking,
            look_again: plan.look_again,
            ..Carried::default()
        };
        for step in &plan.steps {
            match carry_out(&self.client, &rendering, step).await {
                Ok(written) => written.into_iter().for_each(|it| self.expected.add(uid, it)),
                Err(error) if error.passes() => {
                    carried.look_again = Some(seen.now + LEFTOVERS);
                    break;
                }
                Err(error) => {
                    carried.failure = Some(CarryError::Apply(error));
                    break;
                }
            }
            carried.created |= matches!(step, Step::CreateJob(_));
        }
        carried
    }
}
