//! The life of a Burst: what to do next, and what to report.
//!
//! ```text
//! finalizer ─► claim on the MiniCluster ─► lease ─► objects at the target ─► brokers join
//!                                                                             │ deleted, idle, too old
//! finalizer removed ◄─ claim released ◄─ nothing left there ◄─ objects deleted ◄─ ranks drained
//! ```
//!
//! Every step can be repeated, and the next one follows from what exists: a controller that is killed
//! between any two of them continues with the next.

use flux_operator_api::burst::{BurstConditionType, MIN_IDLE_SECONDS, TargetKind};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{Burst, BurstStatus, MiniCluster};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::claim::{claim, invitation, is_claimed, lifetime_end};
use super::isolated;
use super::names::{BURST_FINALIZER, object_name};
use super::observed::{BurstLease, BurstObserved, Presence, TargetFailure, TargetView};
use super::poll::{SETTLED_POLL_SECONDS, next_poll, next_retry};
use super::state::{LAST_RETRY, Progress, Stage, status};
use crate::time::seconds_after;
use crate::verdict;

/// The next step of a Burst.
#[derive(Clone, Debug, PartialEq)]
pub enum BurstStep {
    /// Add the finalizer to the Burst.
    AddFinalizer,
    /// Apply this to its MiniCluster, with the Burst's own field manager.
    ClaimCluster(Value),
    /// Create what is missing at the target.
    Create,
    /// Change the number of pods at the target.
    Scale(i32),
    /// Save the output of the run in this pod, and record that with [`super::after_output`].
    SaveOutput(String),
    /// Delete everything at the target.
    DeleteObjects,
    /// No Job and no pods are left: delete what `observe` does not show, such as a Secret without a Job,
    /// release the claim on the MiniCluster, add the usage to the policy's record, and remove the
    /// finalizer.
    Finish,
    /// Give the Burst back, for this reason: delete it.
    DeleteSelf(String),
}

impl BurstStep {
    /// Whether it may be refused: by the target, or as a change of the MiniCluster.
    pub(super) fn may_be_refused(&self) -> bool {
        match self {
            BurstStep::Create | BurstStep::Scale(_) | BurstStep::ClaimCluster(_) => true,
            BurstStep::DeleteObjects | BurstStep::SaveOutput(_) | BurstStep::Finish => true,
            BurstStep::AddFinalizer | BurstStep::DeleteSelf(_) => false,
        }
    }
}

/// What to do about a Burst.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstDecision {
    /// The status to write, before the step is made.
    pub status: BurstStatus,
    /// The next step.
    pub step: Option<BurstStep>,
    /// When to decide again if nothing changes.
    pub requeue_at: Option<Timestamp>,
}

/// Whether the target has to be asked: not while it is left alone after a failure, nor about a run that
/// is over.
pub fn must_ask_target(burst: &Burst, now: Timestamp) -> bool {
    let retry_at = burst.status.as_ref().and_then(|it| it.retry_at.parse::<Timestamp>().ok());
    // Of a run that is over nothing is left there.
    let is_record = burst.is_record() && !has_finalizer(burst);
    // A time that is too far away is of a clock that was wrong.
    let is_due = |at| at <= now || at > seconds_after(now, LAST_RETRY);
    !is_record && retry_at.is_none_or(is_due)
}

/// Decides what to do about a Burst. Same arguments, same decision.
pub fn decide_burst(burst: &Burst, observed: &BurstObserved<'_>) -> BurstDecision {
    if burst.is_isolated() {
        return isolated::decide(burst, observed);
    }
    let cluster = observed.cluster.readable().filter(|it| burst.is_for(it));
    let lease = cluster.and_then(|cluster| BurstLease::of(burst, cluster));
    let view = observed.target.as_ref().and_then(|it| it.as_ref().ok());
    let failure = observed.target.as_ref().and_then(|it| it.as_ref().err());
    let mut progress =
        Progress { lease: lease.as_ref(), view, failure, stage: Stage::Preparing, will_try: false };
    let is_deleting = burst.metadata.deletion_timestamp.is_some();
    let (step, stage) = match is_deleting {
        true => give_back(burst, cluster, &progress, observed.now),
        false => bring_up(burst, cluster, &progress, observed),
    };
    progress.stage = stage;
    progress.will_try = step.as_ref().is_some_and(BurstStep::may_be_refused);
    let mut status = status(burst, cluster, &progress, observed);
    record_target(&mut status, burst, step.as_ref(), view);
    // Also while a step is tried again and again: the time of a Burst is limited.
    let over = give_back_reason(burst, &status, observed).filter(|_| !is_deleting);
    let step = over.map(BurstStep::DeleteSelf).or(step);
    let requeue_at = requeue_at(burst, &status, step.is_some(), observed.now);
    BurstDecision { status, step, requeue_at }
}

