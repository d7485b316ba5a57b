//! The single write of an admission.

use flux_operator_plan::queueing::admission::{eviction_patch, job_write, minicluster_patch};
use flux_operator_queue::EvictionReason;
use serde_json::json;

use crate::objects::{admit, after, job, job_with, queued};

#[test]
fn q28_an_admission_is_one_write_of_everything() {
    let admitted = job_write(&job(json!({ "size": 2 })), &admit(2), after(1));
    insta::assert_yaml_snapshot!(admitted);
}

#[test]
fn q8_an_admission_fails_if_the_job_has_changed() {
    let admitted = job_write(&job(json!({})), &admit(1), after(1));
    assert_eq!(admitted["metadata"]["resourceVersion"], "7");
    let patch = minicluster_patch(&queued(json!({})), &admit(1), after(1));
    assert_eq!(patch["metadata"], json!({ "resourceVersion": "7" }));
}

#[test]
fn q16_an_admission_after_an_eviction_keeps_the_count_and_nothing_else() {
    let before = json!({ "phase": "Evicted", "reason": "OverQuota", "queue": "hpc/batch",
        "startTime": "2026-01-01T00:00:02Z", "requeue": { "count": 2 } });
    let admitted = job_write(&job_with(json!({ "status": before })), &admit(2), after(90));
    let status = &admitted["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Waiting"), &json!("Starting")));
    assert_eq!(status["requeue"], json!({ "count": 2 }));
    assert!(status.get("startTime").is_none(), "it has not run since");
}

#[test]
fn q1_a_minicluster_gets_only_the_record() {
    let minicluster = queued(json!({ "status": { "size": 0, "phase": "Waiting" } }));
    let patch = minicluster_patch(&minicluster, &admit(2), after(1));
    let record = json!({ "queue": "hpc/batch", "size": 2, "time": "2026-01-01T00:00:01Z",
        "resources": { "nodes": "2", "pods": "2" } });
    assert_eq!(patch["status"], json!({ "admission": record }));
    let patch = eviction_patch(7, EvictionReason::OverQuota);
    let expected = json!({ "metadata": { "resourceVersion": "7" },
        "status": { "admission": { "leaving": "OverQuota" } } });
    assert_eq!(patch, expected);
}
