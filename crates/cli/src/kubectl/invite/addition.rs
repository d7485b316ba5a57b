//! Whether a MiniCluster can invite, and the change that adds an invitation.

use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_api::minicluster::{Expose, ExposeType, Invitation, LeaseState, LenderName};
use flux_operator_plan::{Valid, invitation_holder, is_expired, shown_expiry};
use jiff::Timestamp;
use kube::ResourceExt;

use super::change::BurstingPatch;
use super::invitation::{bursting, count_of_ranks, invitations, leases};
use super::refusal::InviteRefusal;

/// The largest number of invitations of a MiniCluster, as in its schema.
pub(super) const MAX_INVITATIONS: usize = 64;

/// The longest name of the MiniCluster in the other cluster: host names are made from it.
pub(super) const MAX_JOINER_NAME: usize = 54;

/// What the user asks for.
#[derive(Clone, Debug)]
pub(super) struct Wish<'a> {
    /// Name of the invitation; `None` for a new one.
    pub(super) invitation: Option<&'a str>,
    /// Number of ranks.
    pub(super) ranks: i32,
    /// When a new invitation ends.
    pub(super) expires: Timestamp,
    /// Whether the user chose how long it is valid.
    pub(super) has_ttl: bool,
    /// Name of the MiniCluster in the other cluster.
    pub(super) joiner: Option<&'a str>,
    /// How to expose a MiniCluster that is not exposed yet.
    pub(super) expose: Option<ExposeType>,
    /// How many ranks the MiniCluster can lend at most; `None` if that is not known.
    pub(super) lendable: Option<usize>,
}

/// The invitation to write a file for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Addition {
    /// The invitation.
    pub(super) invitation: Invitation,
    /// Name of the MiniCluster in the other cluster.
    pub(super) joiner: String,
    /// Whether it is new.
    pub(super) is_new: bool,
    /// What is added to the MiniCluster to expose it.
    pub(super) expose: Option<Expose>,
}

/// The invitation that is wished for, and the patch that adds it if it is new. Invitations that
/// have expired are removed with it. `generate` returns names for new ones.
pub(super) fn addition(
    lender: &MiniCluster,
    wish: &Wish<'_>,
    now: Timestamp,
    generate: impl FnMut() -> String,
) -> Result<(Option<BurstingPatch>, Addition), InviteRefusal> {
    let cluster = lender.name_any();
    check_lender(lender)?;
    let expose = new_expose(lender, wish.expose)?;
    let lendable = wish.lendable.and_then(|lendable| i32::try_from(lendable).ok());
    if let Some(lendable) = lendable.filter(|lendable| wish.ranks > *lendable) {
        return Err(InviteRefusal::TooFewRanks { cluster, lendable, wanted: wish.ranks });
    }
    let name = match wish.invitation {
        Some(name) => name.to_owned(),
        None => unused_name(lender, generate),
    };
    let joiner = wish.joiner.map_or_else(|| format!("{cluster}-{name}"), ToOwned::to_owned);
    if joiner.len() > MAX_JOINER_NAME {
        return Err(InviteRefusal::LongName { name: joiner });
    }
    if let Some(found) = invitations(lender).iter().find(|it| it.name == name) {
        check_existing(&cluster, found, wish, now)?;
        // Without `expose` it cannot be used, so that is added nevertheless.
        let patch = expose.as_ref().map(|expose| BurstingPatch::default().expose(expose.kind));
        let invitation = found.clone();
        return Ok((patch, Addition { invitation, joiner, is_new: false, expose }));
    }
    let expires = wish.expires.to_string();
    let new = Invitation { name, ranks: wish.ranks, expires, ..Invitation::default() };
    let kept = invitations(lender).iter().filter(|it| !is_over(lender, it, now)).cloned();
    let all: Vec<Invitation> = kept.chain([new.clone()]).collect();
    if all.len() > MAX_INVITATIONS {
        return Err(InviteRefusal::TooMany { cluster });
    }
    let patch = BurstingPatch::default().invitations(&all);
    let patch = expose.iter().fold(patch, |patch, expose| patch.expose(expose.kind));
    Ok((Some(patch), Addition { invitation: new, joiner, is_new: true, expose }))
}

