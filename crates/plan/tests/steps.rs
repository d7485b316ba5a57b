//! The steps in each situation that a reconciliation may find.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{DeliveryMethod, NewCertificate, Settings};
use flux_operator_plan::{
    Blocker, Object, Observed, Outcome, QueryAnswer, ServerReply, Step, Subject, Target,
    TargetKind, decide, queries,
};
use flux_operator_testkit::{merge, smallest_minicluster};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:01:00Z";

#[test]
fn everything_is_created_and_the_job_last() {
    let plan = test_decision(&minicluster(json!({})), &observed_nothing());
    let kinds: Vec<&str> = plan.steps.iter().map(kind).collect();
    assert_eq!(kinds, ["keys", "config map", "service", "job"]);
}

/// The key of reports is in it.
#[test]
fn a_secret_of_ours_is_created_and_mounted_beside_that_of_the_user() {
    let flux = json!({ "spec": { "flux": { "curveCertSecret": "mine" } } });
    let plan = test_decision(&minicluster(flux), &observed_nothing());
    let kinds: Vec<&str> = plan.steps.iter().map(kind).collect();
    assert_eq!(kinds, ["keys", "config map", "service", "job"]);
    let Some(Step::CreateKeys(keys)) = plan.steps.first() else { panic!("keys are first") };
    assert!(matches!(keys.certificate, NewCertificate::Elsewhere), "only the user has it");
    let Some(Step::Create(Object::Job(job))) = plan.steps.last() else { panic!("a Job is last") };
    let volumes = json!(job)["spec"]["template"]["spec"]["volumes"].clone();
    let sources: Vec<(&str, &str)> = volumes
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|volume| volume["projected"]["sources"].as_array())
        .flatten()
        .map(|source| {
            let secret = &source["secret"];
            (secret["name"].as_str().unwrap(), secret["items"][0]["key"].as_str().unwrap())
        })
        .collect();
    assert_eq!(sources, [("fs-flux-00001111", "report.key"), ("mine", "curve.cert")]);
}

#[test]
fn a_settled_cluster_is_left_alone() {
    let minicluster = minicluster(json!({}));
    assert_eq!(test_decision(&minicluster, &settled(&minicluster)).steps, []);
}

#[test]
fn services_and_sidecars_have_objects_of_their_own() {
    let containers = json!([{ "runFlux": true }, { "name": "web", "ports": [80, 443] }]);
    let minicluster = minicluster(json!({ "spec": {
        "containers": containers,
        "services": [{ "name": "db", "image": "redis" }],
        "network": { "headlessName": "shared" },
    } }));
    let steps = test_decision(&minicluster, &observed_nothing()).steps;
    let kinds: Vec<&str> = steps.iter().map(kind).collect();
    assert_eq!(kinds, ["keys", "config map", "service", "service", "pod", "job"]);
    let managers: Vec<&str> = steps.iter().filter_map(manager).collect();
    assert_eq!(managers, ["flux-operator-fs"], "each cluster applies what is shared");
    assert_eq!(test_decision(&minicluster, &settled(&minicluster)).steps, []);
}

#[test]
fn services_wait_for_quota_with_their_cluster() {
    let spec = json!({ "queue": "batch", "services": [{ "name": "db", "image": "redis" }] });
    let waiting = minicluster(json!({ "spec": spec }));
    let kinds = |minicluster: &MiniCluster| -> Vec<&str> {
        test_decision(minicluster, &observed_nothing()).steps.iter().map(kind).collect()
    };
    assert_eq!(kinds(&waiting), ["keys", "config map", "service", "job"]);
    let admission = json!({ "admission": { "queue": "hpc/batch", "size": 1 } });
    let admitted = minicluster(json!({ "spec": spec, "status": admission }));
    assert_eq!(kinds(&admitted), ["keys", "config map", "service", "pod", "job"]);
}

fn manager(step: &Step) -> Option<&str> {
    if let Step::Apply { manager, .. } = step { Some(manager) } else { None }
}

