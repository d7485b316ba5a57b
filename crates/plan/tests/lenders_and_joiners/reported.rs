//! What a joiner reports, and which of its brokers may start.

use crate::fixture::*;
use std::sync::Arc;

use flux_operator_api::minicluster::{Lease, LeaseState};
use flux_operator_plan::kubernetes::Settings;
use flux_operator_plan::{LenderView, Observed, Outcome, Permission, decide, permission};
use flux_operator_testkit::merge;
use flux_operator_wire::{BrokerFacts, JoinRequest};
use serde_json::{Value, json};

#[test]
fn a_joiner_without_an_instance_or_ranks_says_why() {
    let seen = |lender: Option<LenderView>| {
        let (steps, reason, message) =
            joined(&joiner(&json!({})), &observed_by_joiner(lender, None));
        assert_eq!(steps, [""; 0], "a waiting joiner has no pods");
        (reason, message)
    };
    let reason = |patch: &Value| seen(Some(lender(patch))).0;
    assert_eq!(seen(None).0, "LenderMissing");
    assert_eq!(reason(&json!({ "metadata": { "deletionTimestamp": START } })), "LenderMissing");
    let chain = json!({ "spec": { "flux": { "join": { "name": "joiner" }, "bursting": null } } });
    let cycle = LenderView {
        minicluster: Arc::new(minicluster("lender", &chain)),
        job: None,
        report: None,
    };
    let (cycle, message) = seen(Some(cycle));
    assert_eq!(cycle, "LenderIsJoiner");
    assert!(message.contains("joins joiner itself"), "{message}");
    let finished = json!([{ "type": "JobFinished", "status": "True", "reason": "Completed",
        "message": "", "lastTransitionTime": START }]);
    assert_eq!(reason(&json!({ "status": { "conditions": finished } })), "LenderFinished");
    assert_eq!(reason(&json!({ "status": { "conditions": [] } })), "LenderNotReady");
    let silent = LenderView { report: None, ..lender(&json!({})) };
    assert_eq!(seen(Some(silent)).0, "LenderNotReady");
    let few = json!({ "spec": { "flux": { "bursting": { "spareRanks": 1 } } } });
    let (few, message) = seen(Some(lender(&few)));
    assert_eq!(few, "NoFreeRanks");
    assert!(message.contains("needs 2 more ranks") && message.contains("1 missing"), "{message}");
    assert_eq!(reason(&json!({})), "Joining", "the lender grants them in a moment");
}

#[test]
fn an_untrue_size_of_the_lender_gives_a_warning() {
    for flux in [
        json!({ "join": null, "bootServer": "lender-0", "bootServerSize": 3 }),
        json!({ "join": null, "connection": "lender", "connectionSize": 3 }),
    ] {
        let joiner = joiner(&json!({ "spec": { "flux": flux } }));
        let observed = observed_by_joiner(Some(lender(&json!({}))), None);
        let decision = decide(&joiner, &observed, &settings());
        let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
        let accepted = status.conditions.iter().find(|it| it.type_ == "Accepted").unwrap();
        assert_eq!(accepted.status, "True");
        assert!(
            accepted.message.contains("is 3, but the cluster it joins has size 2"),
            "{accepted:?}"
        );
    }
}

/// B14: checked before a broker starts.
#[test]
fn b14_brokers_that_do_not_fit_get_no_permission() {
    let lender = leased("2-3", LeaseState::Active, &json!({}));
    let table = table(&lender);
    let asks = |patch: Value| {
        let mut request = json!({ "index": 1, "rank": 3, "table": table, "facts": facts() });
        merge(&mut request, &patch);
        let request = serde_json::from_value(request).unwrap();
        match permission(&joiner(&json!({})), Some(&lender), &request) {
            Permission::Denied(reason, _) => reason.to_string(),
            other => other.result().to_owned(),
        }
    };
    for (patch, result) in [
        (json!({}), "granted"),
        (json!({ "facts": { "version": "0.88.3" } }), "granted"),
        (json!({ "facts": { "version": "" } }), "VersionMismatch"),
        (json!({ "facts": { "cores": 64 } }), "granted"),
        (json!({ "facts": { "version": "0.87.0" } }), "VersionMismatch"),
        (json!({ "facts": { "version": "0.40.0" } }), "FluxTooOld"),
        (json!({ "facts": { "uid": 0 } }), "UidMismatch"),
        (json!({ "facts": { "cores": 1 } }), "FewerCores"),
        (json!({ "table": "another" }), "outdated"),
        (json!({ "rank": 4 }), "outdated"),
        (json!({ "index": 2, "rank": 4 }), "Leaving"),
    ] {
        assert_eq!(asks(patch.clone()), result, "{patch}");
    }
}

