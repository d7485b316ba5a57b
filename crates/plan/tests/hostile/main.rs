//! Whatever a user writes into an object, no decision panics: one object must not stop
//! the operator for everyone else.
//!
//! The objects here have the types that can be decoded at all. Everything else about them is
//! hostile: numbers and times at their limits, empty lists, meaningless texts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod invitations;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use flux_operator_api::{FluxJob, FluxSetup, MiniCluster, crd};
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_plan::queueing::{self, admission, job, requests, setup, workload};
use flux_operator_plan::{self as plan, Failure, FailureKind, Observed, Outcome, Step, queries};
use flux_operator_queue::{Admission, Kind, NewAdmission, Resources, SetupName, Usage};
use flux_operator_testkit::{merge, smallest_minicluster};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use values::{numbers, of_type, texts, times};

/// As many cases as run in a few seconds together without optimization.
const CASES: u32 = 256;

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        // What cannot be decoded never reaches a decision.
        max_local_rejects: 100_000,
        ..ProptestConfig::with_cases(CASES)
    })]

    #[test]
    fn no_job_or_pod_makes_a_decision_panic(
        job in jobs(),
        pods in proptest::collection::vec(pods(), 0..3),
        status in statuses(),
        spec in specs(),
    ) {
        let mut manifest = smallest_minicluster("fs");
        let metadata = json!({ "namespace": "hpc", "uid": "u", "generation": 1 });
        merge(&mut manifest, &json!({ "metadata": metadata, "spec": spec, "status": status }));
        let minicluster: MiniCluster = read(manifest)?;
        let observed = Observed {
            job: Some(Arc::new(read(job)?)),
            pods: pods.into_iter().map(|pod| read(pod).map(Arc::new)).collect::<Result<_, _>>()?,
            ..Observed::empty(now())
        };
        decide(&minicluster, &observed).ok();
    }

    #[test]
    fn no_minicluster_makes_a_decision_panic(spec in whole_spec(), name in texts()) {
        let mut manifest = smallest_minicluster("fs");
        manifest["metadata"] = json!({ "name": name, "namespace": "hpc", "uid": "u" });
        manifest["spec"] = spec;
        let minicluster: MiniCluster = read(manifest)?;
        let refused = decide(&minicluster, &Observed::empty(now())).is_err();
        prop_assert!(refused || !minicluster.spec.containers.is_empty());
    }

    #[test]
    fn no_fluxjob_makes_a_decision_panic(
        spec in of_type(&spec_schema("FluxJob")),
        template in proptest::option::of(whole_spec()),
        status in of_type(&status_schema("FluxJob")),
    ) {
        let mut manifest = json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "FluxJob",
            "metadata": { "name": "fs", "namespace": "hpc", "uid": "u", "creationTimestamp": NOW },
            "spec": spec,
            "status": status,
        });
        if let Some(template) = template {
            manifest["spec"]["template"] = json!({ "spec": template });
        }
        decide_job(&read(manifest)?);
    }

    #[test]
    fn no_fluxsetup_makes_a_decision_panic(spec in of_type(&spec_schema("FluxSetup"))) {
        let metadata = json!({ "name": "fs", "namespace": "hpc", "uid": "u" });
        let setup: FluxSetup = read(json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "FluxSetup",
            "metadata": metadata,
            "spec": spec,
        }))?;
        let around = setup::SetupContext { operator_namespace: "hpc", namespaces: &BTreeMap::new(), node_capacity: None };
        let read = setup::read(&setup, around);
        let usage = Usage { used: read.quota.clone(), admitted: usize::MAX, ..Usage::default() };
        let queue = setup::QueuedSetup { rules: &read, usage: &usage, running: usize::MAX };
        let observed = setup::ObservedSetup { setup: &setup, queue: Some(queue), now: now() };
        let decision = setup::decide(observed);
        outcomes(&decision.steps).iter().for_each(|outcome| drop(decision.conclude(outcome)));
    }
}

#[test]
fn a_minicluster_without_containers_is_refused_without_a_panic() {
    let mut manifest = smallest_minicluster("fs");
    manifest["spec"]["containers"] = json!([]);
    let minicluster: MiniCluster = serde_json::from_value(manifest).unwrap();
    let refusal = decide(&minicluster, &Observed::empty(now())).unwrap_err();
    assert_eq!(refusal, "spec.containers: has 0 entries: must have at least 1");
}

