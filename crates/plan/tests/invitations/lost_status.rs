//! The lender's status is lost while an invitation is in use. Files say which ranks its brokers have, so
//! it must get the same again, and no other holder may get them meanwhile.

use std::sync::Arc;

use flux_operator_api::minicluster::Invitation;
use flux_operator_plan::{
    FailureKind, GatewayEndpoint, JoinerView, KnownBroker, Permission, invited_permission,
};
use flux_operator_wire::{InvitedRequest, JoinRequest};
use serde_json::json;

use crate::file::joiner;
use crate::fixture::*;

const NOTE: &str = "flux-framework.org/invitations";

/// Two invitations, of which `b` is in use, and `a` was revoked: a new grant would choose the ranks and
/// the port of `a`.
fn in_use() -> Lender {
    let both = [invitation("a", 2, END), invitation("b", 2, END)];
    let mut lender = Lender::settled(&json!({ "invitations": both }));
    lender.edit(&json!({ "invitations": [both[1]] }));
    lender.at(1);
    lender.settle();
    lender.at(1 + CLOSING);
    lender.settle();
    assert_eq!(lender.leases(), ["b: 7,6 Active"]);
    lender.online("0-1,6-7");
    lender.settle();
    lender
}

#[test]
fn b12_an_invitation_gets_the_same_ranks_and_ports_again() {
    let mut lender = in_use();
    let before = lender.lease("b").clone();
    lender.change_status(&json!({ "leases": null }));
    lender.at(30);
    lender.settle();
    assert_eq!(lender.leases(), ["b: 7,6 Active"]);
    let after = lender.lease("b");
    assert_eq!((&after.holder, &after.table), (&before.holder, &before.table));
    assert_eq!(after.invitation, before.invitation);
}

/// The operator was restarted too, so that nothing can be granted before the lead has reported.
#[test]
fn b12_the_note_stays_until_the_ranks_can_be_granted_again() {
    let mut lender = in_use();
    lender.change_status(&json!({ "leases": null }));
    let report = lender.observed.report.take();
    lender.reconcile();
    lender.reconcile();
    assert_eq!(lender.leases(), [""; 0]);
    lender.observed.report = report;
    lender.settle();
    assert_eq!(lender.leases(), ["b: 7,6 Active"]);
}

/// A user wants more own brokers while nothing is known but the note: two brokers of one rank would replace
/// each other.
#[test]
fn b12_the_lender_does_not_grow_over_ranks_that_are_only_noted() {
    let mut lender = in_use();
    lender.change_status(&json!({ "leases": null }));
    let report = lender.observed.report.take();
    lender.minicluster.spec.size = 8;
    lender.reconcile();
    let size = |lender: &Lender| lender.observed.job.as_ref()?.spec.as_ref()?.completions;
    assert_eq!(size(&lender), Some(6), "ranks 6 and 7 are noted");
    let message = &lender.condition("Accepted").message;
    assert!(message.contains("spec.size 8 needs host 6"), "{message}");
    lender.observed.report = report;
    lender.settle();
    assert_eq!(
        lender.leases(),
        ["b: 7,6 Active"],
        "a lease is older than the wish to grow over it"
    );
    assert_eq!(size(&lender), Some(6));
}

/// The ranks that are noted cannot be granted any more: the invitation was given another number. What
/// others have must not wait for it.
#[test]
fn a_note_that_cannot_be_granted_is_not_waited_for() {
    let both = [invitation("a", 2, END), invitation("b", 2, END)];
    let mut lender = Lender::settled(&json!({ "invitations": both }));
    lender.online("0-1,6-9");
    lender.change_status(&json!({ "leases": null }));
    lender.edit(&json!({ "invitations": [both[0], invitation("b", 7, END)] }));
    lender.at(30);
    let pod = GatewayEndpoint { address: [10, 2, 0, 10].into(), node: String::new() };
    lender.observed.gateway.endpoints = [pod].into();
    let steps = lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Active"], "seven ranks are not free");
    assert!(steps.contains(&"apply EndpointSlice lender-external-ipv4".into()), "{steps:?}");
    let annotations = lender.observed.job.as_ref().unwrap().metadata.annotations.clone();
    let note = annotations.unwrap()[NOTE].clone();
    assert!(note.contains("\"9,8\"") && !note.contains("\"b\""), "{note}");
}

