use super::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Request, Response};
use flux_operator_api::MiniCluster;
use flux_operator_service::guarded::Guarded;
use futures::FutureExt;
use kube::client::Body;
use serde_json::json;
use tokio::time::Instant;

/// The queries of requests, and when they were received.
type Queries = Arc<Mutex<Vec<(Instant, String)>>>;

/// A client of an empty API server whose watches never send an event, and the received queries.
fn silent_api_server() -> (Client, Queries) {
    let queries = Queries::default();
    let log = queries.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = match query.contains("watch=true") {
            true => axum::body::Body::from_stream(stream::pending::<Result<String, axum::Error>>()),
            false => r#"{ "metadata": { "resourceVersion": "1" }, "items": [] }"#.into(),
        };
        log.lock().unwrap().push((Instant::now(), query));
        async move { Ok::<_, kube::Error>(Response::new(body)) }
    });
    (Client::new(service, "default"), queries)
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_restarted_within_seconds() {
    let (client, requested) = silent_api_server();
    let api: Api<Pod> = api(&client, None);
    let events = watcher(api, config()).default_backoff().boxed();
    let _ = tokio::time::timeout(Duration::from_secs(100), events.count()).await;
    let requested = requested.lock().unwrap();
    let watches: Vec<_> =
        requested.iter().filter(|(_, query)| query.contains("watch=true")).collect();
    assert!(watches[0].1.contains("timeoutSeconds=10"), "the API server is to end it: {watches:?}");
    let silence = watches[1].0 - watches[0].0;
    assert!(silence <= Duration::from_secs(20), "noticed after {silence:?}");
    assert_eq!(requested.len() - watches.len(), 1, "nothing is listed again: {requested:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_lists_again_when_it_becomes_leader() {
    let leadership = Leadership::elsewhere("10.0.0.1:1".parse().unwrap());
    let (client, requested) = silent_api_server();
    let lists =
        || requested.lock().unwrap().iter().filter(|it| !it.1.contains("watch=true")).count();
    let index = Index::<Pod>::new();
    let watch = watch_pods(&client, &leadership, &index);
    let mut watch = std::pin::pin!(watch);
    for _ in 0..9 {
        assert!(watch.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert!(index.has_synced() && lists() == 1);
    leadership.acquire();
    let term = leadership.wait_until_leader().await;
    assert!(index.wait_until_synced(term).now_or_never().is_none(), "it was listed before");
    assert!(index.has_synced(), "it can be read meanwhile");
    tokio::select! {
        () = index.wait_until_synced(term) => {}
        () = watch => unreachable!("a watch does not end"),
    }
    assert_eq!(lists(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_leader_from_the_start_lists_only_once() {
    let leadership = Leadership::unknown();
    let (client, requested) = silent_api_server();
    let index = Index::<Pod>::new();
    let mut watch = std::pin::pin!(watch_pods(&client, &leadership, &index));
    assert!(watch.as_mut().now_or_never().is_none());
    assert!(requested.lock().unwrap().is_empty());
    leadership.acquire();
    let term = leadership.wait_until_leader().await;
    tokio::select! {
        () = index.wait_until_synced(term) => {}
        () = watch => unreachable!("a watch does not end"),
    }
    let requested = requested.lock().unwrap();
    assert_eq!(requested.iter().filter(|it| !it.1.contains("watch=true")).count(), 1);
}

/// They are kept as text, which kube's own guard cannot parse.
#[test]
fn a_policy_with_variables_of_a_target_is_read() {
    let target = serde_json::json!({ "name": "t", "maxNodes": 4, "clusterAPI": {
        "class": { "name": "c", "workers": "w" }, "version": "v1.34.0",
        "variables": { "zone": [{ "a": 0 }] } } });
    let policy = serde_json::json!({ "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "BurstPolicy", "metadata": { "name": "p", "namespace": "n" },
        "spec": { "selector": {}, "limits": { "nodes": 4 }, "targets": [target] } });
    let policy: GuardedPolicy = serde_json::from_value(policy).unwrap();
    assert_eq!(policy.0.unwrap().spec.targets.len(), 1);
}

/// An operator may be updated before its CRDs and roles.
#[tokio::test(start_paused = true)]
async fn policies_that_cannot_be_listed_do_not_stop_the_operator() {
    for (code, is_awaited) in [(403, false), (404, false), (500, true)] {
        let answer = serde_json::json!({ "kind": "Status", "apiVersion": "v1", "code": code,
            "status": "Failure", "message": "", "reason": "" });
        let service = tower::service_fn(move |_: Request<Body>| {
            let response = Response::builder().status(code);
            let response = response.body(axum::body::Body::from(answer.to_string())).unwrap();
            async move { Ok::<_, kube::Error>(response) }
        });
        let client = Client::new(service, "default");
        let policies = Index::<GuardedPolicy>::keyed_by(namespace_of);
        let watched = watcher(api(&client, None), config()).default_backoff();
        let follow = follow_policies(watched, policies.clone());
        let _ = tokio::time::timeout(Duration::from_secs(60), follow).await;
        assert_eq!(!policies.has_synced(), is_awaited, "{code}");
    }
}

fn watch_pods(
    client: &Client,
    leadership: &Leadership,
    index: &Index<Pod>,
) -> impl Future<Output = ()> + Send + use<> {
    let changed = tokio::sync::mpsc::unbounded_channel().0;
    OwnedWatch { client, namespace: None, leadership, changed: &changed }.run(index, prune, || {})
}

fn minicluster(name: &str, version: &str) -> GuardedMiniCluster {
    let minicluster: MiniCluster = serde_json::from_value(serde_json::json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": name, "namespace": "n", "resourceVersion": version },
        "spec": { "containers": [{ "image": "a" }] },
    }))
    .unwrap();
    Guarded(Ok(minicluster))
}

#[test]
fn changes_in_a_paged_list_are_reconciled_once_the_store_contains_them() {
    let (store, mut writer) = SyncedStore::<GuardedMiniCluster>::new();
    let mut selector = ReconcileSelector::default();
    // The version in the store at the time each MiniCluster is reconciled.
    let mut reconciled: Vec<(String, Option<String>)> = Vec::new();
    let events = [
        Event::Apply(minicluster("changed", "1")),
        Event::Apply(minicluster("gone", "2")),
        Event::Init,
        Event::InitApply(minicluster("changed", "3")),
        // Here the next page is requested, which takes a while.
        Event::InitApply(minicluster("new", "4")),
        Event::InitDone,
    ];
    for event in events {
        writer.apply_watcher_event(&event);
        for reference in selector.select(&event, &store) {
            let version = store.get(&reference).and_then(|found| found.resource_version());
            reconciled.push((reference.name, version));
        }
    }
    let mut after_the_list = reconciled.split_off(2);
    after_the_list.sort();
    let version = |version: &str| Some(version.to_owned());
    assert_eq!(
        after_the_list,
        [("changed".into(), version("3")), ("gone".into(), None), ("new".into(), version("4"))]
    );
}

#[test]
fn what_users_write_into_policies_is_not_kept() {
    let policy = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
        "metadata": { "name": "p", "namespace": "hpc", "uid": "u", "labels": { "a": "b" },
            "annotations": { "a": "b" }, "finalizers": ["a/b"], "resourceVersion": "7" },
        "spec": { "selector": { "matchLabels": { "team": "a" } }, "limits": { "nodes": 4 },
            "jobs": { "queues": ["long"] }, "targets": [{ "name": "t", "maxNodes": 4, "cluster": {} }] } });
    let mut policy: GuardedPolicy = serde_json::from_value(policy).unwrap();
    prune_policy(&mut policy);
    let policy = policy.0.unwrap();
    let kept = json!({ "name": "p", "namespace": "hpc", "uid": "u", "resourceVersion": "7" });
    assert_eq!(serde_json::to_value(&policy.metadata).unwrap(), kept);
    assert!(policy.spec.targets.is_empty() && policy.spec.jobs == JobSelection::default());
    assert!(policy.spec.selector.match_labels.is_some() && policy.spec.limits.nodes == 4);
}
