//! Invitations that keep only some of their ranks.

use serde_json::{Value, json};

use crate::fixture::*;

/// Invitation `a` for four ranks, of which these are kept.
fn keeping(keep: Option<i32>) -> Value {
    let mut invited = invitation("a", 4, END);
    keep.into_iter().for_each(|keep| invited["keep"] = json!(keep));
    json!({ "invitations": [invited] })
}

/// A lender whose invitation has ranks 9, 8, 7 and 6, all online.
fn lender() -> Lender {
    let mut lender = Lender::settled(&keeping(None));
    lender.online("0-1,6-9");
    lender.settle();
    lender
}

fn keep(lender: &mut Lender, keep: Option<i32>, seconds: i64) {
    lender.edit(&keeping(keep));
    lender.at(seconds);
    lender.settle();
}

/// What is drained for the invitation: the lender's own ranks that are not in use are, too.
fn drained_ranks(lender: &Lender) -> String {
    let invited = lender.lease("a").ranks.parse::<flux_operator_flux::RankList>().unwrap();
    lender.drain().ranks.intersection(&invited.to_set()).to_string()
}

#[test]
fn ranks_that_an_invitation_does_not_keep_are_drained_and_stay_leased() {
    let mut lender = lender();
    assert_eq!(drained_ranks(&lender), "");
    assert_eq!(lender.drain().since, "", "nothing is waited for");
    keep(&mut lender, Some(1), 5);
    assert_eq!(lender.leases(), ["a: 9,8,7,6 Active"]);
    assert_eq!(drained_ranks(&lender), "6-8", "all but the first");
    assert_eq!(lender.drain().since, after(5).to_string());
    assert_eq!(lender.invited("a").kept, Some(1));
    for all in [Some(4), None] {
        keep(&mut lender, Some(0), 6);
        assert_eq!(drained_ranks(&lender), "6-9");
        keep(&mut lender, all, 7);
        assert_eq!(drained_ranks(&lender), "", "they are undrained");
        assert_eq!(lender.drain().since, "");
        assert_eq!(lender.invited("a").kept, None);
    }
}

#[test]
fn ranks_without_jobs_are_shown_once_the_lead_has_reported_them() {
    let mut lender = lender();
    keep(&mut lender, Some(2), 5);
    assert_eq!(lender.invited("a").drained, "", "the lead has not applied it");
    lender.drained("6");
    lender.settle();
    assert_eq!(lender.invited("a").drained, "7", "a job runs on 6");
    lender.drained("");
    lender.settle();
    assert_eq!(lender.invited("a").drained, "6-7");
    // A changed number is another request.
    keep(&mut lender, Some(1), 8);
    assert_eq!(lender.invited("a").drained, "", "the answer is about two ranks");
    assert_eq!(lender.drain().since, after(8).to_string());
    lender.drained("8");
    lender.settle();
    assert_eq!(lender.invited("a").drained, "6-7");
    keep(&mut lender, None, 9);
    assert_eq!(lender.invited("a").drained, "");
}

/// An answer from before ranks were kept again says nothing about jobs that have started since.
#[test]
fn an_answer_to_an_earlier_request_does_not_count() {
    let mut lender = lender();
    keep(&mut lender, Some(2), 5);
    lender.drained("");
    keep(&mut lender, None, 6);
    keep(&mut lender, Some(2), 7);
    assert_eq!(lender.invited("a").drained, "");
    lender.drained("");
    lender.settle();
    assert_eq!(lender.invited("a").drained, "6-7");
}

#[test]
fn a_restart_of_the_operator_changes_nothing() {
    let mut lender = lender();
    keep(&mut lender, Some(2), 5);
    lender.drained("");
    lender.settle();
    let (lease, report) = (lender.lease("a").clone(), lender.observed.report.take());
    (lender.observed.now, lender.observed.watching_since) = (after(100), after(99));
    lender.reconcile();
    assert_eq!(*lender.lease("a"), lease, "the lead has not reported yet");
    assert_eq!(lender.drain().since, after(5).to_string());
    lender.observed.report = report;
    lender.at(101);
    lender.reconcile();
    assert_eq!(*lender.lease("a"), lease);
}

#[test]
fn a_lost_status_is_restored_and_the_lead_is_asked_again() {
    let mut lender = lender();
    keep(&mut lender, Some(2), 5);
    lender.drained("");
    lender.settle();
    lender.minicluster.status = None;
    lender.at(20);
    lender.settle();
    assert_eq!(lender.leases(), ["a: 9,8,7,6 Active"]);
    assert_eq!(drained_ranks(&lender), "6-7");
    assert_eq!(lender.drain().since, after(20).to_string());
    assert_eq!(lender.invited("a").drained, "", "the answer is about an earlier request");
    lender.drained("");
    lender.settle();
    assert_eq!(lender.invited("a").drained, "6-7");
}

#[test]
fn a_revoked_invitation_keeps_nothing() {
    let mut lender = lender();
    keep(&mut lender, Some(2), 5);
    lender.drained("");
    lender.settle();
    lender.edit(&json!({ "invitations": [] }));
    lender.at(6);
    lender.reconcile();
    assert_eq!(lender.leases(), ["a: 9,8,7,6 Leaving"]);
    assert_eq!(drained_ranks(&lender), "6-9");
    let lease = lender.invited("a");
    assert_eq!((lease.kept, lease.drained.as_str()), (None, ""));
}
