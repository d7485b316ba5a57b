//! What the spec and the status of a MiniCluster say about its invitations.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{
    Bursting, External, Invitation, Lease, LeaseState, host_and_port,
};
use flux_operator_plan::{invitation_holder, is_expired};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

/// An invitation, as `invite list` shows it. It contains no key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InvitationView {
    /// The MiniCluster that lends the ranks.
    pub(super) cluster: String,
    /// Name of the invitation.
    pub(super) invitation: String,
    /// How many ranks it is for.
    pub(super) ranks: i32,
    /// The ranks that are leased to it, such as 4-5.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) leased: String,
    /// Its state.
    pub(super) state: InvitationState,
    /// Namespace and name of the MiniCluster that uses it, in its own cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) used_by: String,
    /// Where its brokers reach the instance, each as `host:port`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) addresses: Vec<String>,
    /// When it ends.
    pub(super) expires: String,
}

/// The state of an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum InvitationState {
    /// No ranks are leased to it.
    Pending,
    /// Its ranks can be used.
    Active,
    /// It was revoked or has expired, and its ranks are being taken back.
    Leaving,
    /// It has expired.
    Expired,
}

impl InvitationState {
    /// As in JSON.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            InvitationState::Pending => "Pending",
            InvitationState::Active => "Active",
            InvitationState::Leaving => "Leaving",
            InvitationState::Expired => "Expired",
        }
    }
}

/// The invitations in the spec of a MiniCluster.
pub(super) fn invitations(minicluster: &MiniCluster) -> &[Invitation] {
    bursting(minicluster).map(|it| it.invitations.as_slice()).unwrap_or_default()
}

/// `spec.flux.bursting`.
pub(super) fn bursting(minicluster: &MiniCluster) -> Option<&Bursting> {
    minicluster.spec.flux.as_ref()?.bursting.as_ref()
}

/// Whether a MiniCluster is exposed to other Kubernetes clusters.
pub(super) fn is_exposed(minicluster: &MiniCluster) -> bool {
    bursting(minicluster).is_some_and(|it| it.expose.is_some())
}

/// Whether the lead is exposed without the gateway.
pub(super) fn is_direct(minicluster: &MiniCluster) -> bool {
    bursting(minicluster).and_then(|it| it.expose.as_ref()).is_some_and(|expose| expose.direct)
}

/// Where others reach a MiniCluster, as the operator has published it.
pub(super) fn external(minicluster: &MiniCluster) -> Option<&External> {
    minicluster.status.as_ref()?.external.as_ref()
}

/// The lease of an invitation. If it has more than one, the active one.
pub(super) fn lease<'a>(
    minicluster: &'a MiniCluster,
    invitation: &Invitation,
) -> Option<&'a Lease> {
    let holder = invitation_holder(invitation);
    let found = || leases(minicluster).filter(|lease| lease.holder == holder);
    found().find(|lease| lease.state == LeaseState::Active).or_else(|| found().next())
}

/// The leases of a MiniCluster's ranks.
pub(super) fn leases(minicluster: &MiniCluster) -> impl Iterator<Item = &Lease> {
    minicluster.status.iter().flat_map(|status| &status.leases)
}

/// The port at the published addresses; 0 while it is not known.
pub(super) fn port(minicluster: &MiniCluster, lease: &Lease) -> i32 {
    match is_direct(minicluster) {
        true => external(minicluster).map(|external| external.port).unwrap_or_default(),
        false => lease.invitation.as_ref().map(|it| it.port).unwrap_or_default(),
    }
}

/// A number of ranks, as in `2 ranks`.
pub(super) fn count_of_ranks(count: i32) -> String {
    if count == 1 { "1 rank".to_owned() } else { format!("{count} ranks") }
}

/// All invitations of a MiniCluster, and those that were revoked and whose ranks are still being
/// taken back.
pub(super) fn views(minicluster: &MiniCluster, now: Timestamp) -> Vec<InvitationView> {
    let invited = invitations(minicluster);
    let known = invited.iter().map(|it| view(minicluster, it, lease(minicluster, it), now));
    let is_revoked =
        |lease: &&Lease| invited.iter().all(|it| invitation_holder(it) != lease.holder);
    let revoked = leases(minicluster).filter(is_revoked).filter_map(|lease| {
        let invitation = Invitation {
            name: lease.name.clone(),
            ranks: i32::try_from(lease.rank_list().len()).unwrap_or(i32::MAX),
            expires: lease.invitation.as_ref()?.expires.clone(),
            ..Invitation::default()
        };
        let state = InvitationState::Leaving;
        Some(InvitationView { state, ..view(minicluster, &invitation, Some(lease), now) })
    });
    known.chain(revoked).collect()
}

