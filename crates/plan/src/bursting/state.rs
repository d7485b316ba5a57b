//! The status of a Burst: how far it is, and why it is not further.

use flux_operator_api::burst::BurstConditionType;
use flux_operator_api::{Burst, BurstStatus, MiniCluster, Reason};
use k8s_openapi::jiff::Timestamp;

use super::life::{online, record_start};
use super::observed::{BurstLease, BurstObserved, Presence, TargetFailure, TargetView};
use super::usage::{count, used_nodes};
use crate::time::seconds_after;
use crate::verdict::{self, Verdict, no, unknown, yes};

/// How soon a target is tried again after its first failure, and after many, in seconds.
const FIRST_RETRY: i64 = 5;
pub(super) const LAST_RETRY: i64 = 300;

/// The same after many failures because of credentials: a user may be about to correct them, and most are
/// noticed without asking the target.
const LAST_CREDENTIALS_RETRY: i64 = 15;

/// How far a Burst is, as facts.
#[derive(Clone, Debug)]
pub(super) struct Progress<'a> {
    pub(super) lease: Option<&'a BurstLease>,
    pub(super) view: Option<&'a TargetView>,
    pub(super) failure: Option<&'a TargetFailure>,
    pub(super) stage: Stage,
    /// A step follows that may be refused.
    pub(super) will_try: bool,
}

/// How far a Burst is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is no MiniCluster of this name.
    NoCluster,
    /// Its MiniCluster has to be changed first.
    Blocked(&'static str),
    /// Objects are missing.
    Preparing,
    /// No ranks are leased to it yet.
    WaitingForRanks,
    /// Its brokers start.
    Joining,
    /// All its brokers have joined.
    Ready,
    /// No new job starts on its nodes, and those that run may finish.
    Draining,
    /// What is left is deleted.
    GivingBack,
}

/// The status of a Burst.
pub(super) fn status(
    burst: &Burst,
    cluster: Option<&MiniCluster>,
    progress: &Progress<'_>,
    observed: &BurstObserved<'_>,
) -> BurstStatus {
    let now = observed.now;
    let before = burst.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let is_deleting = burst.metadata.deletion_timestamp.is_some();
    if let Some(cluster) = cluster.filter(|_| !is_deleting) {
        record_start(&mut status, burst, cluster);
    }
    if is_deleting {
        record_giving_back(&mut status, now);
    }
    if !status.idle_since.is_empty() && !is_past(&status.idle_since, now) {
        status.idle_since = now.to_string();
    }
    if let Some(lease) = progress.lease {
        status.ranks = lease.ranks.to_string();
    }
    let online = online(progress);
    status.online = online;
    status.ready = format!("{online}/{}", burst.spec.nodes);
    if online > 0 && status.joined_at.is_empty() {
        status.joined_at = now.to_string();
    }
    record_jobs(&mut status, burst, progress, observed);
    let will_try = progress.will_try;
    let is_leaving = progress.stage == Stage::GivingBack;
    let has_view = progress.view.is_some();
    record_failure(&mut status, progress.failure, has_view, will_try || is_leaving, now);
    if let Some(view) = progress.view {
        count(&mut status, used_nodes(burst, view), burst.spec.target.price(), now);
    }
    let verdicts = verdicts(progress, &before, burst.spec.nodes);
    status.phase = phase(progress, &verdicts);
    record_verdicts(&mut status, burst, verdicts, now);
    status
}

/// Records the conditions of a Burst.
pub(super) fn record_verdicts(
    status: &mut BurstStatus,
    burst: &Burst,
    verdicts: Verdicts,
    now: Timestamp,
) {
    let generation = burst.metadata.generation;
    let verdicts = verdicts.into_iter().map(|(kind, verdict)| (kind.as_str(), verdict));
    status.conditions = verdict::conditions(verdicts, generation, &status.conditions, now);
    // A time in the future is of a clock that was wrong, and a join deadline that follows from it.
    for condition in &mut status.conditions {
        condition.last_transition_time.0 = condition.last_transition_time.0.min(now);
    }
    status.observed_generation = generation;
}

/// Records since when a Burst has been given back.
pub(super) fn record_giving_back(status: &mut BurstStatus, now: Timestamp) {
    if !is_past(&status.giving_back_since, now) {
        status.giving_back_since = now.to_string();
    }
}

/// Whether a time is recorded, and has passed. One in the future is of a clock that was wrong.
fn is_past(time: &str, now: Timestamp) -> bool {
    time.parse::<Timestamp>().is_ok_and(|time| time <= now)
}

