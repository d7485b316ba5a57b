//! Tests against loopback servers that stall in different ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Config;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::health::Health;
use crate::lease::Leadership;
use flux_operator_service::error_chain::chain;

/// Short enough for a test, and all different.
const SHORT_TIMEOUTS: RequestTimeouts = RequestTimeouts {
    object: Duration::from_millis(100),
    list: Duration::from_millis(200),
    watch: Duration::from_millis(300),
};

/// A server that sends the same bytes, piece by piece, in response to every request, and then keeps
/// the connection open without sending anything more.
struct Server {
    client: Client,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// The server waits for the given time before each piece.
    async fn start(pieces: &[(Duration, &'static str)]) -> Server {
        let pieces = pieces.to_vec();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        // The task is cancelled with the test's runtime.
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (count, pieces) = (count.clone(), pieces.clone());
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                        count.fetch_add(1, Ordering::SeqCst);
                        for (wait, piece) in &pieces {
                            tokio::time::sleep(*wait).await;
                            stream.write_all(piece.as_bytes()).await.unwrap();
                        }
                    }
                });
            }
        });
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        Server { client, requests }
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(shared_client(self.client.clone(), Metrics::new(), SHORT_TIMEOUTS), "a")
    }
}

async fn patch(api: &Api<ConfigMap>) -> Result<ConfigMap, kube::Error> {
    api.patch("b", &PatchParams::default(), &Patch::Merge(json!({ "data": { "c": "d" } }))).await
}

/// Fails a test that would otherwise hang.
async fn within_30_s<T>(future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(Duration::from_secs(30), future).await;
    outcome.expect("a request has no time limit")
}

const AT_ONCE: Duration = Duration::ZERO;

#[tokio::test]
async fn a_request_without_a_response_times_out_and_its_outcome_is_unknown() {
    let server = Server::start(&[]).await;
    let error = within_30_s(patch(&server.config_maps())).await.unwrap_err();
    assert!(is_outcome_unknown(&error), "the write may have been executed");
    assert_eq!(
        chain(&error),
        "the API server did not respond to PATCH /api/v1/namespaces/a/configmaps/b within 0.1 s, \
         but may have executed it"
    );
    let error = within_30_s(server.config_maps().list(&ListParams::default())).await.unwrap_err();
    assert!(chain(&error).contains("GET /api/v1/namespaces/a/configmaps within 0.2 s"), "{error}");
}

#[tokio::test]
async fn a_response_that_stalls_halfway_times_out() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{ \"metadata\":";
    let server = Server::start(&[(AT_ONCE, half)]).await;
    let error = within_30_s(patch(&server.config_maps())).await.unwrap_err();
    assert!(chain(&error).contains("within 0.1 s"), "{error}");
}

#[tokio::test]
async fn a_slow_response_within_the_timeout_is_complete() {
    const MAP: &str =
        "HTTP/1.1 200 OK\r\ncontent-length: 42\r\n\r\n{\"metadata\":{\"name\":\"b\"},";
    const REST: &str = "\"data\":{\"c\":\"d\"}}";
    let server = Server::start(&[(AT_ONCE, MAP), (Duration::from_millis(10), REST)]).await;
    let map = within_30_s(patch(&server.config_maps())).await;
    assert_eq!(map.unwrap_or_else(|e| panic!("{e}")).data.unwrap()["c"], "d");
}

#[tokio::test]
async fn a_watch_must_start_within_its_timeout_and_may_then_stay_open() {
    let silent = Server::start(&[]).await;
    let error = within_30_s(silent.config_maps().watch(&WatchParams::default(), "1")).await;
    let error = error.map(|_| ()).unwrap_err();
    assert!(chain(&error).contains("within 0.3 s"), "{error}");

    const HEAD: &str = "HTTP/1.1 200 OK\r\n\r\n";
    const EVENT: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\"}}}\n";
    // Later than all timeouts.
    let late = Server::start(&[(AT_ONCE, HEAD), (Duration::from_millis(500), EVENT)]).await;
    let events = within_30_s(late.config_maps().watch(&WatchParams::default(), "1")).await.unwrap();
    let event = within_30_s(events.boxed().try_next()).await.unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(_))), "{event:?}");
}

#[tokio::test]
async fn a_replica_that_is_not_leader_reads_and_sends_no_write() {
    const MAP: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let server = Server::start(&[(AT_ONCE, MAP)]).await;
    let leadership = Leadership::always();
    let gate = WriteGate::new(leadership.clone(), Health::default());
    let client = leader_client(server.client.clone(), Metrics::new(), REQUEST_TIMEOUTS, gate);
    let api: Api<ConfigMap> = Api::namespaced(client, "a");
    within_30_s(patch(&api)).await.unwrap();
    leadership.close();
    within_30_s(api.get("b")).await.unwrap();
    let error = within_30_s(patch(&api)).await.unwrap_err();
    assert!(!is_outcome_unknown(&error), "the write was not executed: {error}");
    assert!(chain(&error).starts_with("nothing was written"), "{error}");
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}
