//! Starts everything: watches, the HTTP server, the controllers; and ends it in order.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flux_operator_plan::kubernetes::Settings;
use futures::{Stream, StreamExt, stream};
use kube::Client;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::backoff::Backoff;
use crate::client::{LIMITS, for_all, for_leader};
use crate::expected::Expected;
use crate::filled::Watched;
use crate::gate::Gate;
use crate::hand_over::{end_writes, wind_down};
use crate::health::Health;
use crate::http::{Server, serve};
use crate::lease::{Candidate, Election, Leadership, Lost};
use crate::look::Looks;
use crate::metrics::Metrics;
use crate::publish::Publisher;
use crate::queue::{self, Rate};
use crate::reconcile::{Context, ReconcileError, reconcile, retry};
use crate::reports::Reports;
use crate::stop::told_to_stop;
use crate::stores::Guarded;
use crate::tasks::{TaskEnded, Tasks};
use crate::watches::{self, Asked};

/// Reconciliations that run at the same time. They mostly wait for the API server.
const CONCURRENCY: u16 = 16;

/// Changes that come together are reconciled once.
const DEBOUNCE: Duration = Duration::from_millis(20);

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

/// Why the operator ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another replica may lead.
    #[error(transparent)]
    Lost(Lost),
    /// A part of the operator does not run any more.
    #[error(transparent)]
    TaskEnded(TaskEnded),
}

/// What all controllers use.
pub(crate) struct Common {
    /// Writes only while this replica leads.
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
}

impl Common {
    pub(crate) fn new(client: Client, leadership: Leadership, metrics: Metrics) -> Common {
        let health = Health::default();
        let gate = Gate::new(leadership.clone(), health.clone());
        let client = for_leader(client, metrics.clone(), LIMITS, gate);
        Common { client, leadership, health, metrics }
    }
}

/// Runs until SIGTERM or SIGINT: then it begins nothing new, lets the work under way end, and
/// releases the Lease. Fails when it loses the Lease, or when a part of it ends. Reports,
/// metrics and health are served at `listener`.
pub async fn run(client: Client, listener: TcpListener, options: Options) -> Result<(), RunError> {
    let metrics = Metrics::new();
    let for_all = for_all(client.clone(), metrics.clone(), LIMITS);
    let (mut candidate, leadership) = match &options.election {
        Some(election) => {
            let (candidate, leadership) =
                Candidate::new(for_all.clone(), election, metrics.clone());
            (Some(candidate), leadership)
        }
        None => (None, Leadership::always()),
    };
    metrics.leads(leadership.leads());
    let common = Common::new(client, leadership.clone(), metrics);
    let mut tasks = start(&common, for_all, listener, options);
    let ended = {
        let mut lost = pin!(async {
            match &mut candidate {
                Some(candidate) => candidate.campaign().await,
                None => std::future::pending().await,
            }
        });
        // Another replica may write any moment: writes under way are cut off.
        let give_up = |lost| {
            leadership.close();
            Err(RunError::Lost(lost))
        };
        let ended = tokio::select! {
            biased;
            () = told_to_stop() => None,
            lost = &mut lost => return give_up(lost),
            ended = tasks.first_end() => Some(ended),
        };
        // The Lease is renewed meanwhile.
        tokio::select! {
            () = async {
                if ended.is_some() {
                    tasks.cancel();
                    end_writes(&leadership, &common.health).await;
                } else {
                    wind_down(&leadership, &common.health).await;
                }
            } => {}
            lost = lost => return give_up(lost),
        }
        ended
    };
    drop(tasks);
    if let Some(candidate) = &mut candidate {
        candidate.release().await;
    }
    ended.map_or(Ok(()), |ended| Err(RunError::TaskEnded(ended)))
}

