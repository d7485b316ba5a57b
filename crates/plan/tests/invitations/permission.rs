//! Whether a broker in another Kubernetes cluster may start.

use flux_operator_api::minicluster::Invitation;
use flux_operator_plan::{KnownBroker, Permission, PermittedPods, invited_permission};
use flux_operator_wire::{BrokerFacts, InvitedRequest, JoinRequest};
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use crate::fixture::*;

/// A lender whose invitation `a` has ranks 9 and 8, and is used by cluster `one`.
fn used() -> Lender {
    let mut lender = Lender::settled(&one_invitation());
    lender.asked_by("one");
    lender.settle();
    lender
}

/// What the first broker of cluster `one` asks.
fn request(lender: &Lender) -> InvitedRequest {
    InvitedRequest {
        joiner: "one".into(),
        joiner_name: "theirs/one".into(),
        request: JoinRequest {
            index: 0,
            rank: 9,
            table: lender.lease("a").table.clone(),
            facts: facts(),
            last_error: String::new(),
            refusal: None,
        },
    }
}

fn ask(lender: &Lender, request: &InvitedRequest) -> Permission {
    let now = lender.observed.now;
    invited_permission(&lender.view(), &sealed(), request, KnownBroker::default(), now)
}

/// The invitation whose key the agent has.
fn sealed() -> Invitation {
    Invitation { name: "a".into(), ranks: 2, expires: END.into(), ..Invitation::default() }
}

/// The reason of the refusal, and its message.
fn refusal(permission: Permission) -> (String, String) {
    match permission {
        Permission::Denied(reason, message) => (reason.as_str().to_owned(), message),
        other => panic!("not denied: {other:?}"),
    }
}

fn assert_denied(lender: &Lender, request: &InvitedRequest, reason: &str, says: &str) {
    let (found, message) = refusal(ask(lender, request));
    assert_eq!(found, reason, "{message}");
    assert!(message.contains(says), "{message}");
}

#[test]
fn b12_the_brokers_of_the_user_may_start_at_their_ranks() {
    let lender = used();
    let mut request = request(&lender);
    assert_eq!(ask(&lender, &request), Permission::Granted);
    (request.request.index, request.request.rank) = (1, 8);
    assert_eq!(ask(&lender, &request), Permission::Granted);
}

#[test]
fn b12_every_refusal_has_its_reason() {
    type Change = fn(&mut Lender, &mut InvitedRequest);
    let table: [(&str, &str, Change); 16] = [
        ("LenderMissing", "is being deleted", |lender, _| {
            let metadata = json!({ "deletionTimestamp": START });
            lender.minicluster = merged(&lender.minicluster, &json!({ "metadata": metadata }));
        }),
        ("InvitationRevoked", "was revoked", |lender, _| {
            lender.edit(&json!({ "invitations": [] }));
        }),
        ("InvitationRevoked", "was revoked", |lender, _| {
            // A former one of the same name has another key, and a broker with it must not start.
            lender.edit(&json!({ "invitations": [invitation("a", 2, "2026-01-01T02:00:00Z")] }));
        }),
        ("InvitationExpired", "expired at 2026-01-01T01:00:00Z: ask for another", |lender, _| {
            lender.at(HOUR);
        }),
        ("NoFreeRanks", "too few were free", |lender, _| {
            lender.change_status(&json!({ "leases": [] }));
        }),
        ("NoFreeRanks", "no ranks", |lender, _| {
            set_lease(lender, json!({ "state": "Leaving" }));
        }),
        ("InvitationOutdated", "ask for another", |_, asked| asked.request.table = "x".into()),
        ("InvitationOutdated", "other ranks", |lender, _| {
            set_lease(lender, json!({ "table": "x" }));
        }),
        ("InvitationOutdated", "other ranks", |_, asked| asked.request.rank = 8),
        ("InvitationOutdated", "other ranks", |_, asked| asked.request.index = 2),
        ("InvitationUsed", "\"theirs/one\" uses the invitation", |_, asked| {
            asked.joiner = "two".into();
        }),
        ("Joining", "notes which cluster", |lender, _| {
            set_lease(lender, json!({ "invitation": { "user": null } }));
        }),
        ("LenderNotReady", "has not reported", |lender, _| lender.observed.report = None),
        ("LenderNotReady", "has not reported", |lender, _| {
            lender.observed.now = after(HOUR - 1);
        }),
        ("LenderNotReady", "manifest is refused", |lender, _| {
            lender.minicluster.spec.containers.clear();
        }),
        ("Joining", "rank 9 is still online", |lender, _| lender.online("0-1,9")),
    ];
    for (reason, says, change) in table {
        let mut lender = used();
        let mut asked = request(&lender);
        change(&mut lender, &mut asked);
        assert_denied(&lender, &asked, reason, says);
    }
}

fn set_lease(lender: &mut Lender, patch: Value) {
    let lease = merged(lender.lease("a"), &patch);
    lender.change_status(&json!({ "leases": [lease] }));
}

/// A pod that comes back must not join again while its rank is drained.
#[test]
fn a_broker_of_a_rank_that_is_not_kept_may_not_start() {
    let mut lender = used();
    let mut kept = invitation("a", 2, END);
    kept["keep"] = json!(1);
    lender.edit(&json!({ "invitations": [kept] }));
    let mut asked = request(&lender);
    assert_eq!(ask(&lender, &asked), Permission::Granted, "the first is kept");
    (asked.request.index, asked.request.rank) = (1, 8);
    assert_denied(&lender, &asked, "Joining", "rank 8 is not kept");
    lender.edit(&one_invitation());
    assert_eq!(ask(&lender, &asked), Permission::Granted);
}

