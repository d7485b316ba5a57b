//! The state of a joiner: the condition `Joined`, and what is shown beside it.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::validate::Problem;
use flux_operator_api::{MiniCluster, Reason};
use flux_operator_flux::RankList;
use kube::ResourceExt;

use super::instance::{Instance, NoInstance};
use crate::joining::claims::{choice, size_in_queue};
use crate::joining::draining::busy_ranks;
use crate::joining::grant::FreeRanks;
use crate::joining::lease::recorded;
use crate::joining::lender::{lendable_now, lender_of, may_join, wrong_size};
use crate::joining::permission::{MISMATCHES, mismatch};
use crate::joining::pods::ranks_in_use;
use crate::last_report::may_still_report;
use crate::observed::Observed;
use crate::queueing::is_waiting;
use crate::verdict::find;

/// The state of a joiner.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JoinState {
    /// The brokers of all its active ranks are online; it may be growing or shrinking.
    pub(crate) is_joined: bool,
    /// The reason of the condition `Joined`.
    pub(crate) reason: Reason,
    /// Its message.
    pub(crate) message: String,
    /// The lender, as it is shown.
    pub(crate) lender: String,
    /// The ranks that it holds.
    pub(crate) ranks: RankList,
    /// How many of its brokers are online.
    pub(crate) online: u32,
    /// What is probably a mistake, now that the lender is known.
    pub(crate) warnings: Vec<Problem>,
}

/// The condition `Joined`, and what is shown beside it.
pub(super) fn state(
    joiner: &MiniCluster,
    observed: &Observed,
    found: &Result<Instance<'_>, NoInstance>,
) -> JoinState {
    let namespace = joiner.namespace().unwrap_or_default();
    let lender = lender_of(joiner).map(|it| it.shown_in(&namespace)).unwrap_or_default();
    let (reason, message) = match found {
        Err(none) => (none.reason, format!("MiniCluster {lender:?}: {}", none.message)),
        Ok(instance) => reason_and_message(joiner, observed, instance, &lender),
    };
    let instance = found.as_ref().ok();
    let ranks = instance.map(Instance::ranks).unwrap_or_default();
    let online = instance.map(|it| it.online(observed)).unwrap_or_default();
    let active = instance.map(|it| it.held.active.to_set()).unwrap_or_default();
    // One that grows or shrinks stays joined meanwhile.
    let stays = [Reason::Joined, Reason::NoFreeRanks, Reason::Joining, Reason::Leaving];
    let has_all = !active.is_empty() && active.is_subset(&online);
    JoinState {
        is_joined: has_all && stays.contains(&reason),
        reason,
        message,
        warnings: instance.map_or(Vec::new(), |it| wrong_size(joiner, &it.view.minicluster)),
        lender,
        ranks,
        online: u32::try_from(online.len()).unwrap_or(u32::MAX),
    }
}