/// A step that fails, such as for the ConfigMap, must not leave leases behind that are not noted.
#[test]
fn b12_the_note_is_written_before_all_else() {
    let mut lender = Lender::settled(&json!({ "invitations": [] }));
    lender.edit(&one_invitation());
    let mut map = (**lender.observed.config_map.as_ref().unwrap()).clone();
    map.data = None;
    lender.observed.config_map = Some(Arc::new(map));
    let steps: Vec<String> = lender.decide().0.iter().map(words).collect();
    assert_eq!(steps[..2], ["patch Job lender", "apply ConfigMap lender-entrypoint"]);
}

#[test]
fn b12_without_its_note_no_lease_of_an_invitation_is_written() {
    let mut lender = in_use();
    lender.edit(&json!({ "invitations": [invitation("b", 3, END), invitation("c", 1, END)] }));
    let before = lender.clone();
    lender.fail("patch Job lender", FailureKind::Refused, "forbidden");
    assert_eq!(lender.leases(), ["b: 7,6 Active"], "it keeps what it has");
    assert_eq!(lender.lease("b"), before.lease("b"));
    lender.settle();
    assert_eq!(lender.leases(), ["b: 7,6,9 Active", "c: 8 Active"]);
}

#[test]
fn a_note_that_is_of_no_use_is_removed() {
    let note = |lender: &Lender| {
        let annotations = lender.observed.job.as_ref().unwrap().metadata.annotations.clone();
        annotations.unwrap().get(NOTE).cloned()
    };
    let mut lender = in_use();
    lender.change_status(&json!({ "leases": null }));
    lender.observed.report = None;
    let before = lender.clone();
    lender.reconcile();
    assert!(note(&lender).is_some());
    lender.edit(&json!({ "invitations": [] }));
    lender.reconcile();
    assert_eq!(note(&lender), None, "it was revoked");
    lender.clone_from(&before);
    lender.observed.now = after(HOUR);
    lender.reconcile();
    assert_eq!(note(&lender), None, "it has expired");
}

#[test]
fn the_note_follows_the_leases() {
    let mut lender = in_use();
    let note = |lender: &Lender| {
        let annotations = lender.observed.job.as_ref().unwrap().metadata.annotations.clone();
        annotations.unwrap().get(NOTE).cloned()
    };
    assert!(note(&lender).unwrap().contains("\"ranks\":\"7,6\""), "{:?}", note(&lender));
    lender.edit(&json!({ "invitations": [] }));
    lender.at(35);
    lender.reconcile();
    assert_eq!(note(&lender), None, "at once, although its brokers are online");
    let plain = Lender::settled(&json!({}));
    assert_eq!(note(&plain), None);
}

/// An invitation that was revoked while the status was lost gets nothing, and its ranks are not granted
/// to others before its brokers are offline.
#[test]
fn the_ranks_of_an_invitation_that_was_revoked_meanwhile_are_not_granted_while_they_are_online() {
    let mut lender = in_use();
    lender.change_status(&json!({ "leases": null }));
    lender.edit(&json!({ "invitations": [invitation("c", 8, END)] }));
    lender.at(30);
    lender.settle();
    assert_eq!(lender.leases(), [""; 0]);
    lender.online("0-1");
    lender.settle();
    assert_eq!(lender.leases(), ["c: 9,8,7,6,5,4,3,2 Active"]);
}

