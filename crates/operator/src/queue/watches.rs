//! The watches of the queue besides those of MiniClusters. Cluster-scoped kinds are watched only if
//! the operator serves all namespaces. Without permission to watch them, it runs without them.

use flux_operator_plan::queueing::namespace_quota;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::packed::{PackedJob, pack_event};
use super::queues::{GuardedJob, GuardedSetup, Queues};
use crate::cache_sync::SyncState;
use crate::index::{Index, OwnerKey};
use crate::lease::Leadership;
use crate::tasks::Tasks;
use crate::watches::{api, config, prune, restart_in_each_term};

/// Starts the watches.
pub(super) fn start(
    tasks: &mut Tasks,
    client: &Client,
    namespace: Option<&str>,
    leadership: &Leadership,
    queues: &Queues,
    mut jobs: Writer<PackedJob>,
    setups: Writer<GuardedSetup>,
) {
    let events =
        watch_all(api::<GuardedJob>(client, namespace), leadership, queues.jobs.sync_state());
    let shared = queues.clone();
    tasks.spawn(
        "watch of FluxJobs",
        apply_events(
            "FluxJob",
            events.modify(prune_job),
            move |event| {
                let packed = pack_event(&event);
                jobs.apply_watcher_event(&packed);
                shared.apply_job_event(&event);
                shared.jobs.record(&packed);
            },
            || {},
        ),
    );
    let shown =
        watch_all(api::<GuardedSetup>(client, namespace), leadership, queues.setups.sync_state());
    let to = queues.clone();
    tasks.spawn(
        "watch of FluxSetups",
        apply_events(
            "FluxSetup",
            shown.modify(prune).reflect(setups),
            move |event| {
                to.apply_setup_event(&event);
                to.setups.record(&event);
            },
            || {},
        ),
    );
    let shown =
        watch_all(api::<ResourceQuota>(client, namespace), leadership, queues.quotas.sync_state());
    tasks.spawn(
        "watch of ResourceQuotas",
        update_index(
            "ResourceQuota",
            shown.modify(prune),
            &queues.quotas,
            queues,
            |queues, owner| {
                let quotas = queues.quotas.owned_by(owner);
                let quota = namespace_quota(quotas.iter().map(|quota| &**quota));
                queues.ledger().put_namespace_quota(&owner.0, quota);
            },
        ),
    );
    if namespace.is_some() {
        queues.namespaces.skip_sync();
        queues.classes.skip_sync();
        return;
    }
    let namespaces = Api::<NamespaceMetadata>::all(client.clone());
    let shown = watch_all(namespaces, leadership, queues.namespaces.sync_state());
    tasks.spawn(
        "watch of Namespaces",
        update_index(
            "Namespace",
            shown.modify(prune),
            &queues.namespaces,
            queues,
            |queues, owner| {
                let found = queues.namespaces.owned_by(owner).into_iter().next();
                let labels = found.map(|namespace| namespace.labels().clone());
                queues.ledger().put_namespace(&owner.1, labels);
            },
        ),
    );
    let classes = Api::<PriorityClass>::all(client.clone());
    let shown = watch_all(classes, leadership, queues.classes.sync_state());
    tasks.spawn(
        "watch of PriorityClasses",
        update_index(
            "PriorityClass",
            shown.modify(prune),
            &queues.classes,
            queues,
            |queues, owner| {
                let found = queues.classes.owned_by(owner).into_iter().next();
                queues.ledger().put_priority_class(&owner.1, found.and_then(|class| class.value));
                queues.put_jobs_of_class(&owner.1);
            },
        ),
    );
}

/// Watches all objects of an API, listed again in each term.
fn watch_all<K>(
    api: Api<K>,
    leadership: &Leadership,
    sync: SyncState,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let begin = move || watch(api.clone(), config()).default_backoff();
    restart_in_each_term(leadership.clone(), sync, begin)
}

/// Keeps an index up to date, and calls `changed` for each owner whose objects changed.
fn update_index<K>(
    kind: &'static str,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    index: &Index<K>,
    queues: &Queues,
    changed: fn(&Queues, &OwnerKey),
) -> impl Future<Output = ()> + Send + 'static
where
    K: ResourceExt + Send + Sync + 'static,
{
    let (index, queues, skipped) = (index.clone(), queues.clone(), index.clone());
    let apply = move |event| {
        let mut has_changed = false;
        index.apply_event(event, |owner| {
            changed(&queues, owner);
            has_changed = true;
        });
        if has_changed {
            queues.wake_scheduler();
        }
    };
    apply_events(kind, events, apply, move || skipped.skip_sync())
}

/// Applies all events of a watch; calls `forbidden` if the operator lacks the permission.
async fn apply_events<K>(
    kind: &'static str,
    shown: impl Stream<Item = watcher::Result<Event<K>>>,
    mut apply: impl FnMut(Event<K>),
    on_forbidden: impl Fn(),
) {
    let mut shown = std::pin::pin!(shown);
    while let Some(event) = shown.next().await {
        match event {
            Ok(event) => apply(event),
            Err(error) => {
                tracing::warn!(%error, kind, "a watch failed");
                if is_forbidden(&error) {
                    on_forbidden();
                }
            }
        }
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let answer = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status,
        watcher::Error::WatchError(status) => status,
        _ => return false,
    };
    answer.code == 403
}

/// Of a finished job, keeps only that it has finished and how long to keep it. Usually most of the
/// jobs have finished.
fn prune_job(job: &mut GuardedJob) {
    prune(job);
    let Ok(job) = &mut job.0 else { return };
    let Some(status) = job.status.as_mut().filter(|status| status.finish_time.is_some()) else {
        return;
    };
    status.conditions = Vec::new();
    status.requeue = None;
    status.jobid = String::new();
    if let Some(admission) = &mut status.admission {
        admission.resources.clear();
    }
    job.metadata.labels = None;
    job.metadata.annotations = None;
    job.spec.template = None;
    job.spec.resources = None;
    job.spec.image = String::new();
    job.spec.command = String::new();
}

/// The owner of a ResourceQuota is its namespace.
pub(super) fn by_namespace(quota: &ResourceQuota) -> Vec<OwnerKey> {
    vec![(quota.namespace().unwrap_or_default(), String::new())]
}

/// A cluster-scoped object is indexed by its own name.
pub(super) fn by_name<K: ResourceExt>(object: &K) -> Vec<OwnerKey> {
    vec![(String::new(), object.name_any())]
}

/// A Namespace of which only the metadata is read.
pub(crate) type NamespaceMetadata = PartialObjectMeta<Namespace>;
