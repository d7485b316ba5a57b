//! Jobs and MiniClusters as the scheduler sees them.

use flux_operator_api::fluxsetup::JobDefaults;
use flux_operator_api::{FluxJob, MiniCluster, Reason, validate};
use flux_operator_plan::queueing::minicluster_of;
use flux_operator_plan::queueing::workload::{JobContext, JobRefusal, of_job, of_minicluster};
use flux_operator_queue::{Kind, QueueName, Resource, SetupName, Workload};
use flux_operator_testkit::bad::{self, InvalidManifest};
use flux_operator_testkit::merge;
use serde_json::{Value, json};

use crate::objects::{after, job, job_with, nodes, queued};

fn read(job: &FluxJob) -> Workload {
    of_job(job, JobContext::default()).unwrap().unwrap()
}

fn refusal(job: &FluxJob, beside: JobContext<'_>) -> JobRefusal {
    of_job(job, beside).unwrap_err()
}

/// The job's MiniCluster, changed by a merge patch.
fn made(job: &FluxJob, patch: Value) -> MiniCluster {
    let minicluster = minicluster_of(job, &JobDefaults::default(), 2);
    let mut value = serde_json::to_value(minicluster).unwrap();
    merge(&mut value, &patch);
    serde_json::from_value(value).unwrap()
}

fn finished() -> Value {
    let finished = json!({ "type": "JobFinished", "status": "True", "reason": "Completed",
        "message": "", "lastTransitionTime": "2026-01-01T00:05:00Z" });
    json!({ "status": { "size": 0, "conditions": [finished] } })
}

#[test]
fn q5_a_job_is_read_with_all_fields_of_a_workload() {
    let spec = json!({ "size": 4, "minSize": 2, "queue": "batch", "priority": 7,
        "maxRuntimeSeconds": 60 });
    let workload = read(&job(spec));
    let expected = Workload {
        uid: "12345678-9abc".into(),
        kind: Kind::FluxJob,
        namespace: "hpc".into(),
        name: "lammps".into(),
        queue: QueueName::Named("batch".into()),
        priority: 7,
        waiting_since: after(0).as_millisecond(),
        not_before: None,
        suspended: false,
        size: Some(4),
        min_size: Some(2),
        per_node: nodes(1),
        per_job: Default::default(),
        max_runtime: Some(60_000),
        admission: None,
        pods_exist: false,
        finished: false,
    };
    assert_eq!(workload, expected);
}

#[test]
fn q2_an_unset_size_is_left_to_the_setup() {
    let template = |size: i32| json!({ "spec": { "containers": [{}], "size": size } });
    for (spec, size) in [
        (json!({}), None),
        (json!({ "size": 1 }), Some(1)),
        (json!({ "template": template(1) }), None),
        (json!({ "template": template(5) }), Some(5)),
        (json!({ "template": template(5), "size": 2 }), Some(2)),
    ] {
        assert_eq!(read(&job(spec.clone())).size, size, "{spec}");
    }
}

#[test]
fn q8_requests_of_pods_count_once_per_node() {
    let resources = json!({ "requests": { "cpu": "500m" }, "limits": { "nvidia.com/gpu": 2 } });
    let template = json!({ "spec": { "containers": [{ "resources": resources }] } });
    let workload = read(&job(json!({ "template": template })));
    let each = |resource| workload.per_node.amount(&resource);
    assert_eq!((each(Resource::Cpu), each(Resource::Gpus), each(Resource::Nodes)), (500, 2, 1));
}

#[test]
fn q4_the_record_is_read_back() {
    let admission = json!({ "queue": "hpc/batch", "size": 3,
        "resources": { "nodes": "3", "cpu": "1500m" }, "time": "2026-01-01T00:00:09Z" });
    let requeue = json!({ "count": 1, "since": "2026-01-01T00:00:07Z",
        "until": "2026-01-01T00:00:08Z" });
    let status = json!({ "admission": admission, "requeue": requeue });
    let workload = read(&job_with(json!({ "status": status })));
    let admission = workload.admission.unwrap();
    assert_eq!((admission.queue, admission.size), (SetupName::new("hpc", "batch"), 3));
    assert_eq!(admission.resources.amount(&Resource::Cpu), 1500);
    assert_eq!(admission.at, after(9).as_millisecond());
    assert_eq!(workload.waiting_since, after(7).as_millisecond());
    assert_eq!(workload.not_before, Some(after(8).as_millisecond()));
}

#[test]
fn q13_quota_is_free_when_the_result_is_written_or_observed() {
    let job = job(json!({}));
    let beside = |minicluster| JobContext { minicluster: Some(minicluster), class_value: None };
    let runs = made(&job, json!({ "status": { "size": 2 } }));
    let over = made(&job, finished());
    let read = |minicluster| of_job(&job, beside(minicluster)).unwrap().unwrap().finished;
    assert_eq!((read(&runs), read(&over)), (false, true));
    let written = job_with(json!({ "status": { "finishTime": "2026-01-01T00:05:00Z" } }));
    assert!(of_job(&written, JobContext::default()).unwrap().unwrap().finished);
}

#[test]
fn q20_pods_that_exist_are_counted_by_the_namespaces_own_quota() {
    let admission = json!({ "queue": "hpc/batch", "size": 2 });
    let job = job_with(json!({ "status": { "admission": admission } }));
    let started = |pods: i32| {
        let minicluster = made(&job, json!({ "status": { "size": pods } }));
        let beside = JobContext { minicluster: Some(&minicluster), class_value: None };
        of_job(&job, beside).unwrap().unwrap().pods_exist
    };
    assert_eq!((started(1), started(2)), (false, true));
}

