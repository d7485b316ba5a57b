//! What is watched: policies, Bursts and MiniClusters, kept as they are in the API server.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flux_operator_api::{Burst, BurstPolicy, MiniCluster};
use flux_operator_service::lock::lock;
use futures::{Stream, StreamExt};
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// How long a watch stays open. The API server closes it then, and it is opened again: a connection
/// that is dead is noticed by that.
const WATCH_SECONDS: u32 = 240;

/// How long a watch waits before it is opened again after an error.
const RETRY: Duration = Duration::from_secs(2);

/// What is known of the API server's objects.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) policies: Store<BurstPolicy>,
    pub(crate) bursts: Store<Burst>,
    pub(crate) clusters: Store<MiniCluster>,
    pub(crate) unreadable: Unreadable,
}

/// Something has changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A policy.
    Policy,
    /// A Burst.
    Burst(ObjectRef<Burst>),
    /// A MiniCluster, or what is known of its jobs.
    Cluster(ObjectRef<MiniCluster>),
}

/// The watches, as streams that never end; each must be polled.
pub(crate) struct Watches {
    pub(crate) stores: Stores,
    pub(crate) policies: futures::future::BoxFuture<'static, ()>,
    pub(crate) bursts: futures::future::BoxFuture<'static, ()>,
    pub(crate) clusters: futures::future::BoxFuture<'static, ()>,
}

/// Watches one namespace, or all.
pub(crate) fn watch(
    client: &Client,
    namespace: Option<&str>,
    changes: mpsc::UnboundedSender<Change>,
) -> Watches {
    let (policies, policy_writer) = reflector::store();
    let (bursts, burst_writer) = reflector::store();
    let (clusters, cluster_writer) = reflector::store();
    let unreadable = Unreadable::default();
    let send = |changes: &mpsc::UnboundedSender<Change>, change: Change| {
        // The receiver ends only with the program.
        drop(changes.send(change));
    };
    let of_policies = {
        let changes = changes.clone();
        let events = events::<BurstPolicy>(client, namespace, &policies, &unreadable);
        keep(events, policy_writer, move |_| send(&changes, Change::Policy), policies.clone())
    };
    let of_bursts = {
        let changes = changes.clone();
        let events = events::<Burst>(client, namespace, &bursts, &unreadable);
        keep(
            events,
            burst_writer,
            move |it| send(&changes, Change::Burst(ObjectRef::from_obj(it))),
            bursts.clone(),
        )
    };
    let events = events::<MiniCluster>(client, namespace, &clusters, &unreadable);
    let of_clusters = keep(
        events,
        cluster_writer,
        move |it| send(&changes, Change::Cluster(ObjectRef::from_obj(it))),
        clusters.clone(),
    );
    Watches {
        stores: Stores { policies, bursts, clusters, unreadable },
        policies: Box::pin(of_policies),
        bursts: Box::pin(of_bursts),
        clusters: Box::pin(of_clusters),
    }
}