#[test]
fn the_largest_time_makes_no_decision_panic() {
    for name in ["given-back", "draining"] {
        for time in ["9999-12-30T22:00:00Z", "9999-12-30T22:00:00.999999999Z"] {
            let mut manifest = smallest_minicluster("fs");
            let metadata = json!({ "namespace": "hpc", "uid": "u", "generation": 1 });
            let spec = json!({ "readyTimeoutSeconds": 60 });
            merge(&mut manifest, &json!({ "metadata": metadata, "spec": spec }));
            let minicluster: MiniCluster = serde_json::from_value(manifest).unwrap();
            let mut job = job_of_two();
            job["metadata"]["annotations"] = json!({ format!("flux-framework.org/{name}"): time });
            let observed = Observed {
                job: Some(Arc::new(serde_json::from_value(job).unwrap())),
                pods: vec![Arc::new(serde_json::from_value(lead()).unwrap())],
                ..Observed::empty(now())
            };
            let requeue_at = decide(&minicluster, &observed).unwrap();
            assert!(requeue_at.is_some(), "{name}");
        }
    }
}

/// Makes all decisions about a MiniCluster. Returns when to reconcile again.
fn decide(minicluster: &MiniCluster, observed: &Observed) -> Result<Option<Timestamp>, String> {
    queries(minicluster, observed);
    let decision = plan::decide(minicluster, observed, &settings());
    for outcome in outcomes(&decision.steps) {
        let conclusion = decision.conclude(&outcome);
        let before = minicluster.status.clone().unwrap_or_default();
        conclusion.status.map(|status| queueing::merge_patch(&before, &status));
    }
    requests(minicluster);
    workload::of_minicluster(minicluster);
    match decision.refusal() {
        Some(refusal) => Err(refusal),
        None => Ok(decision.conclude(&Outcome::all(&decision.steps)).requeue_at),
    }
}

fn settings() -> Settings {
    Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        report_url: Some("http://10.0.0.1:8080".into()),
        delivery: DeliveryMethod::Init,
    }
}

/// All steps applied, and the first one failed.
fn outcomes(steps: &[Step]) -> [Outcome; 2] {
    let failure = Failure { kind: FailureKind::Refused, message: "no".into() };
    [Outcome::all(steps), Outcome { done: 0, failure: Some(failure) }]
}

/// Makes all decisions about a FluxJob.
fn decide_job(fluxjob: &FluxJob) {
    let admit = NewAdmission {
        uid: "u".into(),
        kind: Kind::FluxJob,
        namespace: "hpc".into(),
        name: "fs".into(),
        admission: Admission {
            queue: SetupName::new("hpc", "batch"),
            size: u32::MAX,
            resources: Resources::default(),
            at: i64::MAX,
        },
    };
    admission::job_write(fluxjob, &admit, now());
    let mistake = workload::of_job(fluxjob, workload::JobContext::default()).err();
    let decision = job::decide(job::ObservedJob {
        job: fluxjob,
        minicluster: None,
        has_unobserved_cluster: false,
        setup: None,
        recorded_setup: None,
        refusal: mistake.as_ref(),
        waiting: None,
        evicted: None,
        runs_jobs: true,
        jitter: 1.0,
        now: now(),
    });
    outcomes(&decision.steps).iter().for_each(|outcome| drop(decision.conclude(outcome)));
}

/// Fields of a spec that are read while a cluster runs.
fn specs() -> impl Strategy<Value = Value> {
    let fields = ["size", "maxSize", "minSize", "tasks", "readyTimeoutSeconds"];
    let more = ["ttlSecondsAfterFinished", "deadlineSeconds", "backoffLimit"];
    let fields: Vec<&str> = fields.into_iter().chain(more).collect();
    let numbers = proptest::collection::btree_map(
        proptest::sample::select(fields),
        // Values within the limits too, so that some specs are valid.
        prop_oneof![numbers(), (1..5_i64).prop_map(Value::from)],
        0..4,
    );
    (numbers, any::<bool>()).prop_map(|(numbers, queued)| {
        let mut spec = json!(numbers);
        if queued {
            spec["queue"] = json!("batch");
        }
        spec
    })
}

/// A whole spec, whose list of containers may be empty.
fn whole_spec() -> impl Strategy<Value = Value> {
    of_type(&spec_schema("MiniCluster"))
}

fn spec_schema(kind: &str) -> Value {
    schema(kind)["properties"]["spec"].clone()
}

fn status_schema(kind: &str) -> Value {
    schema(kind)["properties"]["status"].clone()
}