/// B15: the last error of a broker that does not join is in the condition.
#[test]
fn b15_why_a_broker_exited_is_reported_until_it_is_online() {
    let seen = |online: &str| {
        let mut lender = leased("2-3", LeaseState::Active, &json!({}));
        lender.report = Some(report(online.parse().unwrap(), None));
        let observed = Observed {
            join_requests: vec![request(facts(), "hello response: version mismatch")],
            ..observed_by_joiner(Some(lender), Some(joiner_job("2-3")))
        };
        joined(&joiner(&with_finalizer()), &observed).2
    };
    let message = seen("0-1");
    assert!(message.contains("the broker of pod 0 exited: hello response"), "{message}");
    assert!(!seen("0-2").contains("exited"), "it is online now");
}

#[test]
fn the_reason_why_a_broker_has_no_permission_is_reported() {
    let observed = Observed {
        join_requests: vec![request(BrokerFacts { uid: 0, ..facts() }, "")],
        ..observed_by_joiner(
            Some(leased("2-3", LeaseState::Active, &json!({}))),
            Some(joiner_job("2-3")),
        )
    };
    let (_, reason, message) = joined(&joiner(&with_finalizer()), &observed);
    assert_eq!(reason, "UidMismatch");
    assert!(message.contains("user 0") && message.contains("user 1000"), "{message}");
}

#[test]
fn brokers_of_a_namespace_that_is_not_allowed_any_more_get_no_permission() {
    let joiner = joiner(&json!({ "metadata": { "namespace": "elsewhere" } }));
    let permitted = |allowed: Value| {
        let spec = json!({ "flux": { "bursting": { "allowedNamespaces": allowed } } });
        let lender = leased("2-3", LeaseState::Active, &json!({ "spec": spec }));
        let table = lender.minicluster.status.as_ref().unwrap().leases[0].table.clone();
        permission(&joiner, Some(&lender), &JoinRequest { table, ..request(facts(), "") })
    };
    assert_eq!(permitted(json!(["elsewhere"])), Permission::Granted);
    assert_eq!(permitted(json!([])).result(), "NotAllowed");
}

#[test]
fn a_joiner_has_joined_when_all_its_brokers_are_online() {
    let seen = |online: &str| {
        let mut lender = leased("2-3", LeaseState::Active, &json!({}));
        lender.report = Some(report(online.parse().unwrap(), None));
        let observed = observed_by_joiner(Some(lender), Some(joiner_job("2-3")));
        let joiner = joiner(&with_finalizer());
        let decision = decide(&joiner, &observed, &settings());
        let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
        let ready = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap().clone();
        (status.phase, status.ready, ready.reason, status.lender, status.ranks)
    };
    let row = |phase: &str, ready: &str, reason: &str| {
        (phase.into(), ready.into(), reason.into(), "lender".into(), "2-3".into())
    };
    assert_eq!(seen("0-1"), row("Pending", "0/2", "Joining"));
    assert_eq!(seen("0-2"), row("Pending", "1/2", "Joining"));
    assert_eq!(seen("0-3"), row("Joined", "2/2", "Joined"));
}

#[test]
fn a_joiner_that_grows_or_shrinks_stays_joined() {
    let seen = |lender: LenderView, size: i32, online: &str| {
        let lender = LenderView { report: Some(report(online.parse().unwrap(), None)), ..lender };
        let mut patch = with_finalizer();
        merge(&mut patch, &json!({ "spec": { "size": size } }));
        let (joiner, observed) =
            (joiner(&patch), observed_by_joiner(Some(lender), Some(joiner_job("2-3"))));
        let decision = decide(&joiner, &observed, &settings());
        let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
        let joined = status.conditions.into_iter().find(|it| it.type_ == "Joined").unwrap();
        format!("{} {} {}", status.phase, joined.status, joined.reason)
    };
    let active = || leased("2-3", LeaseState::Active, &json!({}));
    assert_eq!(seen(active(), 2, "0-3"), "Joined True Joined");
    assert_eq!(seen(active(), 9, "0-3"), "Joined True NoFreeRanks");
    assert_eq!(seen(active(), 9, "0-2"), "Pending False NoFreeRanks");
    assert_eq!(
        seen(leased("2-3", LeaseState::Leaving, &json!({})), 2, "0-3"),
        "Leaving False Leaving"
    );
    let mut shrinking = leased("2", LeaseState::Active, &json!({}));
    let leases = &mut Arc::make_mut(&mut shrinking.minicluster).status.as_mut().unwrap().leases;
    let last = leases[0].clone();
    leases.push(Lease { ranks: "3".into(), state: LeaseState::Leaving, ..last });
    assert_eq!(seen(shrinking, 1, "0-3"), "Joined True Leaving");
    assert_eq!(seen(active(), 3, "0-3"), "Joined True Joining", "it gets one more in a moment");
}

fn request(facts: BrokerFacts, error: &str) -> JoinRequest {
    let (table, last_error) = (String::new(), error.to_owned());
    JoinRequest { index: 0, rank: 2, table, facts, last_error, refusal: None }
}