fn events<K>(
    client: &Client,
    namespace: Option<&str>,
    store: &Store<K>,
    unreadable: &Unreadable,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + use<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    // An object that cannot be read must not keep the others from being seen.
    let api: Api<DeserializeGuard<K>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let events = watcher(api, watcher::Config::default().timeout(WATCH_SECONDS));
    let (store, unreadable) = (store.clone(), unreadable.clone());
    events.filter_map(move |event| {
        let event = match event {
            Ok(event) => readable(event, &store, &unreadable).map(Ok),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(event)
    })
}

/// An event about an object that can be read. One that cannot any more is as if it was deleted.
fn readable<K>(
    event: watcher::Event<DeserializeGuard<K>>,
    store: &Store<K>,
    unreadable: &Unreadable,
) -> Option<watcher::Event<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    // The object, or the one that is stored instead of one that cannot be read.
    let read = |object: DeserializeGuard<K>, exists: bool| {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let key = Unreadable::key::<K>(&namespace, &name);
        let reference = ObjectRef::<K>::new(&name).within(&namespace);
        unreadable.set(key, exists && object.0.is_err());
        object.0.map_err(|error| {
            let kind = K::kind(&());
            tracing::warn!(%kind, object = %reference, error = error.error, "an object cannot be read");
            store.get(&reference)
        })
    };
    let gone = |stored: Option<Arc<K>>| stored.map(|it| watcher::Event::Delete((*it).clone()));
    match event {
        watcher::Event::Apply(object) => {
            read(object, true).map_or_else(gone, |it| Some(watcher::Event::Apply(it)))
        }
        watcher::Event::Delete(object) => {
            read(object, false).map_or_else(gone, |it| Some(watcher::Event::Delete(it)))
        }
        watcher::Event::InitApply(object) => read(object, true).ok().map(watcher::Event::InitApply),
        watcher::Event::Init => Some(watcher::Event::Init),
        watcher::Event::InitDone => Some(watcher::Event::InitDone),
    }
}

/// Objects that exist and cannot be read, by kind, namespace and name. They must not be taken for deleted.
#[derive(Clone, Default)]
pub(crate) struct Unreadable(Arc<Mutex<HashSet<String>>>);

impl Unreadable {
    fn key<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> String {
        format!("{} {namespace}/{name}", K::kind(&()))
    }

    /// Whether there is such an object.
    pub(crate) fn contains<K: Resource<DynamicType = ()>>(
        &self,
        namespace: &str,
        name: &str,
    ) -> bool {
        lock(&self.0).contains(&Unreadable::key::<K>(namespace, name))
    }

    fn set(&self, key: String, is_unreadable: bool) {
        let mut keys = lock(&self.0);
        match is_unreadable {
            true => keys.insert(key),
            false => keys.remove(&key),
        };
    }
}

/// Keeps a store current, and reports every object that has changed or was deleted.
async fn keep<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    writer: reflector::store::Writer<K>,
    changed: impl Fn(&K),
    store: Store<K>,
) where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let events = reflector::reflector(writer, events);
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => changed(&object),
            // The store shows a list once it is complete.
            Ok(watcher::Event::InitDone) => store.state().iter().for_each(|it| changed(it)),
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
            Err(error) => {
                let kind = K::kind(&());
                tracing::warn!(%kind, error = crate::errors::chain(&error), "a watch has failed");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, nodes: serde_json::Value) -> DeserializeGuard<Burst> {
        let target = json!({ "name": "t", "maxNodes": 4, "mock": {} });
        let burst = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "Burst",
            "metadata": { "name": name, "namespace": "ns" },
            "spec": { "cluster": "fs", "nodes": nodes, "target": target } });
        serde_json::from_value(burst).unwrap()
    }

    #[test]
    fn an_object_that_cannot_be_read_is_neither_kept_nor_taken_for_deleted() {
        let (store, mut writer) = reflector::store::<Burst>();
        let unreadable = Unreadable::default();
        let see = |event| readable(event, &store, &unreadable);
        let Some(good) = see(watcher::Event::Apply(object("b", json!(1)))) else { panic!() };
        writer.apply_watcher_event(&good);
        let bad = see(watcher::Event::Apply(object("b", json!("many"))));
        assert!(matches!(bad, Some(watcher::Event::Delete(_))), "the old one is not used any more");
        assert!(unreadable.contains::<Burst>("ns", "b"));
        assert!(see(watcher::Event::InitApply(object("c", json!("many")))).is_none());
        assert!(unreadable.contains::<Burst>("ns", "c"));
        assert!(see(watcher::Event::Apply(object("c", json!(2)))).is_some());
        assert!(!unreadable.contains::<Burst>("ns", "c"));
        see(watcher::Event::Delete(object("b", json!("many"))));
        assert!(!unreadable.contains::<Burst>("ns", "b"));
    }
}
