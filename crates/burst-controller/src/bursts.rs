//! Reconciles Bursts: observes, has the next step decided, writes the status, makes the step.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::burst::BurstConditionType;
use flux_operator_api::{Burst, MiniCluster, Reason};
use flux_operator_plan::bursting::{
    BURST_FINALIZER, BurstDecision, BurstObserved, BurstStep, HomeAnswer, ObservedMiniCluster,
    TargetFailure, TargetView, Unreadable, WhileUnreadable, after_failure, after_output,
    burst_events, decide_burst, field_manager, has_claim, home_order, must_ask_target,
    record_finished, release, unserved_status, while_unreadable,
};
use flux_operator_plan::status::NewEvent;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::errors::{catch_panic, chain, exists_already, is_conflict, is_not_found, is_refused};
use crate::feeds::Feeds;
use crate::home::Home;
use crate::metrics::Metrics;
use crate::output::config_map;
use crate::stored_policy::{read_policy, replace_policy_status};
use crate::stores::Stores;
use crate::target::{Clients, Pool, make_at_target, target_of};
use crate::unreadable::Found;
use crate::views::Views;

/// How soon a reconciliation is repeated after a step: the watch shows its result by then.
const AFTER_STEP: Duration = Duration::from_millis(100);

/// The same after a step whose result takes a moment at the target.
const AFTER_SLOW_STEP: Duration = Duration::from_secs(1);

/// The same after a write of what has changed since: the watch shows it by then, unless it is broken.
const AFTER_CONFLICT: Duration = Duration::from_millis(500);

/// How soon it is repeated after the API server has refused a write.
const AFTER_ERROR: Duration = Duration::from_secs(2);

/// Everything a reconciliation needs.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) home: Home,
    pub(crate) stores: Stores,
    pub(crate) feeds: Feeds,
    pub(crate) clients: Arc<Clients>,
    pub(crate) views: Arc<Views>,
    pub(crate) metrics: Metrics,
    pub(crate) recorder: Recorder,
}

/// Why a Burst could not be reconciled.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error("failed to {doing}")]
    Write { doing: &'static str, source: kube::Error },
}

fn write(doing: &'static str) -> impl FnOnce(kube::Error) -> ReconcileError {
    move |source| ReconcileError::Write { doing, source }
}

/// Reconciles a Burst once, and returns when to do it again; `None` if it no longer exists, or nothing is
/// done about it before it changes.
pub(crate) async fn reconcile(context: &Context, name: &ObjectRef<Burst>) -> Option<Duration> {
    let burst = context.stores.bursts.get(name)?;
    let reconciled = match context.home.serves(&burst.namespace().unwrap_or_default()) {
        true => reconcile_one(context, &burst).await.map(Some),
        false => say_unserved(context, &burst).await.map(|()| None),
    };
    match reconciled {
        Ok(again) => again,
        Err(ReconcileError::Write { source, .. }) if is_conflict(&source) => Some(AFTER_CONFLICT),
        Err(error) => {
            let burst = name.to_string();
            tracing::warn!(burst, error = chain(&error), "failed to reconcile a Burst");
            Some(AFTER_ERROR)
        }
    }
}

/// Says that the controller does not serve the namespace of a Burst.
async fn say_unserved(context: &Context, burst: &Burst) -> Result<(), ReconcileError> {
    let namespace = burst.namespace().unwrap_or_default();
    let reference = ObjectRef::new(&burst.spec.cluster).within(&namespace);
    let cluster = context.stores.clusters.get(&reference);
    match unserved_status(burst, cluster.as_deref(), Timestamp::now()) {
        Some(status) => write_status(context, burst, status).await.map(drop),
        None => Ok(()),
    }
}

