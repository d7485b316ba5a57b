//! Which ranks of a lender are granted to which joiner. Plain values in, plain values out.

use flux_operator_api::minicluster::{InvitationLease, LeaseState};
use flux_operator_flux::{IdSet, RankList, Topology};
use k8s_openapi::jiff::Timestamp;

use super::lease::{Holder, LeaseRecord, ranks};
use crate::rank_table::{RankTable, SlotOwner, SlotRange};

/// The largest number of leases of one lender. Each takes some 300 bytes of its status, and etcd
/// stores objects of up to 1.5 MB.
const MAX_LEASES: usize = 1024;

/// What a joiner or an invitation asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim {
    /// The joiner or invitation.
    pub(crate) holder: Holder,
    /// How many ranks it wants; 0 if it leaves or must wait.
    pub(crate) count: usize,
    /// Which ranks it accepts.
    pub(crate) choice: RankChoice,
    /// When it was created: the oldest is served first, and invitations, which have no such time,
    /// before all.
    pub(crate) created: Option<Timestamp>,
    /// Set for an invitation: how its lease begins.
    pub(crate) invitation: Option<InvitationLease>,
}

/// Which ranks a joiner accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RankChoice {
    /// Any; those of the pool with its name first.
    Any,
    /// These.
    These(IdSet),
    /// Those of hosts with this property.
    Property(String),
}

impl RankChoice {
    /// Parses `flux.join.ranks`.
    pub(crate) fn parse(text: &str) -> RankChoice {
        match text.parse::<IdSet>() {
            _ if text.is_empty() => RankChoice::Any,
            Ok(ranks) => RankChoice::These(ranks),
            Err(_) => RankChoice::Property(text.to_owned()),
        }
    }
}

/// The ranks that can be lent at all, in the order in which they are: those that are only for
/// others first, and the cluster's own last and from the highest on, so that it can still grow.
/// Its own are lent only from `in_use` on, and only where no other broker connects to them.
pub(crate) fn lendable(table: &RankTable, topology: &str, in_use: u32) -> RankList {
    let size = u32::try_from(table.hosts.len()).unwrap_or(u32::MAX);
    // Where the tree is not known, a broker may have another parent than the lead.
    let Ok(topology) = topology.parse::<Topology>() else { return RankList::default() };
    let of = |owner: fn(&SlotOwner) -> bool| {
        let slots = table.slots.iter().filter(move |slots| owner(&slots.owner));
        slots.flat_map(|slots| slots.ranks().iter().collect::<Vec<_>>())
    };
    let spare = of(|owner| *owner == SlotOwner::Spare);
    let pools = of(|owner| matches!(owner, SlotOwner::Pool(_)));
    let own = of(|owner| *owner == SlotOwner::Job).filter(|rank| *rank >= in_use);
    let mut own: Vec<u32> = own.collect();
    if topology != Topology::Kary(0) {
        let parents: IdSet = (1..size).filter_map(|rank| topology.parent(rank, size)).collect();
        own.retain(|rank| !parents.contains(*rank));
    }
    let all = spare.chain(pools).chain(own.into_iter().rev());
    all.filter(|rank| topology.parent(*rank, size) == Some(0)).collect()
}

/// The ranks that can be lent and are not leased.
pub(crate) struct FreeRanks<'a> {
    table: &'a RankTable,
    /// All that can be lent, in the order in which they are.
    lendable: RankList,
    free: IdSet,
}

impl FreeRanks<'_> {
    /// Those of `lendable` that none of `records` has.
    pub(crate) fn new<'a>(
        table: &'a RankTable,
        lendable: RankList,
        records: &[LeaseRecord],
    ) -> FreeRanks<'a> {
        let free = lendable.to_set().difference(&ranks(records));
        FreeRanks { table, lendable, free }
    }

    /// How many ranks a joiner could get.
    pub(crate) fn available(&self, choice: &RankChoice) -> usize {
        usize::try_from(self.acceptable(choice).len()).unwrap_or(usize::MAX)
    }

    /// Takes `count` ranks for a joiner, if there are as many that it accepts.
    pub(super) fn take(
        &mut self,
        holder: &Holder,
        choice: &RankChoice,
        count: usize,
    ) -> Option<RankList> {
        let acceptable = self.acceptable(choice);
        // There may be many joiners that ask in vain for ranks of a large table.
        if self.available(choice) < count {
            return None;
        }
        let in_order = || self.lendable.iter().filter(|rank| acceptable.contains(*rank));
        let taken: RankList = match choice {
            RankChoice::These(_) => acceptable.iter().take(count).collect(),
            RankChoice::Property(_) => in_order().take(count).collect(),
            RankChoice::Any => {
                let own = self.ranks_of(|owner| *owner == SlotOwner::Pool(holder.name.clone()));
                let pool = in_order().filter(|rank| own.contains(*rank));
                let others = in_order().filter(|rank| !own.contains(*rank));
                pool.chain(others).take(count).collect()
            }
        };
        self.free = self.free.difference(&taken.to_set());
        Some(taken)
    }

    fn acceptable(&self, choice: &RankChoice) -> IdSet {
        match choice {
            RankChoice::Any => self.free.clone(),
            RankChoice::These(ranks) => self.free.intersection(ranks),
            RankChoice::Property(name) => {
                self.free.intersection(&self.ranks_of(|owner| owner.property() == name))
            }
        }
    }

    fn ranks_of(&self, is_wanted: impl Fn(&SlotOwner) -> bool) -> IdSet {
        let slots = self.table.slots.iter().filter(|slots| is_wanted(&slots.owner));
        IdSet::union_all(&slots.map(SlotRange::ranks).collect::<Vec<_>>())
    }
}