/// Whether an invitation can be removed: it has expired, and the operator has noticed that. The clock of
/// this machine alone must not revoke one.
fn is_over(lender: &MiniCluster, invitation: &Invitation, now: Timestamp) -> bool {
    let holder = invitation_holder(invitation);
    let is_active = leases(lender).any(|it| it.holder == holder && it.state == LeaseState::Active);
    is_expired(&invitation.expires, now) && !is_active
}

fn check_lender(lender: &MiniCluster) -> Result<(), InviteRefusal> {
    let cluster = lender.name_any();
    if lender.spec.is_joiner() {
        let namespace = lender.namespace().unwrap_or_default();
        let joins = LenderName::of(lender).map(|it| it.shown_in(&namespace));
        return Err(InviteRefusal::Joiner { cluster, lender: joins });
    }
    if lender.metadata.deletion_timestamp.is_some() {
        return Err(InviteRefusal::Terminating { cluster });
    }
    if is_finished(lender) {
        return Err(InviteRefusal::Finished { cluster });
    }
    Ok(())
}

/// Whether the instance does not exist any more.
pub(super) fn is_finished(lender: &MiniCluster) -> bool {
    let mut conditions = lender.status.iter().flat_map(|status| &status.conditions);
    let finished = ConditionType::JobFinished.as_str();
    conditions.any(|condition| condition.type_ == finished && condition.status == "True")
}

/// What to add so that the lender is exposed; `None` if it is.
fn new_expose(
    lender: &MiniCluster,
    wanted: Option<ExposeType>,
) -> Result<Option<Expose>, InviteRefusal> {
    let cluster = lender.name_any();
    let current = bursting(lender).and_then(|it| it.expose.as_ref()).map(|expose| expose.kind);
    match (current, wanted) {
        (None, None) => Err(InviteRefusal::NotExposed { cluster }),
        (None, Some(kind)) => {
            let expose = Expose { kind, ..Expose::default() };
            check_exposed(lender, &expose)?;
            Ok(Some(expose))
        }
        (Some(current), Some(wanted)) if current != wanted => {
            Err(InviteRefusal::ExposedOtherwise {
                cluster,
                current: expose_type(current),
                wanted: expose_type(wanted),
            })
        }
        (Some(_), _) => Ok(None),
    }
}

/// Whether the operator would refuse the MiniCluster if it were exposed, as for its name: then no
/// invitation would ever get ranks.
fn check_exposed(lender: &MiniCluster, expose: &Expose) -> Result<(), InviteRefusal> {
    let mut exposed = lender.clone();
    let flux = exposed.spec.flux.get_or_insert_default();
    flux.bursting.get_or_insert_default().expose = Some(expose.clone());
    match (Valid::check(exposed), Valid::check(lender.clone())) {
        (Err(refusal), Ok(_)) => {
            Err(InviteRefusal::Invalid { cluster: lender.name_any(), problem: refusal.to_string() })
        }
        _ => Ok(()),
    }
}

/// As in the manifest.
pub(super) fn expose_type(kind: ExposeType) -> &'static str {
    match kind {
        ExposeType::NodePort => "NodePort",
        ExposeType::LoadBalancer => "LoadBalancer",
        ExposeType::ClusterIP => "ClusterIP",
        ExposeType::None => "None",
    }
}

/// A name that neither an invitation nor a lease has.
fn unused_name(lender: &MiniCluster, mut generate: impl FnMut() -> String) -> String {
    loop {
        let name = generate();
        let is_used = invitations(lender).iter().any(|it| it.name == name)
            || leases(lender).any(|lease| lease.name == name);
        if !is_used {
            return name;
        }
    }
}

