//! Leases as values, and as they are noted on a lender's status and a joiner's Job.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{InvitationLease, Lease, LeaseState};
use flux_operator_flux::{IdSet, RankList};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

/// The annotation of a joiner's Job with its [`LeaseNote`].
const LEASE_ANNOTATION: &str = "flux-framework.org/lease";

/// A lease of ranks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeaseRecord {
    /// The ranks, in the order of the holder's pods.
    pub(crate) ranks: RankList,
    /// The MiniCluster or invitation that holds them.
    pub(crate) holder: Holder,
    /// Hash of the rank table that the ranks belong to.
    pub(crate) table: String,
    /// When its state or its ranks last changed.
    pub(crate) since: Timestamp,
    /// What the holder may do.
    pub(crate) state: LeaseState,
    /// Set if an invitation holds them.
    pub(crate) invitation: Option<InvitationLease>,
}

/// The holder of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Holder {
    /// A MiniCluster as holder.
    pub(crate) fn of(minicluster: &MiniCluster) -> Holder {
        Holder {
            uid: minicluster.uid().unwrap_or_default(),
            namespace: minicluster.namespace().unwrap_or_default(),
            name: minicluster.name_any(),
        }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Holder { uid, namespace, name } = self;
        match uid.starts_with("invitation:") {
            true => write!(f, "invitation {name:?}"),
            false => write!(f, "MiniCluster {namespace}/{name}"),
        }
    }
}

impl LeaseRecord {
    fn parse(lease: &Lease) -> Option<LeaseRecord> {
        let Lease { ranks, holder, namespace, name, table, since, state, invitation } = lease;
        Some(LeaseRecord {
            ranks: ranks.parse().ok()?,
            holder: Holder {
                uid: holder.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
            },
            table: table.clone(),
            since: since.parse().ok()?,
            state: *state,
            invitation: invitation.clone(),
        })
    }

    /// As it is written to the status.
    pub(crate) fn to_status(&self) -> Lease {
        let LeaseRecord { ranks, holder, table, since, state, invitation } = self;
        Lease {
            ranks: ranks.to_string(),
            holder: holder.uid.clone(),
            namespace: holder.namespace.clone(),
            name: holder.name.clone(),
            table: table.clone(),
            since: since.to_string(),
            state: *state,
            invitation: invitation.clone(),
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state == LeaseState::Active
    }

    /// The ranks that an invitation has and does not keep, and since when; `None` if it keeps all.
    pub(crate) fn released(&self) -> Option<(IdSet, Timestamp)> {
        let invitation = self.invitation.as_ref().filter(|_| self.is_active())?;
        let kept = usize::try_from(invitation.kept?).ok()?;
        Some((self.ranks.split_at(kept).1.to_set(), invitation.kept_since.parse().ok()?))
    }
}

/// The leases in a lender's status. One that cannot be parsed, or that has a rank of one before it in
/// the list, is left out; if its ranks are free, it is recorded again from the holder's Job. One of a
/// former table counts until its pods are deleted.
pub(crate) fn recorded(lender: &MiniCluster) -> Vec<LeaseRecord> {
    let leases = lender.status.iter().flat_map(|status| &status.leases);
    let (mut records, mut known): (Vec<LeaseRecord>, IdSet) = Default::default();
    for record in leases.filter_map(LeaseRecord::parse) {
        let ranks = record.ranks.to_set();
        if ranks.intersection(&known).is_empty() {
            known = known.union(&ranks);
            records.push(record);
        }
    }
    records
}

/// All ranks of some leases.
pub(crate) fn ranks(records: &[LeaseRecord]) -> IdSet {
    IdSet::union_all(&records.iter().map(|record| record.ranks.to_set()).collect::<Vec<_>>())
}

/// What a holder has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Ranks whose brokers it may start, in the order of its pods.
    pub(crate) active: RankList,
    /// Since when it may.
    pub(crate) active_since: Option<Timestamp>,
    /// Ranks that it gives back, in the order of its pods after the active ones.
    pub(crate) leaving: RankList,
    /// Since when it gives them back.
    pub(crate) leaving_since: Option<Timestamp>,
}

/// What the holder with this uid has of a lender's rank table with this hash.
pub(crate) fn held_by(uid: &str, table: &str, lender: &MiniCluster) -> Held {
    let mut held = Held::default();
    let records = recorded(lender);
    for record in records.iter().filter(|it| it.holder.uid == uid && it.table == table) {
        match record.state {
            LeaseState::Active => {
                held.active = held.active.followed_by(&record.ranks);
                held.active_since = held.active_since.max(Some(record.since));
            }
            LeaseState::Leaving => {
                held.leaving = held.leaving.followed_by(&record.ranks);
                held.leaving_since = held.leaving_since.max(Some(record.since));
            }
        }
    }
    held
}

/// What a joiner's Job was created for: a lender that has lost its status finds its leases again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaseNote {
    /// Uid of the lender.
    pub(crate) lender: String,
    /// Uid of the lender's Job: another Job is another instance.
    pub(crate) job: String,
    /// The ranks, in the order of the pods.
    pub(crate) ranks: RankList,
    /// Hash of the rank table.
    pub(crate) table: String,
    /// Since when the holder has them: if two Jobs note one rank, the later counts.
    #[serde(default)]
    pub(crate) since: String,
}

impl LeaseNote {
    /// The note on a Job.
    pub(crate) fn of(job: &Job) -> Option<LeaseNote> {
        serde_json::from_str(job.annotations().get(LEASE_ANNOTATION)?).ok()
    }

    /// Whether two notes are about the same instance.
    pub(crate) fn is_same_instance(&self, other: &LeaseNote) -> bool {
        let LeaseNote { lender, job, ranks: _, table, since: _ } = other;
        (&self.lender, &self.job, &self.table) == (lender, job, table)
    }

    /// Whether this note has all ranks of another one.
    pub(crate) fn covers(&self, other: &LeaseNote) -> bool {
        self.is_same_instance(other) && other.ranks.to_set().is_subset(&self.ranks.to_set())
    }

    /// The name and the value of the annotation.
    pub(crate) fn to_annotation(&self) -> (String, String) {
        let text = serde_json::to_string(self).expect("text is JSON");
        (LEASE_ANNOTATION.to_owned(), text)
    }
}