#[test]
fn b14_a_broker_that_differs_from_the_lead_may_not_start() {
    let lender = used();
    let with = |facts: BrokerFacts| {
        let mut asked = request(&lender);
        asked.request.facts = facts;
        asked
    };
    let version = |version: &str| with(BrokerFacts { version: version.into(), ..facts() });
    assert_denied(&lender, &version("0.87.0"), "VersionMismatch", "0.87.0");
    assert_denied(&lender, &version(""), "VersionMismatch", "cannot be compared");
    assert_eq!(ask(&lender, &version("0.88.3")), Permission::Granted, "the same release");
    let user = with(BrokerFacts { uid: 0, ..facts() });
    assert_denied(&lender, &user, "UidMismatch", "user 0");
    let cores = |cores| with(BrokerFacts { cores, ..facts() });
    assert_denied(&lender, &cores(3), "FewerCores", "pod 0 has 3 cores");
    assert_eq!(ask(&lender, &cores(5)), Permission::Granted);
}

/// Flux would replace the broker that is online. The one whose pod had permission is that very broker:
/// it was restarted in its pod.
#[test]
fn f14_a_rank_that_is_online_is_only_for_the_pod_that_has_it() {
    let mut lender = used();
    lender.online("0-1,8");
    let mut asked = request(&lender);
    assert_eq!(ask(&lender, &asked), Permission::Granted, "the other rank is online");
    (asked.request.index, asked.request.rank) = (1, 8);
    assert_denied(&lender, &asked, "Joining", "rank 8 is still online");
    let known = KnownBroker { had_permission: true, ..KnownBroker::default() };
    let permission =
        invited_permission(&lender.view(), &sealed(), &asked, known, lender.observed.now);
    assert_eq!(permission, Permission::Granted);
}

/// Two pods of one index, of which the lead has not reported the first online yet.
#[test]
fn f14_a_rank_is_kept_for_the_pod_that_has_permission_while_its_broker_starts() {
    let lender = used();
    let (asked, now) = (request(&lender), lender.observed.now);
    let ask = |seconds: i64| {
        let broker = KnownBroker {
            other_permitted: Some(now - SignedDuration::from_secs(seconds)),
            ..KnownBroker::default()
        };
        invited_permission(&lender.view(), &sealed(), &asked, broker, now)
    };
    let (reason, message) = refusal(ask(74));
    assert_eq!(reason, "Joining");
    assert!(message.contains("another pod was permitted to start the broker of rank 9"));
    assert_eq!(ask(75), Permission::Granted, "it would be online by now");
}

/// The broker of the first pod may have connected since.
#[test]
fn f14_a_report_from_the_time_when_the_broker_of_another_pod_was_starting_does_not_count() {
    let mut lender = used();
    let broker =
        KnownBroker { other_permitted: Some(lender.observed.now), ..KnownBroker::default() };
    let asked = request(&lender);
    let ask = |lender: &Lender| {
        invited_permission(&lender.view(), &sealed(), &asked, broker, lender.observed.now)
    };
    lender.at(74);
    lender.observed.now = after(80);
    assert_eq!(refusal(ask(&lender)).0, "Joining");
    lender.at(80);
    assert_eq!(ask(&lender), Permission::Granted);
}

/// Without it nothing says whether the rank has a broker.
#[test]
fn f14_a_report_without_the_ranks_that_are_online_gives_no_permission() {
    let mut lender = used();
    lender.observed.report.as_mut().unwrap().state.online = None;
    assert_denied(&lender, &request(&lender), "LenderNotReady", "has not reported");
}

#[test]
fn an_invitation_is_asked_for_by_its_name() {
    let lender = used();
    let now = lender.observed.now;
    for name in ["b", "", "invitation:a"] {
        let asked = invited_permission(
            &lender.view(),
            &Invitation { name: name.into(), ..sealed() },
            &request(&lender),
            KnownBroker { had_permission: true, ..KnownBroker::default() },
            now,
        );
        assert_eq!(refusal(asked).0, "InvitationRevoked", "{name}");
    }
}

/// Two pods of one index ask, and both are allowed by what the lender shows.
#[test]
fn f14_the_last_pod_with_permission_for_a_rank_keeps_it_while_its_broker_may_start() {
    let lender = used().minicluster;
    let mut pods = PermittedPods::default();
    let mut claim = |pod: &str, rank, seconds| {
        pods.claim(&lender, &sealed(), rank, pod, after(seconds)) == Permission::Granted
    };
    assert!(claim("one", 9, 0));
    assert!(!claim("two", 9, 1), "the broker of the first may be starting");
    assert!(claim("two", 8, 1), "another rank");
    assert!(claim("one", 9, 2), "its broker was restarted");
    assert!(!claim("two", 9, 76));
    assert!(claim("two", 9, 77), "the first pod was replaced");
    assert!(!claim("one", 9, 78));
    let known = |pod: &str| pods.known(&sealed(), 9, pod);
    assert_eq!((known("two").had_permission, known("one").had_permission), (true, false));
}

/// A pod with the file of a former invitation of the same name has no permission for the next one.
#[test]
fn f14_a_permission_is_for_the_invitation_with_the_same_end() {
    let mut lender = used();
    let mut pods = PermittedPods::default();
    pods.claim(&lender.minicluster, &sealed(), 9, "one", after(0));
    let end = "2026-01-01T02:00:00Z";
    let next = Invitation { expires: end.into(), ..sealed() };
    assert_eq!(pods.known(&next, 9, "one"), KnownBroker::default());
    lender.edit(&json!({ "invitations": [invitation("a", 2, end)] }));
    pods.claim(&lender.minicluster, &next, 9, "two", after(1));
    assert_eq!(pods.known(&sealed(), 9, "one"), KnownBroker::default(), "it is forgotten");
    assert!(pods.known(&next, 9, "two").had_permission);
}
