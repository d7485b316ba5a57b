//! What joiners ask for, and which leases only their Jobs show.

use flux_operator_api::{MiniCluster, MiniClusterSpec};
use flux_operator_flux::{IdSet, RankList};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::grant::{Claim, RankChoice, lendable};
use super::invitation;
use super::lease::{Holder, LeaseNote, LeaseRecord, recorded};
use super::lender::{JoinerView, may_join};
use super::pods::joiner_pods;
use crate::cluster::Cluster;
use crate::observed::{Observed, completions, is_finished};
use crate::queueing::{granted_nodes, is_waiting};
use crate::status::finished_at;
use crate::valid::Valid;

/// What every joiner and every invitation asks for.
pub(super) fn claims(
    lender: &MiniCluster,
    observed: &Observed,
    records: &[LeaseRecord],
) -> Vec<Claim> {
    let of_joiners = observed.joiners.iter().map(|joiner| Claim {
        holder: Holder::of(&joiner.minicluster),
        count: claimed_ranks(lender, joiner, records),
        choice: choice(&joiner.minicluster.spec),
        created: joiner.minicluster.creation_timestamp().map(|time| time.0),
        invitation: None,
    });
    let others = claims_of_undecodable(observed, records);
    of_joiners.chain(others).chain(invitation::claims(lender, observed.now)).collect()
}

/// A holder that cannot be decoded keeps what it has.
fn claims_of_undecodable<'a>(
    observed: &'a Observed,
    records: &'a [LeaseRecord],
) -> impl Iterator<Item = Claim> + 'a {
    observed.undecodable.iter().filter_map(|uid| {
        let holder = records.iter().find(|record| record.holder.uid == *uid)?.holder.clone();
        Some(Claim {
            count: active_ranks(uid, records),
            holder,
            choice: RankChoice::Any,
            created: None,
            invitation: None,
        })
    })
}

/// How many ranks the holder with this uid may use.
pub(super) fn active_ranks(uid: &str, records: &[LeaseRecord]) -> usize {
    let of_holder = records.iter().filter(|it| it.holder.uid == uid && it.is_active());
    of_holder.map(|record| record.ranks.len()).sum()
}

/// How many ranks a joiner should have. One that could not use more gets no more.
pub(super) fn claimed_ranks(
    lender: &MiniCluster,
    joiner: &JoinerView,
    records: &[LeaseRecord],
) -> usize {
    let minicluster = &joiner.minicluster;
    if !may_join(lender, minicluster) || !wants_ranks(minicluster) {
        return 0;
    }
    let wanted = size_in_queue(minicluster);
    let has = active_ranks(&minicluster.uid().unwrap_or_default(), records);
    match wanted > has && !can_use_ranks(lender, joiner) {
        true => has,
        false => wanted,
    }
}

/// Whether a joiner should have ranks now.
fn wants_ranks(joiner: &MiniCluster) -> bool {
    joiner.metadata.deletion_timestamp.is_none()
        && !joiner.spec.suspend
        && !is_waiting(joiner)
        && finished_at(joiner).is_none()
}

/// Whether a joiner can start brokers: its manifest is accepted, and its Job, if it has one, is for
/// this lender.
fn can_use_ranks(lender: &MiniCluster, joiner: &JoinerView) -> bool {
    let is_for_this = |job: &Job| {
        LeaseNote::of(job).is_some_and(|note| Some(&note.lender) == lender.metadata.uid.as_ref())
    };
    joiner.job.as_deref().is_none_or(is_for_this)
        && Valid::check((*joiner.minicluster).clone()).is_ok()
}

/// The size of a joiner, or of what its queue has admitted of it.
pub(super) fn size_in_queue(joiner: &MiniCluster) -> usize {
    let admitted = granted_nodes(joiner).unwrap_or(i32::MAX);
    usize::try_from(joiner.spec.size.min(admitted)).unwrap_or_default()
}

/// Which ranks a joiner accepts.
pub(super) fn choice(spec: &MiniClusterSpec) -> RankChoice {
    let join = spec.flux.as_ref().and_then(|flux| flux.join.as_ref());
    RankChoice::parse(join.map(|join| join.ranks.as_str()).unwrap_or_default())
}

