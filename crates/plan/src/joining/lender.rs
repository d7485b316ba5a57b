//! The lender's side: what is lent to which joiner, and what is free again.

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{Lease, LenderName};
use flux_operator_api::validate::Problem;
use flux_operator_flux::{IdSet, RankList};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::claims::{claims, noted_leases};
use super::grant::{FreeRanks, grant, kept_leases, lendable, with_noted};
use super::invitation;
use super::invitation_note::only_noted;
use super::lease::{LeaseRecord, ranks, recorded};
use super::pods::{is_of, is_stray, joiner_pods, lender_queries, ranks_in_use, ranks_with_pods};
use crate::cluster::Cluster;
use crate::exposing::assign_ports;
use crate::last_report::LastReport;
use crate::observed::{Observed, completions};
use crate::query::ExistingPod;
use crate::resize::LeadState;
use crate::stamp::can_lend;
use crate::time::seconds_after;

/// How soon to ask again whether the pods of a holder are deleted, in seconds: no watch shows it
/// if the holder itself is deleted.
const RELEASE_INTERVAL: i64 = 2;

/// A rank that was given back counts as offline after this many seconds without a report of the lead:
/// longer than a report is fresh, and than Flux takes to notice a lost broker's connection.
const SILENT_SECONDS: i64 = 60;

/// How long the gateway may serve the port of a revoked invitation, in seconds: it notices a dead
/// connection to the API server within 15 s, and then has to connect again. The same for one that has
/// expired: the gateway closes it by its own clock, which may be slow. A gateway that stays cut off
/// from the API server serves the port until the invitation expires. That cannot be waited for, because
/// ranks that were taken back would not be free for days.
const CLOSING_SECONDS: i64 = 20;

/// A lender, as its joiners observe it.
#[derive(Clone, Debug)]
pub struct LenderView {
    /// The MiniCluster.
    pub minicluster: Arc<MiniCluster>,
    /// Its Job, if it has one.
    pub job: Option<Arc<Job>>,
    /// The last report of its lead.
    pub report: Option<LastReport>,
}

/// A joiner, as its lender observes it.
#[derive(Clone, Debug)]
pub struct JoinerView {
    /// The MiniCluster.
    pub minicluster: Arc<MiniCluster>,
    /// Its Job, if it has one.
    pub job: Option<Arc<Job>>,
}

/// The lender that a MiniCluster names.
pub fn lender_of(minicluster: &MiniCluster) -> Option<LenderName> {
    LenderName::of(minicluster)
}

/// What a joiner's manifest says of its lender although it is not so: `bootServerSize` or
/// `connectionSize` is not the lender's size.
pub(super) fn wrong_size(joiner: &MiniCluster, lender: &MiniCluster) -> Vec<Problem> {
    let flux = joiner.spec.flux.clone().unwrap_or_default();
    let size = lender.spec.size;
    let given =
        [("bootServerSize", flux.boot_server_size), ("connectionSize", flux.connection_size)];
    let wrong = given.into_iter().filter(|(_, given)| *given > 0 && *given != size);
    wrong
        .map(|(field, given)| Problem {
            path: format!("spec.flux.{field}"),
            message: format!(
                "is {given}, but the cluster it joins has size {size}; it is not used"
            ),
        })
        .collect()
}

/// The leases to write, and when to decide again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LeaseDecision {
    /// The leases.
    pub(crate) leases: Vec<LeaseRecord>,
    /// Whether all was known that a grant needs: whoever got nothing cannot have it.
    pub(crate) could_grant: bool,
    /// When to decide again if nothing changes.
    pub(crate) requeue_at: Option<Timestamp>,
}

impl LeaseDecision {
    /// Whether one of these ranks is leased.
    pub(crate) fn has_any(&self, of: &IdSet) -> bool {
        !ranks(&self.leases).intersection(of).is_empty()
    }

    /// The same without what invitations have got since the leases in the lender's status: as long as it
    /// is not noted, it could not be granted again after a loss of the status.
    pub(crate) fn without_new_invitations(&self, lender: &MiniCluster) -> LeaseDecision {
        let before = recorded(lender);
        let of_holder = |it: &LeaseRecord| {
            before.iter().find(|before| before.holder == it.holder && before.is_active())
        };
        let is_new = |it: &&LeaseRecord| {
            let had = of_holder(it).map(|it| it.ranks.to_set()).unwrap_or_default();
            it.invitation.is_some() && it.is_active() && !it.ranks.to_set().is_subset(&had)
        };
        let (new, others): (Vec<_>, Vec<_>) = self.leases.iter().partition(is_new);
        let instead = new.into_iter().filter_map(of_holder);
        LeaseDecision { leases: others.into_iter().chain(instead).cloned().collect(), ..*self }
    }

    /// As they are written to the status.
    pub(crate) fn to_status(&self) -> Vec<Lease> {
        self.leases.iter().map(LeaseRecord::to_status).collect()
    }
}

