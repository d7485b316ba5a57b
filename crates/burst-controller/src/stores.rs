//! What is watched: policies, Bursts and MiniClusters, kept as they are in the API server.

use std::hash::Hash;
use std::time::Duration;

use flux_operator_api::{Burst, BurstPolicy, MiniCluster};
use futures::{Stream, StreamExt};
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
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
    let send = |changes: &mpsc::UnboundedSender<Change>, change: Change| {
        // The receiver ends only with the program.
        drop(changes.send(change));
    };
    let of_policies = {
        let changes = changes.clone();
        let events = events::<BurstPolicy>(client, namespace);
        keep(events, policy_writer, move |_| send(&changes, Change::Policy), policies.clone())
    };
    let of_bursts = {
        let changes = changes.clone();
        let events = events::<Burst>(client, namespace);
        keep(
            events,
            burst_writer,
            move |it| send(&changes, Change::Burst(ObjectRef::from_obj(it))),
            bursts.clone(),
        )
    };
    let events = events::<MiniCluster>(client, namespace);
    let of_clusters = keep(
        events,
        cluster_writer,
        move |it| send(&changes, Change::Cluster(ObjectRef::from_obj(it))),
        clusters.clone(),
    );
    Watches {
        stores: Stores { policies, bursts, clusters },
        policies: Box::pin(of_policies),
        bursts: Box::pin(of_bursts),
        clusters: Box::pin(of_clusters),
    }
}

fn events<K>(
    client: &Client,
    namespace: Option<&str>,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + use<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    // An object that cannot be read must not keep the others from being seen.
    let api: Api<DeserializeGuard<K>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let events = watcher(api, watcher::Config::default().timeout(WATCH_SECONDS));
    events.filter_map(async |event| match event {
        Ok(event) => readable(event).map(Ok),
        Err(error) => Some(Err(error)),
    })
}

/// An event without an object that cannot be read.
fn readable<K: Resource<DynamicType = ()>>(
    event: watcher::Event<DeserializeGuard<K>>,
) -> Option<watcher::Event<K>> {
    let read = |object: DeserializeGuard<K>| {
        let name = object.name_any();
        let unreadable = |error: InvalidObject| {
            let kind = K::kind(&());
            tracing::warn!(%kind, name, error = error.error, "an object cannot be read");
        };
        object.0.map_err(unreadable).ok()
    };
    Some(match event {
        watcher::Event::Apply(object) => watcher::Event::Apply(read(object)?),
        watcher::Event::Delete(object) => watcher::Event::Delete(read(object)?),
        watcher::Event::InitApply(object) => watcher::Event::InitApply(read(object)?),
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitDone => watcher::Event::InitDone,
    })
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
