//! Which cluster uses an invitation: the first that asks, as long as it may have brokers.

use flux_operator_api::Reason;
use serde_json::json;

use crate::fixture::*;

fn user(lender: &Lender) -> Option<&str> {
    lender.invited("a").user.as_ref().map(|user| user.uid.as_str())
}

#[test]
fn b12_the_first_cluster_that_asks_uses_the_invitation() {
    let mut lender = Lender::settled(&one_invitation());
    assert_eq!(user(&lender), None);
    lender.asked_by("one");
    lender.at(1);
    lender.asked_by("two");
    lender.reconcile();
    assert_eq!(user(&lender), Some("one"));
    let noted = lender.invited("a").user.as_ref().unwrap();
    assert_eq!((noted.name.as_str(), noted.since.as_str()), ("theirs/one", "2026-01-01T00:00:01Z"));
}

#[test]
fn b12_another_cluster_uses_it_only_once_the_first_has_no_broker_and_asks_no_more() {
    let mut lender = Lender::settled(&one_invitation());
    lender.asked_by("one");
    lender.reconcile();
    for second in [1, 30, 59] {
        lender.at(second);
        lender.asked_by("two");
        lender.reconcile();
        assert_eq!(user(&lender), Some("one"), "{second}: it may be starting its brokers");
    }
    lender.online("0-1,8");
    for second in (60..300).step_by(30) {
        lender.at(second);
        lender.asked_by("two");
        lender.reconcile();
        assert_eq!(user(&lender), Some("one"), "{second}: it has a broker");
    }
    lender.online("0-1");
    lender.reconcile();
    assert_eq!(user(&lender), Some("two"));
}

#[test]
fn a_cluster_that_asks_again_keeps_the_invitation() {
    let mut lender = Lender::settled(&one_invitation());
    lender.asked_by("one");
    lender.reconcile();
    for second in (50..500).step_by(50) {
        lender.at(second);
        lender.asked_by("one");
        lender.asked_by("two");
        lender.reconcile();
        assert_eq!(user(&lender), Some("one"), "{second}");
    }
}

#[test]
fn without_a_report_of_the_lead_the_user_stays() {
    let mut lender = Lender::settled(&one_invitation());
    lender.asked_by("one");
    lender.reconcile();
    lender.observed.now = after(1000);
    lender.asked_by("two");
    lender.reconcile();
    assert_eq!(user(&lender), Some("one"), "the last report is old");
    lender.observed.report = None;
    lender.reconcile();
    assert_eq!(user(&lender), Some("one"));
}

/// A cluster that asked an hour ago may have been deleted since. The one that asks now must not wait
/// for it, and a status that names the two in turn would never settle.
#[test]
fn a_cluster_that_asked_long_ago_does_not_get_the_invitation() {
    let mut lender = Lender::settled(&one_invitation());
    lender.asked_by("one");
    lender.reconcile();
    lender.at(10);
    lender.asked_by("two");
    lender.reconcile();
    lender.at(1000);
    lender.settle();
    assert_eq!(user(&lender), Some("one"), "no other asks");
    lender.asked_by("three");
    lender.reconcile();
    assert_eq!(user(&lender), Some("three"));
    lender.at(2000);
    lender.settle();
    lender.at(3000);
    lender.settle();
    assert_eq!(user(&lender), Some("three"), "the first two ask no more");
}

/// Its key is another one, so that the user of the former one cannot ask with it.
#[test]
fn the_user_of_a_former_invitation_of_the_same_name_does_not_use_the_next() {
    let mut lender = Lender::settled(&one_invitation());
    lender.asked_by("one");
    lender.settle();
    lender.at(10);
    let end = "2026-01-01T02:00:00Z";
    let next = json!([invitation("a", 2, end)]);
    lender.edit(&json!({ "invitations": next }));
    lender.settle();
    lender.at(10 + CLOSING);
    lender.settle();
    assert_eq!(lender.leases().len(), 1);
    assert_eq!(user(&lender), None);
    lender.asked_by("one");
    lender.reconcile();
    assert_eq!(user(&lender), None, "its question was about the former one");
    lender.asked_until("two", end);
    lender.reconcile();
    assert_eq!(user(&lender), Some("two"));
}

#[test]
fn who_asks_with_one_invitation_does_not_use_another() {
    let invitations = json!([invitation("a", 1, END), invitation("b", 1, END)]);
    let mut lender = Lender::settled(&json!({ "invitations": invitations }));
    lender.asked_by("one");
    lender.reconcile();
    assert_eq!(user(&lender), Some("one"));
    assert_eq!(lender.invited("b").user, None);
}

/// A cluster that is not known asks with a wrong key: the lease says so for a while. It does not become the
/// invitation's user.
#[test]
fn a_stranger_with_a_wrong_key_is_a_refusal_and_not_a_user() {
    let mut lender = Lender::settled(&one_invitation());
    let refusal =
        |lender: &Lender| lender.invited("a").refusal.as_ref().map(|it| it.reason.clone());
    lender.asked_by("");
    let wrong = (Reason::WrongKey, "another key".to_owned());
    lender.observed.invited[0].refusal = Some(wrong);
    lender.settle();
    assert_eq!((user(&lender), refusal(&lender).as_deref()), (None, Some("WrongKey")));
    lender.at(5);
    lender.asked_by("b");
    lender.settle();
    assert_eq!((user(&lender), refusal(&lender).as_deref()), (Some("b"), Some("WrongKey")));
    lender.at(60);
    lender.settle();
    assert_eq!((user(&lender), refusal(&lender).as_deref()), (Some("b"), None));
}
