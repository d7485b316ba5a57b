//! Invitations: ranks for brokers of other Kubernetes clusters.
//!
//! An invitation is a claim like that of a joiner, and its lease follows the same rules. But nothing
//! is known about the pods that use it: its agents ask for permission through the gateway, and the
//! gateway closes their connections when the lease is given back.

use flux_operator_api::minicluster::{
    Bursting, Invitation, InvitationLease, InvitationRefusal, InvitationUser,
};
use flux_operator_api::{MiniCluster, Reason};
use flux_operator_flux::IdSet;
use flux_operator_wire::InvitedRequest;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::draining::busy_ranks;
use super::grant::{Claim, RankChoice};
use super::lease::{Holder, LeaseRecord, recorded};
use super::lender::LenderView;
use super::permission::{Permission, booted_cluster, mismatch};
use super::permitted_pods::KnownBroker;
use crate::observed::Observed;
use crate::resize::LeadState;
use crate::time::seconds_after;

/// How long an invitation stays with the cluster that uses it after the last sign of it, in seconds:
/// as long as a broker may take to start.
const USER_SECONDS: i64 = 60;

/// A cluster elsewhere has asked for permission with an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitedCluster {
    /// Name of the invitation.
    pub invitation: String,
    /// When it expires: one of the same name that expires at another time is another one.
    pub expires: String,
    /// Uid of the cluster; empty if it has not proved that it has the invitation's key.
    pub uid: String,
    /// Its namespace and name.
    pub name: String,
    /// When it last asked.
    pub asked: Timestamp,
    /// Why its broker was refused then.
    pub refusal: Option<(Reason, String)>,
}

/// The invitations of a lender.
pub(super) fn invitations(lender: &MiniCluster) -> &[Invitation] {
    bursting(lender).map(|it| it.invitations.as_slice()).unwrap_or_default()
}

/// The same lender after all of its invitations were revoked.
pub(super) fn without_invitations(lender: &MiniCluster) -> MiniCluster {
    let mut lender = lender.clone();
    let bursting = lender.spec.flux.as_mut().and_then(|flux| flux.bursting.as_mut());
    bursting.into_iter().for_each(|bursting| bursting.invitations.clear());
    lender
}

pub(crate) fn bursting(minicluster: &MiniCluster) -> Option<&Bursting> {
    minicluster.spec.flux.as_ref()?.bursting.as_ref()
}

/// What the invitations of a lender ask for: nothing any more once they have expired, or if the
/// lender is not exposed.
pub(super) fn claims(lender: &MiniCluster, now: Timestamp) -> Vec<Claim> {
    let is_exposed = bursting(lender).is_some_and(|it| it.expose.is_some());
    let claim = |invitation: &Invitation| Claim {
        holder: holder(lender, invitation),
        count: match is_exposed && !is_expired(&invitation.expires, now) {
            true => usize::try_from(invitation.ranks).unwrap_or_default(),
            false => 0,
        },
        choice: match invitation.property.as_str() {
            "" => RankChoice::Any,
            property => RankChoice::Property(property.to_owned()),
        },
        created: None,
        invitation: Some(InvitationLease {
            expires: invitation.expires.clone(),
            ..InvitationLease::default()
        }),
    };
    invitations(lender).iter().map(claim).collect()
}

/// An invitation as holder of a lease.
pub(super) fn holder(lender: &MiniCluster, invitation: &Invitation) -> Holder {
    Holder {
        uid: invitation_holder(invitation),
        namespace: lender.namespace().unwrap_or_default(),
        name: invitation.name.clone(),
    }
}

/// The holder of an invitation's lease, as in `status.leases`. One of the same name that expires at
/// another time is another holder, so that the brokers of the first cannot use the ranks of the second.
pub fn invitation_holder(invitation: &Invitation) -> String {
    let Invitation { name, ranks: _, expires, property: _, keep: _ } = invitation;
    format!("invitation:{name}:{expires}")
}

/// When an invitation expires, as it is shown: in whole seconds. Its other digits are random, so that no
/// two invitations expire at the same time.
pub fn shown_expiry(expires: &str) -> String {
    let end = expires.parse::<Timestamp>().ok();
    let end = end.and_then(|end| Timestamp::from_second(end.as_second()).ok());
    end.map_or_else(|| expires.to_owned(), |end| end.to_string())
}