#[test]
fn changes_by_another_client_are_corrected() {
    let minicluster = minicluster(json!({}));
    let mut observed = settled(&minicluster);
    let mut map = (**observed.config_map.as_ref().unwrap()).clone();
    map.data.as_mut().unwrap().insert("boot.json".into(), "{}".into());
    observed.config_map = Some(Arc::new(map));
    observed.services.clear();
    let steps: Vec<Step> = test_decision(&minicluster, &observed).steps;
    assert_eq!(steps.iter().map(kind).collect::<Vec<_>>(), ["config map", "service"]);
}

#[test]
fn objects_of_another_build_are_not_rewritten() {
    // All but the first are other builds of this release.
    let release = env!("CARGO_PKG_VERSION");
    let builds = [format!("{release}+plan2"), format!("{release}+0123456789abcdef")];
    for version in ["0.0.1", release].map(str::to_owned).into_iter().chain(builds) {
        let minicluster = minicluster(json!({}));
        let mut observed = settled(&minicluster);
        change_job(
            &mut observed,
            json!({ "metadata": { "annotations": { "flux-framework.org/version": version } } }),
        );
        let mut map = (**observed.config_map.as_ref().unwrap()).clone();
        map.data.as_mut().unwrap().insert("boot.json".into(), "{}".into());
        observed.config_map = Some(Arc::new(map));
        assert_eq!(test_decision(&minicluster, &observed).steps, [], "{version}");
    }
}

#[test]
fn a_change_before_the_start_replaces_the_job_and_after_it_is_refused_with_its_field() {
    let before = minicluster(json!({}));
    let after = minicluster(json!({ "spec": { "containers": [{ "image": "other" }] } }));
    let mut observed = settled(&before);
    assert_eq!(test_decision(&after, &observed).steps, [delete_job()]);
    observed.pods = vec![pod("fs-0-x", json!({ "status": { "phase": "Running" } }))];
    let fields = vec!["spec.containers[0].image".to_owned()];
    let plan = test_decision(&after, &observed);
    assert_eq!(plan.steps.iter().map(kind).collect::<Vec<_>>(), ["label"]);
    assert_eq!(plan.blocker, Some(Blocker::Immutable(fields.clone())));
    let mut suspended = after;
    suspended.spec.suspend = true;
    let plan = test_decision(&suspended, &observed);
    assert_eq!(plan.steps.iter().map(kind).collect::<Vec<_>>(), ["patch job", "label"]);
    assert_eq!(plan.blocker, Some(Blocker::Immutable(fields)), "it can still be stopped");
}

#[test]
fn a_terminating_job_is_waited_for_and_one_of_another_owner_is_left_alone() {
    let minicluster = minicluster(json!({}));
    let mut observed = settled(&minicluster);
    change_job(&mut observed, json!({ "metadata": { "deletionTimestamp": NOW } }));
    assert_eq!(test_decision(&minicluster, &observed).steps, []);
    let mut observed = settled(&minicluster);
    change_job(&mut observed, json!({ "metadata": { "ownerReferences": null } }));
    let plan = test_decision(&minicluster, &observed);
    assert_eq!((plan.steps.len(), plan.blocker), (0, Some(Blocker::NotOurs)));
    // A Job of a former MiniCluster of this name is deleted with it.
    let owner = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "name": "fs", "uid": "before" });
    change_job(&mut observed, json!({ "metadata": { "ownerReferences": [owner] } }));
    let plan = test_decision(&minicluster, &observed);
    assert_eq!((plan.steps.len(), plan.blocker), (0, None));
}

#[test]
fn a_job_in_a_namespace_that_is_being_deleted_is_deleted() {
    let minicluster = minicluster(json!({}));
    let mut observed = settled(&minicluster);
    assert_eq!(queries(&minicluster, &observed), []);
    observed.pods = vec![pod("fs-0-x", json!({ "metadata": { "deletionTimestamp": NOW } }))];
    assert_eq!(ask(&minicluster, &mut observed, ServerReply::Deleted), [Subject::Namespace]);
    assert_eq!(test_decision(&minicluster, &observed).steps, [delete_job()]);
    observed.answers.clear();
    ask(&minicluster, &mut observed, ServerReply::Exists);
    assert_eq!(test_decision(&minicluster, &observed).steps, []);
}