async fn reconcile_one(context: &Context, burst: &Burst) -> Result<Duration, ReconcileError> {
    let now = Timestamp::now();
    let namespace = burst.namespace().unwrap_or_default();
    let reference = ObjectRef::<MiniCluster>::new(&burst.spec.cluster).within(&namespace);
    let found = context.stores.cluster(&reference);
    let seen = match &found {
        Found::Readable(cluster) => ObservedMiniCluster::Readable(cluster),
        Found::Unreadable => ObservedMiniCluster::Unreadable,
        Found::Missing => ObservedMiniCluster::Missing,
    };
    let cluster = seen.readable();
    let unreadable = Unreadable {
        cluster: matches!(seen, ObservedMiniCluster::Unreadable),
        bursts: context.stores.unreadable.has_any::<Burst>(&namespace),
    };
    match while_unreadable(burst, unreadable, now) {
        WhileUnreadable::Wait => return Ok(AFTER_ERROR),
        WhileUnreadable::DeleteSelf(why) => {
            let step = BurstStep::DeleteSelf(why);
            let pool = Pool { burst, cluster: None, jobspec: None };
            return make(context, pool, &step).await.map(|_| AFTER_STEP);
        }
        WhileUnreadable::GoOn => {}
    }
    let pool = Pool { burst, cluster, jobspec: None };
    let view = match must_ask_target(burst, now) {
        true => Some(observe(context, pool).await),
        false => None,
    };
    if let Some(Err(failure)) = &view {
        context.metrics.count_failure("Observe");
        if burst.status.as_ref().is_none_or(|status| status.failures == 0) {
            let (target, why) = (&burst.spec.target.name, &failure.message);
            let reason = failure.reason;
            tracing::warn!(burst = %ObjectRef::from_obj(burst), target, %reason, why, "a target fails");
        }
    }
    let others = match burst.is_isolated() {
        true => context.stores.bursts.state(),
        false => Vec::new(),
    };
    let home = match home_order(burst, &others, cluster) {
        Some(goal) => context.feeds.hand_over(burst, goal).await,
        None => HomeAnswer::NotAsked,
    };
    let observed = BurstObserved {
        cluster: seen,
        others: &others,
        target: view,
        running: context.feeds.running(&reference),
        home,
        now,
    };
    let BurstDecision { status, step, requeue_at } = decide_burst(burst, &observed);
    let burst = write_status(context, burst, status).await?;
    let Some(step) = step else {
        let again = requeue_at.map(|at| at.duration_since(now));
        return Ok(again.and_then(|it| it.try_into().ok()).unwrap_or(AFTER_ERROR));
    };
    tracing::info!(burst = %ObjectRef::from_obj(&burst), step = step_name(&step), "a step of a Burst");
    let jobspec = match &observed.home {
        HomeAnswer::Job(job) => Some(&job.jobspec),
        _ => None,
    };
    let pool = Pool { burst: &burst, cluster, jobspec };
    match make(context, pool, &step).await? {
        Ok(()) => Ok(match step {
            // What was created may not be shown, because others delete it again.
            BurstStep::Create | BurstStep::Scale(_) | BurstStep::DeleteObjects => AFTER_SLOW_STEP,
            _ => AFTER_STEP,
        }),
        Err(failure) => {
            context.metrics.count_failure(step_name(&step));
            let status = after_failure(&burst, &observed, failure);
            write_status(context, &burst, status).await?;
            Ok(AFTER_STEP)
        }
    }
}

/// What exists at the target of a Burst, which is not asked twice in a second.
async fn observe(context: &Context, pool: Pool<'_>) -> Result<TargetView, TargetFailure> {
    if let Some(view) = context.views.get(pool.burst) {
        return Ok(view);
    }
    let asked = Instant::now();
    let observed = async {
        let target = target_of(pool.burst, &context.home, &context.clients).await?;
        target.observe(pool).await
    };
    let view = catch_panic(observed).await?;
    context.views.insert(pool.burst, asked, view.clone());
    Ok(view)
}

/// The name of a step, for metrics and the log.
fn step_name(step: &BurstStep) -> &'static str {
    match step {
        BurstStep::AddFinalizer => "AddFinalizer",
        BurstStep::ClaimCluster(_) => "ClaimCluster",
        BurstStep::Create => "Create",
        BurstStep::Scale(_) => "Scale",
        BurstStep::SaveOutput(_) => "SaveOutput",
        BurstStep::DeleteObjects => "DeleteObjects",
        BurstStep::Finish => "Finish",
        BurstStep::DeleteSelf(_) => "DeleteSelf",
    }
}

/// Writes the status if it has changed, for exactly the version it was computed from.
async fn write_status(
    context: &Context,
    burst: &Burst,
    status: flux_operator_api::BurstStatus,
) -> Result<Burst, ReconcileError> {
    if burst.status.as_ref() == Some(&status) {
        return Ok(burst.clone());
    }
    context.metrics.observe_change(burst, &status);
    let mut changed = burst.clone();
    changed.status = Some(status);
    let namespace = burst.namespace().unwrap_or_default();
    let written = context
        .home
        .api::<Burst>(&namespace)
        .replace_status(&burst.name_any(), &PostParams::default(), &changed)
        .await
        .map_err(write("write the status of a Burst"))?;
    let now = changed.status.unwrap_or_default();
    write_events(context, burst, &burst_events(burst.status.as_ref(), &now)).await;
    Ok(written)
}

