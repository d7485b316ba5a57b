//! What is watched: policies, Bursts and MiniClusters, kept as they are in the API server; of namespaces that
//! are not served, only what their statuses need.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::time::Duration;

use flux_operator_api::{Burst, BurstPolicy, MiniCluster};
use futures::{Stream, StreamExt};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::mpsc;

use crate::home::serves;
use crate::kept::Kept;
use crate::unparsed::Unparsed;
use crate::unreadable::{Found, Unreadable};

/// How long a watch stays open. The API server closes it then, and it is opened again: a connection
/// that is dead is noticed by that.
const WATCH_SECONDS: u32 = 240;

/// Objects of one page of a list. The text of a page is in memory as a whole, and twice while it is received:
/// as an object may have 1.5 MB, that is 30 MB for each of the three kinds.
const PAGE: u32 = 10;

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

impl Stores {
    /// A MiniCluster.
    pub(crate) fn cluster(&self, name: &ObjectRef<MiniCluster>) -> Found<MiniCluster> {
        self.unreadable.find(&self.clusters, name)
    }

    /// A Burst.
    pub(crate) fn burst(&self, name: &ObjectRef<Burst>) -> Found<Burst> {
        self.unreadable.find(&self.bursts, name)
    }
}

/// Something has changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A policy.
    Policy(ObjectRef<BurstPolicy>),
    /// A Burst.
    Burst(ObjectRef<Burst>),
    /// A MiniCluster, or what is known of its jobs.
    Cluster(ObjectRef<MiniCluster>),
}

impl Change {
    /// In which namespace.
    pub(crate) fn namespace(&self) -> &str {
        let namespace = match self {
            Change::Policy(policy) => &policy.namespace,
            Change::Burst(burst) => &burst.namespace,
            Change::Cluster(cluster) => &cluster.namespace,
        };
        namespace.as_deref().unwrap_or_default()
    }
}

/// The watches, as streams that never end; each must be polled.
pub(crate) struct Watches {
    pub(crate) stores: Stores,
    pub(crate) policies: futures::future::BoxFuture<'static, ()>,
    pub(crate) bursts: futures::future::BoxFuture<'static, ()>,
    pub(crate) clusters: futures::future::BoxFuture<'static, ()>,
}