/// The file of an existing invitation can be written again, if it is what the user asks for.
fn check_existing(
    cluster: &str,
    found: &Invitation,
    wish: &Wish<'_>,
    now: Timestamp,
) -> Result<(), InviteRefusal> {
    let (cluster, invitation) = (cluster.to_owned(), found.name.clone());
    if is_expired(&found.expires, now) {
        let expires = shown_expiry(&found.expires);
        return Err(InviteRefusal::Expired { cluster, invitation, expires });
    }
    if found.ranks != wish.ranks {
        let (current, wanted) = (count_of_ranks(found.ranks), wish.ranks);
        return Err(InviteRefusal::OtherRanks { cluster, invitation, current, wanted });
    }
    if wish.has_ttl {
        let expires = shown_expiry(&found.expires);
        return Err(InviteRefusal::OtherEnd { cluster, invitation, expires });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bursting_mut, invitation, lender, now};
    use super::*;
    use serde_json::json;

    const LATER: &str = "2026-01-01T02:00:00Z";

    fn wish(invitation: Option<&str>) -> Wish<'_> {
        let expires = LATER.parse().unwrap();
        Wish {
            invitation,
            ranks: 2,
            expires,
            has_ttl: false,
            joiner: None,
            expose: None,
            lendable: Some(4),
        }
    }

    fn add(
        lender: &MiniCluster,
        wish: Wish<'_>,
    ) -> Result<(Option<BurstingPatch>, Addition), InviteRefusal> {
        addition(lender, &wish, now(), || unreachable!("a name is given"))
    }

    #[test]
    fn an_invitation_is_added_to_the_list() {
        let (patch, added) = add(&lender(), wish(Some("b"))).unwrap();
        let new = invitation("b", 2, LATER);
        let list = json!([invitations(&lender())[0], new]);
        assert_eq!(patch.unwrap().fields(), json!({ "invitations": list }));
        let joiner = "fs-b".to_owned();
        assert_eq!(added, Addition { invitation: new, joiner, is_new: true, expose: None });
    }

    #[test]
    fn expired_invitations_are_removed() {
        let mut lender = lender();
        bursting_mut(&mut lender).invitations[0].expires = "2026-01-01T00:00:00Z".into();
        let (patch, added) = add(&lender, wish(Some("b"))).unwrap();
        assert_eq!(patch.unwrap().fields(), json!({ "invitations": [added.invitation] }));
    }

    /// The clock of this machine may be ahead.
    #[test]
    fn an_invitation_whose_lease_is_active_is_not_removed() {
        let late = "2026-01-01T02:00:00Z".parse().unwrap();
        let (patch, added) = addition(&lender(), &wish(Some("b")), late, String::new).unwrap();
        let list = json!([invitations(&lender())[0], added.invitation]);
        assert_eq!(patch.unwrap().fields(), json!({ "invitations": list }));
    }

    #[test]
    fn a_generated_name_is_not_used_yet() {
        let mut names = ["a", "leaving", "new"].map(String::from).into_iter();
        let mut lender = lender();
        let mut lease = lender.status.clone().unwrap().leases[0].clone();
        lease.name = "leaving".into();
        lender.status.as_mut().unwrap().leases.push(lease);
        let (_, added) = addition(&lender, &wish(None), now(), || names.next().unwrap()).unwrap();
        assert_eq!((added.invitation.name.as_str(), added.joiner.as_str()), ("new", "fs-new"));
    }

    #[test]
    fn the_file_of_an_existing_invitation_is_written_again_without_a_change() {
        let (patch, again) = add(&lender(), wish(Some("a"))).unwrap();
        assert_eq!((patch, again.is_new), (None, false));
        assert_eq!(again.invitation, invitations(&lender())[0]);
    }

    #[test]
    fn a_cluster_is_exposed_on_request() {
        let mut lender = lender();
        bursting_mut(&mut lender).expose = None;
        let exposed = |invitation: &'static str| {
            let wish = Wish { expose: Some(ExposeType::NodePort), ..wish(Some(invitation)) };
            let (patch, added) = add(&lender, wish).unwrap();
            (patch.unwrap().fields(), added.expose)
        };
        let (patch, added) = exposed("b");
        assert_eq!(
            (&patch["expose"], added),
            (&json!({ "type": "NodePort" }), Some(Expose::default()))
        );
        assert_eq!(patch["invitations"].as_array().unwrap().len(), 2);
        assert_eq!(exposed("a").0, json!({ "expose": { "type": "NodePort" } }));
    }

    #[test]
    fn each_refusal_has_its_message_and_hint() {
        let changed = |change: fn(&mut MiniCluster)| {
            let mut lender = lender();
            change(&mut lender);
            lender
        };
        let joins = changed(|lender| {
            let flux = json!({ "join": { "name": "first", "namespace": "far" } });
            lender.spec.flux = serde_json::from_value(flux).unwrap();
        });
        let remote = changed(|lender| {
            let lead = json!({ "address": "192.0.2.1", "name": "a", "size": 1 });
            let flux = json!({ "bursting": { "leadBroker": lead } });
            lender.spec.flux = serde_json::from_value(flux).unwrap();
        });
        let finished = changed(|lender| {
            let condition = json!([{ "type": "JobFinished", "status": "True", "reason": "",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
            lender.status.as_mut().unwrap().conditions = serde_json::from_value(condition).unwrap();
        });
        let deleted = changed(|lender| {
            let time = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            lender.metadata.deletion_timestamp = Some(time);
        });
        let closed = changed(|lender| bursting_mut(lender).expose = None);
        let full = changed(|lender| {
            let one = |number: usize| invitation(&format!("i{number}"), 1, LATER);
            bursting_mut(lender).invitations = (0..64).map(one).collect();
        });
        let expired = changed(|lender| {
            bursting_mut(lender).invitations[0].expires = "2026-01-01T00:29:59.654321Z".into();
        });
        let long = changed(|lender| lender.metadata.name = Some("n".repeat(53)));
        let (b, a) = (wish(Some("b")), wish(Some("a")));
        let balanced = Wish { expose: Some(ExposeType::LoadBalancer), ..b.clone() };
        let longer = Wish { has_ttl: true, ..a.clone() };
        let three = Wish { ranks: 3, ..a.clone() };
        let five = Wish { ranks: 5, ..b.clone() };
        let none = Wish { lendable: Some(0), ..b.clone() };
        let long_name = changed(|lender| {
            lender.metadata.name = Some("n".repeat(55));
            bursting_mut(lender).expose = None;
            // Hosts that are spare need an even shorter name.
            bursting_mut(lender).spare_ranks = None;
        });
        let expose_it = Wish { expose: Some(ExposeType::NodePort), joiner: Some("n"), ..b.clone() };
        let long_as = "n".repeat(55);
        let renamed = Wish { joiner: Some(&long_as), ..b.clone() };
        for (lender, wish, message, hint) in [
            (&joins, &b, "\"fs\" joins another MiniCluster itself", "invite to \"far/first\""),
            (&remote, &b, "\"fs\" joins another MiniCluster itself", "ask for an invitation where"),
            (&finished, &b, "\"fs\" has finished", "create it again"),
            (&deleted, &b, "\"fs\" is being deleted", "choose another MiniCluster"),
            (&closed, &b, "\"fs\" is not exposed", "add `--expose NodePort`"),
            (&lender(), &balanced, "with type NodePort, not LoadBalancer", "omit --expose"),
            (
                &lender(),
                &longer,
                "expires at 2026-01-01T01:00:00Z and cannot be extended",
                "invite under another name",
            ),
            (&lender(), &three, "is for 2 ranks, not 3", "minicluster invite revoke NAME a`"),
            (
                &expired,
                &a,
                "has expired at 2026-01-01T00:29:59Z",
                "minicluster invite revoke NAME a`",
            ),
            (
                &lender(),
                &five,
                "can lend 4 ranks at most, and 5 are asked for",
                "ask for fewer, or",
            ),
            (&lender(), &none, "can lend 0 ranks at most", "create it again with hosts to lend"),
            (&long_name, &expose_it, "would be refused: metadata.name: is too long", "validate -f"),
            (&full, &b, "has 64 invitations", "minicluster invite list NAME` lists them"),
            (&long, &b, "-b\" of the MiniCluster in the other cluster has 55", "with --as"),
            (&lender(), &renamed, "has 55 characters", "with --as"),
        ] {
            let refusal = add(lender, wish.clone()).unwrap_err();
            assert!(refusal.to_string().contains(message), "{message}: {refusal}");
            let shown = refusal.hint();
            assert!(shown.contains(hint), "{message}: {shown}");
        }
    }
}