/// The note may be of a user's making. It counts only where a lease could be granted.
#[test]
fn a_forged_note_gives_no_rank_that_another_has_or_that_cannot_be_lent() {
    for ranks in ["1,0", "9,10", "9,9", "9", "9,8,7", "x", "", "4294967295,9", "7,8"] {
        let mut lender = Lender::new(&one_invitation());
        let spec = json!({ "size": 1, "flux": { "join": { "name": "lender", "ranks": "7" } } });
        let joiner = minicluster("joiner", &json!({ "spec": spec }));
        lender.observed.joiners = vec![JoinerView { minicluster: Arc::new(joiner), job: None }];
        lender.edit(&json!({ "invitations": [] }));
        lender.settle();
        assert_eq!(lender.leases(), ["joiner: 7 Active"]);
        let entry = json!({ "name": "a", "expires": END, "ranks": ranks, "servicePort": -7,
            "gatewayPort": 99_999 });
        let note = json!([entry]).to_string();
        let job = merged(
            &**lender.observed.job.as_ref().unwrap(),
            &json!({ "metadata": { "annotations": { NOTE: note } } }),
        );
        lender.observed.job = Some(Arc::new(job));
        lender.edit(&one_invitation());
        lender.settle();
        assert_eq!(lender.leases(), ["a: 9,8 Active", "joiner: 7 Active"], "{ranks}");
        assert_eq!(lender.invited("a").service_port, 8050);
    }
}

/// A note of an earlier build, or none: the ranks are others then, and no broker of the file may start.
#[test]
fn a_file_with_ranks_that_the_invitation_does_not_have_any_more_is_outdated() {
    let mut lender = in_use();
    lender.change_status(&json!({ "leases": null }));
    let job = merged(
        &**lender.observed.job.as_ref().unwrap(),
        &json!({ "metadata": { "annotations": { NOTE: null } } }),
    );
    lender.observed.job = Some(Arc::new(job));
    lender.at(30);
    lender.settle();
    assert_eq!(lender.leases(), ["b: 9,8 Active"], "those that are online have no lease");
    lender.observed.invited.push(flux_operator_plan::InvitedCluster {
        invitation: "b".into(),
        expires: END.into(),
        uid: "one".into(),
        name: "theirs/one".into(),
        asked: lender.observed.now,
        refusal: None,
    });
    lender.settle();
    let ask = |rank| {
        let request = JoinRequest {
            index: 0,
            rank,
            table: lender.lease("b").table.clone(),
            facts: facts(),
            last_error: String::new(),
            refusal: None,
        };
        let asked = InvitedRequest { joiner: "one".into(), joiner_name: "x".into(), request };
        let known = KnownBroker { had_permission: true, ..KnownBroker::default() };
        let sealed =
            Invitation { name: "b".into(), ranks: 2, expires: END.into(), ..Invitation::default() };
        invited_permission(&lender.view(), &sealed, &asked, known, lender.observed.now)
    };
    assert_eq!(ask(7).result(), "InvitationOutdated");
    assert_eq!(ask(9), Permission::Granted);
}

/// Annotations of an object have at most 256 KiB together.
#[test]
fn a_note_that_would_be_too_long_is_not_written() {
    let invitations: Vec<_> = (0..24).map(|it| invitation(&format!("i{it}"), 1000, END)).collect();
    let bursting = json!({ "invitations": invitations, "expose": {} });
    let spec = json!({ "size": 1, "maxSize": 30_000, "interactive": true,
        "flux": { "bursting": bursting } });
    let mut lender = Lender::of(minicluster("lender", &json!({ "spec": spec })));
    lender.settle();
    assert_eq!(lender.leases().len(), 24);
    let annotations = lender.observed.job.as_ref().unwrap().metadata.annotations.clone();
    assert!(!annotations.unwrap().contains_key(NOTE));
}

#[test]
fn the_file_is_the_same_after_the_status_was_lost() {
    let mut lender = Lender::settled(&one_invitation());
    let before = joiner(&lender);
    lender.online("0-1,8-9");
    lender.change_status(&json!({ "leases": null, "external": null }));
    lender.at(30);
    lender.settle();
    assert_eq!(json!(joiner(&lender)), json!(before));
}