/// Whether an invitation has expired. One whose time cannot be read has.
pub fn is_expired(expires: &str, now: Timestamp) -> bool {
    expires.parse::<Timestamp>().ok().is_none_or(|expires| now >= expires)
}

/// When the next of a lender's invitations expires.
pub(super) fn next_expiry(lender: &MiniCluster, now: Timestamp) -> Option<Timestamp> {
    let times = invitations(lender).iter().filter_map(|it| it.expires.parse().ok());
    times.filter(|expires| *expires > now).min()
}

/// Notes which cluster uses each invitation: the first that asks. It stays with that one while one
/// of its brokers is online or may be starting.
pub(super) fn note_users(records: &mut [LeaseRecord], observed: &Observed) {
    let report = observed.report.as_ref().filter(|report| !report.is_stale(observed.now));
    let online = report.and_then(|report| report.state.online.as_ref());
    for record in records.iter_mut().filter(|record| record.is_active()) {
        let (ranks, since) = (record.ranks.to_set(), record.since);
        let Some(invitation) = &mut record.invitation else { continue };
        let expires = invitation.expires.clone();
        let is_of = |it: &&InvitedCluster| {
            it.invitation == record.holder.name && it.expires == expires && it.asked >= since
        };
        let (strangers, asked): (Vec<_>, Vec<_>) =
            observed.invited.iter().filter(is_of).partition(|it| it.uid.is_empty());
        let asked = asked.into_iter();
        let is_recent = |time: Timestamp| observed.now < seconds_after(time, USER_SECONDS);
        // One that asks no more may not exist any more.
        let mut others = asked.clone().filter(|it| {
            Some(&it.uid) != invitation.user.as_ref().map(|it| &it.uid) && is_recent(it.asked)
        });
        let is_used = invitation.user.as_ref().is_some_and(|user| {
            let last = asked.clone().filter(|it| it.uid == user.uid).map(|it| it.asked);
            let last = last.chain(user.since.parse().ok()).max();
            last.is_some_and(is_recent)
                || online.is_none_or(|it| !it.intersection(&ranks).is_empty())
        });
        let user = invitation.user.as_ref();
        let last = asked.clone().rfind(|it| user.is_some_and(|user| user.uid == it.uid));
        // A stranger counts for a while, whatever the cluster that uses the invitation asks meanwhile:
        // otherwise the status would change with every question.
        let stranger = strangers.into_iter().find(|it| is_recent(it.asked));
        let last = stranger.or(last);
        invitation.refusal = last.and_then(|it| it.refusal.as_ref()).and_then(lasting);
        if !is_used && let Some(other) = others.next() {
            invitation.user = Some(InvitationUser {
                uid: other.uid.clone(),
                name: other.name.clone(),
                since: observed.now.to_string(),
            });
        }
    }
}

/// A refusal that only a user can change. Others are answers of a moment, such as to an agent that asks
/// while its rank is still online.
fn lasting((reason, message): &(Reason, String)) -> Option<InvitationRefusal> {
    let refusal =
        InvitationRefusal { reason: reason.as_str().to_owned(), message: message.clone() };
    reason.needs_user().then_some(refusal)
}

/// How many of its ranks an invitation keeps; `None` if all.
fn kept(invitation: &Invitation) -> Option<i32> {
    invitation.keep.filter(|keep| *keep < invitation.ranks)
}

/// Notes how many ranks each invitation keeps, since when, and which of the others are without jobs.
/// The time makes each change a new request to the lead. If the status was lost, it is another time,
/// and the lead is asked again.
pub(super) fn note_kept(
    records: &mut [LeaseRecord],
    lender: &MiniCluster,
    lead: LeadState<'_>,
    now: Timestamp,
) {
    for record in records.iter_mut() {
        let mut invitations = invitations(lender).iter();
        let invited = invitations.find(|it| invitation_holder(it) == record.holder.uid);
        let keeps = invited.filter(|_| record.is_active()).and_then(kept);
        let Some(lease) = &mut record.invitation else { continue };
        if lease.kept != keeps || keeps.is_some() && lease.kept_since.parse::<Timestamp>().is_err()
        {
            lease.kept = keeps;
            lease.kept_since = keeps.map(|_| now.to_string()).unwrap_or_default();
            lease.drained = String::new();
        }
        let idle = match (record.released(), lead) {
            (None, _) | (_, LeadState::Absent) => Some(IdSet::new()),
            // The operator was restarted a moment ago. No job has started there since.
            (_, LeadState::Expected(_)) => None,
            (Some((ranks, since)), LeadState::Reports(drained)) => {
                let busy = drained.and_then(|it| busy_ranks(it, since, &ranks));
                Some(busy.map(|busy| ranks.difference(&busy)).unwrap_or_default())
            }
        };
        if let (Some(idle), Some(lease)) = (idle, &mut record.invitation) {
            lease.drained = idle.to_string();
        }
    }
}

