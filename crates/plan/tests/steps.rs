//! What is done in each situation a pass may find.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{DeliveryMethod, Rendering, Settings};
use flux_operator_plan::{Cluster, Hold, Plan, Seen, Step, Valid, as_booted, plan};
use flux_operator_testkit::{merge, smallest};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
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
    assert!(!plan.steps.contains(&Step::CreateKeys));
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
    if let Step::ApplyService { manager, .. } = step { Some(manager) } else { None }
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
    // The second is of this release, and its agents read another boot plan.
    for version in ["0.0.1", env!("CARGO_PKG_VERSION")] {
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
    assert_eq!(steps_of(&after, &seen).steps, [Step::DeleteJob]);
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
}

#[test]
fn a_job_in_a_namespace_that_goes_is_deleted() {
    let minicluster = minicluster(json!({}));
    let mut seen = settled(&minicluster);
    seen.namespace_is_going = true;
    assert_eq!(steps_of(&minicluster, &seen).steps, [Step::DeleteJob]);
}

#[test]
fn the_lead_gets_the_label_that_users_select_by() {
    let minicluster = minicluster(json!({}));
    let mut seen = settled(&minicluster);
    seen.pods = vec![pod("fs-0-x", json!({}))];
    let label = Step::LabelPod { pod: "fs-0-x".into(), index: "0".into() };
    assert_eq!(steps_of(&minicluster, &seen).steps, [label]);
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
    let Step::ApplyConfigMap(map) = &steps[0] else { panic!() };
    assert!(map.data.as_ref().unwrap()["boot.json"].contains("fs-[0-3]"));
    let more = minicluster(json!({ "spec": { "size": 5 } }));
    let plan = steps_of(&more, &seen);
    assert_eq!((plan.steps.len(), plan.hold), (0, Some(Hold::TooLarge { size: 5, ranks: 4 })));
}

#[test]
fn after_its_end_nothing_is_made_again() {
    assert_eq!(steps_of(&ended(json!({})), &nothing()), Plan::default());
}

#[test]
fn an_ended_cluster_is_deleted_when_asked_for() {
    let cleanup = ended(json!({ "spec": { "cleanup": true } }));
    assert_eq!(steps_of(&cleanup, &nothing()).steps, [Step::DeleteMiniCluster]);
    let stays = ended(json!({ "spec": { "ttlSecondsAfterFinished": 61 } }));
    let plan = steps_of(&stays, &nothing());
    assert_eq!(
        (plan.steps.len(), plan.look_again),
        (0, Some("2026-01-01T00:01:01Z".parse().unwrap()))
    );
    let leaves = ended(json!({ "spec": { "ttlSecondsAfterFinished": 60 } }));
    assert_eq!(steps_of(&leaves, &nothing()).steps, [Step::DeleteMiniCluster]);
}

fn minicluster(patch: Value) -> MiniCluster {
    let mut manifest = smallest("fs");
    merge(&mut manifest, &json!({ "metadata": { "namespace": "hpc", "uid": "0000-1111" } }));
    merge(&mut manifest, &patch);
    serde_json::from_value(manifest).unwrap()
}

/// A MiniCluster that ended a minute ago.
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

/// What is there when every step for a MiniCluster has been carried out.
fn settled(minicluster: &MiniCluster) -> Seen {
    let mut seen = nothing();
    for step in steps_of(minicluster, &seen).steps {
        match step {
            Step::CreateConfigMap(map) => seen.config_map = Some(map.into()),
            Step::CreateService(service) => seen.services.push(service.into()),
            Step::ApplyConfigMap(map) => seen.config_map = Some(map.into()),
            Step::ApplyService { service, .. } => seen.services.push(service.into()),
            Step::CreatePod(pod) => seen.pods.push(pod.into()),
            Step::CreateJob(mut job) => {
                job.metadata.uid = Some("job".into());
                seen.job = Some(job.into());
            }
            Step::CreateKeys => {}
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

fn steps_of(minicluster: &MiniCluster, seen: &Seen) -> Plan {
    let valid = as_booted(Valid::check(minicluster.clone()).unwrap(), seen);
    let cluster = Cluster::of(&valid).unwrap();
    let settings = Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        report_url: None,
        delivery: DeliveryMethod::ImageVolume,
    };
    plan(
        minicluster,
        &Rendering { minicluster: &valid, cluster: &cluster, settings: &settings },
        seen,
    )
}

fn kind(step: &Step) -> &'static str {
    match step {
        Step::CreateKeys => "keys",
        Step::CreateConfigMap(_) | Step::ApplyConfigMap(_) => "config map",
        Step::CreateService(_) | Step::ApplyService { .. } => "service",
        Step::CreatePod(_) => "pod",
        Step::CreateJob(job) if job.name_any() == "fs" => "job",
        Step::PatchJob(_) => "patch job",
        Step::LabelPod { .. } => "label",
        other => panic!("{other:?}"),
    }
}