/// Starts all tasks. They wait themselves until this replica leads.
fn start(common: &Common, for_all: Client, listener: TcpListener, options: Options) -> Tasks {
    let Common { client, leadership, health, metrics } = common;
    let mut tasks = Tasks::default();
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
    let start = queue::Start::new(&queue_options.home, miniclusters.clone(), metrics);
    let queues = start.queues.clone();
    let namespace = options.namespace.as_deref();
    let store = miniclusters.clone();
    let stores = watches::start(
        &mut tasks,
        client,
        namespace,
        leadership,
        miniclusters.clone(),
        &changed,
        &reports,
    );
    let (take, mut asked) = (queues.clone(), Asked::default());
    let watch = watches::miniclusters(
        client.clone(),
        options.namespace.clone(),
        leadership.clone(),
        (miniclusters, writer),
        move |event| {
            take.take_minicluster(event);
            for reference in asked.after(event, &store) {
                // Nobody receives while the operator stops; then it does not matter.
                let _ = changed.send(reference);
            }
        },
    );
    tasks.spawn("watch of MiniClusters", watch);
    start.run(&mut tasks, &queue_options, common);
    let served = Server {
        client: for_all,
        stores: stores.clone(),
        reports: reports.clone(),
        leadership: leadership.clone(),
        health: health.clone(),
        metrics: metrics.clone(),
        queues,
    };
    tasks.spawn("HTTP server", serve(listener, served));
    let context = Arc::new(Context {
        client: client.clone(),
        recorder: Recorder::new(client.clone(), Reporter::from("flux-operator")),
        settings: options.settings,
        stores,
        reports,
        publisher: Publisher::new(client.clone()),
        backoff: Backoff::default(),
        expected: Expected::default(),
        metrics: metrics.clone(),
        looks: Looks::default(),
    });
    let miniclusters = reconcile_miniclusters(context, changes, leadership.clone(), health.clone());
    tasks.spawn("MiniClusters", miniclusters);
    tasks
}

/// Reconciles MiniClusters when it is asked for, while this replica leads.
async fn reconcile_miniclusters(
    context: Arc<Context>,
    mut changes: UnboundedReceiver<ObjectRef<Guarded>>,
    leadership: Leadership,
    health: Health,
) {
    let term = discard_until(leadership.until_it_leads(), &mut changes).await;
    // A reconciliation that sees only part of what is there would make it a second time.
    context.stores.filled(term).await;
    // The watches say whose objects have changed; nothing else starts a reconciliation.
    Controller::for_stream(stream::pending(), (*context.stores.miniclusters).clone())
        .with_config(Config::default().concurrency(CONCURRENCY).debounce(DEBOUNCE))
        .reconcile_on(UnboundedReceiverStream::new(changes))
        .reconcile_all_on(once_and_no_more())
        .run(
            move |minicluster, context| {
                pass(minicluster, context, leadership.clone(), health.clone())
            },
            retry,
            context,
        )
        // What a reconciliation had to say it has said.
        .for_each(|_| std::future::ready(()))
        .await;
}

/// A reconciliation, if this replica leads and does not stop.
async fn pass(
    minicluster: Arc<Guarded>,
    context: Arc<Context>,
    leadership: Leadership,
    health: Health,
) -> Result<Action, ReconcileError> {
    let _under_way = health.begin("MiniCluster");
    if !leadership.decides() {
        return Ok(Action::await_change());
    }
    let metrics = context.metrics.clone();
    let _running = metrics.pass_begins();
    let begun = Instant::now();
    let outcome = reconcile(minicluster, context).await;
    metrics.pass(begun.elapsed(), outcome.is_ok());
    if let Err(error) = &outcome {
        metrics.failed(error.reason());
    }
    outcome
}

/// Waits for something. What comes through the channel meanwhile is of no interest: a leader
/// reconciles everything first.
pub(crate) async fn discard_until<T, K>(
    found: impl Future<Output = T>,
    changes: &mut UnboundedReceiver<K>,
) -> T {
    let mut found = pin!(found);
    loop {
        tokio::select! {
            found = &mut found => return found,
            Some(_) = changes.recv() => {}
        }
    }
}

/// One item now.
pub(crate) fn once_and_no_more() -> impl Stream<Item = ()> + Send + 'static {
    stream::once(std::future::ready(())).chain(stream::pending())
}