/// Decides the leases from now on.
pub(crate) fn decide_leases(
    lender: &MiniCluster,
    cluster: &Cluster,
    observed: &Observed,
    lead: LeadState<'_>,
    is_ready: bool,
) -> LeaseDecision {
    let records = known_leases(lender, cluster, observed);
    let claims = claims(lender, observed, &records);
    let pods = observed.existing_pods(&joiner_pods(lender));
    let has_strays = pods.is_some_and(|pods| pods.iter().any(|it| is_stray(it, lender, &records)));
    if claims.is_empty() && records.is_empty() && !has_strays {
        return LeaseDecision::default();
    }
    let report = observed.report.as_ref().filter(|report| !report.is_stale(observed.now));
    let may_grant = is_ready
        && report.is_some_and(|it| it.state.lead.is_some() && it.state.online.is_some())
        && observed.job.as_deref().is_some_and(can_lend)
        && pods.is_some()
        && !has_strays;
    let own_ranks = ranks_with_pods(lender, cluster, observed);
    let is_free = |record: &LeaseRecord| {
        // The instance of another table does not exist any more.
        let is_offline = record.table != cluster.ranks.hash() || is_offline(record, lead, observed);
        is_offline && pods.is_some_and(|pods| !has_pods(record, &records, pods))
    };
    let ever_lendable = lendable(&cluster.ranks, &cluster.broker.topology, 0).to_set();
    let mut leases = kept_leases(
        records.clone(),
        &claims,
        &cluster.ranks,
        &ever_lendable,
        is_free,
        observed.now,
    );
    if may_grant {
        // Without an answer about its pods none of its own ranks is lent.
        let own = own_ranks.unwrap_or_else(|| cluster.ranks.max_size());
        // The size that is wanted does not matter here: a lease is older than a wish to grow over it.
        leases.extend(only_noted(&leases, &claims, cluster, own, observed));
        let in_use = own.max(ranks_in_use(lender, observed.job.as_deref()));
        let lendable = lendable_now(cluster, in_use, report, &records);
        let free = FreeRanks::new(&cluster.ranks, lendable, &leases);
        grant(&mut leases, &claims, free, observed.now);
    }
    invitation::note_users(&mut leases, observed);
    invitation::note_kept(&mut leases, lender, lead, observed.now);
    assign_ports(&mut leases, lender, observed);
    // No watch shows that the last pod of a joiner that is deleted itself does not exist any more.
    let mut asked = lender_queries(lender, observed).into_iter();
    let is_unanswered = asked.any(|subject| observed.existing_pods(&subject).is_none());
    let is_leaving = leases.iter().any(|record| !record.is_active());
    let waits_for_pods = has_strays || is_leaving || is_unanswered;
    let requeue_at = waits_for_pods.then(|| seconds_after(observed.now, RELEASE_INTERVAL));
    let expiry = invitation::next_expiry(lender, observed.now);
    let requeue_at = [requeue_at, expiry].into_iter().flatten().min();
    LeaseDecision { leases, could_grant: may_grant && own_ranks.is_some(), requeue_at }
}

/// The ranks that can be lent now. A rank that the lead reports online without a lease has a broker
/// that was started by other means, which another one would replace.
pub(super) fn lendable_now(
    cluster: &Cluster,
    in_use: u32,
    report: Option<&LastReport>,
    records: &[LeaseRecord],
) -> RankList {
    let online = report.and_then(|report| report.state.online.clone()).unwrap_or_default();
    let unknown = online.difference(&ranks(records));
    let lendable = lendable(&cluster.ranks, &cluster.broker.topology, in_use);
    lendable.iter().filter(|rank| !unknown.contains(*rank)).collect()
}

/// The leases of a lender that has finished: all are given back, and nothing is granted any more.
pub(crate) fn take_back_leases(
    lender: &MiniCluster,
    cluster: &Cluster,
    observed: &Observed,
) -> LeaseDecision {
    let observed = Observed { joiners: Vec::new(), undecodable: Vec::new(), ..observed.clone() };
    let lender = invitation::without_invitations(lender);
    decide_leases(&lender, cluster, &observed, LeadState::Absent, false)
}

/// The leases in a lender's status, and those that only the Jobs of joiners show.
fn known_leases(lender: &MiniCluster, cluster: &Cluster, observed: &Observed) -> Vec<LeaseRecord> {
    let noted = noted_leases(lender, cluster, observed);
    with_noted(recorded(lender), noted, &cluster.ranks.hash(), observed.now)
}

/// Why a lender's Job cannot have the size that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SizeLimit {
    /// This MiniCluster or invitation leases the first host after it.
    Leased(String),
    /// There are pods of joiners whose ranks are not known, so they may have one of these hosts.
    UnknownPods,
    /// The API server has not said whether there are.
    Unanswered,
}