#[test]
fn q2_a_refusal_says_what_to_change() {
    let bad = json!({ "spec": { "containers": [{ "environment": { "a=b": "c" } }],
        "flux": { "bursting": { "hostlist": "a[" } } } });
    let reported = refusal(&job(json!({ "template": bad })), JobContext::default());
    assert_eq!(reported.reason, Reason::InvalidTemplate);
    assert!(reported.message.contains("spec.containers[0].environment"), "{}", reported.message);
    assert!(
        reported.message.contains("spec.flux.bursting.hostlist"),
        "all at once: {}",
        reported.message
    );
    let sidecar = json!({ "spec": { "containers": [{ "runFlux": true }, { "name": "lammps" }] } });
    let reported = refusal(&job(json!({ "template": sidecar })), JobContext::default());
    assert!(reported.message.contains("a sidecar is called \"lammps\""), "{reported:?}");
    let services = json!({ "spec": { "containers": [{}], "services": [{ "name": "db" }] } });
    let long = json!({ "metadata": { "name": "a".repeat(55) }, "spec": { "template": services } });
    let reported = refusal(&job_with(long), JobContext::default());
    assert!(reported.message.contains("at most 54 characters"), "{reported:?}");
    let kueue = json!({ "spec": { "containers": [{}],
        "jobLabels": { "kueue.x-k8s.io/queue-name": "batch" } } });
    assert_eq!(
        refusal(&job(json!({ "template": kueue })), JobContext::default()).reason,
        Reason::TwoQueues
    );
    let classy = job(json!({ "priorityClassName": "high" }));
    assert_eq!(refusal(&classy, JobContext::default()).reason, Reason::UnknownPriorityClass);
    let beside = JobContext { minicluster: None, class_value: Some(9) };
    assert_eq!(of_job(&classy, beside).unwrap().unwrap().priority, 9);
    let job = job(json!({}));
    let others = queued(json!({ "metadata": { "name": "lammps" } }));
    let beside = JobContext { minicluster: Some(&others), class_value: None };
    assert_eq!(refusal(&job, beside).reason, Reason::NameTaken);
    let owner = json!({ "metadata": { "uid": "another" } });
    let left = made(&job_with(owner), json!({}));
    let beside = JobContext { minicluster: Some(&left), class_value: None };
    assert!(of_job(&job, beside).is_ok(), "the MiniCluster of a former job is deleted with it");
}

#[test]
fn the_operator_reports_all_offline_problems_of_a_job() {
    let bad = bad::refused_beyond_schema().into_iter();
    let bad: Vec<InvalidManifest> = bad.filter(|bad| bad.manifest["kind"] == "FluxJob").collect();
    assert!(bad.len() >= 3, "only {} bad jobs", bad.len());
    for InvalidManifest { name, field, manifest, .. } in bad {
        let read = of_job(&validate::read(&manifest).unwrap(), JobContext::default());
        let reported = read.err().map(|mistake| (mistake.reason, mistake.message));
        assert!(
            matches!(&reported, Some((Reason::InvalidTemplate, message)) if message.contains(&field)),
            "{name}: {reported:?}"
        );
    }
}

#[test]
fn q8_an_admitted_job_is_never_refused() {
    let spec = json!({ "priorityClassName": "gone" });
    let status = json!({ "admission": { "queue": "hpc/batch", "size": 2 } });
    let workload = read(&job_with(json!({ "spec": spec, "status": status })));
    assert_eq!(workload.admission.unwrap().size, 2);
}

#[test]
fn q31_a_job_of_another_controller_is_not_queued() {
    let other = job(json!({ "managedBy": "kueue.x-k8s.io/multikueue" }));
    assert_eq!(of_job(&other, JobContext::default()), Ok(None));
}

#[test]
fn q15_a_terminating_job_is_not_admitted() {
    let terminating = json!({ "deletionTimestamp": "2026-01-01T00:00:05Z" });
    let waiting = job_with(json!({ "metadata": terminating }));
    assert_eq!(of_job(&waiting, JobContext::default()), Ok(None));
    let status = json!({ "admission": { "queue": "hpc/batch", "size": 2 } });
    let admitted = job_with(json!({ "metadata": terminating, "status": status }));
    assert!(read(&admitted).admission.is_some(), "its quota counts until it is deleted");
}

#[test]
fn q1_a_minicluster_in_a_queue_is_read_like_a_job() {
    let workload = of_minicluster(&queued(json!({ "spec": { "size": 3 } }))).unwrap();
    assert_eq!((workload.kind, workload.size), (Kind::MiniCluster, Some(3)));
    assert_eq!(workload.queue, QueueName::Named("batch".into()));
    assert_eq!((workload.per_node, workload.finished), (nodes(1), false));
    assert!(of_minicluster(&queued(finished())).unwrap().finished);
}

#[test]
fn q1_only_miniclusters_that_wait_for_us_are_read() {
    let owner = json!({ "ownerReferences": [{ "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "FluxJob", "name": "a", "uid": "b", "controller": true }] });
    for (what, patch) in [
        ("names no queue", json!({ "spec": { "queue": "" } })),
        ("has a job", json!({ "metadata": owner })),
        ("is managed by others", json!({ "spec": { "managedBy": "example.org/other" } })),
        ("is Kueue's", json!({ "spec": { "jobLabels": { "kueue.x-k8s.io/queue-name": "b" } } })),
        ("is refused", json!({ "spec": { "flux": { "bursting": { "hostlist": "a[" } } } })),
        ("is deleted", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:05Z" } })),
    ] {
        assert_eq!(of_minicluster(&queued(patch)), None, "{what}");
    }
}
