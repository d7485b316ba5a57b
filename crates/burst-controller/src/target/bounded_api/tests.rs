//! Tests with a server that answers with anything.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use flux_operator_plan::bursting::{job_failure, pods_trouble};
use flux_operator_plan::status::run_view;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::*;
use crate::errors::target_failure;
use crate::target::connect;

/// Answers every request with this text, and returns its address.
fn serve(status: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}");
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        }
    });
    format!("http://{address}")
}

async fn client(status: &'static str, body: String) -> Client {
    let server = serve(status, body);
    let kubeconfig = json!({ "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": { "token": "t" } }] });
    connect(&kubeconfig.to_string()).await.unwrap().client
}

fn list(items: &str) -> String {
    format!(r#"{{"kind":"PodList","items":[{items}]}}"#)
}

async fn pods(items: &str) -> Result<Vec<Pod>, Error> {
    let client = client("200 OK", list(items)).await;
    BoundedApi { client: &client, namespace: "there" }.pods("a=b").await
}

/// As Kubernetes' own types, 130,000 empty pods take 300 MB.
#[tokio::test]
async fn of_a_hostile_list_the_first_elements_are_kept() {
    let found = pods(&vec!["{}"; 130_000].join(",")).await.unwrap();
    assert_eq!(found.len(), MAX_PODS);
    let parts = vec!["{}"; 100_000].join(",");
    let found = pods(&format!(r#"{{"status":{{"containerStatuses":[{parts}]}}}}"#)).await.unwrap();
    let status = found[0].status.as_ref().unwrap();
    assert_eq!(status.container_statuses.as_ref().unwrap().len(), MAX_PARTS);
    let job = format!(r#"{{"kind":"Job","metadata":{{}},"status":{{"conditions":[{parts}]}}}}"#);
    let client = client("200 OK", job).await;
    let job = BoundedApi { client: &client, namespace: "there" }.job("b").await.unwrap().unwrap();
    assert_eq!(job.status.unwrap().conditions.unwrap().len(), MAX_PARTS);
}

/// Of what decisions need, nothing is lost.
#[tokio::test]
async fn a_pod_has_the_same_trouble_as_in_its_whole_form() {
    let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
    let loops = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let exited = json!({ "terminated": { "exitCode": 3, "startedAt": "2026-01-01T00:00:00Z" } });
    let container = |state: &Value, restarts: i32| {
        json!({ "name": "fs", "image": "r.test/i:1", "imageID": "", "ready": false,
            "restartCount": restarts, "state": state, "lastState": exited })
    };
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({ "type": kind, "status": status, "reason": reason, "message": "why",
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    let lost = [condition("Ready", "False", ""), condition("ContainersReady", "True", "")];
    let cases = [
        json!({ "status": { "conditions": [condition("PodScheduled", "False", "Unschedulable")] } }),
        json!({ "status": { "containerStatuses": [container(&waiting, 0)] } }),
        json!({ "status": { "initContainerStatuses": [container(&loops, 2)] } }),
        json!({ "status": { "containerStatuses": [container(&exited, 2)] } }),
        json!({ "status": { "phase": "Failed", "containerStatuses": [container(&exited, 2)] } }),
        json!({ "spec": { "nodeName": "n", "containers": [] }, "status": { "conditions": lost } }),
        json!({ "metadata": { "name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "conditions": [condition("DisruptionTarget", "True", "Eviction")] } }),
        json!({ "metadata": { "name": "p" }, "status": { "phase": "Running" } }),
    ];
    for case in cases {
        let whole: Pod = serde_json::from_value(case.clone()).unwrap();
        let read = pods(&case.to_string()).await.unwrap();
        assert_eq!(pods_trouble(&read), pods_trouble(&[whole]), "{case}");
    }
}

#[tokio::test]
async fn a_pod_says_the_same_about_a_run_as_in_its_whole_form() {
    let started = "2026-01-01T00:00:00Z";
    let message = r#"{"exitCode": 75, "reason": "CommandFailed"}"#;
    let restart = r#"{"exitCode": 1, "reason": "RestartLimit", "message": "lost"}"#;
    let states = [
        json!({ "terminated": { "exitCode": 1, "startedAt": started, "message": restart } }),
        json!({ "running": { "startedAt": started } }),
        json!({ "terminated": { "exitCode": 1, "startedAt": started, "message": message } }),
        json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } }),
    ];
    let job = json!({ "status": { "conditions": [{ "type": "Failed", "status": "True" }] } });
    let job: Job = serde_json::from_value(job).unwrap();
    for (lost, state) in (0..=1).flat_map(|lost| states.iter().map(move |state| (lost, state))) {
        let container = json!([{ "name": "sidecar", "image": "", "imageID": "", "ready": false,
            "restartCount": 0 }, { "name": "b", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": state }]);
        let case = json!({ "metadata": { "name": "b-0-x", "creationTimestamp": started,
                "labels": { "job-name": "b", "team": "a" },
                "annotations": { "batch.kubernetes.io/job-completion-index": "0", "a": "b",
                    "batch.kubernetes.io/job-index-failure-count": lost.to_string(),
                    "batch.kubernetes.io/job-index-ignored-failure-count": "0" } },
            "status": { "containerStatuses": container } });
        let whole: Pod = serde_json::from_value(case.clone()).unwrap();
        let read = pods(&case.to_string()).await.unwrap();
        let view = run_view(Some(&job), &[whole]);
        assert!(view.lead_pod.is_some(), "{case}");
        assert_eq!(run_view(Some(&job), &read), view, "{case}");
        assert_eq!(read[0].annotations().len(), 3, "{case}");
    }
}

#[tokio::test]
async fn a_version_is_read_with_and_without_a_plus() {
    for (answer, expected) in [
        (r#"{"major": "1", "minor": "33"}"#, Some((1, 33))),
        (r#"{"major": "1", "minor": "29+", "gitVersion": "v1.29.9-gke.1"}"#, Some((1, 29))),
        (r#"{"major": "", "minor": ""}"#, None),
        ("internal", None),
    ] {
        let client = client("200 OK", answer.to_owned()).await;
        let version = BoundedApi { client: &client, namespace: "there" }.version().await;
        assert_eq!(version.unwrap(), expected, "{answer}");
    }
}

#[tokio::test]
async fn a_job_has_what_is_decided_by() {
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "completions": 3, "template": { "spec": { "containers": [] } } },
        "status": { "active": 2, "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{ "type": "Failed", "status": "True", "message": "why" }] } });
    let client = client("200 OK", job.to_string()).await;
    let read = BoundedApi { client: &client, namespace: "there" }.job("b").await.unwrap().unwrap();
    assert_eq!(job_failure(&read, &[]).as_deref(), Some("why"));
    let status = read.status.as_ref().unwrap();
    assert_eq!((status.active, status.start_time.is_some()), (Some(2), true));
    assert_eq!(read.spec.unwrap().completions, Some(3));
    assert!(read.metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn a_job_that_does_not_exist_is_none() {
    let status = json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "no" });
    let client = client("404 Not Found", status.to_string()).await;
    let found = BoundedApi { client: &client, namespace: "there" }.job("b").await;
    assert_eq!(found.unwrap(), None);
}

/// The log, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The user chooses the server, and could have the controller read what only it can reach. Some servers
/// repeat what they are sent, such as a Secret.
#[tokio::test]
async fn what_a_server_says_that_is_no_api_server_is_neither_shown_nor_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    for body in [r#""internal secrets""#, r#"{"kind":"internal"}"#, "{}", "internal"] {
        let client = client("200 OK", body.to_owned()).await;
        let api = BoundedApi { client: &client, namespace: "there" };
        let errors = [api.job("b").await.map(drop), api.pods("a=b").await.map(drop)];
        for error in errors {
            let failure = target_failure("read it", &error.unwrap_err());
            let expected = "failed to read it: the server responded, and not as an API server does";
            assert_eq!(failure.message, expected, "{body}");
        }
        // What it says then does not matter: the next observation shows whether it exists.
        api.create(&ConfigMap::default()).await.unwrap();
        api.patch::<Job>("b", &json!({})).await.unwrap();
        api.delete::<Job>("b").await.unwrap();
    }
    tracing::warn!("the log works");
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("the log works") && !log.contains("internal"), "{log}");
}
