//! Starts everything: watches, the report server, the passes.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_plan::kubernetes::Settings;
use futures::StreamExt;
use kube::Client;
use kube::runtime::controller::{Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::backoff::Backoff;
use crate::publish::Publisher;
use crate::reconcile::{Context, reconcile, retry};
use crate::reports::{Reports, serve};
use crate::watches;

/// Passes that run at the same time. They mostly wait for the API server.
const CONCURRENCY: u16 = 32;

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
    let (changed, changes) = mpsc::unbounded_channel();
    let reports = Reports::new(changed.clone());
    let (stores, _watches) =
        watches::start(&client, options.namespace.as_deref(), &changed, &reports);
    let server = tokio::spawn(serve(listener, client.clone(), stores.clone(), reports.clone()));
    // A pass that sees only part of what is there would make it a second time.
    stores.filled().await;
    let context = Arc::new(Context {
        client: client.clone(),
        recorder: Recorder::new(client.clone(), Reporter::from("flux-operator")),
        settings: options.settings,
        stores: stores.clone(),
        reports,
        publisher: Publisher::new(client),
        backoff: Backoff::default(),
    });
    // The watches say whose objects have changed; nothing else starts a pass.
    Controller::for_stream(futures::stream::pending(), stores.miniclusters)
        .with_config(Config::default().concurrency(CONCURRENCY).debounce(DEBOUNCE))
        .reconcile_on(UnboundedReceiverStream::new(changes))
        .shutdown_on_signal()
        .run(reconcile, retry, context)
        // What a pass had to say it has said.
        .for_each(|_| std::future::ready(()))
        .await;
    server.abort();
}