/// The Job may have been deleted with its owner, while the watch of MiniClusters lags behind.
#[test]
fn a_deleted_job_is_created_again_only_for_an_owner_that_exists() {
    let status = json!({ "status": { "size": 1, "conditions": [{ "type": "Ready",
        "status": "True", "reason": "Quorum", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
    let running = minicluster(status);
    let mut observed = observed_nothing();
    assert_eq!(ask(&running, &mut observed, ServerReply::Deleted), [Subject::MiniCluster]);
    let decided = test_decision(&running, &observed);
    assert_eq!((decided.steps, decided.status), (vec![], false));
    observed.answers.clear();
    ask(&running, &mut observed, ServerReply::Exists);
    assert_eq!(test_decision(&running, &observed).steps.last().map(kind), Some("job"));
    assert_eq!(
        queries(&minicluster(json!({})), &observed_nothing()),
        [],
        "a new one is not asked about"
    );
}

/// Makes all queries, and answers each with this reply.
fn ask(minicluster: &MiniCluster, observed: &mut Observed, reply: ServerReply) -> Vec<Subject> {
    let queries = queries(minicluster, observed);
    let subjects = queries.iter().map(|query| query.subject.clone()).collect();
    let answer = |query| QueryAnswer::new(minicluster, query, Some(reply.clone()), observed.now);
    let answers: Vec<QueryAnswer> = queries.into_iter().map(answer).collect();
    observed.answers.extend(answers);
    subjects
}

#[test]
fn the_lead_gets_the_label_that_users_select_by() {
    let minicluster = minicluster(json!({}));
    let mut observed = settled(&minicluster);
    observed.pods = vec![pod("fs-0-x", json!({}))];
    let patch = json!({ "metadata": { "labels": { "job-index": "0" } } });
    let target = Target { kind: TargetKind::Pod, name: "fs-0-x".into(), uid: None };
    assert_eq!(test_decision(&minicluster, &observed).steps, [Step::Patch { target, patch }]);
    observed.pods = vec![pod("fs-0-x", json!({ "metadata": { "labels": { "job-index": "0" } } }))];
    assert_eq!(test_decision(&minicluster, &observed).steps, []);
}

#[test]
fn hosts_are_those_the_cluster_was_started_with() {
    let small = minicluster(json!({ "spec": { "size": 4 } }));
    let mut observed = settled(&small);
    let labels = json!({ "job-index": "0" });
    let running = json!({ "metadata": { "labels": labels }, "status": { "phase": "Running" } });
    observed.pods = vec![pod("fs-0-x", running)];
    let less = minicluster(json!({ "spec": { "size": 2 } }));
    let steps = test_decision(&less, &observed).steps;
    let kinds: Vec<&str> = steps.iter().map(kind).collect();
    assert_eq!(kinds, ["config map", "patch job"]);
    let Step::Apply { object: Object::ConfigMap(map), .. } = &steps[0] else { panic!() };
    assert!(map.data.as_ref().unwrap()["boot.json"].contains("fs-[0-3]"));
    let more = minicluster(json!({ "spec": { "size": 5 } }));
    let plan = test_decision(&more, &observed);
    assert_eq!(
        (plan.steps.len(), plan.blocker),
        (0, Some(Blocker::TooLarge { size: 5, ranks: 4 }))
    );
}

#[test]
fn a_finished_cluster_is_not_created_again() {
    let decided = test_decision(&finished(json!({})), &observed_nothing());
    assert_eq!((decided.steps, decided.requeue_at), (vec![], None));
}

#[test]
fn a_finished_cluster_is_deleted_if_requested() {
    let cleanup = finished(json!({ "spec": { "cleanup": true } }));
    assert_eq!(test_decision(&cleanup, &observed_nothing()).steps, [Step::DeleteSelf]);
    let stays = finished(json!({ "spec": { "ttlSecondsAfterFinished": 61 } }));
    let plan = test_decision(&stays, &observed_nothing());
    assert_eq!(
        (plan.steps.len(), plan.requeue_at),
        (0, Some("2026-01-01T00:01:01Z".parse().unwrap()))
    );
    let leaves = finished(json!({ "spec": { "ttlSecondsAfterFinished": 60 } }));
    assert_eq!(test_decision(&leaves, &observed_nothing()).steps, [Step::DeleteSelf]);
}

fn minicluster(patch: Value) -> MiniCluster {
    let mut manifest = smallest_minicluster("fs");
    merge(&mut manifest, &json!({ "metadata": { "namespace": "hpc", "uid": "0000-1111" } }));
    merge(&mut manifest, &patch);
    serde_json::from_value(manifest).unwrap()
}

/// A MiniCluster that finished a minute ago.
fn finished(patch: Value) -> MiniCluster {
    let condition = json!({ "type": "JobFinished", "status": "True", "reason": "Completed",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let mut all = json!({ "status": { "size": 0, "conditions": [condition] } });
    merge(&mut all, &patch);
    minicluster(all)
}

fn observed_nothing() -> Observed {
    Observed::empty(NOW.parse().unwrap())
}

/// The observed state after every step for a MiniCluster has been applied.
fn settled(minicluster: &MiniCluster) -> Observed {
    let mut observed = observed_nothing();
    for step in test_decision(minicluster, &observed).steps {
        match step {
            Step::Create(object) | Step::CreateOrApply(object) | Step::Apply { object, .. } => {
                match object {
                    Object::ConfigMap(map) => observed.config_map = Some(map.into()),
                    Object::Service(service) => observed.services.push(service.into()),
                    Object::EndpointSlice(slice) => observed.endpoint_slices.push(slice.into()),
                    Object::Pod(pod) => observed.pods.push(pod.into()),
                    Object::Job(mut job) => {
                        job.metadata.uid = Some("job".into());
                        observed.job = Some(job.into());
                    }
                    Object::MiniCluster(_) => panic!("a MiniCluster makes no other"),
                }
            }
            Step::CreateKeys(_) => {}
            other => panic!("{other:?} is not for a new cluster"),
        }
    }
    observed
}

fn change_job(observed: &mut Observed, patch: Value) {
    let mut value = serde_json::to_value(observed.job.as_deref().unwrap()).unwrap();
    merge(&mut value, &patch);
    observed.job = Some(Arc::new(serde_json::from_value::<Job>(value).unwrap()));
}

/// A pod of index 0.
fn pod(name: &str, patch: Value) -> Arc<Pod> {
    let mut value = json!({ "metadata": {
        "name": name,
        "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "fs", "uid": "job" }],
        "annotations": { "batch.kubernetes.io/job-completion-index": "0" },
    } });
    merge(&mut value, &patch);
    Arc::new(serde_json::from_value(value).unwrap())
}

/// The parts of a decision that these tests check.
struct TestDecision {
    steps: Vec<Step>,
    blocker: Option<Blocker>,
    requeue_at: Option<Timestamp>,
    /// Whether there is a status to write.
    status: bool,
}

fn test_decision(minicluster: &MiniCluster, observed: &Observed) -> TestDecision {
    let settings = Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        report_url: None,
        delivery: DeliveryMethod::ImageVolume,
    };
    let decision = decide(minicluster, observed, &settings);
    let conclusion = decision.conclude(&Outcome::all(&decision.steps));
    TestDecision {
        blocker: decision.blocker().cloned(),
        steps: decision.steps,
        requeue_at: conclusion.requeue_at,
        status: conclusion.status.is_some(),
    }
}

fn delete_job() -> Step {
    Step::Delete(Target { kind: TargetKind::Job, name: "fs".into(), uid: Some("job".into()) })
}

fn kind(step: &Step) -> &'static str {
    match step {
        Step::CreateKeys(_) => "keys",
        Step::Create(object) | Step::CreateOrApply(object) | Step::Apply { object, .. } => {
            match object {
                Object::ConfigMap(_) => "config map",
                Object::Service(_) => "service",
                Object::EndpointSlice(_) => "endpoints",
                Object::Pod(_) => "pod",
                Object::Job(_) => "job",
                Object::MiniCluster(_) => "MiniCluster",
            }
        }
        Step::Patch { target, .. } if target.kind == TargetKind::Job => "patch job",
        Step::Patch { target, .. } if target.kind == TargetKind::Pod => "label",
        other => panic!("{other:?}"),
    }
}
