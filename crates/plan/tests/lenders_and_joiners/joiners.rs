//! How a joiner follows its lease, and what it reports.

use crate::fixture::*;
use std::sync::Arc;

use flux_operator_api::minicluster::{Lease, LeaseState};
use flux_operator_flux::IdSet;
use flux_operator_plan::kubernetes::Settings;
use flux_operator_plan::{
    FINALIZER, LenderView, Object, Observed, Outcome, Permission, QueryAnswer, ServerReply, Step,
    Subject, decide, permission, queries,
};
use flux_operator_testkit::merge;
use flux_operator_wire::{BootPlan, BrokerFacts, Drain, Drained, JoinRequest};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

#[test]
fn a_running_cluster_is_not_turned_into_a_joiner() {
    let plain = minicluster("joiner", &json!({ "spec": { "size": 2, "interactive": true } }));
    let mut job = job_of(&plain, &Observed::empty(after(0)), "joiner-job");
    job.status = Some(serde_json::from_value(json!({ "failed": 1 })).unwrap());
    for lender in [None, Some(lender(&json!({})))] {
        let observed = observed_by_joiner(lender, Some(job.clone()));
        let edited = joiner(&json!({ "spec": { "interactive": true } }));
        let decision = decide(&edited, &observed, &settings());
        assert_eq!(decision.steps, []);
        let message = decision.blocker().unwrap().to_string();
        assert!(message.contains("spec.flux.join"), "{message}");
    }
}

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
fn a_joiner_with_a_lease_gets_its_objects_after_its_finalizer() {
    let lender = leased("2-3", LeaseState::Active, &json!({}));
    let observed = observed_by_joiner(Some(lender.clone()), None);
    let (steps, reason, _) = joined(&joiner(&json!({})), &observed);
    assert_eq!(
        (steps, reason.as_str()),
        (vec![format!("finalizers [\"{FINALIZER}\"]")], "Joining")
    );
    let (steps, ..) = joined(&joiner(&with_finalizer()), &observed);
    assert_eq!(steps, ["keys", "certificate", "job"]);
    let finalized = joiner(&with_finalizer());
    let decision = decide(&finalized, &observed, &settings());
    let plan = decision.steps.iter().find_map(|step| match step {
        Step::CreateOrApply(Object::ConfigMap(map)) => Some(map.data.clone().unwrap()),
        _ => None,
    });
    let plan: BootPlan = serde_json::from_str(&plan.unwrap()["boot.json"]).unwrap();
    let join = plan.join.unwrap();
    assert_eq!((join.ranks.to_string().as_str(), join.job.as_str()), ("2-3", "lender-job"));
    assert_eq!(plan.hosts.to_string(), "lender-[0-1],lender-spare-[0-3]");
    assert_eq!(plan.lead, "tcp://lender-0.lender.hpc.svc.cluster.local:8050");
    assert_eq!(plan.broker.topology, "kary:0");
    let job = joiner_job("2-3");
    let spec = job.spec.clone().unwrap();
    assert_eq!((spec.completions, spec.success_policy), (Some(2), None));
    let sources = spec.template.spec.unwrap().volumes.unwrap();
    let keys = sources.into_iter().find(|volume| volume.name == "flux-operator-keys").unwrap();
    let sources = json!(keys.projected.unwrap().sources);
    assert_eq!(sources[1]["secret"]["name"], "joiner-lender-lenderjo");
    assert_eq!(sources[1]["secret"]["items"][0]["key"], "curve.cert");
}