/// The largest size up to `wanted` that a lender's Job can have now, and what limits it.
pub(crate) fn highest_free_size(
    lender: &MiniCluster,
    cluster: &Cluster,
    observed: &Observed,
    wanted: i32,
) -> (i32, Option<SizeLimit>) {
    let hash = cluster.ranks.hash();
    let records = known_leases(lender, cluster, observed);
    let current = completions(observed.job.as_deref());
    // What is only noted is granted again once the lead reports.
    let claims = invitation::claims(lender, observed.now);
    let own = u32::try_from(current).unwrap_or(u32::MAX);
    let noted = only_noted(&records, &claims, cluster, own, observed);
    let wanted_ranks = IdSet::first_n(u32::try_from(wanted).unwrap_or_default());
    let of_this_table = records.iter().chain(&noted).filter(|record| record.table == hash);
    let leased = of_this_table.filter_map(|record| {
        let first = record.ranks.to_set().intersection(&wanted_ranks).first()?;
        Some((i32::try_from(first).unwrap_or(i32::MAX), &record.holder))
    });
    let leased = leased
        .min_by_key(|(first, _)| *first)
        .map(|(first, holder)| (first, SizeLimit::Leased(holder.to_string())));
    let unknown = match observed.existing_pods(&joiner_pods(lender)) {
        Some(pods) if pods.iter().any(|it| is_stray(it, lender, &records)) => {
            Some(SizeLimit::UnknownPods)
        }
        // Most clusters never lend ranks.
        None if !records.is_empty() || !observed.joiners.is_empty() => Some(SizeLimit::Unanswered),
        _ => None,
    };
    let current = i32::try_from(current).unwrap_or(i32::MAX);
    // It only keeps the Job from growing.
    let unknown = unknown.filter(|_| wanted > current).map(|limit| (current, limit));
    let limit = leased.into_iter().chain(unknown).min_by_key(|(size, _)| *size);
    limit.map_or((wanted, None), |(size, limit)| (size, Some(limit)))
}

/// Whether a MiniCluster may join a lender: it is in the same namespace, or in one that the lender
/// allows.
pub fn may_join(lender: &MiniCluster, joiner: &MiniCluster) -> bool {
    !lender.spec.is_joiner() && allows(lender, &joiner.namespace().unwrap_or_default())
}

/// Whether MiniClusters of a namespace may join a lender.
pub(crate) fn allows(lender: &MiniCluster, namespace: &str) -> bool {
    let bursting = lender.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let allowed = bursting.map(|it| it.allowed_namespaces.as_slice()).unwrap_or_default();
    lender.namespace().unwrap_or_default() == namespace
        || allowed.iter().any(|name| name == "*" || name == namespace)
}

/// Whether a lender must consider a joiner: it may join, or still has a lease.
pub fn must_consider(lender: &MiniCluster, joiner: &MiniCluster) -> bool {
    may_join(lender, joiner) || has_lease(lender, joiner)
}

/// Whether a lender records a lease of a joiner.
pub(crate) fn has_lease(lender: &MiniCluster, joiner: &MiniCluster) -> bool {
    let uid = joiner.uid();
    recorded(lender).iter().any(|it| Some(&it.holder.uid) == uid.as_ref())
}

/// Whether the API server has a pod for a rank of a lease that is given back. The pods of such ranks
/// have the indexes after those of the ranks that the holder keeps.
fn has_pods(record: &LeaseRecord, records: &[LeaseRecord], pods: &[ExistingPod]) -> bool {
    let is_kept = |it: &&LeaseRecord| {
        it.holder == record.holder && it.table == record.table && it.is_active()
    };
    let kept: usize = records.iter().filter(is_kept).map(|it| it.ranks.len()).sum();
    pods.iter().any(|pod| is_of(pod, record) && pod.index as usize >= kept)
}

/// Whether no broker of a lease is online. Without a lead there is no instance.
fn is_offline(record: &LeaseRecord, lead: LeadState<'_>, observed: &Observed) -> bool {
    match lead {
        LeadState::Absent => true,
        LeadState::Expected(_) => false,
        LeadState::Reports(_) if !is_port_closed(record, observed.now) => false,
        LeadState::Reports(_) => {
            let report = observed.report.as_ref().filter(|report| !report.is_stale(observed.now));
            match report.and_then(|report| Some((report.received, report.state.online.as_ref()?))) {
                Some((received, online)) => {
                    let is_online = !online.intersection(&record.ranks.to_set()).is_empty();
                    received >= record.since && !is_online
                }
                // A lead that does not report must not keep a rank forever.
                None => observed.now >= seconds_after(record.since, SILENT_SECONDS),
            }
        }
    }
}

/// Whether the gateway has closed the port of a lease that is given back. Before that a broker that is
/// offline may connect again, and would replace that of the next holder.
fn is_port_closed(record: &LeaseRecord, now: Timestamp) -> bool {
    let invitation = record.invitation.as_ref().filter(|it| it.gateway_port > 0);
    invitation.is_none_or(|invitation| {
        let expires = invitation.expires.parse::<Timestamp>().ok();
        let mut since = expires.into_iter().chain([record.since]);
        since.any(|since| now >= seconds_after(since, CLOSING_SECONDS))
    })
}
