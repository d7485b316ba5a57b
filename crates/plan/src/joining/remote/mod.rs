//! A joiner whose lender is in another Kubernetes cluster. All that is known about the instance is in
//! its own manifest; its agents ask the lender for permission, through the lender's gateway.

mod instance;
mod own_ranks;
mod state;

use flux_operator_api::MiniCluster;
use flux_operator_api::Reason;
use flux_operator_wire::JoinRequest;
use k8s_openapi::jiff::Timestamp;

pub(crate) use instance::RemoteInstance;
use state::state;

use super::invitation::{is_expired, shown_expiry};
use super::permission::{Permission, mismatch};
use crate::cluster::Cluster;
use crate::decide::Unplanned;
use crate::kubernetes::{Rendering, Settings};
use crate::last_report::{first_report_due, may_still_report};
use crate::observed::Observed;
use crate::steps::{Ownership, Plan, delete, ownership, plan};
use crate::valid::{Refusal, RefusalReason, Valid};

/// The plan of a joiner, and how it stands in the instance.
pub(crate) fn evaluate(
    joiner: &MiniCluster,
    observed: &Observed,
    settings: &Settings,
) -> Result<Plan, Unplanned> {
    let valid = Valid::check(joiner.clone()).map_err(Unplanned::Refused)?;
    let instance = match RemoteInstance::of(&valid) {
        Some(Ok(instance)) => instance,
        found => {
            // It was checked a moment ago.
            let problems = found.and_then(Result::err).unwrap_or_default();
            let reason = RefusalReason::Invalid;
            return Err(Unplanned::Refused(Refusal { reason, problems }));
        }
    };
    let cluster =
        Cluster::of(&valid).map_err(|error| Unplanned::InvalidHosts(error.to_string()))?;
    let cluster = instance.join(&valid, cluster);
    let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings };
    let expires = instance.expires().and_then(|expires| expires.parse::<Timestamp>().ok());
    let has_ended = instance.expires().is_some_and(|expires| is_expired(expires, observed.now));
    let mut plan = match (has_ended, ownership(observed, joiner)) {
        // The ranks are not its own any more.
        (true, Ownership::Ours(job)) => Plan { steps: vec![delete(job)], ..Plan::default() },
        (true, _) => Plan::default(),
        (false, _) => plan(joiner, &rendering, observed),
    };
    let ends_at = expires.filter(|expires| *expires > observed.now);
    // What was kept over a restart of the operator is decided again without an answer.
    let may_report = may_still_report(observed.watching_since, observed.now);
    let kept_until = may_report.then(|| first_report_due(observed.watching_since));
    let kept_until = kept_until.filter(|_| observed.join_requests.is_empty());
    plan.requeue_at = [plan.requeue_at, ends_at, kept_until].into_iter().flatten().min();
    (plan.leases, plan.drain, plan.expose) = (None, None, None);
    plan.join = Some(state(joiner, observed, settings, &instance));
    Ok(plan)
}

/// Whether a broker of a joiner may start, as far as its own manifest says: the lender decides too.
pub fn remote_permission(
    joiner: &MiniCluster,
    request: &JoinRequest,
    now: Timestamp,
) -> Option<Permission> {
    let instance = RemoteInstance::of(joiner)?;
    let Ok(instance) = instance else {
        let message = "the manifest is refused".to_owned();
        return Some(Permission::Denied(Reason::Invalid, message));
    };
    let index = usize::try_from(request.index).unwrap_or(usize::MAX);
    if request.table != instance.hash || instance.ranks.nth(index) != Some(request.rank) {
        return Some(Permission::Outdated("the manifest has other ranks now".into()));
    }
    if let Some(expires) = instance.expires().filter(|expires| is_expired(expires, now)) {
        let message = format!("the invitation has expired at {}", shown_expiry(expires));
        return Some(Permission::Denied(Reason::InvitationExpired, message));
    }
    Some(match (differs(joiner, &instance, request), &request.refusal) {
        (Some((reason, message)), _) => Permission::Denied(reason, message),
        (None, Some(refusal)) => Permission::Denied(Reason::Joining, refusal.message.clone()),
        (None, None) => Permission::Granted,
    })
}

/// In what a broker differs from the lead that the invitation describes.
fn differs(
    joiner: &MiniCluster,
    instance: &RemoteInstance,
    request: &JoinRequest,
) -> Option<(Reason, String)> {
    let lead = instance.lead_facts()?;
    mismatch(Some(joiner), &instance.table, &lead, request)
}