/// Records in a status where the Burst's objects are, and whether a program has made a cluster there.
pub(super) fn record_target(
    status: &mut BurstStatus,
    burst: &Burst,
    step: Option<&BurstStep>,
    view: Option<&TargetView>,
) {
    let will_create = step == Some(&BurstStep::Create);
    if will_create && burst.spec.target.is_made_by_program() {
        status.cluster_made = true;
    }
    let Some(view) = view else { return };
    if view.presence == Presence::ClusterDeleted {
        status.cluster_made = false;
    }
    if status.place.is_empty() && (view.has_any() || will_create) {
        status.place.clone_from(&view.place);
    }
}

/// The status of a Burst after a step at the target has failed.
pub fn after_failure(
    burst: &Burst,
    observed: &BurstObserved<'_>,
    failure: TargetFailure,
) -> BurstStatus {
    let observed = BurstObserved { target: Some(Err(failure)), ..observed.clone() };
    decide_burst(burst, &observed).status
}

pub(super) fn has_finalizer(burst: &Burst) -> bool {
    burst.finalizers().iter().any(|it| it == BURST_FINALIZER)
}

/// Whether its objects have existed at the target.
pub(super) fn was_prepared(burst: &Burst) -> bool {
    burst.status.as_ref().is_some_and(|status| status.is_true(BurstConditionType::Prepared))
}

fn bring_up(
    burst: &Burst,
    cluster: Option<&MiniCluster>,
    progress: &Progress<'_>,
    observed: &BurstObserved<'_>,
) -> (Option<BurstStep>, Stage) {
    let was_started = burst.status.as_ref().is_some_and(|it| !it.cluster_uid.is_empty());
    let Some(cluster) = cluster else {
        let why = "its MiniCluster was deleted".to_owned();
        return (was_started.then_some(BurstStep::DeleteSelf(why)), Stage::NoCluster);
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        let why = "its MiniCluster is being deleted".to_owned();
        return (Some(BurstStep::DeleteSelf(why)), Stage::NoCluster);
    }
    if let Some(why) = why_no_nodes(cluster) {
        return (Some(BurstStep::DeleteSelf(why.to_owned())), Stage::NoCluster);
    }
    let Some(view) = progress.view else { return (None, stage_without_view(burst, progress)) };
    if !has_finalizer(burst) {
        return (Some(BurstStep::AddFinalizer), Stage::Preparing);
    }
    let closing = closing_reason(burst, progress, observed);
    if let Some(problem) = unreachable_cluster(burst, cluster) {
        // None of its brokers is part of the instance: there is nothing to drain.
        let step = closing.map(|why| BurstStep::DeleteSelf(why.to_owned()));
        return (step, Stage::Blocked(problem));
    }
    let keep = match closing {
        Some(_) => Some(0),
        None => burst.spec.target.scaling.as_ref().map(|_| burst.spec.nodes),
    };
    let wanted = invitation(burst, keep);
    if !is_claimed(burst, cluster, wanted.as_ref()) {
        let step = BurstStep::ClaimCluster(claim(cluster, wanted.as_ref()));
        return (Some(step), Stage::Preparing);
    }
    if let Some(why) = closing {
        // What is known of jobs is some seconds old: one may have started.
        let lease = progress.lease;
        let can_leave = match wanted.is_some() {
            true => lease.is_none_or(|it| it.is_drained_from(0)),
            // A joiner without nodes keeps its ranks as long as jobs run on them.
            false if view.presence == Presence::Complete && view.nodes > 0 => {
                return (Some(BurstStep::Scale(0)), Stage::Draining);
            }
            false => lease.is_none_or(|it| it.ranks.is_empty()),
        };
        let step = can_leave.then(|| BurstStep::DeleteSelf(why.to_owned()));
        return (step, Stage::Draining);
    }
    // A joiner asks for its ranks itself.
    if wanted.is_some() && progress.lease.is_none() {
        return (None, Stage::WaitingForRanks);
    }
    match view.presence {
        Presence::Nothing | Presence::ClusterReady => {
            return (Some(BurstStep::Create), Stage::Preparing);
        }
        // What is being deleted has the names that the next ones need.
        Presence::ClusterComing(_)
        | Presence::ClusterFailed(_)
        | Presence::ClusterDeletionFailed
        | Presence::ClusterDeleted
        | Presence::Leaving => return (None, Stage::Preparing),
        Presence::Complete => {}
    }
    let nodes = burst.spec.nodes;
    if view.nodes < nodes || (view.nodes > nodes && may_shrink(burst, progress)) {
        return (Some(BurstStep::Scale(nodes)), Stage::Joining);
    }
    match online(progress) >= nodes {
        true => (None, Stage::Ready),
        false => (None, Stage::Joining),
    }
}

