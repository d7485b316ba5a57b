//! Which pods of a lender and of its joiners the API server has. The watches may lag behind, and a
//! rank is free only if no pod can have a broker there.

use flux_operator_api::MiniCluster;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::claims::{active_ranks, choice, claimed_ranks, has_unrecorded_note};
use super::grant::FreeRanks;
use super::invitation;
use super::invitation_note::is_noted;
use super::lease::{LeaseRecord, recorded};
use super::lender::{JoinerView, allows, lendable_now};
use super::permission::booted_cluster;
use crate::cluster::Cluster;
use crate::observed::{Observed, completion_index, completions, has_finished};
use crate::query::{ExistingPod, Subject};
use crate::stamp::BootedSizes;

/// What must be asked before leases are granted or removed, and before a lender grows.
pub(crate) fn lender_queries(lender: &MiniCluster, observed: &Observed) -> Vec<Subject> {
    let records = recorded(lender);
    let may_remove = records.iter().any(|record| !record.is_active());
    let may_grant = could_grant(lender, observed, &records);
    let may_record = observed.joiners.iter().any(|it| has_unrecorded_note(lender, it, &records));
    let job = observed.job.as_deref();
    let size = usize::try_from(lender.spec.size).unwrap_or_default();
    let may_grow = job.is_some_and(|job| size > completions(Some(job)));
    let own = own_pods(lender, observed).filter(|_| may_grant);
    let of_joiners =
        (may_grant || may_remove || may_grow || may_record).then(|| joiner_pods(lender));
    own.into_iter().chain(of_joiners).collect()
}

/// Whether a joiner or an invitation waits for ranks, and enough seem to be free.
fn could_grant(lender: &MiniCluster, observed: &Observed, records: &[LeaseRecord]) -> bool {
    let missing = |joiner: &JoinerView| {
        let uid = joiner.minicluster.uid().unwrap_or_default();
        let claimed = claimed_ranks(lender, joiner, records);
        claimed.checked_sub(active_ranks(&uid, records)).filter(|missing| *missing > 0)
    };
    let of_joiners = observed.joiners.iter();
    let of_joiners = of_joiners.filter_map(|it| Some((choice(&it.minicluster.spec), missing(it)?)));
    let job = observed.job.as_deref();
    let of_invitations = invitation::claims(lender, observed.now).into_iter().filter_map(|it| {
        let missing = it.count.checked_sub(active_ranks(&it.holder.uid, records));
        let missing = missing.filter(|missing| *missing > 0)?;
        Some((it, missing))
    });
    let of_invitations: Vec<_> = of_invitations.collect();
    if of_invitations.iter().any(|(claim, _)| is_noted(claim, job)) {
        return true;
    }
    let of_invitations = of_invitations.into_iter().map(|(claim, missing)| (claim.choice, missing));
    let mut waiting = of_joiners.chain(of_invitations).peekable();
    if waiting.peek().is_none() {
        return false;
    }
    let Some(cluster) = booted_cluster(lender, job) else { return false };
    let in_use = ranks_in_use(lender, job);
    let lendable = lendable_now(&cluster, in_use, observed.report.as_ref(), records);
    let free = FreeRanks::new(&cluster.ranks, lendable, records);
    waiting.any(|(choice, missing)| free.available(&choice) >= missing)
}

pub(super) fn joiner_pods(lender: &MiniCluster) -> Subject {
    Subject::JoinerPods { lender: lender.uid().unwrap_or_default() }
}

/// Whether a pod may have a broker on a rank of a lease.
pub(super) fn is_of(pod: &ExistingPod, record: &LeaseRecord) -> bool {
    let LeaseRecord { holder, table, .. } = record;
    pod.holder == holder.uid && pod.namespace == holder.namespace && pod.table == *table
}

/// Whether a pod may have a broker whose rank no lease shows: the status was lost while the pod was
/// being deleted. Nothing is granted while there is one. In a namespace that may not join, it is
/// taken for a forged one.
pub(super) fn is_stray(pod: &ExistingPod, lender: &MiniCluster, records: &[LeaseRecord]) -> bool {
    let of_holder = records.iter().filter(|record| is_of(pod, record));
    let ranks: usize = of_holder.map(|record| record.ranks.len()).sum();
    allows(lender, &pod.namespace) && pod.index as usize >= ranks
}

/// The question about the lender's own pods, if ranks of its own are not in use.
fn own_pods(lender: &MiniCluster, observed: &Observed) -> Option<Subject> {
    let job = observed.job.as_deref()?;
    let size = i32::try_from(completions(Some(job))).unwrap_or(i32::MAX).min(lender.spec.size);
    let has_unused = BootedSizes::of(job).is_some_and(|booted| booted.own > size);
    has_unused.then(|| Subject::OwnPods { job: job.uid().unwrap_or_default() })
}

/// The number of the lender's own ranks, from 0 on, that it uses or wants.
pub(super) fn ranks_in_use(lender: &MiniCluster, job: Option<&Job>) -> u32 {
    let job = u32::try_from(completions(job)).unwrap_or(u32::MAX);
    u32::try_from(lender.spec.size).unwrap_or_default().max(job)
}

/// The number of the lender's own ranks, from 0 on, that its Job has or still has pods for. Its own
/// brokers need no permission, so the API server is asked for its pods too; `None` without an answer.
pub(super) fn ranks_with_pods(
    lender: &MiniCluster,
    cluster: &Cluster,
    observed: &Observed,
) -> Option<u32> {
    let Some(subject) = own_pods(lender, observed) else { return Some(cluster.ranks.max_size()) };
    let pods = observed.existing_pods(&subject)?;
    let known = observed.job_pods().filter(|pod| !has_finished(pod)).filter_map(completion_index);
    let pods = pods.iter().map(|pod| pod.index).chain(known);
    let pods = pods.map(|index| index.saturating_add(1)).max().unwrap_or_default();
    let job = u32::try_from(completions(observed.job.as_deref())).unwrap_or(u32::MAX);
    Some(job.max(pods))
}
