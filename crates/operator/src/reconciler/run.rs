//! Runs the reconciler of a kind.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::controller::{Config, Controller};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::kind::ReconciledKind;
use super::{Memory, Reconciler};
use crate::cache_sync::SyncedStore;
use crate::lease::{Election, Term};
use crate::replica::{ReplicaContext, RunError, run_replica};
use crate::tasks::Tasks;
use crate::watches::{api, config, restart_in_each_term};

/// How many objects are reconciled concurrently, and how long changes are collected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLimits {
    pub(crate) concurrency: u16,
    pub(crate) debounce: Duration,
}

impl<K: ReconciledKind> Reconciler<K> {
    /// Once this replica is the leader and `filled` reports that everything was listed in its term,
    /// reconciles all objects in the store, and then the objects named by `changes`.
    pub(crate) async fn run(
        self,
        store: Store<K::Stored>,
        mut changes: UnboundedReceiver<ObjectRef<K::Stored>>,
        limits: RunLimits,
        wait_until_synced: impl AsyncFn(Term),
    ) {
        let term = discard_until(self.context.leadership.wait_until_leader(), &mut changes).await;
        // A decision from an incomplete list would create objects a second time.
        wait_until_synced(term).await;
        let RunLimits { concurrency, debounce } = limits;
        // Only the watches trigger reconciliations: they send the names of changed objects.
        Controller::for_stream(stream::pending(), store)
            .with_config(Config::default().concurrency(concurrency).debounce(debounce))
            .reconcile_on(UnboundedReceiverStream::new(changes))
            .reconcile_all_on(once_then_pending())
            .run(
                |stored, reconciler: Arc<Reconciler<K>>| async move {
                    reconciler.reconcile(&stored).await
                },
                |stored, error, reconciler| reconciler.retry(&stored, error),
                Arc::new(self),
            )
            // Results have already been reported by the reconciliation itself.
            .for_each(|_| std::future::ready(()))
            .await;
    }
}

/// Runs one kind until `stop`: watches it, and reconciles it while this replica is the leader. For
/// a controller that is a program of its own.
pub async fn run_kind<K: ReconciledKind>(
    client: Client,
    namespace: Option<String>,
    kind: K,
    election: Option<Election>,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    run_replica(client, election, stop, |common, _| {
        let mut tasks = Tasks::default();
        let (changed, changes) = mpsc::unbounded_channel();
        let (store, writer) = SyncedStore::<K::Stored>::new();
        let memory: Arc<Memory> = Arc::default();
        let watch =
            watch(common.clone(), namespace, (store.clone(), writer), memory.clone(), changed);
        tasks.spawn(K::NAME, watch);
        let reconciler = Reconciler::new(kind, common, memory);
        let all = (*store).clone();
        let filled = async move |term| store.wait_until_synced(term).await;
        let pacing = RunLimits { concurrency: 16, debounce: Duration::ZERO };
        tasks.spawn("reconciler", reconciler.run(all, changes, pacing, filled));
        tasks
    })
    .await
}

/// Fills a store, and sends the names of changed objects.
async fn watch<S>(
    common: ReplicaContext,
    namespace: Option<String>,
    (store, writer): (SyncedStore<S>, Writer<S>),
    memory: Arc<Memory>,
    changed: UnboundedSender<ObjectRef<S>>,
) where
    S: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let begin = || watcher(api(&common.client, namespace.as_deref()), config()).default_backoff();
    let mut events = restart_in_each_term(common.leadership.clone(), store.sync_state(), begin)
        .reflect(writer)
        .boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                store.record(&event);
                forget_deleted(&memory, &event, &store);
                let names = match event {
                    Event::Apply(object) | Event::Delete(object) => {
                        vec![ObjectRef::from_obj(&object)]
                    }
                    // The objects of a list are in the store once the list is complete.
                    Event::InitDone => {
                        store.state().iter().map(|object| ObjectRef::from_obj(&**object)).collect()
                    }
                    Event::Init | Event::InitApply(_) => Vec::new(),
                };
                // The receiver is dropped only while the program stops.
                names.into_iter().for_each(|name| drop(changed.send(name)));
            }
            Err(error) => tracing::warn!(%error, kind = %S::kind(&()), "a watch failed"),
        }
    }
}

/// Forgets what was remembered about deleted objects.
pub(crate) fn forget_deleted<S>(memory: &Memory, event: &Event<S>, store: &Store<S>)
where
    S: Resource<DynamicType = ()> + Clone + 'static,
{
    match event {
        Event::Delete(object) => memory.forget(object.meta().uid.as_deref().unwrap_or_default()),
        Event::InitDone => {
            let all = store.state();
            let existing: HashSet<&str> =
                all.iter().filter_map(|object| object.meta().uid.as_deref()).collect();
            memory.retain(|uid| existing.contains(uid));
        }
        Event::Apply(_) | Event::Init | Event::InitApply(_) => {}
    }
}

/// Waits for `found`, and discards the changes received meanwhile: a new leader first reconciles
/// all objects.
async fn discard_until<T, K>(
    condition: impl Future<Output = T>,
    changes: &mut UnboundedReceiver<K>,
) -> T {
    let mut found = pin!(condition);
    loop {
        tokio::select! {
            found = &mut found => return found,
            Some(_) = changes.recv() => {}
        }
    }
}

/// A stream with one item now, and none later.
fn once_then_pending() -> impl Stream<Item = ()> + Send + 'static {
    stream::once(std::future::ready(())).chain(stream::pending())
}