/// Watches one namespace, or all, of which these are served.
pub(crate) fn watch(
    client: &Client,
    namespace: Option<&str>,
    served: &BTreeSet<String>,
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
        let events = events::<BurstPolicy>(client, namespace, served, &policies, &unreadable);
        let changed = move |it: &BurstPolicy| {
            send(&changes, Change::Policy(ObjectRef::from_obj(it)));
        };
        keep(events, policy_writer, changed, policies.clone(), unreadable.clone())
    };
    let of_bursts = {
        let changes = changes.clone();
        let events = events::<Burst>(client, namespace, served, &bursts, &unreadable);
        keep(
            events,
            burst_writer,
            move |it| send(&changes, Change::Burst(ObjectRef::from_obj(it))),
            bursts.clone(),
            unreadable.clone(),
        )
    };
    let events = events::<MiniCluster>(client, namespace, served, &clusters, &unreadable);
    let of_clusters = keep(
        events,
        cluster_writer,
        move |it| send(&changes, Change::Cluster(ObjectRef::from_obj(it))),
        clusters.clone(),
        unreadable.clone(),
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
    served: &BTreeSet<String>,
    store: &Store<K>,
    unreadable: &Unreadable,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + use<K>
where
    K: Kept + Resource<Scope = kube::core::NamespaceResourceScope>,
    K: std::fmt::Debug + Send + Sync,
{
    // An object that cannot be read must not keep the others from being seen.
    let api: Api<Unparsed<K>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
    only_readable(watcher(api, config), served.clone(), store.clone(), unreadable.clone())
}

/// The events about objects that can be read.
fn only_readable<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<Unparsed<K>>>>,
    served: BTreeSet<String>,
    store: Store<K>,
    unreadable: Unreadable,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>>
where
    K: Kept,
{
    events.filter_map(move |event| {
        let event = match event {
            Ok(event) => readable(event, &served, &store, &unreadable).map(Ok),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(event)
    })
}

/// An event about an object that can be read. One that cannot any more is as if it was deleted.
fn readable<K>(
    event: watcher::Event<Unparsed<K>>,
    served: &BTreeSet<String>,
    store: &Store<K>,
    unreadable: &Unreadable,
) -> Option<watcher::Event<K>>
where
    K: Kept,
{
    // The object, or the one that is stored instead of one that cannot be read.
    let read = |object: Unparsed<K>| {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let reference = ObjectRef::<K>::new(&name).within(&namespace);
        let is_served = serves(served, &namespace);
        let read = object.parse().and_then(|mut object| {
            match is_served {
                true => object.shrink()?,
                false => object.shrink_unserved(),
            }
            Ok(object)
        });
        read.map_err(|error| {
            let kind = K::kind(&());
            tracing::warn!(%kind, object = %reference, error, "an object cannot be read");
            reference
        })
    };
    let gone = |reference: &ObjectRef<K>| {
        store.get(reference).map(|it| watcher::Event::Delete((*it).clone()))
    };
    match event {
        watcher::Event::Apply(object) => match read(object) {
            Ok(object) => Some(watcher::Event::Apply(object)),
            Err(reference) => {
                unreadable.insert(&reference);
                gone(&reference)
            }
        },
        watcher::Event::Delete(object) => match read(object) {
            Ok(object) => {
                unreadable.remove(&ObjectRef::from_obj(&object));
                Some(watcher::Event::Delete(object))
            }
            Err(reference) => {
                unreadable.remove(&reference);
                gone(&reference)
            }
        },
        watcher::Event::InitApply(object) => match read(object) {
            Ok(object) => Some(watcher::Event::InitApply(object)),
            Err(reference) => {
                unreadable.insert_listed(&reference);
                None
            }
        },
        watcher::Event::Init => {
            unreadable.begin_list::<K>();
            Some(watcher::Event::Init)
        }
        watcher::Event::InitDone => Some(watcher::Event::InitDone),
    }
}

/// Keeps a store current, and reports every object that has changed or was deleted.
async fn keep<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    writer: reflector::store::Writer<K>,
    changed: impl Fn(&K),
    store: Store<K>,
    unreadable: Unreadable,
) where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let events = reflector::reflector(writer, events);
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(object)) => {
                unreadable.remove(&ObjectRef::from_obj(&object));
                changed(&object);
            }
            Ok(watcher::Event::Delete(object)) => changed(&object),
            // The store shows a list once it is complete.
            Ok(watcher::Event::InitDone) => {
                unreadable.end_list::<K>();
                store.state().iter().for_each(|it| changed(it));
            }
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
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use serde_json::json;

    use super::*;

    fn object(name: &str, nodes: serde_json::Value) -> Unparsed<Burst> {
        unparsed(&json!({ "name": name, "namespace": "ns" }), nodes)
    }

    fn with_finalizers(count: usize) -> Unparsed<Burst> {
        let finalizers: Vec<String> = (0..count).map(|it| format!("example.com/{it}")).collect();
        let metadata = json!({ "name": "b", "namespace": "ns", "finalizers": finalizers });
        unparsed(&metadata, json!(1))
    }

    fn unparsed(metadata: &serde_json::Value, nodes: serde_json::Value) -> Unparsed<Burst> {
        let target = json!({ "name": "t", "maxNodes": 4, "mock": {} });
        let burst = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "Burst",
            "metadata": metadata, "spec": { "cluster": "fs", "nodes": nodes, "target": target } });
        serde_json::from_value(burst).unwrap()
    }

    /// What is known after events, one after the other.
    struct Watched {
        store: Store<Burst>,
        unreadable: Unreadable,
        events: futures::channel::mpsc::UnboundedSender<Watch>,
        kept: BoxFuture<'static, ()>,
    }

    type Watch = watcher::Result<watcher::Event<Unparsed<Burst>>>;

    impl Watched {
        fn new() -> Watched {
            let (store, writer) = reflector::store::<Burst>();
            let unreadable = Unreadable::default();
            let (events, received) = futures::channel::mpsc::unbounded();
            let served = BTreeSet::from(["*".to_owned()]);
            let readable = only_readable(received, served, store.clone(), unreadable.clone());
            let kept = keep(readable, writer, |_| {}, store.clone(), unreadable.clone());
            Watched { store, unreadable, events, kept: kept.boxed() }
        }

        /// Whether the burst `b` is stored, and whether it is known as unreadable, after an event.
        fn after(&mut self, event: watcher::Event<Unparsed<Burst>>) -> (bool, bool) {
            self.events.unbounded_send(Ok(event)).unwrap();
            assert!((&mut self.kept).now_or_never().is_none());
            let is_stored = self.store.get(&Watched::name("b")).is_some();
            (is_stored, self.unreadable.contains(&Watched::name("b")))
        }

        fn name(name: &str) -> ObjectRef<Burst> {
            ObjectRef::new(name).within("ns")
        }

        fn find(&self) -> Found<Burst> {
            self.unreadable.find(&self.store, &Watched::name("b"))
        }
    }

    const STORED: (bool, bool) = (true, false);
    const UNREADABLE: (bool, bool) = (false, true);
    const NEITHER: (bool, bool) = (false, false);

    fn good() -> Unparsed<Burst> {
        object("b", json!(1))
    }

    fn bad() -> Unparsed<Burst> {
        object("b", json!("many"))
    }

    #[test]
    fn an_object_that_cannot_be_read_is_neither_kept_nor_taken_for_deleted() {
        use watcher::Event::{Apply, Delete, Init, InitDone};
        let mut watched = Watched::new();
        watched.after(Init);
        watched.after(InitDone);
        assert_eq!(watched.after(Apply(good())), STORED);
        assert_eq!(watched.after(Apply(bad())), UNREADABLE, "the old one is not used any more");
        assert_eq!(watched.after(Apply(good())), STORED);
        assert_eq!(watched.after(Apply(bad())), UNREADABLE);
        assert_eq!(watched.after(Delete(bad())), NEITHER);
    }

    #[test]
    fn of_an_object_only_what_is_needed_is_kept() {
        let policy = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "metadata": { "name": "p", "namespace": "ns", "labels": { "a": "b".repeat(1000) } },
            "spec": { "selector": {}, "limits": { "nodes": 4 },
                "jobs": { "queues": ["q".repeat(1000)] },
                "targets": [{ "name": "t", "maxNodes": 4, "cluster": {} }] } });
        let kept = |served: &str| {
            let policy: Unparsed<BurstPolicy> = serde_json::from_value(policy.clone()).unwrap();
            let (store, served) = (reflector::store().0, BTreeSet::from([served.to_owned()]));
            let event = watcher::Event::Apply(policy);
            match readable(event, &served, &store, &Unreadable::default()) {
                Some(watcher::Event::Apply(policy)) => {
                    serde_json::to_string(&policy).unwrap().len()
                }
                event => panic!("{event:?}"),
            }
        };
        for served in ["ns", "*"] {
            assert!((1000..2000).contains(&kept(served)), "{}", kept(served));
        }
        assert!(kept("other") < 300, "{}", kept("other"));
    }

    #[test]
    fn an_object_with_too_much_of_what_is_needed_cannot_be_read() {
        let mut watched = Watched::new();
        watched.after(watcher::Event::Init);
        watched.after(watcher::Event::InitDone);
        assert_eq!(watched.after(watcher::Event::Apply(with_finalizers(32))), STORED);
        assert_eq!(watched.after(watcher::Event::Apply(with_finalizers(33))), UNREADABLE);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_found_as_such() {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
        let mut watched = Watched::new();
        watched.after(Init);
        watched.after(InitDone);
        assert!(matches!(watched.find(), Found::Missing));
        watched.after(Apply(good()));
        assert!(matches!(watched.find(), Found::Readable(_)));
        assert!(!watched.unreadable.has_any::<Burst>("ns"));
        watched.after(Apply(bad()));
        assert!(matches!(watched.find(), Found::Unreadable));
        assert!(watched.unreadable.has_any::<Burst>("ns"));
        assert!(!watched.unreadable.has_any::<Burst>("other"));
        assert!(!watched.unreadable.has_any::<MiniCluster>("ns"));
        // While a list is received, the store still shows the former one.
        watched.after(Apply(good()));
        watched.after(Init);
        watched.after(InitApply(bad()));
        assert!(matches!(watched.find(), Found::Unreadable));
        watched.after(InitDone);
        watched.after(Delete(bad()));
        assert!(matches!(watched.find(), Found::Missing));
    }

    /// Between the list and its end, a Burst of it would be given back as one without MiniCluster.
    #[test]
    fn while_a_list_is_received_no_object_of_it_is_taken_for_deleted() {
        use watcher::Event::{Init, InitApply, InitDone};
        let mut watched = Watched::new();
        for (object, after_it, at_the_end) in [
            (bad(), UNREADABLE, UNREADABLE),
            (good(), UNREADABLE, STORED),
            (bad(), (true, true), UNREADABLE),
        ] {
            watched.after(Init);
            assert_eq!(watched.after(InitApply(object)), after_it);
            assert_eq!(watched.after(InitDone), at_the_end);
        }
    }

    #[test]
    fn an_object_that_was_deleted_while_the_watch_was_down_is_not_unreadable() {
        use watcher::Event::{Apply, Init, InitApply, InitDone};
        let mut watched = Watched::new();
        watched.after(Init);
        assert_eq!(watched.after(InitApply(bad())), UNREADABLE);
        assert_eq!(watched.after(InitDone), UNREADABLE);
        // A list that is interrupted changes nothing.
        assert_eq!(watched.after(Init), UNREADABLE);
        assert_eq!(watched.after(Init), UNREADABLE);
        assert_eq!(watched.after(InitApply(object("other", json!("many")))), UNREADABLE);
        assert_eq!(watched.after(InitDone), NEITHER);
        assert!(watched.unreadable.contains(&Watched::name("other")));
        assert_eq!(watched.after(Apply(bad())), UNREADABLE);
    }
}