/// The leases that the Jobs of joiners show, the latest first: a Job that was created late may note
/// ranks that have another holder by then. A Job counts only if the API server has said that it, or a
/// pod of its holder, exists: the watch may show one that is deleted, and whose ranks were given back.
pub(super) fn noted_leases(
    lender: &MiniCluster,
    cluster: &Cluster,
    observed: &Observed,
) -> Vec<(Holder, RankList)> {
    let pods = observed.existing_pods(&joiner_pods(lender)).unwrap_or_default();
    let records = recorded(lender);
    let noted = |joiner: &JoinerView| {
        let (ranks, since) = noted_ranks(lender, cluster, observed, joiner)?;
        let holder = Holder::of(&joiner.minicluster);
        let is_recorded = ranks.to_set().is_subset(&ranks_of(&holder.uid, &records));
        let exists =
            pods.iter().any(|it| it.holder == holder.uid && it.table == cluster.ranks.hash());
        (is_recorded || exists).then_some((holder, ranks, since))
    };
    let mut noted: Vec<_> = observed.joiners.iter().filter_map(noted).collect();
    noted.sort_by_key(|(_, _, since)| std::cmp::Reverse(*since));
    noted.into_iter().map(|(holder, ranks, _)| (holder, ranks)).collect()
}

/// The ranks that a joiner's Job was created for, and since when it has them, if that was for this instance. The Job may have been
/// written by a user, so it counts only where a lease could have been granted.
fn noted_ranks(
    lender: &MiniCluster,
    cluster: &Cluster,
    observed: &Observed,
    joiner: &JoinerView,
) -> Option<(RankList, Option<Timestamp>)> {
    let (minicluster, job) = (&joiner.minicluster, joiner.job.as_deref()?);
    let note = LeaseNote::of(job)?;
    let lenders_job = observed.job.as_deref()?;
    let is_this_instance = Some(&note.lender) == lender.metadata.uid.as_ref()
        && note.table == cluster.ranks.hash()
        && lenders_job.metadata.uid.as_ref() == Some(&note.job);
    // Pods beyond the Job's size are being deleted.
    let ranks = note.ranks.split_at(completions(Some(job))).0;
    let in_use = u32::try_from(completions(Some(lenders_job))).unwrap_or(u32::MAX);
    let lendable = lendable(&cluster.ranks, &cluster.broker.topology, in_use).to_set();
    let counts = is_this_instance
        && may_be_recorded_again(lender, minicluster, job)
        && ranks.to_set().is_subset(&lendable);
    counts.then(|| (ranks, note.since.parse().ok()))
}

/// Whether a joiner's Job notes ranks of this lender that no lease of it shows.
pub(super) fn has_unrecorded_note(
    lender: &MiniCluster,
    joiner: &JoinerView,
    records: &[LeaseRecord],
) -> bool {
    let note = joiner.job.as_deref().and_then(LeaseNote::of);
    note.filter(|note| Some(&note.lender) == lender.metadata.uid.as_ref()).is_some_and(|note| {
        let uid = joiner.minicluster.uid().unwrap_or_default();
        !note.ranks.to_set().is_subset(&ranks_of(&uid, records))
    })
}

/// The ranks that the holder with this uid has, or gives back.
fn ranks_of(uid: &str, records: &[LeaseRecord]) -> IdSet {
    let of_holder = records.iter().filter(|it| it.holder.uid == uid);
    IdSet::union_all(&of_holder.map(|it| it.ranks.to_set()).collect::<Vec<_>>())
}

/// Whether a lease that only a joiner's Job shows is recorded again, if its ranks are free.
pub(super) fn may_be_recorded_again(lender: &MiniCluster, joiner: &MiniCluster, job: &Job) -> bool {
    let is_own = job.owner_references().iter().any(|it| Some(&it.uid) == joiner.uid().as_ref());
    let has_finished = finished_at(joiner).is_some()
        || is_finished(job)
        || job.metadata.deletion_timestamp.is_some();
    is_own && !has_finished && may_join(lender, joiner)
}
