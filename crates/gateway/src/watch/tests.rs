use super::*;
use crate::testing::api_server::ApiServer;
use crate::testing::{minicluster, soon, until};
use serde_json::{Value, json};
use tokio::task::JoinSet;

struct Watching {
    server: ApiServer,
    lenders: watch::Receiver<Lenders>,
    listed: watch::Receiver<bool>,
    metrics: Metrics,
    _tasks: JoinSet<()>,
}

impl Watching {
    fn start(objects: Vec<Value>, namespace: Option<&str>) -> Watching {
        let server = ApiServer::new(objects);
        let (sender, lenders) = watch::channel(Lenders::new());
        let (listing, listed) = watch::channel(false);
        let metrics = Metrics::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_lenders(
            server.client(),
            namespace.map(str::to_owned),
            sender,
            listing,
            metrics.clone(),
        ));
        Watching { server, lenders, listed, metrics, _tasks: tasks }
    }

    async fn wait_for_names(&mut self, names: &[&str]) {
        let are = |lenders: &Lenders| {
            lenders.keys().map(|(_, name)| name.as_str()).eq(names.iter().copied())
        };
        soon(self.lenders.wait_for(are)).await.unwrap();
    }
}

fn named(name: &str) -> Value {
    let mut object = minicluster();
    object["metadata"]["name"] = name.into();
    object
}

/// A MiniCluster whose leases cannot be decoded.
fn undecodable(name: &str) -> Value {
    let mut object = named(name);
    object["status"]["leases"] = "none".into();
    object
}

/// A MiniCluster that lends nothing.
fn without_leases(name: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "default" }, "spec": { "size": 2 } })
}

#[tokio::test]
async fn lenders_are_listed_and_then_watched() {
    let listed = vec![named("a"), without_leases("b"), undecodable("c"), named("d")];
    let mut watching = Watching::start(listed, None);
    soon(watching.listed.wait_for(|listed| *listed)).await.unwrap();
    watching.wait_for_names(&["a", "d"]).await;
    watching.server.wait_for_watch().await;
    watching.server.change("ADDED", &named("e"));
    watching.wait_for_names(&["a", "d", "e"]).await;
    watching.server.change("DELETED", &named("a"));
    watching.wait_for_names(&["d", "e"]).await;
    watching.server.change("MODIFIED", &without_leases("d"));
    watching.wait_for_names(&["e"]).await;
    watching.server.change("MODIFIED", &undecodable("e"));
    watching.wait_for_names(&[]).await;
    let requests = watching.server.requests();
    assert!(
        requests[0].starts_with("/apis/flux-framework.org/v1alpha2/miniclusters?"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn one_namespace_can_be_watched() {
    let mut watching = Watching::start(vec![named("a")], Some("default"));
    watching.wait_for_names(&["a"]).await;
    let requests = watching.server.requests();
    assert!(requests[0].contains("/namespaces/default/miniclusters?"), "{requests:?}");
}

#[tokio::test]
async fn a_change_that_does_not_concern_the_gateway_wakes_no_receiver() {
    let mut watching = Watching::start(vec![named("a")], None);
    watching.wait_for_names(&["a"]).await;
    watching.server.wait_for_watch().await;
    watching.lenders.mark_unchanged();
    let mut changed = named("a");
    changed["status"]["phase"] = "Running".into();
    watching.server.change("MODIFIED", &changed);
    watching.server.change("ADDED", &without_leases("x"));
    watching.server.change("ADDED", &named("b"));
    soon(watching.lenders.changed()).await.unwrap();
    let names: Vec<_> = watching.lenders.borrow().keys().map(|(_, name)| name.clone()).collect();
    assert_eq!(names, ["a", "b"], "the first to wake it");
}

#[tokio::test]
async fn the_last_known_lenders_remain_while_the_api_server_is_unreachable() {
    let mut watching = Watching::start(vec![named("a"), named("b")], None);
    watching.wait_for_names(&["a", "b"]).await;
    watching.server.wait_for_watch().await;
    watching.server.set_reachable(false);
    let failures = || {
        let text = watching.metrics.render();
        !text.contains("gateway_watch_failures_total 0\n")
    };
    until(failures).await;
    assert_eq!(watching.lenders.borrow().len(), 2);
    // What changed meanwhile is in effect as soon as it is reachable again.
    watching.server.change("MODIFIED", &without_leases("a"));
    watching.server.set_reachable(true);
    watching.server.wait_for_watch().await;
    watching.server.change("DELETED", &named("a"));
    watching.wait_for_names(&["b"]).await;
}
