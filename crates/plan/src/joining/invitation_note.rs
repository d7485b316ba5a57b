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
use super::lease::LeaseRecord;
use super::lender::LeaseDecision;
use crate::cluster::Cluster;
use crate::observed::Observed;
use crate::step::{Step, TargetKind};

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
/// already. It must be applied before the leases are written.
pub(crate) fn note_change(
    lender: &MiniCluster,
    job: &Job,
    decision: &LeaseDecision,
    now: Timestamp,
) -> Option<Value> {
    let leases = decision.leases.iter();
    let mut notes: Vec<InvitationNote> = leases.filter_map(InvitationNote::of).collect();
    notes.extend(awaited(lender, job, decision, now));
    notes.sort_by(|a, b| a.name.cmp(&b.name));
    let text = serde_json::to_string(&notes).expect("text and numbers are JSON");
    let text = Some(text).filter(|text| !notes.is_empty() && text.len() <= MAX_LENGTH);
    let is_same = job.annotations().get(ANNOTATION) == text.as_ref();
    (!is_same).then(|| json!({ "metadata": { "annotations": { ANNOTATION: text } } }))
}

/// Whether a step writes the note.
pub(crate) fn is_note_step(step: &Step) -> bool {
    let Step::Patch { target, patch } = step else { return false };
    let annotations = patch.pointer("/metadata/annotations").and_then(Value::as_object);
    target.kind == TargetKind::Job && annotations.is_some_and(|it| it.contains_key(ANNOTATION))
}

/// Whether an invitation may be granted again what is noted of it. Nothing is granted while the lead
/// does not report, as after a restart of the operator, and until then nothing should be closed.
pub(crate) fn awaits_grant(
    lender: &MiniCluster,
    job: &Job,
    decision: &LeaseDecision,
    now: Timestamp,
) -> bool {
    !awaited(lender, job, decision, now).is_empty()
}

/// What is noted of invitations that ask for ranks and have no lease, because nothing could be granted.
/// What was not granted although it could have been is not waited for: an own pod or another holder has
/// the ranks, or the invitation asks for another number.
fn awaited(
    lender: &MiniCluster,
    job: &Job,
    decision: &LeaseDecision,
    now: Timestamp,
) -> Vec<InvitationNote> {
    let LeaseDecision { leases, could_grant, requeue_at: _ } = decision;
    if *could_grant {
        return Vec::new();
    }
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

/// The leases that are only noted: those of invitations that still ask, with ranks that no other holder
/// has. Their brokers may be online. The note may have been written by a user, so it counts only where a
/// lease could be granted if the lender's own Job has the first `own` ranks.
pub(super) fn only_noted(
    records: &[LeaseRecord],
    claims: &[Claim],
    cluster: &Cluster,
    own: u32,
    observed: &Observed,
) -> Vec<LeaseRecord> {
    let notes = noted(observed.job.as_deref());
    if notes.is_empty() {
        return Vec::new();
    }
    let lendable = lendable(&cluster.ranks, &cluster.broker.topology, own).to_set();
    let mut found: Vec<LeaseRecord> = Vec::new();
    for note in notes {
        let Some(claim) = claims.iter().find(|claim| note.is_of(claim)) else { continue };
        let set = note.ranks.to_set();
        let mut others = records.iter().chain(&found);
        let has_lease = others.clone().any(|record| record.holder.uid == claim.holder.uid);
        let is_free = set.is_subset(&lendable)
            && others.all(|record| record.ranks.to_set().intersection(&set).is_empty());
        if has_lease || !is_free || note.ranks.len() != claim.count || claim.count == 0 {
            continue;
        }
        let InvitationNote { name: _, expires, ranks, service_port, gateway_port } = note;
        found.push(LeaseRecord {
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
    found
}
