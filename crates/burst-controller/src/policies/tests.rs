//! Policies of several namespaces, with an API server and an operator that answer as a test says.

use std::collections::BTreeSet;
use std::convert::Infallible;

use flux_operator_api::view::{InstanceJob, InstanceJobs, SlotRange};
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::store;
use kube::runtime::watcher::Event;
use serde_json::Value;
use tokio::sync::mpsc;

use super::*;
use crate::feeds::Feeds;
use crate::metrics::Metrics;
use crate::schedule::{Limits, reconcile_all};
use crate::stores::Stores;
use crate::unreadable::Unreadable;

/// A namespace in which the API server does not respond to writes.
const HANGS: &str = "hangs";

/// A namespace in which the API server refuses Bursts.
const REFUSES: &str = "refuses";

/// Namespaces with one MiniCluster and one policy each. A job waits that needs more nodes than there are.
struct World {
    context: Context,
    /// What is written: the path and the object.
    writes: mpsc::UnboundedReceiver<(String, Value)>,
    changes: mpsc::UnboundedReceiver<crate::stores::Change>,
}

impl World {
    fn new(namespaces: &[&str]) -> World {
        let (policies, mut policy_writer) = store();
        let (clusters, mut cluster_writer) = store();
        let (bursts, _) = store();
        for namespace in namespaces {
            policy_writer.apply_watcher_event(&Event::Apply(policy(namespace)));
            cluster_writer.apply_watcher_event(&Event::Apply(cluster(namespace)));
        }
        let (written, writes) = mpsc::unbounded_channel();
        let (changes, changed) = mpsc::unbounded_channel();
        let client = client(written);
        let settings = Settings {
            agent_image: "agent".into(),
            cluster_domain: "cluster.local".into(),
            delivery: DeliveryMethod::ImageVolume,
            report_url: None,
        };
        let context = Context {
            home: crate::home::Home {
                client: client.clone(),
                settings,
                served: BTreeSet::from(["*".to_owned()]),
                commands: false,
                gke_image: None,
            },
            stores: Stores { policies, bursts, clusters, unreadable: Unreadable::default() },
            feeds: Feeds::new(client.clone(), changes),
            clients: Arc::default(),
            views: Arc::default(),
            metrics: Metrics::new(),
            recorder: Recorder::new(client, Reporter::from("test")),
        };
        World { context, writes, changes: changed }
    }

    /// Waits until the jobs of a namespace are known.
    async fn wait_for_jobs(&mut self, policies: &Policies, namespace: &str) {
        policies.apply(&self.context, namespace).await.unwrap();
        self.changes.recv().await.unwrap();
    }

    /// Decides about a namespace whose jobs are known. Returns what is written, with the status of its
    /// policy, which is otherwise not written again so soon.
    async fn apply(&mut self, policies: &Policies, namespace: &str) -> Vec<(String, Value)> {
        self.wait_for_jobs(policies, namespace).await;
        self.written();
        lock(&policies.0).get_mut(namespace).unwrap().statuses = PolicyStatuses::default();
        policies.apply(&self.context, namespace).await.unwrap();
        self.written()
    }

    fn written(&mut self) -> Vec<(String, Value)> {
        std::iter::from_fn(|| self.writes.try_recv().ok()).collect()
    }
}

fn policy(namespace: &str) -> BurstPolicy {
    let target = json!({ "name": "away", "maxNodes": 16, "kubeconfig": { "secret": "away" } });
    let policy = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
        "metadata": { "name": "p", "namespace": namespace, "uid": "policy", "generation": 1 },
        "spec": { "selector": {}, "limits": { "nodes": 16 }, "targets": [target],
            "when": { "stabilizationSeconds": 0 } } });
    serde_json::from_value(policy).unwrap()
}

fn cluster(namespace: &str) -> MiniCluster {
    let cluster = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "metadata": { "name": "fs", "namespace": namespace, "uid": namespace },
        "spec": { "size": 1, "containers": [{ "image": "i" }],
            "flux": { "bursting": { "expose": { "type": "NodePort" } } } } });
    serde_json::from_value(cluster).unwrap()
}

fn jobs() -> InstanceJobs {
    let attributes = std::collections::BTreeMap::from([("burstable".to_owned(), Value::from(1))]);
    InstanceJobs {
        listed: true,
        online: Some("0".into()),
        busy: Some(String::new()),
        slots: vec![SlotRange {
            owner: "Job".into(),
            ranks: "0".into(),
            hosts: "fs-0".into(),
            ..SlotRange::default()
        }],
        lead_cores: 2,
        items: vec![InstanceJob {
            id: 7,
            nodes: Some(9),
            tasks: 9,
            attributes: attributes.into(),
            ..InstanceJob::default()
        }],
        ..InstanceJobs::default()
    }
}