/// Whether a MiniCluster has an instance, or will have one, that may need nodes.
pub fn needs_nodes(cluster: &MiniCluster) -> bool {
    why_no_nodes(cluster).is_none()
}

/// Whether a MiniCluster has finished.
pub(super) fn has_finished(cluster: &MiniCluster) -> bool {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
    let finished = verdict::find(conditions.unwrap_or_default(), ConditionType::JobFinished);
    finished.is_some_and(|it| it.status == "True")
}

/// Why the instance of a MiniCluster needs no more nodes, if it does not.
fn why_no_nodes(cluster: &MiniCluster) -> Option<&'static str> {
    match has_finished(cluster) {
        true => Some("its MiniCluster has finished"),
        false => cluster.spec.suspend.then_some("its MiniCluster is suspended"),
    }
}

/// How far a Burst is while its target does not answer: its brokers may be fine.
fn stage_without_view(burst: &Burst, progress: &Progress<'_>) -> Stage {
    match (was_prepared(burst), online(progress) >= burst.spec.nodes) {
        (true, true) => Stage::Ready,
        (true, false) => Stage::Joining,
        (false, _) => Stage::Preparing,
    }
}

/// Brokers of other Kubernetes clusters come through the gateway.
fn unreachable_cluster(burst: &Burst, cluster: &MiniCluster) -> Option<&'static str> {
    let bursting = cluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let is_exposed = bursting.is_some_and(|it| it.expose.is_some());
    let is_elsewhere = burst.spec.target.is_elsewhere();
    (is_elsewhere && !is_exposed).then_some(
        "brokers of other Kubernetes clusters cannot reach the MiniCluster: set its \
         flux.bursting.expose, such as {type: NodePort}",
    )
}

/// Whether the last pods can be removed: their ranks are drained, or not online. The operator drains
/// those of a joiner by itself.
fn may_shrink(burst: &Burst, progress: &Progress<'_>) -> bool {
    let kept = usize::try_from(burst.spec.nodes).unwrap_or_default();
    let is_joiner = matches!(burst.spec.target.kind(), TargetKind::Cluster);
    is_joiner || progress.lease.is_none_or(|it| it.is_drained_from(kept))
}

/// Why a Burst is given back by itself, if it is.
fn give_back_reason(
    burst: &Burst,
    status: &BurstStatus,
    observed: &BurstObserved<'_>,
) -> Option<String> {
    let now = observed.now;
    if now >= lifetime_end(burst) {
        return Some("its lifetime is over".to_owned());
    }
    // A user's Burst stays: its conditions say what has failed.
    burst.owning_policy()?;
    let view = observed.target.as_ref().and_then(|it| it.as_ref().ok());
    if let Some(Presence::ClusterFailed(why)) = view.map(|view| &view.presence) {
        return Some(cluster_failed(why));
    }
    if let Some(why) = view.and_then(|view| view.job_failure.as_ref()) {
        return Some(format!("its Job at the target has failed: {why}"));
    }
    let is_late = !status.has_joined() && now >= burst.join_deadline();
    is_late.then(|| "its brokers did not join in time".to_owned())
}

/// Why a Burst is given back whose cluster could not be made.
pub(super) fn cluster_failed(why: &str) -> String {
    format!("its cluster could not be made: {why}")
}

/// Why no more jobs should start on the nodes of a Burst, so that it can be given back.
fn closing_reason(
    burst: &Burst,
    progress: &Progress<'_>,
    observed: &BurstObserved<'_>,
) -> Option<&'static str> {
    if burst.spec.drain {
        return Some("spec.drain is set, and no job runs on its nodes");
    }
    let until = idle_until(burst, burst.status.as_ref()?)?;
    let is_idle = observed.running.is_some() && !has_jobs(progress, observed);
    (is_idle && observed.now >= until).then_some("no job has run on its nodes for a while")
}