/// Decides whether a broker in another Kubernetes cluster may start, whose agent has proved to have the
/// key of this invitation. As with [`permission`](super::permission()), only a denial may be decided from
/// a cache.
pub fn invited_permission(
    lender: &LenderView,
    invitation: &Invitation,
    asked: &InvitedRequest,
    broker: KnownBroker,
    now: Timestamp,
) -> Permission {
    let InvitedRequest { joiner: uid, joiner_name: _, request } = asked;
    let denied = |reason: Reason, message: &str| Permission::Denied(reason, message.to_owned());
    let minicluster = &lender.minicluster;
    if minicluster.metadata.deletion_timestamp.is_some() {
        return denied(Reason::LenderMissing, "the lender is being deleted");
    }
    let Some(cluster) = booted_cluster(minicluster, lender.job.as_deref()) else {
        return denied(Reason::LenderNotReady, "the lender's manifest is refused");
    };
    let holder = holder(minicluster, invitation);
    let mut found = invitations(minicluster).iter();
    let Some(found) = found.find(|it| invitation_holder(it) == holder.uid) else {
        return denied(Reason::InvitationRevoked, "the invitation was revoked");
    };
    if is_expired(&found.expires, now) {
        let end = shown_expiry(&found.expires);
        let message = format!("the invitation has expired at {end}: ask for another");
        return denied(Reason::InvitationExpired, &message);
    }
    let leases = recorded(minicluster);
    let lease = leases.iter().find(|it| it.holder.uid == holder.uid && it.is_active());
    let Some(lease) = lease else {
        return denied(Reason::NoFreeRanks, "the invitation has no ranks: too few were free");
    };
    let table = cluster.ranks.hash();
    let index = usize::try_from(request.index).unwrap_or(usize::MAX);
    if request.table != table
        || lease.table != table
        || lease.ranks.nth(index) != Some(request.rank)
    {
        let message =
            "the lender was started with other ranks since it was written: ask for another";
        return denied(Reason::InvitationOutdated, message);
    }
    if kept(found).is_some_and(|keep| usize::try_from(keep).is_ok_and(|keep| index >= keep)) {
        let message = format!("rank {} is not kept: jobs on it may only finish", request.rank);
        return denied(Reason::Joining, &message);
    }
    let user = lease.invitation.as_ref().and_then(|it| it.user.as_ref());
    match user {
        Some(user) if user.uid == *uid => {}
        Some(user) => {
            let message = format!(
                "MiniCluster {:?} uses the invitation: delete one of the two, or ask for another \
                 invitation",
                user.name
            );
            return denied(Reason::InvitationUsed, &message);
        }
        None => return denied(Reason::Joining, "the lender notes which cluster uses it"),
    }
    let report = lender.report.as_ref().filter(|report| !report.is_stale(now));
    let state = report.map(|report| &report.state);
    let known = state.and_then(|state| Some((state.lead.as_ref()?, state.online.as_ref()?)));
    let Some(((lead, online), received)) = known.zip(report.map(|it| it.received)) else {
        let message = "the lender's lead has not reported its version, its user and its ranks yet";
        return denied(Reason::LenderNotReady, message);
    };
    if let Some((reason, message)) = mismatch(None, &cluster.ranks, lead, request) {
        return Permission::Denied(reason, message);
    }
    if online.contains(request.rank) && !broker.had_permission {
        // Flux would replace it.
        let message = format!("the former broker of rank {} is still online", request.rank);
        return denied(Reason::Joining, &message);
    }
    // An older report may have been sent before the broker of the other pod had connected.
    broker.denial(request.rank, received).unwrap_or(Permission::Granted)
}
