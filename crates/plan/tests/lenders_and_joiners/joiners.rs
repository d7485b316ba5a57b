//! How a joiner follows its lease.

use crate::fixture::*;
use std::sync::Arc;

use flux_operator_api::minicluster::{Lease, LeaseState};
use flux_operator_flux::IdSet;
use flux_operator_plan::{
    FINALIZER, LenderView, Object, Observed, Outcome, QueryAnswer, ServerReply, Step, Subject,
    decide, queries,
};
use flux_operator_testkit::merge;
use flux_operator_wire::{BootPlan, Drain, Drained};
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
    assert_eq!(leaving(Some("3"), &suspended, 300), "delete joiner", "the time is up");
    // The Burst that it belongs to decides how long.
    let of_burst = json!({ "metadata": { "labels": { "flux-framework.org/burst": "b" } } });
    let of_burst = |patch: &Value| {
        let mut of_burst = of_burst.clone();
        merge(&mut of_burst, patch);
        of_burst
    };
    assert_eq!(leaving(Some("3"), &of_burst(&suspended), 3000), "");
    assert_eq!(leaving(Some(""), &of_burst(&suspended), 10), "delete joiner");
    assert_eq!(leaving(Some("3"), &of_burst(&deleted), 300), left);
    // Its jobs get the whole time, however long it has been suspended.
    let deleted_later = json!({ "metadata": { "deletionTimestamp": after(600).to_string() } });
    assert_eq!(leaving(Some("3"), &of_burst(&deleted_later), 700), "");
    assert_eq!(leaving(Some("3"), &of_burst(&deleted_later), 900), left);
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