fn schema(kind: &str) -> Value {
    let crds = crd::all();
    crd::schema(crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap())
}

fn job_of_two() -> Value {
    let owner = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "name": "fs", "uid": "u", "controller": true });
    json!({
        "metadata": { "name": "fs", "uid": "j", "ownerReferences": [owner], "annotations": {} },
        "spec": { "parallelism": 2, "completions": 2, "template": {} },
        "status": { "startTime": "2026-01-01T00:00:00Z" },
    })
}

/// A Job with hostile annotations, sizes and times.
fn jobs() -> impl Strategy<Value = Value> {
    let names = ["given-back", "draining", "ranks", "spec", "version"];
    let text =
        prop_oneof![times(), texts(), numbers().prop_map(|number| number.to_string().into())];
    let annotations =
        proptest::collection::btree_map(proptest::sample::select(names.to_vec()), text, 0..4);
    let counts = proptest::collection::btree_map(
        proptest::sample::select(vec!["parallelism", "completions"]),
        numbers(),
        0..3,
    );
    let status = (times(), numbers(), numbers(), any::<bool>());
    (annotations, counts, status).prop_map(|(annotations, counts, status)| {
        let (start, failed, succeeded, suspended) = status;
        let mut job = job_of_two();
        for (name, text) in annotations {
            job["metadata"]["annotations"][format!("flux-framework.org/{name}")] = text;
        }
        merge(&mut job["spec"], &json!(counts));
        job["spec"]["suspend"] = json!(suspended);
        let status = json!({ "startTime": start, "failed": failed, "succeeded": succeeded });
        merge(&mut job["status"], &status);
        job
    })
}

fn lead() -> Value {
    let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "fs", "uid": "j" });
    json!({
        "metadata": {
            "name": "fs-0-x", "uid": "p", "labels": { "job-name": "fs" },
            "ownerReferences": [owner],
            "annotations": { "batch.kubernetes.io/job-completion-index": "0" },
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{ "name": "fs", "image": "", "imageID": "", "ready": true,
                "restartCount": 0, "state": { "running": {} } }],
        },
    })
}

/// A pod of the Job with hostile times, counts and texts.
fn pods() -> impl Strategy<Value = Value> {
    let index =
        prop_oneof![Just(json!("0")), texts(), numbers().prop_map(|n| n.to_string().into())];
    let words = (index, texts(), texts());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (words, times(), times(), numbers(), flags).prop_map(|(words, one, other, number, flags)| {
        let ((index, phase, reason), (ready, finished, placed)) = (words, flags);
        let state = match finished {
            true => {
                json!({ "terminated": { "exitCode": number, "startedAt": one, "reason": reason } })
            }
            false => json!({ "running": { "startedAt": one } }),
        };
        let condition = json!({ "type": if placed { "PodScheduled" } else { "Ready" },
            "status": "True", "lastTransitionTime": other });
        let mut pod = lead();
        let container = json!({ "name": "fs", "image": "", "imageID": "", "ready": ready,
            "restartCount": number, "state": state });
        let status = json!({ "phase": phase, "conditions": [condition],
            "containerStatuses": [container] });
        merge(&mut pod, &json!({ "metadata": { "creationTimestamp": one }, "status": status }));
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = index;
        pod
    })
}

/// A status with hostile times and numbers.
fn statuses() -> impl Strategy<Value = Value> {
    let kinds = ["Accepted", "Ready", "Running", "Succeeded", "JobFinished"];
    let condition = (
        proptest::sample::select(kinds.to_vec()),
        proptest::sample::select(vec!["True", "False", "Unknown"]),
        times(),
    );
    let conditions = proptest::collection::vec(condition, 0..4);
    (conditions, numbers(), numbers(), numbers()).prop_map(|(conditions, size, most, granted)| {
        let condition = |(kind, status, time)| {
            json!({ "type": kind, "status": status, "reason": "R", "message": "",
                "lastTransitionTime": time })
        };
        let conditions: Vec<Value> = conditions.into_iter().map(condition).collect();
        json!({ "size": size, "maximumSize": most, "conditions": conditions,
            "admission": { "queue": "hpc/batch", "size": granted } })
    })
}

/// Decodes an object; the operator never decides on one that cannot be decoded.
fn read<T: DeserializeOwned>(value: Value) -> Result<T, TestCaseError> {
    serde_json::from_value(value).map_err(|error| TestCaseError::reject(error.to_string()))
}
