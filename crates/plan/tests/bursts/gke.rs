//! Clusters of Google Kubernetes Engine.

use flux_operator_api::Burst;
use flux_operator_api::burst::{BurstTarget, TargetKind};
use flux_operator_plan::bursting::{
    CommandJobs, Presence, cluster_secret, command_presence, gke_command, gke_job, object_name,
    up_job,
};
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::world::burst;

const IMAGE: &str = "registry.example.com/flux-operator-gke:1";

fn target(change: Value) -> BurstTarget {
    let mut target = json!({ "name": "gke", "maxNodes": 8, "gke": { "project": "science",
        "location": "us-central1-a", "machineType": "c3-standard-8", "serviceAccount": "maker" } });
    flux_operator_testkit::merge(&mut target, &change);
    serde_json::from_value(target).unwrap()
}

fn rendered(burst: &Burst, target: &BurstTarget) -> Job {
    let TargetKind::Gke(gke) = target.kind() else { panic!("{target:?}") };
    gke_job(up_job(burst, &gke_command(target, gke, IMAGE), 2))
}

fn variable(job: &Job, name: &str) -> Value {
    let job = serde_json::to_value(job).unwrap();
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap();
    variables.iter().find(|it| it["name"] == name).cloned().unwrap_or_default()
}

fn settings(target: &BurstTarget) -> Value {
    let job = rendered(&burst(&json!({})), target);
    serde_json::from_str(variable(&job, "GKE_SETTINGS")["value"].as_str().unwrap()).unwrap()
}

#[test]
fn the_program_runs_in_the_administrators_image_with_the_users_account() {
    let burst = burst(&json!({}));
    let job = rendered(&burst, &target(json!({})));
    assert_eq!(variable(&job, "BURST_NAME")["value"], object_name(&burst));
    assert_eq!(variable(&job, "BURST_NODES")["value"], "2");
    assert_eq!(variable(&job, "BURST_SECRET")["value"], cluster_secret(&burst));
    assert_eq!(variable(&job, "GKE_CREDENTIALS"), Value::Null);
    let job = serde_json::to_value(job).unwrap();
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "maker");
    let container = &pod["containers"][0];
    assert_eq!(container["image"], IMAGE);
    assert_eq!(container["command"], json!(["/flux-operator-gke", "up"]));
    // What it said last is shown by Kubernetes, and what another run would not change ends the Job.
    assert_eq!(container["terminationMessagePolicy"], "FallbackToLogsOnError");
    let rule = &job["spec"]["podFailurePolicy"]["rules"][0];
    assert_eq!(rule["action"], "FailJob");
    assert_eq!(rule["onExitCodes"]["values"], json!([81, 82, 83, 84, 85, 86]));
}

#[test]
fn the_program_gets_the_whole_target() {
    let least = settings(&target(json!({})));
    assert_eq!(least["machineType"], "c3-standard-8");
    assert_eq!((&least["autoscaling"], &least["releaseChannel"]), (&Value::Null, &json!("")));
    let gke = json!({ "nodeServiceAccount": "nodes@science.example", "diskSizeGb": 50, "spot": true,
        "network": "n", "subnetwork": "s", "version": "1.34", "releaseChannel": "Rapid",
        "labels": { "team": "hpc" }, "namespace": "brokers" });
    let scaling = json!({ "minNodes": 1, "maxNodes": 8 });
    let all = settings(&target(json!({ "scaling": scaling, "gke": gke })));
    for (name, value) in gke.as_object().unwrap() {
        assert_eq!(all[name], *value, "{name}");
    }
    assert_eq!(all["autoscaling"], json!([1, 8]));
}

#[test]
fn a_key_is_named_and_never_copied() {
    let secret = |credentials: Value| {
        let job =
            rendered(&burst(&json!({})), &target(json!({ "gke": { "credentials": credentials } })));
        variable(&job, "GKE_CREDENTIALS")["valueFrom"]["secretKeyRef"].clone()
    };
    let named = |key: &str| json!({ "name": "google", "key": key });
    assert_eq!(secret(json!({ "secret": "google" })), named("key.json"));
    assert_eq!(secret(json!({ "secret": "google", "key": "k" })), named("k"));
}

/// The message of Kubernetes has the exit code, and the Burst says what that means.
#[test]
fn why_google_refuses_is_in_the_condition() {
    let burst = burst(&json!({}));
    let mut job = rendered(&burst, &target(json!({})));
    let message = "Container command for pod team/burst-0-up-2-x failed with exit code 84 matching \
                   FailJob rule at index 0";
    let failed = json!({ "conditions": [{ "type": "Failed", "status": "True",
        "reason": "PodFailurePolicy", "message": message }] });
    job.status = Some(serde_json::from_value(failed).unwrap());
    let jobs = CommandJobs::of(&burst, vec![job]);
    let Presence::ClusterFailed(why) = command_presence(&burst, &jobs, false) else {
        panic!("it has not failed");
    };
    assert!(why.starts_with("Google has no quota") && why.contains("kubectl logs"), "{why}");
}