#[test]
fn the_job_follows_the_lease() {
    let seen = |lender: LenderView, job: &str, size: i32| {
        let mut patch = with_finalizer();
        merge(&mut patch, &json!({ "spec": { "size": size } }));
        let (steps, ..) =
            joined(&joiner(&patch), &observed_by_joiner(Some(lender), Some(joiner_job(job))));
        steps
    };
    let active = |ranks: &str| leased(ranks, LeaseState::Active, &json!({}));
    assert_eq!(seen(active("2-3"), "2-3", 2), [""; 0], "settled");
    assert_eq!(seen(active("2-4"), "2-3", 3), ["note", "resize 3"]);
    assert_eq!(seen(active("2"), "2-3", 1), ["resize 1"], "the other is not leased any more");
    assert_eq!(seen(lender(&json!({})), "2-3", 2), [""; 0], "the lender records it again");
    let mut taken = leased("2-3", LeaseState::Active, &json!({}));
    let other = Arc::make_mut(&mut taken.minicluster).status.as_mut().unwrap();
    other.leases[0].holder = "another".into();
    assert_eq!(seen(taken, "2-3", 2), ["delete joiner"], "it was given away");
    let mut again = active("2-3");
    Arc::make_mut(again.job.as_mut().unwrap()).metadata.uid = Some("another".into());
    assert_eq!(seen(again, "2-3", 2), ["delete joiner"], "another instance");
    let ended = json!({ "metadata": { "deletionTimestamp": START } });
    assert_eq!(seen(leased("2-3", LeaseState::Active, &ended), "2-3", 2), ["delete joiner"]);
    let mut refused = active("2-3");
    Arc::make_mut(&mut refused.minicluster).spec.size = -1;
    assert_eq!(seen(refused, "2-3", 2), [""; 0], "what has joined stays");
}

/// A joiner that is deleted or suspended waits for the jobs that the lead reports.
#[test]
fn b33_jobs_are_waited_for_before_brokers_stop() {
    let leaving = |drained: Option<&str>, patch: &Value, seconds: i64| {
        let mut lender = leased("2-3", LeaseState::Leaving, &json!({}));
        let asked = Drain { ranks: "2-3".parse().unwrap(), since: START.into() };
        let drained = drained.map(|busy| Drained { asked, busy: busy.parse().unwrap() });
        lender.report = Some(report("0-3".parse().unwrap(), drained));
        let mut joiner_patch = with_finalizer();
        merge(&mut joiner_patch, patch);
        let observed = Observed {
            now: after(seconds),
            ..observed_by_joiner(Some(lender), Some(joiner_job("2-3")))
        };
        let (steps, reason, _) = joined(&joiner(&joiner_patch), &observed);
        // The finalizer is the last thing that is written.
        assert!(reason == "Leaving" || steps.last().unwrap() == "finalizers []", "{reason}");
        steps.join(", ")
    };
    let deleted = json!({ "metadata": { "deletionTimestamp": START } });
    assert_eq!(leaving(None, &deleted, 10), "", "the lead has not drained them");
    assert_eq!(leaving(Some("3"), &deleted, 10), "", "a job runs there");
    let left = "delete joiner, finalizers []";
    assert_eq!(leaving(Some(""), &deleted, 10), left);
    assert_eq!(leaving(Some("3"), &deleted, 300), left, "the time is up");
    let mut shorter = deleted.clone();
    merge(&mut shorter, &json!({ "spec": { "pod": { "terminationGracePeriodSeconds": 5 } } }));
    assert_eq!(leaving(Some("3"), &shorter, 5), left);
    let suspended = json!({ "spec": { "suspend": true } });
    assert_eq!(leaving(Some("3"), &suspended, 10), "");
    assert_eq!(leaving(Some(""), &suspended, 10), "delete joiner");
}

