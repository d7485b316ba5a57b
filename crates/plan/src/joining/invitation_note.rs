//! The ranks and ports of a lender's invitations, as they are noted on its Job. The files of invitations
//! have them, so that a lender that has lost its status grants the same again.
//!
//! A broker reconnects without asking. If its invitation had other ranks by then, it would come back to a
//! rank that another holder may have.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{InvitationLease, LeaseState};
use flux_operator_flux::RankList;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::grant::{Claim, lendable};
use super::invitation::claims;
use super::lease::{LeaseRecord, ranks};
use crate::cluster::Cluster;
use crate::observed::Observed;

/// The annotation of a lender's Job.
const ANNOTATION: &str = "flux-framework.org/invitations";

/// The largest length of a note: the annotations of an object have at most 256 KiB together. Without a
/// note all is well as long as the status is not lost.
const MAX_LENGTH: usize = 128 * 1024;

/// What an invitation has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InvitationNote {
    name: String,
    expires: String,
    ranks: RankList,
    #[serde(default)]
    service_port: i32,
    #[serde(default)]
    gateway_port: i32,
}

impl InvitationNote {
    fn of(record: &LeaseRecord) -> Option<InvitationNote> {
        let invitation = record.invitation.as_ref().filter(|_| record.is_active())?;
        Some(InvitationNote {
            name: record.holder.name.clone(),
            expires: invitation.expires.clone(),
            ranks: record.ranks.clone(),
            service_port: invitation.service_port,
            gateway_port: invitation.gateway_port,
        })
    }

    /// Whether it is about the invitation that asks.
    fn is_of(&self, claim: &Claim) -> bool {
        let invitation = claim.invitation.as_ref();
        self.name == claim.holder.name && invitation.is_some_and(|it| it.expires == self.expires)
    }
}

/// The notes on a Job.
fn noted(job: Option<&Job>) -> Vec<InvitationNote> {
    let text = job.and_then(|job| job.annotations().get(ANNOTATION));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// A merge patch that notes the leases of invitations on the lender's Job; `None` if it has the note
/// already. It must be applied before the leases are written. What is noted of an invitation without a
/// lease stays as long as it asks for ranks: nothing is granted while the lead does not report.
pub(crate) fn note_change(
    lender: &MiniCluster,
    job: &Job,
    leases: &[LeaseRecord],
    now: Timestamp,
) -> Option<Value> {
    let mut notes: Vec<InvitationNote> = leases.iter().filter_map(InvitationNote::of).collect();
    notes.extend(without_lease(lender, job, leases, now));
    notes.sort_by(|a, b| a.name.cmp(&b.name));
    let text = serde_json::to_string(&notes).expect("text and numbers are JSON");
    let text = Some(text).filter(|text| !notes.is_empty() && text.len() <= MAX_LENGTH);
    let is_same = job.annotations().get(ANNOTATION) == text.as_ref();
    (!is_same).then(|| json!({ "metadata": { "annotations": { ANNOTATION: text } } }))
}

/// Whether an invitation will be granted again what is noted of it. Nothing is granted while the lead
/// does not report, as after a restart of the operator, and until then nothing should be closed.
pub(crate) fn awaits_grant(
    lender: &MiniCluster,
    job: &Job,
    leases: &[LeaseRecord],
    now: Timestamp,
) -> bool {
    !without_lease(lender, job, leases, now).is_empty()
}

/// What is noted of invitations that ask for ranks and have no lease.
fn without_lease(
    lender: &MiniCluster,
    job: &Job,
    leases: &[LeaseRecord],
    now: Timestamp,
) -> Vec<InvitationNote> {
    let claims = claims(lender, now);
    let asks = |note: &InvitationNote| claims.iter().any(|it| it.count > 0 && note.is_of(it));
    let has_lease = |note: &InvitationNote| {
        let of_invitation = leases.iter().filter(|it| it.holder.name == note.name);
        let mut times = of_invitation.filter_map(|it| Some(&it.invitation.as_ref()?.expires));
        times.any(|expires| *expires == note.expires)
    };
    noted(Some(job)).into_iter().filter(|note| asks(note) && !has_lease(note)).collect()
}

/// Whether an invitation that asks for ranks had some, as far as the Job says.
pub(super) fn is_noted(claim: &Claim, job: Option<&Job>) -> bool {
    claim.count > 0 && noted(job).iter().any(|note| note.is_of(claim))
}

/// Adds the leases that are only noted: those of invitations that still are, with ranks that no other
/// holder has. Their brokers may be online. The note may have been written by a user, so it counts only
/// where a lease could be granted.
pub(super) fn grant_again(
    records: &mut Vec<LeaseRecord>,
    claims: &[Claim],
    cluster: &Cluster,
    in_use: u32,
    observed: &Observed,
) {
    let notes = noted(observed.job.as_deref());
    let lendable = lendable(&cluster.ranks, &cluster.broker.topology, in_use).to_set();
    for note in notes {
        let Some(claim) = claims.iter().find(|claim| note.is_of(claim)) else { continue };
        let set = note.ranks.to_set();
        let has_lease = records.iter().any(|record| record.holder.uid == claim.holder.uid);
        let is_free = set.is_subset(&lendable) && set.intersection(&ranks(records)).is_empty();
        if has_lease || !is_free || note.ranks.len() != claim.count || claim.count == 0 {
            continue;
        }
        let InvitationNote { name: _, expires, ranks, service_port, gateway_port } = note;
        records.push(LeaseRecord {
            ranks,
            holder: claim.holder.clone(),
            table: cluster.ranks.hash(),
            since: observed.now,
            state: LeaseState::Active,
            invitation: Some(InvitationLease {
                expires,
                service_port,
                gateway_port,
                ..InvitationLease::default()
            }),
        });
    }
}