/// How many jobs run on its nodes, and since when none has.
fn record_jobs(
    status: &mut BurstStatus,
    burst: &Burst,
    progress: &Progress<'_>,
    observed: &BurstObserved<'_>,
) {
    let Some(running) = &observed.running else { return };
    let ranks = progress.lease.map(|lease| lease.ranks.to_set()).unwrap_or_default();
    let jobs = running.iter().filter(|it| !it.intersection(&ranks).is_empty()).count();
    status.jobs = i32::try_from(jobs).unwrap_or(i32::MAX);
    // One that is still joining, or grows, is of no use to a job that needs all of it. One of which some
    // have been missing for too long may never be of use.
    let is_complete = status.online >= burst.spec.nodes || observed.now >= burst.join_deadline();
    let is_idle = jobs == 0 && status.has_joined() && is_complete;
    match (is_idle, status.idle_since.is_empty()) {
        (true, true) => status.idle_since = observed.now.to_string(),
        // Brokers that are lost for a moment do not make it busy, but more nodes are for a job.
        (false, false) if jobs > 0 || burst.is_changed() => status.idle_since.clear(),
        _ => {}
    }
}

/// Records a failure and when to retry, or resets the failures if the target has answered. `keeps_failure`:
/// does not reset them, because a step follows that may fail, or what exists is being deleted.
pub(super) fn record_failure(
    status: &mut BurstStatus,
    failure: Option<&TargetFailure>,
    has_view: bool,
    keeps_failure: bool,
    now: Timestamp,
) {
    match failure {
        Some(failure) => {
            let doubled = FIRST_RETRY.checked_shl(status.failures.clamp(0, 16).unsigned_abs());
            let last = match failure.is_about_credentials() {
                true => LAST_CREDENTIALS_RETRY,
                false => LAST_RETRY,
            };
            let seconds = doubled.unwrap_or(last).min(last);
            status.failures = status.failures.saturating_add(1);
            status.retry_at = seconds_after(now, seconds).to_string();
        }
        None if has_view && !keeps_failure => {
            status.failures = 0;
            status.retry_at.clear();
        }
        None => {}
    }
}

pub(super) type Verdicts = Vec<(BurstConditionType, Verdict)>;

/// `TargetReady` and `CredentialsAccepted`.
pub(super) fn target_verdicts(
    failure: Option<&TargetFailure>,
    has_view: bool,
    before: &BurstStatus,
) -> (Verdict, Verdict) {
    let kept = |kind| before.condition(kind).map(verdict::copied_from);
    let not_asked = || unknown(Reason::NotAsked, "the target has not been asked yet");
    match (failure, has_view) {
        (Some(failure), _) if failure.is_about_credentials() => {
            let why = no(failure.reason, &failure.message);
            let known = kept(BurstConditionType::TargetReady).filter(|it| it.status == "True");
            // The first condition that is not true has the cause.
            (known.unwrap_or_else(|| unknown(failure.reason, &failure.message)), why)
        }
        (Some(failure), _) if !failure.is_response() => {
            let why = no(failure.reason, &failure.message);
            (why, kept(BurstConditionType::CredentialsAccepted).unwrap_or_else(not_asked))
        }
        (Some(_), _) | (None, true) => (
            yes(Reason::TargetReachable, "the target responds"),
            yes(Reason::CredentialsAccepted, "the target accepts the credentials"),
        ),
        (None, false) => (
            kept(BurstConditionType::TargetReady).unwrap_or_else(not_asked),
            kept(BurstConditionType::CredentialsAccepted).unwrap_or_else(not_asked),
        ),
    }
}

/// The conditions, in the order in which a Burst reaches them. Those that depend on one that is not
/// true repeat its reason.
fn verdicts(progress: &Progress<'_>, before: &BurstStatus, nodes: i32) -> Verdicts {
    let (target, credentials) = target_verdicts(progress.failure, progress.view.is_some(), before);
    let prepared = prepared(progress, before);
    let first_no =
        [&target, &credentials, &prepared].into_iter().find(|it| it.status != "True").cloned();
    let joined = joined(progress, nodes);
    let is_leaving = matches!(progress.stage, Stage::Draining | Stage::GivingBack);
    let giving_back = match progress.stage {
        Stage::Draining => yes(Reason::Draining, "jobs on its nodes may finish; no new one starts"),
        Stage::GivingBack => yes(Reason::GivingBack, "what is left at the target is deleted"),
        _ => no(Reason::InUse, "it is not being given back"),
    };
    let ready = match (is_leaving, &joined) {
        (true, _) => no(Reason::GivingBack, "it is being given back"),
        (false, joined) => joined.clone(),
    };
    // What was reached stays so while the target is not reachable: its brokers may be fine.
    let blocked_by = |verdict: Verdict| match &first_no {
        Some(first) if verdict.status != "True" => {
            Verdict { status: verdict.status, ..first.clone() }
        }
        _ => verdict,
    };
    vec![
        (BurstConditionType::TargetReady, target),
        (BurstConditionType::CredentialsAccepted, credentials),
        (BurstConditionType::Prepared, blocked_by(prepared)),
        (BurstConditionType::Joined, blocked_by(joined)),
        (BurstConditionType::Ready, blocked_by(ready)),
        (BurstConditionType::GivingBack, giving_back),
    ]
}