/// A joiner that gives back some of its ranks, whose jobs have finished.
#[test]
fn b33_jobs_on_the_other_ranks_are_waited_for_too() {
    let mut lender = leased("2", LeaseState::Active, &json!({}));
    let leases = &mut Arc::make_mut(&mut lender.minicluster).status.as_mut().unwrap().leases;
    let last = leases[0].clone();
    leases.push(Lease { ranks: "3".into(), state: LeaseState::Leaving, ..last });
    let asked = Drain { ranks: "3".parse().unwrap(), since: START.into() };
    let drained = Drained { asked, busy: IdSet::new() };
    lender.report = Some(report("0-3".parse().unwrap(), Some(drained)));
    let observed = observed_by_joiner(Some(lender), Some(joiner_job("2-3")));
    let steps = |patch: &Value| {
        let mut joiner_patch = with_finalizer();
        merge(&mut joiner_patch, patch);
        joined(&joiner(&joiner_patch), &observed).0
    };
    assert_eq!(steps(&json!({ "spec": { "size": 1 } })), ["resize 1"]);
    let deleted = json!({ "metadata": { "deletionTimestamp": START } });
    assert_eq!(steps(&deleted), [""; 0], "the lender does not drain rank 2 yet");
}

/// With `--cascade=orphan` Kubernetes leaves the Job alone, and its ranks are lent to another.
#[test]
fn the_brokers_of_an_orphaned_job_are_stopped() {
    let mut patch = with_finalizer();
    merge(&mut patch, &json!({ "metadata": { "deletionTimestamp": START } }));
    let steps = |owners: Value| {
        let mut job = joiner_job("2-3");
        job.metadata.owner_references = serde_json::from_value(owners).unwrap();
        joined(&joiner(&patch), &observed_by_joiner(None, Some(job))).0
    };
    assert_eq!(steps(json!([])), ["delete joiner", "finalizers []"]);
    let other = json!([{ "apiVersion": "a", "kind": "b", "name": "c", "uid": "another" }]);
    assert_eq!(steps(other), ["finalizers []"], "it belongs to another");
}

/// A joiner without ranks has no pods, also not the one with its services.
#[test]
fn the_services_of_a_joiner_stop_with_its_brokers() {
    let owner = json!([{ "apiVersion": "a", "kind": "b", "name": "c", "uid": "joiner-uid" }]);
    let pod = |owner: &Value| {
        let labels = json!({ "job-index": "services" });
        let metadata = json!({ "name": "services", "labels": labels, "ownerReferences": owner });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    };
    let steps = |lender: Option<LenderView>, job: Option<Job>, owner: &Value| {
        let observed = Observed { pods: vec![pod(owner)], ..observed_by_joiner(lender, job) };
        joined(&joiner(&with_finalizer()), &observed).0
    };
    let job = || Some(joiner_job("2-3"));
    assert_eq!(steps(None, job(), &owner), ["delete joiner", "delete services"]);
    assert_eq!(steps(None, None, &owner), ["delete services"]);
    assert_eq!(steps(Some(lender(&json!({}))), None, &owner), ["delete services"]);
    assert_eq!(steps(None, None, &json!([])), [""; 0], "it belongs to another");
    let leased = leased("2-3", LeaseState::Active, &json!({}));
    assert_eq!(steps(Some(leased), job(), &owner), [""; 0], "it has brokers");
}

#[test]
fn a_finalizer_does_not_outlive_the_lender_or_the_namespace() {
    let mut patch = with_finalizer();
    merge(&mut patch, &json!({ "metadata": { "deletionTimestamp": START } }));
    let joiner = joiner(&patch);
    let removed = |observed: &Observed| {
        let decision = decide(&joiner, observed, &settings());
        matches!(&decision.steps[..], [.., Step::PatchSelf(_)])
    };
    let job = || Some(joiner_job("2-3"));
    let leased = || leased("2-3", LeaseState::Active, &json!({}));
    assert!(!removed(&observed_by_joiner(Some(leased()), job())), "it waits for the lender");
    assert!(removed(&observed_by_joiner(None, job())), "there is no lender");
    assert!(removed(&observed_by_joiner(Some(leased()), None)), "it has no brokers");
    let mut observed = observed_by_joiner(Some(leased()), job());
    for query in queries(&joiner, &observed) {
        assert_eq!(query.subject, Subject::Namespace);
        let answer = QueryAnswer::new(&joiner, query, Some(ServerReply::Deleted), after(0));
        observed.add_answer(answer);
    }
    assert!(removed(&observed), "the namespace is being deleted");
}

