//! A lender that is deleted while bursts use it: the finalizer of the burst controller keeps it until
//! their brokers are deleted.

use serde_json::json;

use crate::fixture::*;

const BURSTS: &str = "flux-framework.org/bursts";

/// A lender with an invitation that is being deleted.
fn deleting() -> Lender {
    let mut lender = Lender::settled(&one_invitation());
    let metadata = json!({ "deletionTimestamp": START, "deletionGracePeriodSeconds": 0,
        "finalizers": [BURSTS] });
    lender.minicluster = merged(&lender.minicluster, &json!({ "metadata": metadata }));
    lender
}

#[test]
fn nothing_is_changed_while_another_finalizer_keeps_a_lender() {
    let mut lender = deleting();
    for seconds in [1, 100, HOUR] {
        lender.at(seconds);
        let (steps, conclusion) = lender.decide();
        assert_eq!(steps, [], "its Job and its finalizers stay");
        assert_eq!(conclusion.status, None, "its leases stay");
        assert_eq!(conclusion.requeue_at, None);
    }
}

#[test]
fn nothing_of_it_is_created_again() {
    let mut lender = deleting();
    lender.observed.config_map = None;
    lender.observed.services.clear();
    assert_eq!(lender.decide().0, []);
    lender.observed.job = None;
    lender.observed.pods.clear();
    assert_eq!(lender.decide().0, []);
}
