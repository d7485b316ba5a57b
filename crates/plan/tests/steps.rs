//! The steps in each situation that a reconciliation may find.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_plan::{
    Answer, Hold, Object, Outcome, Reply, Seen, Step, Subject, Target, TargetKind, decide, queries,
};
use flux_operator_testkit::{merge, smallest};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:01:00Z";

#[test]
fn everything_is_made_and_the_job_last() {
    let plan = steps_of(&minicluster(json!({})), &nothing());
    let kinds: Vec<&str> = plan.steps.iter().map(kind).collect();
    assert_eq!(kinds, ["keys", "config map", "service", "job"]);
}

#[test]
fn a_secret_of_the_users_is_not_made() {
    let flux = json!({ "spec": { "flux": { "curveCertSecret": "mine" } } });
    let plan = steps_of(&minicluster(flux), &nothing());
    assert_eq!(plan.steps.first().map(kind), Some("config map"));
}

#[test]
fn a_settled_cluster_is_left_alone() {
    let minicluster = minicluster(json!({}));
    assert_eq!(steps_of(&minicluster, &settled(&minicluster)).steps, []);
}

#[test]
fn services_and_sidecars_have_objects_of_their_own() {
    let containers = json!([{ "runFlux": true }, { "name": "web", "ports": [80, 443] }]);
    let minicluster = minicluster(json!({ "spec": {
        "containers": containers,
        "services": [{ "name": "db", "image": "redis" }],
        "network": { "headlessName": "shared" },
    } }));
    let steps = steps_of(&minicluster, &nothing()).steps;
    let kinds: Vec<&str> = steps.iter().map(kind).collect();
    assert_eq!(kinds, ["keys", "config map", "service", "service", "pod", "job"]);
    let managers: Vec<&str> = steps.iter().filter_map(manager).collect();
    assert_eq!(managers, ["flux-operator-fs"], "what is shared is applied, by each as itself");
    assert_eq!(steps_of(&minicluster, &settled(&minicluster)).steps, []);
}

#[test]
fn services_wait_for_room_with_the_cluster_they_serve() {
    let spec = json!({ "queue": "batch", "services": [{ "name": "db", "image": "redis" }] });
    let waiting = minicluster(json!({ "spec": spec }));
    let kinds = |minicluster: &MiniCluster| -> Vec<&str> {
        steps_of(minicluster, &nothing()).steps.iter().map(kind).collect()
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
fn what_somebody_has_changed_is_put_back() {
    let minicluster = minicluster(json!({}));
    let mut seen = settled(&minicluster);
    let mut map = (**seen.config_map.as_ref().unwrap()).clone();
    map.data.as_mut().unwrap().insert("boot.json".into(), "{}".into());
    seen.config_map = Some(Arc::new(map));
    seen.services.clear();
    let kinds: Vec<Step> = steps_of(&minicluster, &seen).steps;
    assert_eq!(kinds.iter().map(kind).collect::<Vec<_>>(), ["config map", "service"]);
}

#[test]
fn what_another_version_made_is_not_rewritten() {
    // All but the first are other builds of this release.
    let release = env!("CARGO_PKG_VERSION");
    let builds = [format!("{release}+plan2"), format!("{release}+0123456789abcdef")];
    for version in ["0.0.1", release].map(str::to_owned).into_iter().chain(builds) {
        let minicluster = minicluster(json!({}));
        let mut seen = settled(&minicluster);
        change_job(
            &mut seen,
            json!({ "metadata": { "annotations": { "flux-framework.org/version": version } } }),
        );
        let mut map = (**seen.config_map.as_ref().unwrap()).clone();
        map.data.as_mut().unwrap().insert("boot.json".into(), "{}".into());
        seen.config_map = Some(Arc::new(map));
        assert_eq!(steps_of(&minicluster, &seen).steps, [], "{version}");
    }
}

#[test]
fn a_change_before_the_start_replaces_the_job_and_after_it_is_refused_by_name() {
    let before = minicluster(json!({}));
    let after = minicluster(json!({ "spec": { "containers": [{ "image": "other" }] } }));
    let mut seen = settled(&before);
    assert_eq!(steps_of(&after, &seen).steps, [delete_job()]);
    seen.pods = vec![pod("fs-0-x", json!({ "status": { "phase": "Running" } }))];
    let fields = vec!["spec.containers[0].image".to_owned()];
    let plan = steps_of(&after, &seen);
    assert_eq!(plan.steps.iter().map(kind).collect::<Vec<_>>(), ["label"]);
    assert_eq!(plan.hold, Some(Hold::Immutable(fields.clone())));
    let mut suspended = after;
    suspended.spec.suspend = true;
    let plan = steps_of(&suspended, &seen);
    assert_eq!(plan.steps.iter().map(kind).collect::<Vec<_>>(), ["patch job", "label"]);
    assert_eq!(plan.hold, Some(Hold::Immutable(fields)), "it can still be stopped");
}

#[test]
fn a_job_that_goes_is_waited_for_and_one_of_somebody_else_left_alone() {
    let minicluster = minicluster(json!({}));
    let mut seen = settled(&minicluster);
    change_job(&mut seen, json!({ "metadata": { "deletionTimestamp": NOW } }));
    assert_eq!(steps_of(&minicluster, &seen).steps, []);
    let mut seen = settled(&minicluster);
    change_job(&mut seen, json!({ "metadata": { "ownerReferences": null } }));
    let plan = steps_of(&minicluster, &seen);
    assert_eq!((plan.steps.len(), plan.hold), (0, Some(Hold::NotOurs)));
    // A Job of a former MiniCluster of this name is deleted with it.
    let owner = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "name": "fs", "uid": "before" });
    change_job(&mut seen, json!({ "metadata": { "ownerReferences": [owner] } }));
    let plan = steps_of(&minicluster, &seen);
    assert_eq!((plan.steps.len(), plan.hold), (0, None));
}