fn view(
    minicluster: &MiniCluster,
    invitation: &Invitation,
    lease: Option<&Lease>,
    now: Timestamp,
) -> InvitationView {
    let state = match lease.map(|lease| lease.state) {
        Some(LeaseState::Leaving) => InvitationState::Leaving,
        _ if is_expired(&invitation.expires, now) => InvitationState::Expired,
        Some(LeaseState::Active) => InvitationState::Active,
        None => InvitationState::Pending,
    };
    let user = lease.and_then(|lease| lease.invitation.as_ref()?.user.as_ref());
    let port = lease.map(|lease| port(minicluster, lease)).filter(|port| *port > 0);
    let addresses = external(minicluster).into_iter().flat_map(|external| &external.addresses);
    let addresses = addresses.filter_map(|address| Some(host_and_port(address, port?)));
    InvitationView {
        cluster: minicluster.name_any(),
        invitation: invitation.name.clone(),
        ranks: invitation.ranks,
        leased: lease.map(|lease| lease.ranks.clone()).unwrap_or_default(),
        state,
        used_by: user.map(|user| user.name.clone()).unwrap_or_default(),
        addresses: addresses.collect(),
        expires: invitation.expires.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bursting_mut, invitation, lender, now};
    use super::*;
    use serde_json::{Value, json};

    fn states(lender: &MiniCluster) -> Vec<String> {
        let views = views(lender, now());
        views.iter().map(|it| format!("{} {}", it.invitation, it.state.as_str())).collect()
    }

    #[test]
    fn the_state_follows_from_the_lease_and_the_time() {
        let mut lender = lender();
        assert_eq!(states(&lender), ["a Active"]);
        lender.status.as_mut().unwrap().leases[0].state = LeaseState::Leaving;
        assert_eq!(states(&lender), ["a Leaving"]);
        lender.status.as_mut().unwrap().leases.clear();
        assert_eq!(states(&lender), ["a Pending"]);
        let after = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(views(&lender, after)[0].state, InvitationState::Expired);
    }

    #[test]
    fn a_lease_of_another_end_is_that_of_a_revoked_invitation() {
        let mut lender = lender();
        bursting_mut(&mut lender).invitations = vec![invitation("a", 3, "2026-01-02T00:00:00Z")];
        assert_eq!(states(&lender), ["a Pending", "a Leaving"]);
        let views = views(&lender, now());
        assert_eq!((views[0].ranks, views[1].ranks), (3, 2));
    }

    #[test]
    fn leases_of_joiners_are_not_invitations() {
        let mut lender = lender();
        let mut joiner = lender.status.clone().unwrap().leases[0].clone();
        (joiner.holder, joiner.invitation) = ("uid".into(), None);
        lender.status.as_mut().unwrap().leases.push(joiner);
        assert_eq!(states(&lender), ["a Active"]);
    }

    #[test]
    fn addresses_have_the_port_of_the_lease_or_of_the_lead() {
        let mut lender = lender();
        let addresses = |lender: &MiniCluster| views(lender, now())[0].addresses.clone();
        assert_eq!(addresses(&lender), ["192.0.2.1:31000", "[2001:db8::1]:31000"]);
        lender.status.as_mut().unwrap().external.as_mut().unwrap().port = 8050;
        bursting_mut(&mut lender).expose =
            serde_json::from_value(json!({ "direct": true })).unwrap();
        assert_eq!(addresses(&lender)[0], "192.0.2.1:8050");
    }

    #[test]
    fn facts_that_are_not_known_are_left_out_of_json() {
        let mut lender = lender();
        let shown = |lender: &MiniCluster| serde_json::to_value(&views(lender, now())[0]).unwrap();
        let expected = json!({ "cluster": "fs", "invitation": "a", "ranks": 2, "leased": "2-3",
            "state": "Active", "usedBy": "far/b", "expires": "2026-01-01T01:00:00Z",
            "addresses": ["192.0.2.1:31000", "[2001:db8::1]:31000"] });
        assert_eq!(shown(&lender), expected);
        lender.status = None;
        let expected: Value = json!({ "cluster": "fs", "invitation": "a", "ranks": 2,
            "state": "Pending", "expires": "2026-01-01T01:00:00Z" });
        assert_eq!(shown(&lender), expected);
    }
}
