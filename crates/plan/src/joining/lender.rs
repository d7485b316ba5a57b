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
use super::grant::{lendable, next_leases, with_noted};
use super::lease::{LeaseRecord, ranks, recorded};
use super::pods::{is_of, is_stray, joiner_pods, lender_queries, ranks_with_pods};
use crate::cluster::Cluster;
use crate::last_report::LastReport;
use crate::observed::{Observed, completions};
use crate::query::ExistingPod;
use crate::resize::LeadState;
use crate::stamp::can_lend;
use crate::time::seconds_after;

/// How soon to ask again whether the pods of a holder are deleted, in seconds: no watch shows it
/// if the holder itself is deleted.
const RELEASE_INTERVAL: i64 = 2;

/// How long after it was given back a rank counts as offline although the lead does not report, in
/// seconds: longer than a report is fresh, and than Flux takes to notice a lost broker's connection.
const SILENT_SECONDS: i64 = 60;

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
    /// When to decide again if nothing changes.
    pub(crate) requeue_at: Option<Timestamp>,
}

impl LeaseDecision {
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
    let hash = cluster.ranks.hash();
    let claims = claims(lender, observed, &recorded(lender));
    let records = known_leases(lender, cluster, observed);
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
    let in_use = ranks_with_pods(lender, cluster, observed);
    let lendable = lendable_now(cluster, in_use, report, &records);
    let is_free = |record: &LeaseRecord| {
        // The pods of ranks that are given back have the indexes after those that stay.
        let is_kept = |it: &&LeaseRecord| {
            it.holder == record.holder && it.table == record.table && it.is_active()
        };
        let of_holder = records.iter().filter(is_kept);
        let kept: usize = of_holder.map(|record| record.ranks.len()).sum();
        let is_left = |pod: &ExistingPod| is_of(pod, record) && pod.index as usize >= kept;
        // The instance of another table does not exist any more.
        (record.table != hash || is_offline(record, lead, observed))
            && pods.is_some_and(|pods| !pods.iter().any(is_left))
    };
    let leases = next_leases(
        records.clone(),
        &claims,
        &cluster.ranks,
        &lendable,
        may_grant,
        is_free,
        observed.now,
    );
    // No watch shows that the last pod of a joiner that is deleted itself does not exist any more.
    let is_unanswered =
        || pods.is_none() && lender_queries(lender, observed).contains(&joiner_pods(lender));
    let is_leaving = leases.iter().any(|record| !record.is_active());
    let waits_for_pods = has_strays || is_leaving || is_unanswered();
    let requeue_at = waits_for_pods.then(|| seconds_after(observed.now, RELEASE_INTERVAL));
    LeaseDecision { leases, requeue_at }
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

/// The leases of a lender that has finished: its joiners leave, and nothing is granted any more.
pub(crate) fn end_leases(
    lender: &MiniCluster,
    cluster: &Cluster,
    observed: &Observed,
) -> LeaseDecision {
    let observed = Observed { joiners: Vec::new(), ..observed.clone() };
    decide_leases(lender, cluster, &observed, LeadState::Absent, false)
}

/// The leases in a lender's status, and those that only the Jobs of joiners show.
fn known_leases(lender: &MiniCluster, cluster: &Cluster, observed: &Observed) -> Vec<LeaseRecord> {
    let noted = noted_leases(lender, cluster, observed);
    with_noted(recorded(lender), noted, &cluster.ranks.hash(), observed.now)
}

/// The largest size that a lender's Job can have up to `wanted`: the hosts after it are leased. The
/// holder of the first of them, if that is less than `wanted`. It does not grow while there may be
/// pods of joiners whose ranks are not known.
pub(crate) fn highest_free_size(
    lender: &MiniCluster,
    cluster: &Cluster,
    observed: &Observed,
    wanted: i32,
) -> (i32, Option<String>) {
    let hash = cluster.ranks.hash();
    let records = known_leases(lender, cluster, observed);
    let wanted_ranks = IdSet::first_n(u32::try_from(wanted).unwrap_or_default());
    let of_this_table = records.iter().filter(|record| record.table == hash);
    let leased = of_this_table.filter_map(|record| {
        let first = record.ranks.to_set().intersection(&wanted_ranks).first()?;
        Some((i32::try_from(first).unwrap_or(i32::MAX), &record.holder))
    });
    let leased = leased.min_by_key(|(first, _)| *first);
    let (free, holder) = match leased {
        Some((first, holder)) => (first, Some(format!("{}/{}", holder.namespace, holder.name))),
        None => (wanted, None),
    };
    let current = i32::try_from(completions(observed.job.as_deref())).unwrap_or(i32::MAX);
    let pods = observed.existing_pods(&joiner_pods(lender));
    let may_grow = match pods {
        Some(pods) => !pods.iter().any(|it| is_stray(it, lender, &records)),
        // The API server did not answer. Most clusters never lend ranks.
        None => records.is_empty() && observed.joiners.is_empty(),
    };
    (if may_grow { free } else { free.min(current) }, holder)
}

/// Whether a MiniCluster may join a lender: it is in the same namespace, or in one that the lender
/// allows.
pub fn may_join(lender: &MiniCluster, joiner: &MiniCluster) -> bool {
    !lender.spec.is_joiner() && allows(lender, &joiner.namespace().unwrap_or_default())
}

/// Whether MiniClusters of a namespace may join a lender.
pub(super) fn allows(lender: &MiniCluster, namespace: &str) -> bool {
    let bursting = lender.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let allowed = bursting.map(|it| it.allowed_namespaces.as_slice()).unwrap_or_default();
    lender.namespace().unwrap_or_default() == namespace
        || allowed.iter().any(|name| name == "*" || name == namespace)
}

/// Whether a lender must consider a joiner: it may join, or still has a lease.
pub fn concerns(lender: &MiniCluster, joiner: &MiniCluster) -> bool {
    may_join(lender, joiner) || has_lease(lender, joiner)
}

/// Whether a lender records a lease of a joiner.
pub(super) fn has_lease(lender: &MiniCluster, joiner: &MiniCluster) -> bool {
    let uid = joiner.uid();
    recorded(lender).iter().any(|it| Some(&it.holder.uid) == uid.as_ref())
}

/// Whether no broker of a lease is online. Without a lead there is no instance.
fn is_offline(record: &LeaseRecord, lead: LeadState<'_>, observed: &Observed) -> bool {
    match lead {
        LeadState::Absent => true,
        LeadState::Expected(_) => false,
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