/// Reason and message of the condition `Joined`, for an instance that exists.
fn reason_and_message(
    joiner: &MiniCluster,
    observed: &Observed,
    instance: &Instance<'_>,
    lender: &str,
) -> (Reason, String) {
    let held = &instance.held;
    let report_is_awaited = instance.online_before_restart(observed).is_some();
    if !held.leaving.is_empty() || joiner.metadata.deletion_timestamp.is_some() {
        let kept = kept(joiner, observed, &[Reason::Leaving]).filter(|_| report_is_awaited);
        return kept.unwrap_or_else(|| (Reason::Leaving, leaving_message(instance)));
    }
    if joiner.spec.suspend {
        return (Reason::Suspended, "spec.suspend is true".into());
    }
    if is_waiting(joiner) {
        return (Reason::WaitingForQueue, "ranks are leased once its queue has admitted it".into());
    }
    if !may_join(&instance.view.minicluster, joiner) {
        let namespace = joiner.namespace().unwrap_or_default();
        let message = format!(
            "MiniCluster {lender:?} does not allow namespace {namespace:?}: add it to its \
             flux.bursting.allowedNamespaces"
        );
        return (Reason::NotAllowed, message);
    }
    if !instance.is_ready {
        let message = format!("MiniCluster {lender:?} is not ready: its conditions say why");
        return (Reason::LenderNotReady, message);
    }
    let (size, online) = (size_in_queue(joiner), instance.online(observed));
    if held.active.len() >= size && held.active.to_set().is_subset(&online) {
        return (Reason::Joined, format!("ranks {} of {lender:?} are online", held.active));
    }
    let lead = instance.lead();
    if lead.is_none() && !report_is_awaited {
        let message = format!(
            "the lead of MiniCluster {lender:?} has not reported its version and user yet; with \
             flux.curveCertSecret it never does"
        );
        return (Reason::LenderNotReady, message);
    }
    if held.active.len() < size {
        return waiting_for_ranks(joiner, instance, size, lender);
    }
    let mut requests = observed.join_requests.iter();
    let differs = lead.and_then(|lead| {
        requests.find_map(|request| mismatch(Some(joiner), &instance.cluster.ranks, lead, request))
    });
    // After a restart of the operator agents have to ask again. Until then the last answer is kept.
    let is_unknown = lead.is_none() || observed.join_requests.is_empty();
    let kept = || kept(joiner, observed, &MISMATCHES).filter(|_| is_unknown);
    if let Some(differs) = differs.or_else(kept) {
        return differs;
    }
    let message = format!(
        "ranks {} of {lender:?} are leased, {} of {size} brokers are online",
        held.active,
        online.len()
    );
    let mut failed = observed.join_requests.iter().filter(|it| !it.last_error.is_empty());
    let failed = failed.find(|it| !online.contains(it.rank));
    let failed =
        failed.map(|it| format!("; the broker of pod {} exited: {}", it.index, it.last_error));
    (Reason::Joining, message + &failed.unwrap_or_default())
}

/// The condition `Joined` as it was written last, if it has one of `reasons` and this operator was
/// started so recently that the lead and the agents may not have reported to it yet.
fn kept(joiner: &MiniCluster, observed: &Observed, reasons: &[Reason]) -> Option<(Reason, String)> {
    let joined = find(&joiner.status.as_ref()?.conditions, ConditionType::Joined)?;
    let reason = joined.reason.parse().ok().filter(|reason| reasons.contains(reason))?;
    may_still_report(observed.watching_since, observed.now)
        .then(|| (reason, joined.message.clone()))
}

/// It has fewer ranks than it should have.
fn waiting_for_ranks(
    joiner: &MiniCluster,
    instance: &Instance<'_>,
    size: usize,
    lender: &str,
) -> (Reason, String) {
    let missing = size.saturating_sub(instance.held.active.len());
    let (view, cluster) = (instance.view, &instance.cluster);
    let in_use = ranks_in_use(&view.minicluster, view.job.as_deref());
    let records = recorded(&view.minicluster);
    let lendable = lendable_now(cluster, in_use, view.report.as_ref(), &records);
    let free = FreeRanks::new(&cluster.ranks, lendable, &records).available(&choice(&joiner.spec));
    if free >= missing {
        return (Reason::Joining, format!("waiting for {lender:?} to lease {}", count(missing)));
    }
    let message = format!(
        "it needs {} of {lender:?}, and {free} can be leased: {} missing",
        count(missing),
        missing.saturating_sub(free)
    );
    (Reason::NoFreeRanks, message)
}

fn count(ranks: usize) -> String {
    if ranks == 1 { "1 more rank".to_owned() } else { format!("{ranks} more ranks") }
}

fn leaving_message(instance: &Instance<'_>) -> String {
    let held = &instance.held;
    let report = instance.view.report.as_ref();
    let drained = report.and_then(|report| report.state.drained.as_ref());
    let ranks = held.leaving.to_set();
    let busy = drained.zip(held.leaving_since);
    match busy.and_then(|(drained, since)| busy_ranks(drained, since, &ranks)) {
        Some(busy) if !busy.is_empty() => {
            format!("ranks {ranks} are given back: waiting for jobs on {busy}")
        }
        _ if ranks.is_empty() => "waiting for the lender to drain its ranks".to_owned(),
        _ => format!("ranks {ranks} are given back"),
    }
}