#[test]
fn a_lender_that_does_not_allow_a_namespace_shows_nothing_else() {
    let elsewhere = json!({ "metadata": { "namespace": "elsewhere" }, "spec": { "flux":
        { "join": null, "bootServer": "lender-0.a.hpc", "bootServerSize": 9 } } });
    let deleted = json!({ "metadata": { "deletionTimestamp": START } });
    let mut joins = lender(&json!({}));
    let chain = json!({ "spec": { "flux": { "join": { "name": "secret" }, "bursting": null } } });
    joins.minicluster = Arc::new(minicluster("lender", &chain));
    let lenders = [json!({}), deleted, json!({ "status": { "conditions": [] } })];
    let lenders = lenders.map(|patch| (patch.clone(), lender(&patch)));
    for (patch, lender) in lenders.into_iter().chain([(chain, joins)]) {
        let observed = observed_by_joiner(Some(lender), None);
        let joiner = joiner(&elsewhere);
        let (steps, reason, _) = joined(&joiner, &observed);
        assert_eq!((steps, reason.as_str()), (vec![], "NotAllowed"), "{patch}");
        let decision = decide(&joiner, &observed, &settings());
        let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
        assert!(!status.conditions.iter().any(|it| it.message.contains("size")), "{patch}");
    }
}

#[test]
fn without_reports_and_with_an_old_lender_no_broker_can_join() {
    let lender = leased("2-3", LeaseState::Active, &json!({}));
    let observed = observed_by_joiner(Some(lender.clone()), None);
    let joiner = joiner(&with_finalizer());
    let silent = Settings { report_url: None, ..settings() };
    let decision = decide(&joiner, &observed, &silent);
    assert_eq!(decision.steps.len(), 0);
    let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
    let condition = status.conditions.iter().find(|it| it.type_ == "Joined").unwrap();
    assert!(condition.message.contains("--report-url"), "{condition:?}");
    let mut old = lender;
    let annotations = Arc::make_mut(old.job.as_mut().unwrap()).metadata.annotations.as_mut();
    annotations.unwrap().remove("flux-framework.org/table");
    let (steps, reason, message) = joined(&joiner, &observed_by_joiner(Some(old), None));
    assert_eq!((steps, reason.as_str()), (vec![], "LenderNotReady"));
    assert!(message.contains("an earlier version of the operator"), "{message}");
}

/// A restarted operator has no report of the lead yet. The lender's status has what the lead has
/// reported before, and the pods show which brokers have joined since.
#[test]
fn a_restarted_operator_changes_no_condition() {
    let pod = |index: &str, ready: bool| {
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "joiner", "uid": "joiner-job" });
        let annotations = json!({ "batch.kubernetes.io/job-completion-index": index });
        let container = json!({ "name": "joiner", "image": "a", "imageID": "", "ready": ready,
            "restartCount": 0, "state": { "running": { "startedAt": START } } });
        let pod = json!({
            "metadata": { "name": index, "ownerReferences": [owner], "annotations": annotations },
            "status": { "phase": "Running", "containerStatuses": [container] },
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    let seen = |state, reported: &str, last_ready: bool, before: (&str, &str), seconds| {
        let status = json!({ "status": { "online": reported } });
        let lender = LenderView { report: None, ..leased("2-3", state, &status) };
        let mut patch = with_finalizer();
        let joined = json!({ "type": "Joined", "status": "False", "reason": before.0,
            "message": before.1, "lastTransitionTime": START });
        merge(&mut patch, &json!({ "status": { "conditions": [joined] } }));
        let observed = Observed {
            pods: vec![pod("0", true), pod("1", last_ready)],
            now: after(seconds),
            ..observed_by_joiner(Some(lender), Some(joiner_job("2-3")))
        };
        let (_, reason, message) = self::joined(&joiner(&patch), &observed);
        format!("{reason}: {message}")
    };
    let active = |reported, last_ready, before, seconds| {
        seen(LeaseState::Active, reported, last_ready, before, seconds)
    };
    let (joined, joining) = (("Joined", "a"), ("Joining", "a"));
    assert_eq!(active("", true, joining, 0), "Joined: ranks 2-3 of \"lender\" are online");
    assert_eq!(active("0-3", false, joined, 0), "Joined: ranks 2-3 of \"lender\" are online");
    assert!(active("0-1", false, joined, 0).starts_with("Joining: "), "one broker is missing");
    assert_eq!(active("0-1", false, ("UidMismatch", "a"), 0), "UidMismatch: a");
    assert!(active("0-1", false, ("LenderMissing", "a"), 0).starts_with("Joining: "));
    let unreported = active("", false, joining, 0);
    assert!(unreported.starts_with("LenderNotReady: "), "it has never reported");
    let silent = active("0-3", false, joined, 45);
    assert!(silent.starts_with("LenderNotReady: "), "it has had the time to report");
    let leaving = |before| seen(LeaseState::Leaving, "0-3", true, before, 0);
    let busy = "ranks 2-3 are given back: waiting for jobs on 3";
    assert_eq!(leaving(("Leaving", busy)), format!("Leaving: {busy}"));
    assert_eq!(leaving(joined), "Leaving: ranks 2-3 are given back");
}