/// Writes Events about a Burst. A lost one does not matter: the status says the same.
async fn write_events(context: &Context, burst: &Burst, events: &[NewEvent]) {
    if !context.home.serves(&burst.namespace().unwrap_or_default()) {
        return;
    }
    for new in events {
        let event = Event {
            type_: if new.is_normal { EventType::Normal } else { EventType::Warning },
            reason: new.reason.clone(),
            note: Some(new.note.clone()),
            action: new.condition.into(),
            secondary: None,
        };
        if let Err(error) = context.recorder.publish(&event, &burst.object_ref(&())).await {
            let burst = ObjectRef::from_obj(burst);
            tracing::warn!(%burst, error = chain(&error), "failed to write an Event");
        }
    }
}

/// Makes a step. The outer error is one of this Kubernetes cluster, the inner one of the target.
async fn make(
    context: &Context,
    pool: Pool<'_>,
    step: &BurstStep,
) -> Result<Result<(), TargetFailure>, ReconcileError> {
    let burst = pool.burst;
    let (name, namespace) = (burst.name_any(), burst.namespace().unwrap_or_default());
    let bursts = context.home.api::<Burst>(&namespace);
    if is_at_target(step) {
        context.views.forget(burst);
        if let BurstStep::SaveOutput(pod) = step {
            return save_output(context, pool, pod).await;
        }
        let made = async {
            let target = target_of(burst, &context.home, &context.clients).await?;
            make_at_target(Some(&*target), pool, step).await
        };
        if let Err(failure) = catch_panic(made).await {
            return Ok(Err(failure));
        }
    }
    match step {
        BurstStep::AddFinalizer => {
            let finalizers = json!({ "metadata": {
                "resourceVersion": burst.resource_version(),
                "finalizers": with_finalizer(burst),
            } });
            let patched =
                bursts.patch(&name, &PatchParams::default(), &Patch::Merge(&finalizers)).await;
            patched.map_err(write("add the finalizer of a Burst"))?;
        }
        BurstStep::ClaimCluster(claim) => match apply_to_cluster(context, burst, claim).await {
            Err(ReconcileError::Write { source, .. }) if is_refused(&source) => {
                let message = format!("the MiniCluster cannot be changed: {}", chain(&source));
                return Ok(Err(TargetFailure::new(Reason::LenderNotReady, message)));
            }
            applied => applied?,
        },
        BurstStep::Create | BurstStep::Scale(_) => {}
        BurstStep::SaveOutput(_) | BurstStep::DeleteObjects => {}
        BurstStep::DeleteSelf(why) => {
            tracing::info!(burst = %ObjectRef::from_obj(burst), why, "a Burst is given back");
            let deleted = bursts.delete(&name, &exactly(burst)).await;
            ignore_missing(deleted.map(drop)).map_err(write("delete a Burst"))?;
            // After it: an Event is not worth a Burst that lives longer.
            let event = NewEvent {
                is_normal: true,
                condition: BurstConditionType::GivingBack.as_str(),
                reason: Reason::GivingBack.to_string(),
                note: format!("it is given back: {why}"),
            };
            write_events(context, burst, &[event]).await;
        }
        BurstStep::Finish => finish(context, burst).await?,
    }
    Ok(Ok(()))
}

/// Whether something is read or changed at the target.
fn is_at_target(step: &BurstStep) -> bool {
    match step {
        BurstStep::Create | BurstStep::Scale(_) | BurstStep::SaveOutput(_) => true,
        BurstStep::DeleteObjects | BurstStep::Finish => true,
        BurstStep::AddFinalizer | BurstStep::ClaimCluster(_) | BurstStep::DeleteSelf(_) => false,
    }
}

