//! The watches: what is looked at, how much of it is kept, and who is to be passed
//! over when it changes. They run whether or not this replica leads.

use flux_operator_plan::kubernetes::CLUSTER_LABEL;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec};
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use crate::filled::Watched;
use crate::index::Index;
use crate::reports::Reports;
use crate::stores::{Guarded, Stores, reference};

/// What a large `kubectl apply` leaves on an object, and nobody here reads.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Where names of MiniClusters go whose objects have changed.
pub(crate) type Changed = UnboundedSender<ObjectRef<Guarded>>;

/// Starts the watches of what MiniClusters own. They end with the returned set.
pub(crate) fn start(
    client: &Client,
    namespace: Option<&str>,
    miniclusters: Watched<Guarded>,
    changed: &Changed,
    reports: &Reports,
) -> (Stores, JoinSet<()>) {
    let mut tasks = JoinSet::new();
    let stores = Stores {
        miniclusters,
        jobs: Index::new(),
        pods: Index::new(),
        config_maps: Index::new(),
        services: Index::new(),
    };
    let moved = reports.clone();
    follow(&mut tasks, client, namespace, &stores.jobs, changed, prune_job, || {});
    follow(&mut tasks, client, namespace, &stores.pods, changed, prune_pod, move || {
        moved.pods_moved()
    });
    follow(&mut tasks, client, namespace, &stores.config_maps, changed, prune, || {});
    follow(&mut tasks, client, namespace, &stores.services, changed, prune, || {});
    (stores, tasks)
}

/// Watches MiniClusters, and gives every event to `take`.
pub(crate) async fn miniclusters(
    client: Client,
    namespace: Option<String>,
    (store, writer): (Watched<Guarded>, Writer<Guarded>),
    take: impl Fn(&Event<Guarded>),
) {
    let mut events =
        watcher(api::<Guarded>(&client, namespace.as_deref()), watcher::Config::default())
            .default_backoff()
            .modify(prune)
            .reflect(writer)
            .boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                take(&event);
                store.note(&event);
            }
            Err(error) => tracing::warn!(%error, kind = "MiniCluster", "a watch failed"),
        }
    }
}

/// Asks for a pass over a MiniCluster that an event is about.
pub(crate) fn pass_over(changed: &Changed, event: &Event<Guarded>) {
    if let Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) = event {
        // Nobody receives while the operator stops; then it does not matter.
        let _ = changed.send(ObjectRef::from_obj(object));
    }
}

/// Watches all objects of a kind that carry our label.
fn follow<K>(
    tasks: &mut JoinSet<()>,
    client: &Client,
    namespace: Option<&str>,
    index: &Index<K>,
    changed: &Changed,
    prune: fn(&mut K),
    then: impl Fn() + Send + Sync + 'static,
) where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let labelled = watcher::Config::default().labels(CLUSTER_LABEL);
    let events = watcher(api::<K>(client, namespace), labelled).default_backoff().modify(prune);
    let (index, changed) = (index.clone(), changed.clone());
    tasks.spawn(events.into_stream().for_each(move |event| {
        match event {
            Ok(event) => {
                for owner in index.take(event) {
                    // Nobody receives while the operator stops; then it does not matter.
                    let _ = changed.send(reference(&owner));
                }
                then();
            }
            Err(error) => {
                tracing::warn!(%error, kind = %K::kind(&()), "a watch failed");
            }
        }
        std::future::ready(())
    }));
}

/// The API of a kind in the only namespace, or in all.
pub(crate) fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Drops what nobody here reads, before it is kept.
pub(crate) fn prune<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
    object.annotations_mut().remove(LAST_APPLIED);
}

/// Of a pod only its place and its status count; its spec is the Job's template.
fn prune_pod(pod: &mut Pod) {
    prune(pod);
    pod.annotations_mut().retain(|name, _| name == "batch.kubernetes.io/job-completion-index");
    let node_name = pod.spec.take().and_then(|spec| spec.node_name);
    pod.spec = Some(PodSpec { node_name, ..PodSpec::default() });
}

/// Of a Job's template nothing counts: it cannot change.
fn prune_job(job: &mut Job) {
    prune(job);
    if let Some(spec) = &mut job.spec {
        spec.template = PodTemplateSpec::default();
        spec.pod_failure_policy = None;
    }
}
