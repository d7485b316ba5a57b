//! The state of a joiner whose lender is in another Kubernetes cluster.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::{MiniCluster, Reason};
use flux_operator_flux::RankList;

use super::{RemoteInstance, differs};
use crate::joining::JoinState;
use crate::joining::invitation::{is_expired, shown_expiry};
use crate::joining::joiner::NO_REPORTS;
use crate::joining::permission::MISMATCHES;
use crate::kubernetes::Settings;
use crate::last_report::may_still_report;
use crate::observed::{Observed, completion_index, is_terminating};
use crate::queueing::is_waiting;
use crate::status::is_ready;
use crate::verdict::find;

/// The reasons that only the agents know.
const KEPT: [Reason; 8] = [
    Reason::Joining,
    Reason::LenderUnreachable,
    Reason::LenderNotReady,
    Reason::NoFreeRanks,
    Reason::WrongKey,
    Reason::InvitationUsed,
    Reason::InvitationRevoked,
    Reason::InvitationOutdated,
];

/// The condition `Joined`, and what is shown beside it. A pod is ready when its broker is part of the
/// instance.
pub(super) fn state(
    joiner: &MiniCluster,
    observed: &Observed,
    settings: &Settings,
    instance: &RemoteInstance,
) -> JoinState {
    let size = usize::try_from(joiner.spec.size).unwrap_or_default();
    let ready = observed.job_pods().filter(|pod| is_ready(pod) && !is_terminating(pod));
    let indexes = ready.filter_map(completion_index).map(|index| index as usize);
    let online = indexes.filter(|index| *index < size).count();
    let lender = format!(
        "{} ({})",
        instance.lender,
        instance.addresses.first().map(String::as_str).unwrap_or_default()
    );
    let ranks = instance.ranks.split_at(size).0;
    // Without an operator to ask, brokers with an invitation ask the lender alone.
    let may_start =
        settings.report_url.is_some() || instance.lent.as_ref().is_some_and(|lent| !lent.direct);
    let (reason, message) = match may_start {
        true => reason_and_message(joiner, observed, instance, &ranks, online, &lender),
        false => (Reason::LenderNotReady, NO_REPORTS.to_owned()),
    };
    JoinState {
        is_joined: reason == Reason::Joined,
        reason,
        message,
        lender,
        ranks,
        online: u32::try_from(online).unwrap_or(u32::MAX),
        warnings: Vec::new(),
    }
}

fn reason_and_message(
    joiner: &MiniCluster,
    observed: &Observed,
    instance: &RemoteInstance,
    ranks: &RankList,
    online: usize,
    lender: &str,
) -> (Reason, String) {
    if let Some(expires) = instance.expires().filter(|it| is_expired(it, observed.now)) {
        let message = format!(
            "the invitation to {lender:?} has expired at {}: ask for another, and delete this \
             MiniCluster",
            shown_expiry(expires)
        );
        return (Reason::InvitationExpired, message);
    }
    if joiner.spec.suspend {
        return (Reason::Suspended, "spec.suspend is true".into());
    }
    if is_waiting(joiner) {
        return (Reason::WaitingForQueue, "it joins once its queue has admitted it".into());
    }
    if online >= ranks.len() {
        return (Reason::Joined, format!("ranks {ranks} of {lender:?} are online"));
    }
    if let Some(kept) = kept(joiner, observed) {
        return kept;
    }
    let mut requests = observed.join_requests.iter();
    if let Some(differs) = requests.find_map(|request| differs(joiner, instance, request)) {
        return differs;
    }
    let mut refusals = observed.join_requests.iter().filter_map(|request| request.refusal.as_ref());
    if let Some(refusal) = refusals.next() {
        let reason = refusal.reason.parse().unwrap_or(Reason::Joining);
        return (reason, format!("{lender:?}: {}", refusal.message));
    }
    let message =
        format!("{online} of {} brokers are online at ranks {ranks} of {lender:?}", ranks.len());
    let failed = observed.join_requests.iter().find(|it| !it.last_error.is_empty());
    let failed =
        failed.map(|it| format!("; the broker of pod {} exited: {}", it.index, it.last_error));
    (Reason::Joining, message + &failed.unwrap_or_default())
}

/// The condition as it was written last, while the agents may not have asked again since this operator
/// was started: a restart of the operator changes no status.
fn kept(joiner: &MiniCluster, observed: &Observed) -> Option<(Reason, String)> {
    let joined = find(&joiner.status.as_ref()?.conditions, ConditionType::Joined)?;
    let is_awaited = observed.join_requests.is_empty()
        && joined.status == "False"
        && may_still_report(observed.watching_since, observed.now);
    let reason = joined.reason.parse().ok().filter(|_| is_awaited)?;
    (KEPT.contains(&reason) || MISMATCHES.contains(&reason))
        .then(|| (reason, joined.message.clone()))
}