#[test]
fn a_suspended_lender_suspends_its_joiners() {
    let mut lender = leased("2-3", LeaseState::Active, &json!({}));
    let spec = Arc::make_mut(lender.job.as_mut().unwrap()).spec.as_mut().unwrap();
    spec.suspend = Some(true);
    let observed = observed_by_joiner(Some(lender), Some(joiner_job("2-3")));
    let finalized = joiner(&with_finalizer());
    let decision = decide(&finalized, &observed, &settings());
    let patch = decision.steps.iter().find_map(|step| match step {
        Step::Patch { patch, .. } => Some(patch),
        _ => None,
    });
    assert_eq!(patch.unwrap()["spec"]["suspend"], true);
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
    JoinRequest { index: 0, rank: 2, table, facts, last_error }
}

/// Neither an invalid edit nor a failure keeps a joiner from leaving.
#[test]
fn a_refused_joiner_leaves_all_the_same() {
    let mut lender = leased("2-3", LeaseState::Leaving, &json!({}));
    let refused = json!({ "spec": { "flux": { "bursting": { "spareRanks": 1 } } } });
    let steps = |lender: &LenderView| {
        let mut patch = with_finalizer();
        merge(&mut patch, &refused);
        let (joiner, job) = (joiner(&patch), Some(joiner_job("2-3")));
        let observed = observed_by_joiner(Some(lender.clone()), job);
        let decision = decide(&joiner, &observed, &settings());
        assert!(decision.refusal().unwrap().contains("spareRanks"));
        let conclusion = decision.conclude(&Outcome::all(&decision.steps));
        let deleted = decision.steps.iter().any(|step| matches!(step, Step::Delete(_)));
        assert!(deleted || conclusion.requeue_at.is_some(), "the time is up at some time");
        deleted
    };
    assert!(!steps(&lender), "the lead has not drained its ranks");
    let asked = Drain { ranks: "2-3".parse().unwrap(), since: START.into() };
    let drained = Drained { asked, busy: IdSet::new() };
    lender.report = Some(report("0-3".parse().unwrap(), Some(drained)));
    assert!(steps(&lender));
}

#[test]
fn a_joiner_that_is_being_deleted_waits_for_nothing_that_cannot_happen() {
    let mut patch = with_finalizer();
    merge(&mut patch, &json!({ "metadata": { "deletionTimestamp": START } }));
    let joiner = joiner(&patch);
    let decided = |observed: &Observed| {
        let decision = decide(&joiner, observed, &settings());
        let is_removed = matches!(&decision.steps[..], [.., Step::PatchSelf(_)]);
        let conclusion = decision.conclude(&Outcome::all(&decision.steps));
        assert!(is_removed || conclusion.requeue_at > Some(observed.now), "it is decided again");
        is_removed
    };
    let job = || Some(joiner_job("2-3"));
    let unleased = || lender(&json!({}));
    let lost = observed_by_joiner(Some(unleased()), job());
    assert!(!decided(&lost), "the lender records the lease again");
    let mut failed = joiner_job("2-3");
    let condition = json!([{ "type": "Failed", "status": "True" }]);
    failed.status = Some(serde_json::from_value(json!({ "conditions": condition })).unwrap());
    assert!(decided(&observed_by_joiner(Some(unleased()), Some(failed))), "its Job has failed");
    let active = leased("2-3", LeaseState::Active, &json!({}));
    let waits = observed_by_joiner(Some(active), job());
    assert!(!decided(&waits));
    let overdue = Observed { now: after(360), ..waits };
    assert!(decided(&overdue), "the lender does not react");
    let unknown = Observed { undecodable: vec!["a".into()], ..observed_by_joiner(None, job()) };
    assert!(!decided(&unknown), "its lender exists, and its jobs may run");
    let panicked =
        Observed { read_panic: Some("a panic".into()), ..observed_by_joiner(None, job()) };
    assert!(decided(&panicked));
}

