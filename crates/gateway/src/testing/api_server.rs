//! An API server in memory: one list of MiniClusters, one watch, and Events.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::{Body as AxumBody, Bytes};
use axum::http::{Method, Request, Response, StatusCode};
use futures::stream;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use crate::lock::lock;

#[derive(Clone)]
pub(crate) struct ApiServer(Arc<State>);

struct State {
    objects: Mutex<Vec<Value>>,
    /// The resource version of the next change.
    version: AtomicUsize,
    /// Lines of the watch.
    changes: broadcast::Sender<String>,
    /// The Events that were written.
    events: watch::Sender<Vec<Value>>,
    /// The paths of lists and watches.
    requests: Mutex<Vec<String>>,
    is_reachable: watch::Sender<bool>,
}

impl ApiServer {
    pub(crate) fn new(objects: Vec<Value>) -> ApiServer {
        ApiServer(Arc::new(State {
            objects: Mutex::new(objects),
            version: AtomicUsize::new(2),
            changes: broadcast::Sender::new(100),
            events: watch::Sender::default(),
            requests: Mutex::default(),
            is_reachable: watch::Sender::new(true),
        }))
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "default")
    }

    /// Changes an object, and sends the change to the watch.
    pub(crate) fn change(&self, kind: &str, object: &Value) {
        let mut object = object.clone();
        let version = self.0.version.fetch_add(1, Ordering::SeqCst);
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let mut objects = lock(&self.0.objects);
        objects.retain(|other| other["metadata"]["name"] != object["metadata"]["name"]);
        if kind != "DELETED" {
            objects.push(object.clone());
        }
        // Without a watch the change is in the next list.
        // The type is first, as API servers send it.
        let event = format!(r#"{{"type":"{kind}","object":{object}}}"#);
        let _ = self.0.changes.send(event + "\n");
    }

    /// Ends the watch, and fails all requests until it is reachable again.
    pub(crate) fn set_reachable(&self, is_reachable: bool) {
        self.0.is_reachable.send_replace(is_reachable);
    }

    /// Waits until a watch has begun.
    pub(crate) async fn wait_for_watch(&self) {
        super::until(|| self.0.changes.receiver_count() > 0).await;
    }

    /// Waits for this number of Events.
    pub(crate) async fn wait_for_events(&self, count: usize) -> Vec<Value> {
        let mut events = self.0.events.subscribe();
        super::soon(events.wait_for(|events| events.len() >= count)).await.unwrap().clone()
    }

    /// The paths of lists and watches, with their parameters.
    pub(crate) fn requests(&self) -> Vec<String> {
        lock(&self.0.requests).clone()
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<AxumBody>, kube::Error> {
        let (head, body) = request.into_parts();
        if !*self.0.is_reachable.borrow() {
            return Err(kube::Error::Service("unreachable".into()));
        }
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        if head.method == Method::POST && path.starts_with("/apis/events.k8s.io/v1/") {
            let bytes = body.collect_bytes().await?;
            let event: Value = serde_json::from_slice(&bytes).unwrap();
            self.0.events.send_modify(|events| events.push(event));
            return Ok(answer(StatusCode::CREATED, bytes.to_vec()));
        }
        assert_eq!(head.method, Method::GET, "the gateway only reads");
        lock(&self.0.requests).push(format!("{path}?{query}"));
        if query.contains("watch=true") {
            return Ok(Response::new(AxumBody::from_stream(self.lines())));
        }
        let list = json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniClusterList",
            "metadata": { "resourceVersion": "1" },
            "items": *lock(&self.0.objects),
        });
        Ok(answer(StatusCode::OK, list.to_string().into_bytes()))
    }

    /// The lines of a watch, until the server is unreachable.
    fn lines(&self) -> impl futures::Stream<Item = Result<Bytes, Infallible>> + use<> {
        let state = (self.0.changes.subscribe(), self.0.is_reachable.subscribe());
        stream::unfold(state, |(mut changes, mut is_reachable)| async {
            let line = tokio::select! {
                line = changes.recv() => line.ok()?,
                _ = is_reachable.wait_for(|is_reachable| !is_reachable) => return None,
            };
            Some((Ok(Bytes::from(line)), (changes, is_reachable)))
        })
    }
}

fn answer(status: StatusCode, body: Vec<u8>) -> Response<AxumBody> {
    let mut response = Response::new(AxumBody::from(body));
    *response.status_mut() = status;
    response
}
