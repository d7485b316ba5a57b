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
use crate::errors::chain;
use crate::health::Health;
use crate::lease::Leadership;

/// Short enough for a test, and all different.
const SHORT: Limits = Limits {
    object: Duration::from_millis(100),
    list: Duration::from_millis(200),
    watch: Duration::from_millis(300),
};

/// A server that sends the same bytes, piece by piece, in response to every request, and then keeps
/// the connection open without sending anything more.
struct Server {
    client: Client,
    asked: Arc<AtomicUsize>,
}

impl Server {
    /// The server waits for the given time before each piece.
    async fn start(pieces: &[(Duration, &'static str)]) -> Server {
        let pieces = pieces.to_vec();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
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
        Server { client, asked }
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(for_all(self.client.clone(), Metrics::new(), SHORT), "a")
    }
}

async fn patch(api: &Api<ConfigMap>) -> Result<ConfigMap, kube::Error> {
    api.patch("b", &PatchParams::default(), &Patch::Merge(json!({ "data": { "c": "d" } }))).await
}

/// Fails a test that would otherwise hang.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    let soon = tokio::time::timeout(Duration::from_secs(30), future).await;
    soon.expect("a request has no time limit")
}

const AT_ONCE: Duration = Duration::ZERO;

#[tokio::test]
async fn a_request_that_is_never_answered_ends_in_time_and_says_what_is_not_known() {
    let server = Server::start(&[]).await;
    let error = soon(patch(&server.config_maps())).await.unwrap_err();
    assert!(is_unknown(&error), "the write may have been executed");
    assert_eq!(
        chain(&error),
        "the API server did not respond to PATCH /api/v1/namespaces/a/configmaps/b within 0.1 s, \
         but may have executed it"
    );
    let error = soon(server.config_maps().list(&ListParams::default())).await.unwrap_err();
    assert!(chain(&error).contains("GET /api/v1/namespaces/a/configmaps within 0.2 s"), "{error}");
}

#[tokio::test]
async fn a_server_that_goes_silent_within_its_answer_is_given_up_too() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{ \"metadata\":";
    let server = Server::start(&[(AT_ONCE, half)]).await;
    let error = soon(patch(&server.config_maps())).await.unwrap_err();
    assert!(chain(&error).contains("within 0.1 s"), "{error}");
}

#[tokio::test]
async fn a_slow_answer_that_comes_in_time_is_complete() {
    const MAP: &str =
        "HTTP/1.1 200 OK\r\ncontent-length: 42\r\n\r\n{\"metadata\":{\"name\":\"b\"},";
    const REST: &str = "\"data\":{\"c\":\"d\"}}";
    let server = Server::start(&[(AT_ONCE, MAP), (Duration::from_millis(10), REST)]).await;
    let map = soon(patch(&server.config_maps())).await;
    assert_eq!(map.unwrap_or_else(|e| panic!("{e}")).data.unwrap()["c"], "d");
}

#[tokio::test]
async fn a_watch_must_begin_in_time_and_may_then_last() {
    let silent = Server::start(&[]).await;
    let error = soon(silent.config_maps().watch(&WatchParams::default(), "1")).await;
    let error = error.map(|_| ()).unwrap_err();
    assert!(chain(&error).contains("within 0.3 s"), "{error}");

    const HEAD: &str = "HTTP/1.1 200 OK\r\n\r\n";
    const EVENT: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\"}}}\n";
    // Later than all timeouts.
    let late = Server::start(&[(AT_ONCE, HEAD), (Duration::from_millis(500), EVENT)]).await;
    let events = soon(late.config_maps().watch(&WatchParams::default(), "1")).await.unwrap();
    let event = soon(events.boxed().try_next()).await.unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(_))), "{event:?}");
}

#[tokio::test]
async fn who_does_not_lead_reads_and_sends_no_write() {
    const MAP: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let server = Server::start(&[(AT_ONCE, MAP)]).await;
    let leadership = Leadership::always();
    let gate = Gate::new(leadership.clone(), Health::default());
    let client = for_leader(server.client.clone(), Metrics::new(), LIMITS, gate);
    let api: Api<ConfigMap> = Api::namespaced(client, "a");
    soon(patch(&api)).await.unwrap();
    leadership.close();
    soon(api.get("b")).await.unwrap();
    let error = soon(patch(&api)).await.unwrap_err();
    assert!(!is_unknown(&error), "the write was not executed: {error}");
    assert!(chain(&error).starts_with("nothing was written"), "{error}");
    assert_eq!(server.asked.load(Ordering::SeqCst), 2);
}