/// Whether jobs run on its nodes, or may run there.
fn has_jobs(progress: &Progress<'_>, observed: &BurstObserved<'_>) -> bool {
    let Some(running) = &observed.running else { return true };
    let ranks = progress.lease.map(|lease| lease.ranks.to_set()).unwrap_or_default();
    running.iter().any(|it| !it.intersection(&ranks).is_empty())
}

/// Until when a Burst may be without a job.
fn idle_until(burst: &Burst, status: &BurstStatus) -> Option<Timestamp> {
    let since = status.idle_since.parse::<Timestamp>().ok()?;
    let seconds = burst.spec.idle_seconds?.max(MIN_IDLE_SECONDS);
    Some(seconds_after(since, i64::from(seconds)))
}

fn give_back(
    burst: &Burst,
    cluster: Option<&MiniCluster>,
    progress: &Progress<'_>,
    now: Timestamp,
) -> (Option<BurstStep>, Stage) {
    if !has_finalizer(burst) {
        return (None, Stage::GivingBack);
    }
    let Some(view) = progress.view else { return (None, Stage::GivingBack) };
    if !view.has_any() {
        return (Some(BurstStep::Finish), Stage::GivingBack);
    }
    let since = burst.status.as_ref().and_then(|it| it.giving_back_since.parse::<Timestamp>().ok());
    // It is recorded first.
    let Some(since) = since.filter(|it| *it <= now) else { return (None, Stage::Draining) };
    // No operator drains the ranks of an instance that has finished.
    let is_alive = |it: &&MiniCluster| it.metadata.deletion_timestamp.is_none() && needs_nodes(it);
    if let Some(cluster) = cluster.filter(is_alive)
        && let Some(none) = invitation(burst, Some(0))
        && let Some(lease) = progress.lease
        && !lease.is_drained_from(0)
        && now < seconds_after(since, burst.spec.grace_seconds())
    {
        let is_claimed = is_claimed(burst, cluster, Some(&none));
        let step = BurstStep::ClaimCluster(claim(cluster, Some(&none)));
        return ((!is_claimed).then_some(step), Stage::Draining);
    }
    // A joiner drains its ranks when it is deleted.
    let is_joiner = matches!(burst.spec.target.kind(), TargetKind::Cluster);
    let has_jobs = burst.status.as_ref().is_some_and(|status| status.jobs > 0);
    let stage = if is_joiner && has_jobs { Stage::Draining } else { Stage::GivingBack };
    // Its deletion has been requested already.
    let is_leaving = view.presence == Presence::Leaving;
    ((!is_leaving).then_some(BurstStep::DeleteObjects), stage)
}

/// How many nodes of a Burst have joined. While it shrinks, those that leave count too.
pub(super) fn online(progress: &Progress<'_>) -> i32 {
    let mock = progress.view.and_then(|view: &TargetView| view.mock_joined);
    let joined = progress.lease.map(|lease| i32::try_from(lease.online.len()).unwrap_or(i32::MAX));
    mock.or(joined).unwrap_or_default()
}

fn requeue_at(
    burst: &Burst,
    status: &BurstStatus,
    has_step: bool,
    now: Timestamp,
) -> Option<Timestamp> {
    if let Some(retry_at) = next_retry(status, now) {
        return Some(retry_at);
    }
    let is_settled = !has_step
        && burst.metadata.deletion_timestamp.is_none()
        && status.online >= burst.spec.nodes;
    let since = status.giving_back_since.parse::<Timestamp>().unwrap_or(burst.created());
    let poll = match is_settled {
        true => seconds_after(now, SETTLED_POLL_SECONDS),
        false => next_poll(since, has_step, now),
    };
    let ends = [idle_until(burst, status), Some(lifetime_end(burst))];
    ends.into_iter().flatten().filter(|at| *at > now).chain([poll]).min()
}

/// The record that a Burst was started for a MiniCluster, and its name there.
pub(super) fn record_start(status: &mut BurstStatus, burst: &Burst, cluster: &MiniCluster) {
    if status.cluster_uid.is_empty() {
        status.cluster_uid = cluster.uid().unwrap_or_default();
    }
    status.object_name = object_name(burst);
}