/// The leases of a lender whose ranks can be lent at all as in `lendable`, after `claims` were
/// considered; `is_free` says whether nothing of a lease that is given back is left. Nothing is
/// granted: see [`grant`].
pub(crate) fn kept_leases(
    mut records: Vec<LeaseRecord>,
    claims: &[Claim],
    table: &RankTable,
    lendable: &IdSet,
    is_free: impl Fn(&LeaseRecord) -> bool,
    now: Timestamp,
) -> Vec<LeaseRecord> {
    let hash = table.hash();
    records.retain(|record| record.is_active() || !is_free(record));
    // The others have a table or a tree that the lender no longer has, or a holder that is deleted.
    let is_known = |record: &LeaseRecord| {
        record.table == hash
            && record.ranks.to_set().is_subset(lendable)
            && claims.iter().any(|it| it.holder.uid == record.holder.uid)
    };
    let (known, lost): (Vec<_>, Vec<_>) = records.into_iter().partition(is_known);
    let mut kept: Vec<LeaseRecord> = lost.into_iter().map(|it| leave(it, now)).collect();
    for claim in claims {
        let of_holder = known.iter().filter(|it| it.holder.uid == claim.holder.uid);
        kept.extend(resized(of_holder.cloned().collect(), claim.count, now));
    }
    kept
}

/// Adds leases for joiners that have fewer ranks than they want: the oldest first, all that one wants
/// or none.
pub(crate) fn grant(
    records: &mut Vec<LeaseRecord>,
    claims: &[Claim],
    mut free: FreeRanks<'_>,
    now: Timestamp,
) {
    let mut waiting: Vec<&Claim> = claims.iter().collect();
    waiting.sort_by_key(|claim| (claim.created, &claim.holder.uid));
    for claim in waiting {
        let of_holder = |it: &LeaseRecord| it.holder.uid == claim.holder.uid && it.is_active();
        let has = records.iter().find(|it| of_holder(it)).map_or(0, |it| it.ranks.len());
        let missing = claim.count.saturating_sub(has);
        if missing == 0 || records.len() >= MAX_LEASES {
            continue;
        }
        let Some(granted) = free.take(&claim.holder, &claim.choice, missing) else { continue };
        match records.iter_mut().find(|it| of_holder(it)) {
            Some(record) => {
                record.ranks = record.ranks.followed_by(&granted);
                record.since = now;
            }
            None => records.push(LeaseRecord {
                ranks: granted,
                holder: claim.holder.clone(),
                table: free.table.hash(),
                since: now,
                state: LeaseState::Active,
                invitation: claim.invitation.clone(),
            }),
        }
    }
}

/// The leases, with those that only the Jobs of their holders show: the status was lost.
pub(super) fn with_noted(
    mut records: Vec<LeaseRecord>,
    noted: Vec<(Holder, RankList)>,
    hash: &str,
    now: Timestamp,
) -> Vec<LeaseRecord> {
    for (holder, noted) in noted {
        let of_holder: Vec<LeaseRecord> =
            records.iter().filter(|it| it.holder.uid == holder.uid).cloned().collect();
        let known = ranks(&of_holder);
        let missing: RankList = noted.iter().filter(|rank| !known.contains(*rank)).collect();
        if missing.is_empty() || !missing.to_set().intersection(&ranks(&records)).is_empty() {
            continue;
        }
        let active = records.iter().position(|it| it.holder.uid == holder.uid && it.is_active());
        match active.and_then(|index| records.get_mut(index)) {
            Some(record) => {
                record.ranks = record.ranks.followed_by(&missing);
                record.since = now;
            }
            None => records.push(LeaseRecord {
                ranks: missing,
                holder,
                table: hash.to_owned(),
                since: now,
                state: LeaseState::Active,
                invitation: None,
            }),
        }
    }
    records
}

/// The leases of one holder that wants `count` ranks: the last ones are given back, and those that
/// it was giving back are its own again if it has changed its mind.
fn resized(records: Vec<LeaseRecord>, count: usize, now: Timestamp) -> Vec<LeaseRecord> {
    let Some(first) = records.first().cloned() else { return Vec::new() };
    let of = |state: LeaseState| {
        let of_state = records.iter().filter(|record| record.state == state);
        of_state.fold(RankList::default(), |all, record| all.followed_by(&record.ranks))
    };
    let since = |state: LeaseState| {
        records.iter().filter(|record| record.state == state).map(|record| record.since).max()
    };
    let (active, leaving) = (of(LeaseState::Active), of(LeaseState::Leaving));
    let (now_active, now_leaving) = active.followed_by(&leaving).split_at(count);
    let record = |ranks: RankList, before: &RankList, state: LeaseState| {
        let unchanged = since(state).filter(|_| ranks == *before);
        let since = unchanged.unwrap_or(now);
        (!ranks.is_empty()).then(|| LeaseRecord { ranks, since, state, ..first.clone() })
    };
    let active = record(now_active, &active, LeaseState::Active);
    let leaving = record(now_leaving, &leaving, LeaseState::Leaving);
    active.into_iter().chain(leaving).collect()
}

fn leave(record: LeaseRecord, now: Timestamp) -> LeaseRecord {
    match record.state {
        LeaseState::Active => LeaseRecord { state: LeaseState::Leaving, since: now, ..record },
        LeaseState::Leaving => record,
    }
}
