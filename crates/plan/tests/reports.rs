//! How the lead's reports appear in the status, as long as they are fresh.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use flux_operator_api::{MiniCluster, MiniClusterStatus};
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_plan::{LastReport, Observed, Outcome, decide};
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_wire::{BlockingJob, InstanceState};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

#[test]
fn a_fresh_report_is_shown_and_an_old_one_is_not() {
    let minicluster = minicluster(None);
    let report = reported("0-2", "");
    assert_eq!(status(&minicluster, &observed(4, Some(report.clone()), 10)).ready, "3/4");
    assert_eq!(status(&minicluster, &observed(4, Some(report.clone()), 44)).ready, "3/4");
    // The lead is disconnected. What the kubelets report of the pods is newer.
    assert_eq!(status(&minicluster, &observed(1, Some(report), 45)).ready, "1/4");
}

#[test]
fn an_old_error_is_not_shown() {
    let minicluster = minicluster(None);
    let report = reported("0", "broker 3 is slow");
    let message = |seconds| {
        let status = status(&minicluster, &observed(0, Some(report.clone()), seconds));
        status.conditions.iter().find(|it| it.type_ == "Ready").unwrap().message.clone()
    };
    assert_eq!(message(10), "broker 3 is slow");
    assert_ne!(message(60), "broker 3 is slow");
}

#[test]
fn a_restart_of_the_operator_changes_no_status() {
    let mut report = reported("0-2,4-5", "");
    report.state.blocking_job = Some(BlockingJob { job: 1, nodes: 6 });
    let before = status(&minicluster(None), &observed(4, Some(report), 10));
    assert_eq!((before.ready.as_str(), before.joined), ("3/4", 2));
    let ready = before.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
    assert_eq!(ready.reason, "BlockedByJob");
    let minicluster = minicluster(Some(&before));
    // The operator that has just started has received no report.
    let started = |seconds| Observed { watching_since: at(20), ..observed(4, None, seconds) };
    assert_eq!(status(&minicluster, &started(21)), before);
    assert_eq!(status(&minicluster, &started(64)), before);
    let silent = status(&minicluster, &started(65));
    assert_eq!((silent.ready.as_str(), silent.joined), ("4/4", 0));
}

#[test]
fn brokers_of_a_pool_are_counted_apart() {
    let minicluster = minicluster(None);
    let status = status(&minicluster, &observed(4, Some(reported("0-5", "")), 10));
    assert_eq!((status.ready.as_str(), status.joined), ("4/4", 2));
}

#[test]
fn the_job_of_the_command_is_named_once_it_is_known() {
    let mut report = reported("0-3", "");
    report.state.first_job = "ƒ2oaE1d".into();
    let known = status(&minicluster(None), &observed(4, Some(report), 10));
    assert_eq!(known.jobid, "ƒ2oaE1d");
    assert_eq!(status(&minicluster(Some(&known)), &observed(4, None, 20)).jobid, "ƒ2oaE1d");
}

/// A cluster of four, with a pool of two.
fn minicluster(status: Option<&MiniClusterStatus>) -> MiniCluster {
    let pool = json!({ "name": "cloud", "size": 2 });
    let mut manifest = smallest_minicluster("fs");
    let spec = json!({
        "size": 4,
        "flux": { "bursting": { "clusters": [pool] } },
        "containers": [{ "image": "a", "command": "hostname" }],
    });
    merge(&mut manifest, &json!({ "metadata": { "namespace": "hpc", "uid": "mc" }, "spec": spec }));
    manifest["status"] = json!(status);
    serde_json::from_value(manifest).unwrap()
}

fn reported(online: &str, error: &str) -> LastReport {
    let online = Some(online.parse().unwrap());
    let state = InstanceState { online, last_error: error.into(), ..InstanceState::default() };
    LastReport { state, received: at(0) }
}

/// The observed state so many seconds after the report: four pods, of which so many are ready.
fn observed(ready: usize, report: Option<LastReport>, seconds: i64) -> Observed {
    let owner = |kind: &str, uid: &str| json!([{ "apiVersion": "a", "kind": kind, "name": "fs", "uid": uid, "controller": true }]);
    let job = json!({ "metadata": {
        "name": "fs", "uid": "job", "ownerReferences": owner("MiniCluster", "mc"),
        "annotations": { "flux-framework.org/ranks": "4" },
    } });
    let pods = (0..4).map(|index| pod(index, index < ready, &owner("Job", "job")));
    Observed {
        job: Some(Arc::new(serde_json::from_value::<Job>(job).unwrap())),
        pods: pods.collect(),
        report,
        ..Observed::empty(at(seconds))
    }
}

fn pod(index: usize, ready: bool, owners: &Value) -> Arc<Pod> {
    let started = json!({ "running": { "startedAt": at(-60).to_string() } });
    let pod = json!({
        "metadata": {
            "name": format!("fs-{index}"), "ownerReferences": owners,
            "creationTimestamp": at(-70).to_string(), "labels": { "job-name": "fs" },
            "annotations": { "batch.kubernetes.io/job-completion-index": index.to_string() },
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{
                "name": "fs", "image": "a", "imageID": "a", "ready": ready, "restartCount": 0,
                "state": started,
            }],
        },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn status(minicluster: &MiniCluster, observed: &Observed) -> MiniClusterStatus {
    let settings = Settings {
        agent_image: "a".into(),
        cluster_domain: "cluster.local".into(),
        report_url: Some("http://operator".into()),
        delivery: DeliveryMethod::Init,
    };
    let decision = decide(minicluster, observed, &settings);
    let outcome = Outcome::all(&decision.steps);
    decision.conclude(&outcome).status.unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}
