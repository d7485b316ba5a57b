//! Starts everything: watches, the HTTP server, the passes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flux_operator_plan::kubernetes::Settings;
use futures::{FutureExt, StreamExt};
use kube::Client;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::backoff::Backoff;
use crate::expected::Expected;
use crate::filled::Watched;
use crate::http::{Server, serve};
use crate::lease::{Candidate, Election, Leadership, Lost};
use crate::look::Looks;
use crate::metrics::{Metrics, counting};
use crate::publish::Publisher;
use crate::queue::{self, Rate};
use crate::reconcile::{Context, ReconcileError, reconcile, retry};
use crate::reports::Reports;
use crate::stop::told_to_stop;
use crate::stores::Guarded;
use crate::watches;

/// Passes that run at the same time. They mostly wait for the API server.
const CONCURRENCY: u16 = 16;

/// Changes that come together are looked at once.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// How long passes that run may take to end when the operator is told to stop.
/// With this and the Lease it has ended well before the kubelet's patience has.
const LAST_PASSES: Duration = Duration::from_secs(5);

/// How the operator is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only namespace to look at; all of them if unset.
    pub namespace: Option<String>,
    /// How objects are rendered.
    pub settings: Settings,
    /// How replicas agree on the one that writes; without it this is the only one.
    pub election: Option<Election>,
    /// How fast the queues may write; as fast as can be if unset.
    pub rate: Option<Rate>,
}

/// Runs until SIGTERM or SIGINT: then it takes nothing new, lets passes end that
/// run, and gives the Lease back. Fails when it loses the Lease. Reports, metrics
/// and health are served at `listener`.
pub async fn run(client: Client, listener: TcpListener, options: Options) -> Result<(), Lost> {
    let metrics = Metrics::new();
    let client = counting(client, metrics.clone());
    let (mut candidate, leadership) = match &options.election {
        Some(election) => {
            let (candidate, leadership) = Candidate::new(client.clone(), election, metrics.clone());
            (Some(candidate), leadership)
        }
        None => (None, Leadership::always()),
    };
    metrics.leads(leadership.leads());
    let (changed, changes) = mpsc::unbounded_channel();
    let reports = Reports::new(changed.clone());
    let (miniclusters, writer) = Watched::new();
    let queue_options = queue::Options {
        // Alone in a namespace, the operator is at home there.
        home: options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned()),
        namespace: options.namespace.clone(),
        make_miniclusters: true,
        rate: options.rate,
    };
    let start = queue::Start::new(&queue_options.home, miniclusters.clone(), &metrics);
    let queues = start.queues.clone();
    // What runs beside the passes ends with this function, however that ends.
    let namespace = options.namespace.as_deref();
    let (stores, mut others) =
        watches::start(&client, namespace, miniclusters.clone(), &changed, &reports);
    let (take, tell) = (queues.clone(), changed.clone());
    let watched = options.namespace.clone();
    let filling = (miniclusters, writer);
    others.spawn(watches::miniclusters(client.clone(), watched, filling, move |event| {
        take.take_minicluster(event);
        watches::pass_over(&tell, event);
    }));
    start.run(&mut others, &client, &queue_options, &leadership, &metrics);
    let served = Server {
        client: client.clone(),
        stores: stores.clone(),
        reports: reports.clone(),
        leadership: leadership.clone(),
        metrics: metrics.clone(),
        queues,
    };
    others.spawn(serve(listener, served));
    let context = Arc::new(Context {
        client: client.clone(),
        recorder: Recorder::new(client.clone(), Reporter::from("flux-operator")),
        settings: options.settings,
        stores: stores.clone(),
        reports,
        publisher: Publisher::new(client),
        backoff: Backoff::default(),
        expected: Expected::default(),
        metrics: metrics.clone(),
        looks: Looks::default(),
    });
    let stop = told_to_stop().shared();
    let gained = leadership.gained();
    let passes = async {
        // A pass that sees only part of what is there would make it a second time.
        stores.filled().await;
        // The watches say whose objects have changed; nothing else starts a pass.
        Controller::for_stream(futures::stream::pending(), (*stores.miniclusters).clone())
            .with_config(Config::default().concurrency(CONCURRENCY).debounce(DEBOUNCE))
            .reconcile_on(UnboundedReceiverStream::new(changes))
            .reconcile_all_on(gained)
            .graceful_shutdown_on(stop.clone())
            .run(
                move |minicluster, context| {
                    pass(minicluster, context, leadership.clone(), metrics.clone())
                },
                retry,
                context,
            )
            // What a pass had to say it has said.
            .for_each(|_| std::future::ready(()))
            .await;
    };
    let too_long = stop.clone().then(|()| tokio::time::sleep(LAST_PASSES));
    let lost = async {
        match &mut candidate {
            Some(candidate) => candidate.campaign().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = passes => {}
        () = too_long => tracing::warn!("passes were cut off that took too long to end"),
        lost = lost => return Err(lost),
    }
    if let Some(candidate) = &mut candidate {
        candidate.release().await;
    }
    Ok(())
}

/// A pass, if this replica leads. Whoever comes to lead looks at everything.
async fn pass(
    minicluster: Arc<Guarded>,
    context: Arc<Context>,
    leadership: Leadership,
    metrics: Metrics,
) -> Result<Action, ReconcileError> {
    if !leadership.leads() {
        return Ok(Action::await_change());
    }
    let _running = metrics.pass_begins();
    let begun = Instant::now();
    let outcome = reconcile(minicluster, context).await;
    metrics.pass(begun.elapsed(), outcome.is_ok());
    if let Err(error) = &outcome {
        metrics.failed(error.reason());
    }
    outcome
}