/// Both the API server, which reports what is written, and the operator.
fn client(written: mpsc::UnboundedSender<(String, Value)>) -> Client {
    let respond = move |request: Request<Body>| {
        let written = written.clone();
        async move {
            let path = request.uri().path().to_owned();
            let is_read = request.method() == Method::GET;
            let body = request.into_body().collect_bytes().await.unwrap();
            let answer = match is_read {
                true => serde_json::to_vec(&jobs()).unwrap(),
                false => {
                    written.send((path.clone(), serde_json::from_slice(&body).unwrap())).unwrap();
                    body.to_vec()
                }
            };
            if !is_read && path.contains(&format!("/{HANGS}/")) {
                std::future::pending::<()>().await;
            }
            if !is_read && path == bursts_path(REFUSES) {
                let status = Status::failure("exceeded quota: bursts", "Forbidden").with_code(403);
                let answer = Body::from(serde_json::to_vec(&status).unwrap());
                return Ok(Response::builder().status(403).body(answer).unwrap());
            }
            Ok::<_, Infallible>(Response::new(Body::from(answer)))
        }
    };
    Client::new(tower::service_fn(respond), "default")
}

fn bursts_path(namespace: &str) -> String {
    format!("/apis/flux-framework.org/v1alpha2/namespaces/{namespace}/bursts")
}

#[tokio::test]
async fn a_namespace_whose_writes_hang_does_not_stop_another() {
    let mut world = World::new(&[HANGS, "other"]);
    let (policies, context) = (Policies::default(), world.context.clone());
    let (names, changed) = mpsc::unbounded_channel();
    let limits =
        Limits { in_total: 4, of_namespace: 1, delay: Duration::ZERO, interval: Duration::ZERO };
    let apply = move |namespace: Arc<str>| {
        let (context, policies) = (context.clone(), policies.clone());
        async move { policies.apply(&context, &namespace).await }
    };
    let running = tokio::spawn(reconcile_all(limits, changed, apply));
    let mut hangs = false;
    for namespace in [HANGS, "other"] {
        names.send(Arc::from(namespace)).unwrap();
    }
    loop {
        tokio::select! {
            change = world.changes.recv() => {
                names.send(Arc::from(change.unwrap().namespace())).unwrap();
            }
            written = world.writes.recv() => {
                let (path, _) = written.unwrap();
                hangs |= path.contains(HANGS);
                if hangs && path == bursts_path("other") {
                    break;
                }
            }
        }
    }
    running.abort();
}

#[tokio::test]
async fn no_nodes_are_requested_while_a_burst_of_the_namespace_cannot_be_read() {
    let (mut world, policies) = (World::new(&["one", "two"]), Policies::default());
    world.context.stores.unreadable.insert(&ObjectRef::<Burst>::new("b").within("one"));
    for namespace in ["one", "two"] {
        let written = world.apply(&policies, namespace).await;
        let is_requested = written.iter().any(|(path, _)| *path == bursts_path(namespace));
        assert_eq!(is_requested, namespace == "two", "{written:?}");
        let (active, answer) = match namespace {
            "one" => ("Unreadable", "CannotRequest"),
            _ => ("Active", "Requested"),
        };
        let status = policy_status(&written);
        assert_eq!(status["conditions"][1]["reason"], active, "{namespace}");
        assert_eq!(status["jobs"][0]["reason"], answer, "{namespace}");
    }
}

#[tokio::test]
async fn a_job_whose_burst_the_api_server_refuses_has_that_answer() {
    let (mut world, policies) = (World::new(&[REFUSES]), Policies::default());
    let written = world.apply(&policies, REFUSES).await;
    let status = policy_status(&written);
    assert_eq!(status["conditions"][1]["reason"], "RequestRefused");
    assert_eq!(status["jobs"][0]["reason"], "CannotRequest");
    let message = status["jobs"][0]["message"].as_str().unwrap();
    assert!(message.contains("exceeded quota"), "{message}");
}

/// The only status of a policy that was written.
fn policy_status(written: &[(String, Value)]) -> &Value {
    let statuses = written.iter().filter(|(path, _)| path.ends_with("/burstpolicies/p/status"));
    let statuses: Vec<&Value> = statuses.map(|(_, policy)| &policy["status"]).collect();
    let [status] = statuses[..] else { panic!("{written:?}") };
    status
}

#[tokio::test]
async fn nothing_is_kept_of_a_namespace_without_policies_and_bursts() {
    let (mut world, policies) = (World::new(&["one"]), Policies::default());
    world.wait_for_jobs(&policies, "one").await;
    assert_eq!(lock(&policies.0).len(), 1);
    assert_eq!(policies.apply(&world.context, "empty").await, None);
    let (none, _) = store();
    world.context.stores.policies = none;
    assert_eq!(policies.apply(&world.context, "one").await, None);
    assert!(lock(&policies.0).is_empty());
    assert!(world.context.feeds.jobs(&ObjectRef::new("fs").within("one")).is_none());
}