#[test]
fn a_lender_that_cannot_be_decoded_keeps_its_joiners() {
    let job = Some(joiner_job("2-3"));
    let observed = Observed { undecodable: vec!["a".into()], ..observed_by_joiner(None, job) };
    let (steps, reason, message) = joined(&joiner(&with_finalizer()), &observed);
    assert_eq!((steps, reason.as_str()), (vec![], "LenderNotReady"));
    assert!(message.contains("cannot be decoded"), "{message}");
}

/// A lead that is unready for a moment still runs jobs.
#[test]
fn b33_jobs_are_waited_for_as_long_as_the_lead_reports() {
    let asked = Drain { ranks: "2-3".parse().unwrap(), since: START.into() };
    let busy = Drained { asked, busy: "3".parse().unwrap() };
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False",
        "reason": "LeadNotReady", "message": "", "lastTransitionTime": START }] } });
    let mut lender = leased("2-3", LeaseState::Leaving, &unready);
    lender.report = Some(report("0-3".parse().unwrap(), Some(busy)));
    let mut patch = with_finalizer();
    merge(&mut patch, &json!({ "spec": { "suspend": true } }));
    let leaving = |lender: LenderView| {
        let observed = observed_by_joiner(Some(lender), Some(joiner_job("2-3")));
        joined(&joiner(&patch), &observed).0.concat()
    };
    assert_eq!(leaving(lender.clone()), "");
    assert_eq!(leaving(LenderView { report: None, ..lender }), "delete joiner", "there is no lead");
}

/// The boot plan of another build, or of a Job whose spec has changed, stays as it is but for ranks.
#[test]
fn a_joiner_grows_also_after_an_upgrade_or_an_edit() {
    let lender = leased("2-4", LeaseState::Active, &json!({}));
    let map = json!({ "metadata": { "name": "joiner-entrypoint" }, "data":
        { "boot.json": json!({ "join": { "ranks": "2-3" }, "another": 1 }).to_string() } });
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    let upgraded = |job: &mut Job| {
        let name = "flux-framework.org/version".to_owned();
        job.metadata.annotations.as_mut().unwrap().insert(name, "0.0.1".into());
    };
    let edited = json!({ "spec": { "tasks": 7 } });
    for (is_upgraded, edit) in [(true, json!({})), (false, edited)] {
        let mut job = joiner_job("2-3");
        job.status = Some(serde_json::from_value(json!({ "failed": 1 })).unwrap());
        if is_upgraded {
            upgraded(&mut job);
        }
        let mut patch = with_finalizer();
        merge(&mut patch, &json!({ "spec": { "size": 3 } }));
        merge(&mut patch, &edit);
        let observed = Observed {
            config_map: Some(Arc::new(map.clone())),
            ..observed_by_joiner(Some(lender.clone()), Some(job))
        };
        let joiner = joiner(&patch);
        let decision = decide(&joiner, &observed, &settings());
        let steps: Vec<String> = decision
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Apply { object: Object::ConfigMap(map), .. } => {
                    let plan = &map.data.as_ref().unwrap()["boot.json"];
                    let plan: Value = serde_json::from_str(plan).unwrap();
                    Some(plan.to_string())
                }
                Step::Patch { patch, .. } => Some(match patch["spec"]["completions"].as_i64() {
                    Some(size) => size.to_string(),
                    None => "note".to_owned(),
                }),
                _ => None,
            })
            .collect();
        // A broker may start on a rank of the boot plan only if the Job notes it.
        let expected = ["note", r#"{"another":1,"join":{"ranks":"2-4"}}"#, "3"];
        assert_eq!(steps, expected, "{is_upgraded}");
    }
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
