//! Starts everything: watches, the report server, the passes.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{CLUSTER_LABEL, Settings};
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::controller::{Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::reconcile::{Context, reconcile, retry};
use crate::reports::{Reports, serve};
use crate::stores::{Stores, owner_of};

/// Passes that run at the same time. They mostly wait for the API server.
const CONCURRENCY: u16 = 16;

/// Changes that come together are looked at once.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// How the operator is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only namespace to look at; all of them if unset.
    pub namespace: Option<String>,
    /// How objects are rendered.
    pub settings: Settings,
}

/// Runs until SIGTERM or SIGINT. Reports and health are served at `listener`.
pub async fn run(client: Client, listener: TcpListener, options: Options) {
    let labelled = watcher::Config::default().labels(CLUSTER_LABEL);
    let (jobs, job_changes) = watched::<Job>(&client, &options, labelled.clone());
    let (pods, pod_changes) = watched::<Pod>(&client, &options, labelled);
    let miniclusters: Api<MiniCluster> = api(&client, &options);
    let controller = Controller::new(miniclusters, watcher::Config::default());
    let stores = Stores { miniclusters: controller.store(), jobs, pods };

    let (reports, reported) = Reports::new();
    let moved = reports.clone();
    let pod_changes = pod_changes.inspect(move |_| moved.pods_moved());
    let context = Arc::new(Context {
        client: client.clone(),
        recorder: Recorder::new(client.clone(), Reporter::from("flux-operator")),
        settings: options.settings,
        stores: stores.clone(),
        reports: reports.clone(),
    });
    let server = tokio::spawn(serve(listener, client, stores, reports));
    controller
        .with_config(Config::default().concurrency(CONCURRENCY).debounce(DEBOUNCE))
        .owns_stream(job_changes)
        .watches_stream(pod_changes, |pod| owner_of(&pod))
        .reconcile_on(UnboundedReceiverStream::new(reported))
        .shutdown_on_signal()
        .run(reconcile, retry, context)
        // What a pass had to say it has said.
        .for_each(|_| std::future::ready(()))
        .await;
    server.abort();
}

/// A store of all objects of a kind that carry our label, and the stream of
/// their changes, which keeps it up to date while it is polled.
fn watched<K>(
    client: &Client,
    options: &Options,
    config: watcher::Config,
) -> (Store<K>, impl futures::Stream<Item = Result<K, watcher::Error>> + Send + use<K>)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let changes = watcher(api::<K>(client, options), config)
        .default_backoff()
        .modify(|object| object.managed_fields_mut().clear())
        .reflect(writer)
        .touched_objects();
    (store, changes)
}

fn api<K>(client: &Client, options: &Options) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match &options.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}
