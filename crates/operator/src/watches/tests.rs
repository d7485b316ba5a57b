use super::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Request, Response};
use flux_operator_api::MiniCluster;
use futures::FutureExt;
use kube::client::Body;
use kube::core::DeserializeGuard;
use tokio::time::Instant;

/// The queries of requests, and when they were received.
type Queries = Arc<Mutex<Vec<(Instant, String)>>>;

/// A client of an empty API server whose watches never send an event, and the received queries.
fn silent_watches() -> (Client, Queries) {
    let asked = Queries::default();
    let notes = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = match query.contains("watch=true") {
            true => axum::body::Body::from_stream(stream::pending::<Result<String, axum::Error>>()),
            false => r#"{ "metadata": { "resourceVersion": "1" }, "items": [] }"#.into(),
        };
        notes.lock().unwrap().push((Instant::now(), query));
        async move { Ok::<_, kube::Error>(Response::new(body)) }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_gone_silent_is_taken_up_again_within_seconds() {
    let (client, asked) = silent_watches();
    let api: Api<Pod> = api(&client, None);
    let events = watcher(api, config()).default_backoff().boxed();
    let _ = tokio::time::timeout(Duration::from_secs(100), events.count()).await;
    let asked = asked.lock().unwrap();
    let watches: Vec<_> = asked.iter().filter(|(_, query)| query.contains("watch=true")).collect();
    assert!(watches[0].1.contains("timeoutSeconds=10"), "the API server is to end it: {watches:?}");
    let silence = watches[1].0 - watches[0].0;
    assert!(silence <= Duration::from_secs(20), "noticed after {silence:?}");
    assert_eq!(asked.len() - watches.len(), 1, "nothing is listed again: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_lists_again_when_it_comes_to_lead() {
    let leadership = Leadership::elsewhere("10.0.0.1:1".parse().unwrap());
    let (client, asked) = silent_watches();
    let lists = || asked.lock().unwrap().iter().filter(|it| !it.1.contains("watch=true")).count();
    let index = Index::<Pod>::new();
    let watch = follow(&client, &leadership, &index);
    let mut watch = std::pin::pin!(watch);
    for _ in 0..9 {
        assert!(watch.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert!(index.is_filled() && lists() == 1);
    leadership.gain();
    let term = leadership.until_it_leads().await;
    assert!(index.filled(term).now_or_never().is_none(), "it was listed before");
    assert!(index.is_filled(), "it can be read meanwhile");
    tokio::select! {
        () = index.filled(term) => {}
        () = watch => unreachable!("a watch does not end"),
    }
    assert_eq!(lists(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_leads_from_the_start_lists_once_and_not_before() {
    let leadership = Leadership::unknown();
    let (client, asked) = silent_watches();
    let index = Index::<Pod>::new();
    let mut watch = std::pin::pin!(follow(&client, &leadership, &index));
    assert!(watch.as_mut().now_or_never().is_none());
    assert!(asked.lock().unwrap().is_empty());
    leadership.gain();
    let term = leadership.until_it_leads().await;
    tokio::select! {
        () = index.filled(term) => {}
        () = watch => unreachable!("a watch does not end"),
    }
    let asked = asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|it| !it.1.contains("watch=true")).count(), 1);
}

fn follow(
    client: &Client,
    leadership: &Leadership,
    index: &Index<Pod>,
) -> impl Future<Output = ()> + Send + use<> {
    let changed = tokio::sync::mpsc::unbounded_channel().0;
    From { client, namespace: None, leadership, changed: &changed }.follow(index, prune, || {})
}

fn minicluster(name: &str, version: &str) -> Guarded {
    let minicluster: MiniCluster = serde_json::from_value(serde_json::json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": name, "namespace": "n", "resourceVersion": version },
        "spec": { "containers": [{ "image": "a" }] },
    }))
    .unwrap();
    DeserializeGuard(Ok(minicluster))
}

#[test]
fn what_a_list_of_several_pages_changes_is_reconciled_when_the_store_has_it() {
    let (store, mut writer) = Watched::<Guarded>::new();
    let mut asked = Asked::default();
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
        for reference in asked.after(&event, &store) {
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
