//! The watches: which kinds are watched, which fields are kept, and which MiniClusters are
//! reconciled after a change. They run whether or not this replica is the leader; when it becomes
//! leader, each starts with a new list.

use std::collections::HashSet;
use std::pin::Pin;

use flux_operator_api::burst::JobSelection;
use flux_operator_plan::kubernetes::{CLUSTER_LABEL, with_keys_only};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::api::Api;
use kube::core::ObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedSender;

use crate::cache_sync::{SyncState, SyncedStore};
use crate::gateway::Gateway;
use crate::index::{Index, OwnerKey};
use crate::joins::Joins;
use crate::lease::{Leadership, Term};
use crate::reports::Reports;
use crate::stores::{GuardedMiniCluster, GuardedPolicy, Stores, reference};
use crate::tasks::Tasks;

/// The annotation that `kubectl apply` writes. It can be large, and the operator does not read it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The number of seconds after which the API server ends a watch, which then continues where it
/// ended. A connection without data for 5 s longer is dead, and the watch continues on another one,
/// so a dead connection is detected within 15 s. Only a response of the API server itself proves
/// that it is alive: TCP keepalive is also answered by the kernel of a machine whose API server
/// hangs, and by a proxy whose backend is down. With eleven watches this costs each replica one
/// request per second, on connections that are already open.
const WATCH_SECONDS: u32 = 10;

/// Sends the names of MiniClusters whose objects have changed to the reconciler.
pub(crate) type ChangeSender = UnboundedSender<ObjectRef<GuardedMiniCluster>>;

/// Objects of one page of a list. A page is in memory as a whole, before what is not needed is removed; an
/// object may have 1.5 MB.
const PAGE: u32 = 100;

/// The configuration of all watches.
pub(crate) fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE)
}

/// Starts the watches of the objects that MiniClusters own.
pub(crate) fn start(
    tasks: &mut Tasks,
    client: &Client,
    namespace: Option<&str>,
    leadership: &Leadership,
    miniclusters: SyncedStore<GuardedMiniCluster>,
    changed: &ChangeSender,
    reports: &Reports,
) -> Stores {
    let stores = Stores {
        jobs: Index::new(),
        pods: Index::new(),
        config_maps: Index::new(),
        services: Index::new(),
        endpoint_slices: Index::new(),
        policies: Index::keyed_by(namespace_of),
        joins: Joins::default(),
        gateway: Gateway::new(miniclusters.clone(), changed.clone()),
        miniclusters,
    };
    let reports_of_watch = reports.clone();
    let owned = OwnedWatch { client, namespace, leadership, changed };
    tasks.spawn("watch of Jobs", owned.run(&stores.jobs, prune_job, || {}));
    tasks.spawn(
        "watch of pods",
        owned.run(&stores.pods, prune_pod, move || reports_of_watch.notify_pods_changed()),
    );
    tasks.spawn("watch of ConfigMaps", owned.run(&stores.config_maps, prune, || {}));
    tasks.spawn("watch of Services", owned.run(&stores.services, prune, || {}));
    tasks.spawn("watch of EndpointSlices", owned.run(&stores.endpoint_slices, prune, || {}));
    let policies = api(client, namespace);
    let begin = move || watcher(policies.clone(), config()).default_backoff();
    let sync = stores.policies.sync_state();
    let events = restart_in_each_term(leadership.clone(), sync, begin);
    tasks.spawn(
        "watch of BurstPolicies",
        follow_policies(events.modify(prune_policy), stores.policies.clone()),
    );
    stores
}

/// Keeps the BurstPolicies up to date. An operator may be updated before its CRDs and roles: then it
/// runs without policies until it can list them. No MiniCluster is reconciled for a policy: it counts
/// only when a MiniCluster is started.
async fn follow_policies(
    events: impl Stream<Item = watcher::Result<Event<GuardedPolicy>>>,
    policies: Index<GuardedPolicy>,
) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => policies.apply_event(event, |_| {}),
            Err(error) => {
                tracing::warn!(%error, kind = "BurstPolicy", "a watch failed");
                if is_unavailable(&error) {
                    policies.skip_sync();
                }
            }
        }
    }
}

/// Whether the operator lacks the permission to watch a kind, or its CRD is not installed.
pub(crate) fn is_unavailable(error: &watcher::Error) -> bool {
    let answer = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status,
        watcher::Error::WatchError(status) => status,
        _ => return false,
    };
    matches!(answer.code, 403 | 404)
}

/// The owner of an object that MiniClusters share is its namespace.
fn namespace_of<K: ResourceExt>(object: &K) -> Vec<OwnerKey> {
    vec![(object.namespace().unwrap_or_default(), String::new())]
}

/// Of a BurstPolicy only its identity, selector and limits are used. Users of one namespace must not fill the
/// memory of all with the rest.
fn prune_policy(policy: &mut GuardedPolicy) {
    prune(policy);
    if let Ok(policy) = &mut policy.0 {
        policy.status = None;
        policy.spec.targets = Vec::new();
        policy.spec.jobs = JobSelection::default();
        let metadata = std::mem::take(&mut policy.metadata);
        policy.metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            ..ObjectMeta::default()
        };
    }
}