#[test]
fn a_job_in_a_namespace_that_is_being_deleted_is_deleted() {
    let minicluster = minicluster(json!({}));
    let mut seen = settled(&minicluster);
    assert_eq!(queries(&minicluster, &seen), []);
    seen.pods = vec![pod("fs-0-x", json!({ "metadata": { "deletionTimestamp": NOW } }))];
    assert_eq!(ask(&minicluster, &mut seen, Reply::Gone), [Subject::Namespace]);
    assert_eq!(steps_of(&minicluster, &seen).steps, [delete_job()]);
    seen.answers.clear();
    ask(&minicluster, &mut seen, Reply::Exists);
    assert_eq!(steps_of(&minicluster, &seen).steps, []);
}

/// The Job may have been deleted with its owner, while the watch of MiniClusters lags behind.
#[test]
fn a_job_that_vanished_is_made_again_only_for_an_owner_that_exists() {
    let status = json!({ "status": { "size": 1, "conditions": [{ "type": "Ready",
        "status": "True", "reason": "Quorum", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
    let running = minicluster(status);
    let mut seen = nothing();
    assert_eq!(ask(&running, &mut seen, Reply::Gone), [Subject::Itself]);
    let decided = steps_of(&running, &seen);
    assert_eq!((decided.steps, decided.status), (vec![], false));
    seen.answers.clear();
    ask(&running, &mut seen, Reply::Exists);
    assert_eq!(steps_of(&running, &seen).steps.last().map(kind), Some("job"));
    assert_eq!(queries(&minicluster(json!({})), &nothing()), [], "a new one is not asked about");
}

/// Makes all queries, and answers each with this reply.
fn ask(minicluster: &MiniCluster, seen: &mut Seen, reply: Reply) -> Vec<Subject> {
    let queries = queries(minicluster, seen);
    let subjects = queries.iter().map(|query| query.subject.clone()).collect();
    let answer = |query| Answer::new(minicluster, query, Some(reply.clone()), seen.now);
    let answers: Vec<Answer> = queries.into_iter().map(answer).collect();
    seen.answers.extend(answers);
    subjects
}

#[test]
fn the_lead_gets_the_label_that_users_select_by() {
    let minicluster = minicluster(json!({}));
    let mut seen = settled(&minicluster);
    seen.pods = vec![pod("fs-0-x", json!({}))];
    let patch = json!({ "metadata": { "labels": { "job-index": "0" } } });
    let target = Target { kind: TargetKind::Pod, name: "fs-0-x".into(), uid: None };
    assert_eq!(steps_of(&minicluster, &seen).steps, [Step::Patch { target, patch }]);
    seen.pods = vec![pod("fs-0-x", json!({ "metadata": { "labels": { "job-index": "0" } } }))];
    assert_eq!(steps_of(&minicluster, &seen).steps, []);
}

#[test]
fn hosts_are_those_of_the_start() {
    let small = minicluster(json!({ "spec": { "size": 4 } }));
    let mut seen = settled(&small);
    let labels = json!({ "job-index": "0" });
    let running = json!({ "metadata": { "labels": labels }, "status": { "phase": "Running" } });
    seen.pods = vec![pod("fs-0-x", running)];
    let less = minicluster(json!({ "spec": { "size": 2 } }));
    let steps = steps_of(&less, &seen).steps;
    let kinds: Vec<&str> = steps.iter().map(kind).collect();
    assert_eq!(kinds, ["config map", "patch job"]);
    let Step::Apply { object: Object::ConfigMap(map), .. } = &steps[0] else { panic!() };
    assert!(map.data.as_ref().unwrap()["boot.json"].contains("fs-[0-3]"));
    let more = minicluster(json!({ "spec": { "size": 5 } }));
    let plan = steps_of(&more, &seen);
    assert_eq!((plan.steps.len(), plan.hold), (0, Some(Hold::TooLarge { size: 5, ranks: 4 })));
}

#[test]
fn after_its_end_nothing_is_made_again() {
    let decided = steps_of(&ended(json!({})), &nothing());
    assert_eq!((decided.steps, decided.look_again), (vec![], None));
}

#[test]
fn an_ended_cluster_is_deleted_when_asked_for() {
    let cleanup = ended(json!({ "spec": { "cleanup": true } }));
    assert_eq!(steps_of(&cleanup, &nothing()).steps, [Step::DeleteSelf]);
    let stays = ended(json!({ "spec": { "ttlSecondsAfterFinished": 61 } }));
    let plan = steps_of(&stays, &nothing());
    assert_eq!(
        (plan.steps.len(), plan.look_again),
        (0, Some("2026-01-01T00:01:01Z".parse().unwrap()))
    );
    let leaves = ended(json!({ "spec": { "ttlSecondsAfterFinished": 60 } }));
    assert_eq!(steps_of(&leaves, &nothing()).steps, [Step::DeleteSelf]);
}

fn minicluster(patch: Value) -> MiniCluster {
    let mut manifest = smallest("fs");
    merge(&mut manifest, &json!({ "metadata": { "namespace": "hpc", "uid": "0000-1111" } }));
    merge(&mut manifest, &patch);
    serde_json::from_value(manifest).unwrap()
}

/// A MiniCluster that finished a minute ago.
fn ended(patch: Value) -> MiniCluster {
    let condition = json!({ "type": "JobFinished", "status": "True", "reason": "Completed",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let mut all = json!({ "status": { "size": 0, "conditions": [condition] } });
    merge(&mut all, &patch);
    minicluster(all)
}

fn nothing() -> Seen {
    Seen::nothing(NOW.parse().unwrap())
}

/// The observed state after every step for a MiniCluster has been applied.
fn settled(minicluster: &MiniCluster) -> Seen {
    let mut seen = nothing();
    for step in steps_of(minicluster, &seen).steps {
        match step {
            Step::Create(object) | Step::CreateOrApply(object) | Step::Apply { object, .. } => {
                match object {
                    Object::ConfigMap(map) => seen.config_map = Some(map.into()),
                    Object::Service(service) => seen.services.push(service.into()),
                    Object::Pod(pod) => seen.pods.push(pod.into()),
                    Object::Job(mut job) => {
                        job.metadata.uid = Some("job".into());
                        seen.job = Some(job.into());
                    }
                    Object::MiniCluster(_) => panic!("a MiniCluster makes no other"),
                }
            }
            Step::CreateKeys(_) => {}
            other => panic!("{other:?} is not for a new cluster"),
        }
    }
    seen
}

fn change_job(seen: &mut Seen, patch: Value) {
    let mut value = serde_json::to_value(seen.job.as_deref().unwrap()).unwrap();
    merge(&mut value, &patch);
    seen.job = Some(Arc::new(serde_json::from_value::<Job>(value).unwrap()));
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
struct Decided {
    steps: Vec<Step>,
    hold: Option<Hold>,
    look_again: Option<Timestamp>,
    /// Whether there is a status to write.
    status: bool,
}

fn steps_of(minicluster: &MiniCluster, seen: &Seen) -> Decided {
    let settings = Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        report_url: None,
        delivery: DeliveryMethod::ImageVolume,
    };
    let decision = decide(minicluster, seen, &settings);
    let conclusion = decision.conclude(&Outcome::all(&decision.steps));
    Decided {
        hold: decision.hold().cloned(),
        steps: decision.steps,
        look_again: conclusion.requeue_at,
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
