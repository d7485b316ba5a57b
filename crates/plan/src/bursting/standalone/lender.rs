//! The MiniCluster that stands for an instance, and the leases of its ranks.
//!
//! No other leases ranks of it, so that what a Burst has asked for and what it has got can be in the
//! Burst itself, as annotations: both are written at once, and disappear with it.

use flux_operator_api::minicluster::{
    Bursting, Container, Expose, Flux, Invitation, InvitationLease, Lease, LeaseState,
};
use flux_operator_api::{Burst, MiniCluster, MiniClusterSpec, MiniClusterStatus};
use flux_operator_flux::{IdSet, RankList};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ManagedFieldsEntry, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::instance::{SPARE, StandaloneInstance};
use crate::bursting::names::{BURST_FINALIZER, field_manager, object_name};
use crate::joining::invitation_holder;

/// What a Burst asks of the instance, as JSON: an invitation.
const CLAIM: &str = "flux-framework.org/claim";

/// The ranks that are leased to a Burst.
const RANKS: &str = "flux-framework.org/ranks";

/// What was observed of an instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceState {
    /// Ranks whose brokers are online; empty if that is not known.
    pub online: IdSet,
    /// Ranks that were drained on request, and on which no job runs.
    pub drained: IdSet,
    /// It has exited: there is nothing to drain.
    pub has_exited: bool,
}

/// The Burst with what it asks of its instance: `claim` is what would be applied to a MiniCluster.
pub fn with_claim(burst: &Burst, claim: &Value) -> Burst {
    let mut burst = burst.clone();
    let invitation = claim.pointer("/spec/flux/bursting/invitations/0");
    let text = invitation.map(Value::to_string).unwrap_or_default();
    burst.annotations_mut().insert(CLAIM.to_owned(), text);
    burst
}

/// The Burst with ranks of its instance, if it asks for some, has none, and there are enough that are
/// neither leased to `bursts` nor online.
pub fn with_ranks(
    burst: &Burst,
    instance: &StandaloneInstance,
    bursts: &[&Burst],
    online: &IdSet,
) -> Option<Burst> {
    let invitation = claimed(burst)?;
    if has_ranks(burst) {
        return None;
    }
    let property = match invitation.property.as_str() {
        "" => SPARE,
        property => property,
    };
    let taken: Vec<IdSet> = bursts.iter().map(|other| leased(other).to_set()).collect();
    let free = instance.ranks_of(property).difference(&IdSet::union_all(&taken)).difference(online);
    let wanted = usize::try_from(invitation.ranks).unwrap_or_default();
    let ranks: Vec<u32> = free.iter().take(wanted).collect();
    if ranks.len() < wanted || wanted == 0 {
        return None;
    }
    let mut burst = burst.clone();
    let ranks = ranks.into_iter().collect::<RankList>().to_string();
    burst.annotations_mut().insert(RANKS.to_owned(), ranks);
    Some(burst)
}

/// Whether ranks are leased to a Burst.
pub fn has_ranks(burst: &Burst) -> bool {
    !leased(burst).is_empty()
}

/// The ranks that are leased to a Burst, in the order of its pods.
pub fn leased(burst: &Burst) -> RankList {
    burst.annotations().get(RANKS).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The ranks on which no job should start any more: those that Bursts do not keep.
pub fn ranks_to_drain(bursts: &[&Burst]) -> IdSet {
    let leaving = bursts.iter().filter_map(|burst| {
        let kept = claimed(burst)?.keep?;
        Some(leased(burst).split_at(usize::try_from(kept).unwrap_or_default()).1.to_set())
    });
    IdSet::union_all(&leaving.collect::<Vec<_>>())
}

/// The MiniCluster that stands for an instance in decisions about its Bursts.
pub fn standalone_lender(
    instance: &StandaloneInstance,
    bursts: &[&Burst],
    state: &InstanceState,
) -> MiniCluster {
    let claims: Vec<(&Burst, Invitation)> =
        bursts.iter().filter_map(|burst| Some((*burst, claimed(burst)?))).collect();
    // Brokers of a target without real ones need no invitation.
    let claimants = || bursts.iter().filter(|burst| burst.annotations().contains_key(CLAIM));
    let bursting = Bursting {
        // Brokers elsewhere can reach it.
        expose: Some(Expose::default()),
        invitations: claims.iter().map(|(_, invitation)| invitation.clone()).collect(),
        ..Bursting::default()
    };
    let spec = MiniClusterSpec {
        size: i32::try_from(instance.own_ranks()).unwrap_or(i32::MAX),
        containers: vec![Container::default()],
        flux: Some(Flux { bursting: Some(bursting), ..Flux::default() }),
        ..MiniClusterSpec::default()
    };
    let mut cluster = MiniCluster::new(&instance.name, spec);
    cluster.metadata.namespace = Some(instance.name.clone());
    cluster.metadata.uid = Some(instance.uid.clone());
    if claimants().next().is_some() {
        cluster.metadata.finalizers = Some(vec![BURST_FINALIZER.to_owned()]);
    }
    let managers = claimants().map(|burst| ManagedFieldsEntry {
        manager: Some(field_manager(burst)),
        ..ManagedFieldsEntry::default()
    });
    cluster.metadata.managed_fields = Some(managers.collect());
    let leases = claims.iter().filter(|(burst, _)| has_ranks(burst));
    let leases = leases.map(|(burst, invitation)| lease(instance, burst, invitation, state));
    let finished = Condition {
        type_: "JobFinished".into(),
        status: "True".into(),
        reason: "JobFinished".into(),
        message: "the instance has exited".into(),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    };
    cluster.status = Some(MiniClusterStatus {
        leases: leases.collect(),
        online: state.online.to_string(),
        conditions: state.has_exited.then_some(finished).into_iter().collect(),
        ..MiniClusterStatus::default()
    });
    cluster
}

fn lease(
    instance: &StandaloneInstance,
    burst: &Burst,
    invitation: &Invitation,
    state: &InstanceState,
) -> Lease {
    let ranks = leased(burst);
    let drained = ranks.to_set().intersection(&state.drained);
    Lease {
        ranks: ranks.to_string(),
        holder: invitation_holder(invitation),
        namespace: instance.name.clone(),
        name: object_name(burst),
        table: instance.table.hash(),
        since: burst.created().to_string(),
        state: LeaseState::Active,
        invitation: Some(InvitationLease {
            expires: invitation.expires.clone(),
            drained: drained.to_string(),
            ..InvitationLease::default()
        }),
    }
}

/// What a Burst asks for.
fn claimed(burst: &Burst) -> Option<Invitation> {
    serde_json::from_str(burst.annotations().get(CLAIM)?).ok()
}
