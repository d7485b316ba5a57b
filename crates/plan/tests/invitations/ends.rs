//! Invitations whose end has digits after the second, as `kubectl minicluster invite` writes it.

use flux_operator_plan::shown_expiry;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::fixture::*;

const FIRST: &str = "2026-01-01T01:00:00.123456Z";
const SECOND: &str = "2026-01-01T01:00:00.123457Z";

fn invited_until(end: &str) -> Value {
    json!({ "invitations": [invitation("a", 2, end)] })
}

#[test]
fn an_invitation_of_the_same_name_and_second_is_another_one() {
    let mut lender = Lender::settled(&invited_until(FIRST));
    lender.edit(&invited_until(SECOND));
    lender.at(1);
    lender.reconcile();
    let leases = lender.minicluster.status.unwrap().leases;
    let mut holders: Vec<String> =
        leases.iter().map(|it| format!("{} {:?}", it.holder, it.state)).collect();
    holders.sort();
    let expected =
        [format!("invitation:a:{FIRST} Leaving"), format!("invitation:a:{SECOND} Active")];
    assert_eq!(holders, expected);
    let key = |end: &str| SealKey::from_bytes([7; 32]).for_invitation("uid", "a", end);
    assert_ne!(key(FIRST).to_secret_text(), key(SECOND).to_secret_text());
}

#[test]
fn it_ends_at_exactly_that_time() {
    let mut lender = Lender::settled(&invited_until(FIRST));
    let end: Timestamp = FIRST.parse().unwrap();
    lender.at(HOUR);
    lender.observed.now = end - SignedDuration::from_micros(1);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8 Active"]);
    assert_eq!(lender.decide().1.requeue_at, Some(end));
    lender.observed.now = end;
    lender.reconcile();
    assert_ne!(lender.leases(), ["a: 9,8 Active"]);
}

#[test]
fn an_end_is_shown_in_whole_seconds() {
    for (end, shown) in [
        (FIRST, END),
        ("2026-01-01T02:00:00.999999999+01:00", END),
        (END, END),
        ("tomorrow", "tomorrow"),
    ] {
        assert_eq!(shown_expiry(end), shown);
    }
}
