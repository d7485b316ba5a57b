//! The MiniCluster that a job creates.

use flux_operator_api::fluxsetup::JobDefaults;
use flux_operator_plan::Valid;
use flux_operator_plan::queueing::minicluster_of;
use serde_json::{Value, json};

use crate::objects::job;

fn create(spec: Value, defaults: &JobDefaults, size: i32) -> Value {
    let minicluster = minicluster_of(&job(spec), defaults, size);
    Valid::check(minicluster.clone()).unwrap();
    serde_json::to_value(minicluster).unwrap()
}

fn spec(spec: Value) -> Value {
    create(spec, &JobDefaults::default(), 3)["spec"].clone()
}

#[test]
fn q9_a_minicluster_is_named_after_its_job_and_belongs_to_it() {
    let template = json!({ "labels": { "team": "a" }, "annotations": { "note": "b" },
        "spec": { "containers": [{}] } });
    let mut made = create(json!({ "template": template }), &JobDefaults::default(), 2);
    let hashes = made["metadata"]["annotations"]["flux-framework.org/job-spec"].take();
    assert!(hashes.as_str().unwrap().contains("\"template.spec.containers\""), "{hashes}");
    insta::assert_yaml_snapshot!(made);
}

#[test]
fn q2_the_image_is_the_jobs_then_the_templates_then_the_setups() {
    let of_setup = JobDefaults { image: "setup".into(), size: None };
    let none = JobDefaults::default();
    let template = json!({ "spec": { "containers": [{ "image": "template" }] } });
    for (spec, defaults, image) in [
        (json!({ "image": "job", "template": template }), &of_setup, "job"),
        (json!({ "template": template }), &of_setup, "template"),
        (json!({}), &of_setup, "setup"),
        (json!({}), &none, "fluxrm/flux-sched:focal"),
    ] {
        assert_eq!(create(spec, defaults, 1)["spec"]["containers"][0]["image"], image);
    }
}

#[test]
fn q9_fields_of_the_job_override_the_template() {
    let runner = json!({ "runFlux": true, "command": "old", "args": ["a"], "workingDir": "/data" });
    let template = json!({ "spec": { "containers": [{ "name": "db" }, runner], "size": 9,
        "maxSize": 12, "minSize": 5, "interactive": true, "tasks": 7 } });
    let spec = spec(json!({ "command": "new", "template": template }));
    let containers = json!([
        { "name": "db" },
        { "runFlux": true, "command": "new", "image": "fluxrm/flux-sched:focal", "workingDir": "/data" },
    ]);
    assert_eq!(spec["containers"], containers);
    assert_eq!((&spec["size"], &spec["maxSize"]), (&json!(3), &Value::Null), "as many as granted");
    assert_eq!(spec["minSize"], 3, "a larger quorum is never reached");
    assert_eq!(spec["interactive"], Value::Null, "there is a command");
    assert_eq!(spec["tasks"], 7);
}

#[test]
fn q1_resources_can_be_set_without_a_template() {
    let resources = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    let template = json!({ "spec": { "containers": [{ "resources": resources("1") }] } });
    let spec = spec(json!({ "resources": resources("2"), "template": template }));
    assert_eq!(spec["containers"][0]["resources"], resources("2"));
}

#[test]
fn q2_tasks_are_one_per_node_by_default() {
    let template = |tasks: i32| json!({ "spec": { "containers": [{}], "tasks": tasks } });
    for (job, tasks) in [
        (json!({}), 0),
        (json!({ "template": template(1) }), 0),
        (json!({ "template": template(8) }), 8),
        (json!({ "template": template(8), "tasks": 1 }), 1),
    ] {
        assert_eq!(spec(job.clone())["tasks"], tasks, "{job}");
    }
}

#[test]
fn q12_the_shorter_of_runtime_and_deadline_counts() {
    let template =
        |seconds: i64| json!({ "spec": { "containers": [{}], "deadlineSeconds": seconds } });
    for (job, seconds) in [
        (json!({}), 31_500_000),
        (json!({ "maxRuntimeSeconds": 60 }), 60),
        (json!({ "maxRuntimeSeconds": 60, "template": template(90) }), 60),
        (json!({ "maxRuntimeSeconds": 60, "template": template(30) }), 30),
        (json!({ "maxRuntimeSeconds": 60, "template": template(0) }), 60),
        (json!({ "maxRuntimeSeconds": 0, "template": template(90) }), 90),
    ] {
        assert_eq!(spec(job.clone())["deadlineSeconds"], seconds, "{job}");
    }
}

#[test]
fn q9_the_job_itself_handles_waiting_suspension_and_cleanup() {
    let template = json!({ "spec": { "containers": [{}], "queue": "other", "suspend": true,
        "cleanup": true, "ttlSecondsAfterFinished": 5, "readyTimeoutSeconds": 9 } });
    let spec = spec(json!({ "template": template }));
    for field in ["queue", "suspend", "cleanup", "ttlSecondsAfterFinished"] {
        assert_eq!(spec[field], Value::Null, "{field}");
    }
    assert_eq!(spec["readyTimeoutSeconds"], 9);
}

#[test]
fn q10_a_job_without_a_command_is_an_interactive_cluster() {
    let container = spec(json!({ "command": null }))["containers"][0].clone();
    assert_eq!(container, json!({ "image": "fluxrm/flux-sched:focal" }));
}