/// Watches MiniClusters, and passes every event to `take` once the store contains it.
pub(crate) async fn miniclusters(
    client: Client,
    namespace: Option<String>,
    leadership: Leadership,
    (store, writer): (SyncedStore<GuardedMiniCluster>, Writer<GuardedMiniCluster>),
    mut apply: impl FnMut(&Event<GuardedMiniCluster>),
) {
    let begin = || watcher(api(&client, namespace.as_deref()), config()).default_backoff();
    let mut events = restart_in_each_term(leadership, store.sync_state(), begin)
        .modify(prune)
        .reflect(writer)
        .boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                apply(&event);
                store.record(&event);
            }
            Err(error) => tracing::warn!(%error, kind = "MiniCluster", "a watch failed"),
        }
    }
}

/// Runs a watch, and restarts it with a new list whenever this replica becomes leader. It starts
/// once the leader is known, so that a replica that is leader from the start lists only once.
pub(crate) fn restart_in_each_term<S: Stream + Send>(
    leadership: Leadership,
    sync: SyncState,
    begin: impl Fn() -> S + Send,
) -> impl Stream<Item = S::Item> + Send {
    let watch: Option<(Term, Pin<Box<S>>)> = None;
    stream::unfold((watch, leadership, sync, begin), |state| async {
        let (mut watch, leadership, filled, begin) = state;
        loop {
            let (term, mut events) = match watch.take() {
                Some(watch) => watch,
                None => {
                    let term = leadership.wait_until_known().await;
                    filled.begin_list(term);
                    (term, Box::pin(begin()))
                }
            };
            tokio::select! {
                biased;
                () = leadership.wait_for_term_after(term) => {}
                event = events.next() => {
                    let watch = Some((term, events));
                    return event.map(|event| (event, (watch, leadership, filled, begin)));
                }
            }
        }
    })
}

/// Determines which MiniClusters to reconcile after an event of the watch of MiniClusters.
#[derive(Default)]
pub(crate) struct ReconcileSelector {
    /// The stored objects before the current list.
    before: Vec<ObjectRef<GuardedMiniCluster>>,
}

impl ReconcileSelector {
    /// The MiniClusters to reconcile after `event`, which the store already contains. The objects
    /// of a list are in the store once the list is complete.
    pub(crate) fn select(
        &mut self,
        event: &Event<GuardedMiniCluster>,
        store: &Store<GuardedMiniCluster>,
    ) -> Vec<ObjectRef<GuardedMiniCluster>> {
        let all = || store.state().into_iter().map(|object| ObjectRef::from_obj(&*object));
        match event {
            Event::Apply(object) | Event::Delete(object) => vec![ObjectRef::from_obj(object)],
            Event::Init => {
                self.before = all().collect();
                Vec::new()
            }
            Event::InitApply(_) => Vec::new(),
            Event::InitDone => {
                let now: HashSet<_> = all().collect();
                let mut before = std::mem::take(&mut self.before);
                before.retain(|reference| !now.contains(reference));
                now.into_iter().chain(before).collect()
            }
        }
    }
}

/// The parameters that the watches of owned objects share.
struct OwnedWatch<'a> {
    client: &'a Client,
    namespace: Option<&'a str>,
    leadership: &'a Leadership,
    changed: &'a ChangeSender,
}

impl OwnedWatch<'_> {
    /// Watches all objects of a kind that have our label.
    fn run<K, T>(
        &self,
        index: &Index<K>,
        prune: fn(&mut K),
        on_event: T,
    ) -> impl Future<Output = ()> + Send + use<K, T>
    where
        T: Fn() + Send + 'static,
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let api = api::<K>(self.client, self.namespace);
        let begin = move || watcher(api.clone(), config().labels(CLUSTER_LABEL)).default_backoff();
        let events = restart_in_each_term(self.leadership.clone(), index.sync_state(), begin);
        let (index, changed) = (index.clone(), self.changed.clone());
        events.modify(prune).into_stream().for_each(move |event| {
            match event {
                Ok(event) => {
                    index.apply_event(event, |owner| {
                        // The receiver is dropped only while the operator stops; a lost change does
                        // not matter then.
                        let _ = changed.send(reference(owner));
                    });
                    on_event();
                }
                Err(error) => tracing::warn!(%error, kind = %K::kind(&()), "a watch failed"),
            }
            std::future::ready(())
        })
    }
}

/// The API of a kind, in one namespace or in all.
pub(crate) fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Removes fields that the operator does not read, before the object is stored.
pub(crate) fn prune<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
    object.annotations_mut().remove(LAST_APPLIED);
}

/// Of a pod only its node and its status are used; its spec comes from the Job's template.
fn prune_pod(pod: &mut Pod) {
    prune(pod);
    pod.annotations_mut().retain(|name, _| name == "batch.kubernetes.io/job-completion-index");
    let node_name = pod.spec.take().and_then(|spec| spec.node_name);
    pod.spec = Some(PodSpec { node_name, ..PodSpec::default() });
}

/// Of a Job's template only the name of the Secret with the keys is read.
fn prune_job(job: &mut Job) {
    prune(job);
    if let Some(spec) = &mut job.spec {
        spec.template = with_keys_only(&spec.template);
        spec.pod_failure_policy = None;
    }
}

#[cfg(test)]
mod tests;
