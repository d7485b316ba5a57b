//! A Burst with an API server that answers as a test says.

use std::collections::BTreeSet;
use std::sync::Mutex;

use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_service::lock::lock;
use http::{Method, Request, Response};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::client::Body;
use kube::runtime::events::Reporter;
use kube::runtime::reflector::store;
use kube::runtime::watcher::Event as WatcherEvent;
use serde_json::Value;
use tokio::sync::mpsc;

use super::*;
use crate::unreadable::Unreadable as UnreadableObjects;

/// What is written to an API server that has a Secret with this kubeconfig.
fn client(kubeconfig: &str, written: Arc<Mutex<Vec<Value>>>) -> Client {
    let data = [("kubeconfig".to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))];
    let secret = Secret { data: Some(data.into()), ..Secret::default() };
    let secret = serde_json::to_vec(&secret).unwrap();
    let server = tower::service_fn(move |request: Request<Body>| {
        let (secret, written) = (secret.clone(), Arc::clone(&written));
        async move {
            let is_write = request.method() != Method::GET;
            let body = request.into_body().collect_bytes().await.unwrap().to_vec();
            let answer = if is_write { body } else { secret };
            if is_write {
                lock(&written).push(serde_json::from_slice(&answer).unwrap());
            }
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(answer)))
        }
    });
    Client::new(server, "default")
}

/// The status that is written of a Burst whose target has this kubeconfig.
async fn status_with(kubeconfig: &str) -> Value {
    let written = Arc::default();
    let client = client(kubeconfig, Arc::clone(&written));
    let burst = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "Burst",
        "metadata": { "name": "b", "namespace": "ns", "uid": "uid", "generation": 1,
            "creationTimestamp": Timestamp::now().to_string() },
        "spec": { "cluster": "fs", "nodes": 1,
            "target": { "name": "away", "maxNodes": 4, "kubeconfig": { "secret": "away" } } } });
    let burst: Burst = serde_json::from_value(burst).unwrap();
    let name = ObjectRef::from_obj(&burst);
    let (bursts, mut writer) = store();
    writer.apply_watcher_event(&WatcherEvent::Apply(burst));
    let (policies, clusters, unreadable) = (store().0, store().0, UnreadableObjects::default());
    let context = Context {
        home: Home {
            client: client.clone(),
            settings: Settings {
                agent_image: "agent".into(),
                cluster_domain: "cluster.local".into(),
                delivery: DeliveryMethod::Init,
                report_url: None,
            },
            served: BTreeSet::from(["*".to_owned()]),
            commands: false,
            gke_image: None,
        },
        stores: Stores { policies, bursts, clusters, unreadable },
        feeds: Feeds::new(client.clone(), mpsc::unbounded_channel().0),
        clients: Arc::default(),
        views: Arc::default(),
        metrics: Metrics::new(),
        recorder: Recorder::new(client, Reporter::from("test")),
    };
    reconcile(&context, &name).await.unwrap();
    let written = lock(&written);
    written.iter().find(|it| it["kind"] == "Burst").unwrap()["status"].clone()
}

/// The client library panics about it.
#[tokio::test]
async fn a_token_with_a_line_break_is_shown_in_the_status() {
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{name: c, context: {cluster: k, user: u}}]\n\
         clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n\
         users: [{name: u, user: {token: \"a\\nb\"}}]\n";
    let status = status_with(kubeconfig).await;
    assert_eq!(status["phase"], "KubeconfigRefused", "{status}");
}