fn prepared(progress: &Progress<'_>, before: &BurstStatus) -> Verdict {
    if let Some(failure) = progress.failure.filter(|it| it.is_response()) {
        return no(failure.reason, &failure.message);
    }
    match progress.view.map(|view| &view.presence) {
        Some(Presence::Complete) => {
            yes(Reason::Prepared, "everything that brokers need exists at the target")
        }
        Some(presence) => {
            cluster_verdict(presence).unwrap_or_else(|| stage_verdict(&progress.stage))
        }
        // It was not asked, or has not answered: what existed may still exist.
        None if matches!(progress.stage, Stage::Preparing | Stage::Joining | Stage::Ready) => {
            let kept = before.condition(BurstConditionType::Prepared).map(verdict::copied_from);
            kept.unwrap_or_else(|| unknown(Reason::NotAsked, "the target has not been asked yet"))
        }
        None => stage_verdict(&progress.stage),
    }
}

/// Why nothing can be prepared while the cluster that is made for a Burst is not there.
pub(super) fn cluster_verdict(presence: &Presence) -> Option<Verdict> {
    match presence {
        Presence::ClusterComing(how_far) => Some(no(Reason::ClusterComing, how_far)),
        Presence::ClusterFailed(why) => {
            let message = format!("its cluster could not be made, delete the Burst: {why}");
            Some(no(Reason::ClusterFailed, &message))
        }
        _ => None,
    }
}

/// What a stage says of what exists at the target, and so of brokers that have not joined.
fn stage_verdict(stage: &Stage) -> Verdict {
    match stage {
        Stage::NoCluster => no_cluster(),
        Stage::Blocked(problem) => no(Reason::NotExposed, problem),
        Stage::WaitingForRanks => no(
            Reason::NoFreeRanks,
            "no ranks are leased to it yet: the MiniCluster may not be ready, or has too few ranks \
             that are free",
        ),
        Stage::Preparing | Stage::Joining | Stage::Ready => {
            no(Reason::Preparing, "ranks are leased, and objects are created at the target")
        }
        Stage::Draining | Stage::GivingBack => no(Reason::GivingBack, "it is being given back"),
    }
}

/// There is no MiniCluster to join.
pub(super) fn no_cluster() -> Verdict {
    no(Reason::LenderMissing, "there is no MiniCluster of this name")
}

fn joined(progress: &Progress<'_>, nodes: i32) -> Verdict {
    let online = progress.lease.map_or(0, |lease| lease.online.len());
    match progress.stage {
        Stage::Ready => yes(Reason::Joined, "all its brokers are part of the instance"),
        Stage::Joining => {
            let refusal = progress.lease.and_then(|lease| lease.refusal.as_ref());
            if let Some((reason, message)) = refusal {
                return no(flux_operator_api::reason::AnyReason::read(reason), message);
            }
            if let Some(why) = progress.view.and_then(|view| view.job_failure.as_ref()) {
                let message = format!("its Job at the target has failed, delete the Burst: {why}");
                return no(Reason::TargetRefused, &message);
            }
            match progress.view.and_then(|view| view.trouble.as_ref()) {
                Some((reason, message)) => no(*reason, message),
                None => no(Reason::Joining, &format!("{online} of {nodes} brokers have joined")),
            }
        }
        _ => stage_verdict(&progress.stage),
    }
}

/// What it is doing, in one word: the reason of the first condition that is false, otherwise of the first
/// that is not known.
fn phase(progress: &Progress<'_>, verdicts: &Verdicts) -> String {
    match progress.stage {
        Stage::Draining => return "Draining".to_owned(),
        // Between two tries of a target that fails, the reason is still that.
        Stage::GivingBack if progress.view.is_some() => return "GivingBack".to_owned(),
        Stage::Ready if progress.view.is_some() => return "Ready".to_owned(),
        _ => {}
    }
    let first = |status: &str| verdicts.iter().find(|(_, verdict)| verdict.status == status);
    first("False")
        .or_else(|| first("Unknown"))
        .map(|(_, verdict)| verdict.reason.to_string())
        .unwrap_or_default()
}