/// Saves the output of a run in a ConfigMap here, and records that. What fails is tried again for a
/// while, whatever the reason.
async fn save_output(
    context: &Context,
    pool: Pool<'_>,
    pod: &str,
) -> Result<Result<(), TargetFailure>, ReconcileError> {
    let output = async {
        let target = target_of(pool.burst, &context.home, &context.clients).await?;
        target.output(pool, pod).await
    };
    let output = match catch_panic(output).await {
        Ok(output) => output,
        Err(failure) => return Ok(Err(failure)),
    };
    let config_map = config_map(pool.burst, &output);
    let maps = context.home.api::<ConfigMap>(&pool.burst.namespace().unwrap_or_default());
    match maps.create(&PostParams::default(), &config_map).await {
        Ok(_) => {}
        // The controller was killed before it recorded that.
        Err(error) if exists_already(&error) => {}
        // Such as a quota.
        Err(error) if is_refused(&error) => {
            let message = format!("the output cannot be saved here: {}", chain(&error));
            return Ok(Err(TargetFailure::new(Reason::LenderNotReady, message)));
        }
        Err(error) => return Err(write("save the output of a run")(error)),
    }
    write_status(context, pool.burst, after_output(pool.burst)).await?;
    Ok(Ok(()))
}

/// Applies a Burst's own fields of its MiniCluster.
async fn apply_to_cluster(
    context: &Context,
    burst: &Burst,
    fields: &serde_json::Value,
) -> Result<(), ReconcileError> {
    let namespace = burst.namespace().unwrap_or_default();
    let parameters = PatchParams::apply(&field_manager(burst)).force();
    let applied = context
        .home
        .api::<MiniCluster>(&namespace)
        .patch(&burst.spec.cluster, &parameters, &Patch::Apply(fields))
        .await;
    applied.map(drop).map_err(write("apply the invitation of a Burst to its MiniCluster"))
}

/// Nothing is left at the target. The order matters: what was used is recorded before the Burst, which
/// says it, is gone.
async fn finish(context: &Context, burst: &Burst) -> Result<(), ReconcileError> {
    let namespace = burst.namespace().unwrap_or_default();
    // As it is now: the watch may not show the claim yet. It is released only if there is one, so that a
    // controller that is killed after each write still makes progress.
    let clusters = context.home.api::<MiniCluster>(&namespace);
    let cluster = clusters.get_opt(&burst.spec.cluster).await;
    let cluster = cluster.map_err(write("read the MiniCluster of a Burst"))?;
    if let Some(cluster) = cluster.filter(|it| has_claim(burst, it)) {
        match apply_to_cluster(context, burst, &release(&cluster)).await {
            Ok(()) => {}
            // It was deleted, or is another one of the same name.
            Err(ReconcileError::Write { source, .. })
                if is_not_found(&source) || is_conflict(&source) => {}
            Err(error) => return Err(error),
        }
    }
    record_usage(context, burst).await?;
    let left: Vec<&String> =
        burst.finalizers().iter().filter(|it| *it != BURST_FINALIZER).collect();
    let patch = json!({ "metadata": {
        "resourceVersion": burst.resource_version(),
        "finalizers": left,
    } });
    let bursts = context.home.api::<Burst>(&namespace);
    let patched =
        bursts.patch(&burst.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
    ignore_missing(patched.map(drop)).map_err(write("remove the finalizer of a Burst"))
}

/// Adds what a Burst has used to the record of its policy.
async fn record_usage(context: &Context, burst: &Burst) -> Result<(), ReconcileError> {
    let namespace = burst.namespace().unwrap_or_default();
    let Some(owner) = burst.owning_policy() else { return Ok(()) };
    let client = &context.home.client;
    let policy = read_policy(client, &namespace, owner).await;
    let Some(policy) = policy.map_err(write("read the policy of a Burst"))? else {
        return Ok(());
    };
    let mut status = policy.status.unwrap_or_default();
    let unreadable = |error| write("read the record of a policy")(kube::Error::SerdeError(error));
    let recorded = record_finished(&mut status, burst, Timestamp::now());
    if !recorded.map_err(unreadable)? {
        return Ok(());
    }
    let written = replace_policy_status(client, &policy.metadata, &status).await;
    written.map_err(write("record what a Burst has used"))
}

/// Deletes this one, and no other that was created with its name meanwhile.
pub(crate) fn exactly(burst: &Burst) -> DeleteParams {
    let uid = Preconditions { uid: burst.uid(), resource_version: None };
    DeleteParams { preconditions: Some(uid), ..DeleteParams::default() }
}

fn with_finalizer(burst: &Burst) -> Vec<String> {
    let others = burst.finalizers().iter().filter(|it| *it != BURST_FINALIZER).cloned();
    others.chain([BURST_FINALIZER.to_owned()]).collect()
}

fn ignore_missing(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if is_not_found(&error) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests;
