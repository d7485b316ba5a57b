//! Starts everything: watches, the HTTP server, the controllers; and ends it in order.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use flux_operator_plan::kubernetes::Settings;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::client::{LIMITS, for_all, for_leader};
use crate::filled::Watched;
use crate::gate::Gate;
use crate::hand_over::{end_writes, wind_down};
use crate::health::Health;
use crate::http::{Server, serve};
use crate::lease::{Candidate, Election, Leadership, Lost};
use crate::metrics::Metrics;
use crate::minicluster::MiniClusters;
use crate::queue::{self, Rate};
use crate::reconciler::{Memory, Pacing, Reconciler, forget};
use crate::reports::Reports;
use crate::stop::told_to_stop;
use crate::tasks::{TaskEnded, Tasks};
use crate::watches::{self, Asked};

/// MiniClusters. Reconciliations mostly wait for the API server, and changes that come
/// together are reconciled once.
const MINICLUSTERS: Pacing = Pacing { concurrency: 16, debounce: Duration::from_millis(20) };

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

/// What all reconcilers use. Cheap to clone.
#[derive(Clone)]
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
    let election = options.election.clone();
    lead(client, election, told_to_stop(), |common, for_all| {
        start(common, for_all, listener, options)
    })
    .await
}

/// Runs what `start` starts until `stop`: then nothing new is begun, the work under way ends,
/// and the Lease is released. Fails when the Lease is lost, or when a task ends.
pub(crate) async fn lead(
    client: Client,
    election: Option<Election>,
    stop: impl Future<Output = ()>,
    start: impl FnOnce(&Common, Client) -> Tasks,
) -> Result<(), RunError> {
    let metrics = Metrics::new();
    let for_all = for_all(client.clone(), metrics.clone(), LIMITS);
    let (mut candidate, leadership) = match &election {
        Some(election) => {
            let (candidate, leadership) =
                Candidate::new(for_all.clone(), election, metrics.clone());
            (Some(candidate), leadership)
        }
        None => (None, Leadership::always()),
    };
    metrics.leads(leadership.leads());
    let common = Common::new(client, leadership.clone(), metrics);
    let mut tasks = start(&common, for_all);
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
            () = stop => None,
            lost = &mut lost => return give_up(lost),
            ended = tasks.first_end() => Some(ended),
        };
        // The Lease is renewed meanwhile.
        tokio::select! {
            () = async {
                if ended.is_some() {
                    // Cut off now, they might still be done after the Lease was released.
                    end_writes(&leadership, &common.health).await;
                    tasks.cancel();
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
    let start =
        queue::Start::new(&queue_options.home, miniclusters.clone(), changed.clone(), metrics);
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
    let memory: Arc<Memory> = Arc::default();
    let forgotten = memory.clone();
    let (take, mut asked) = (queues.clone(), Asked::default());
    let watch = watches::miniclusters(
        client.clone(),
        options.namespace.clone(),
        leadership.clone(),
        (miniclusters, writer),
        move |event| {
            take.take_minicluster(event);
            forget(&forgotten, event, &store);
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
        queues: queues.clone(),
    };
    tasks.spawn("HTTP server", serve(listener, served));
    let kind = MiniClusters {
        settings: options.settings,
        stores: stores.clone(),
        reports,
        queues,
        metrics: metrics.clone(),
        memory: memory.clone(),
    };
    let reconciler = Reconciler::new(kind, common, memory);
    let store = (*stores.miniclusters).clone();
    let filled = async move |term| stores.filled(term).await;
    tasks.spawn("MiniClusters", reconciler.run(store, changes, MINICLUSTERS, filled));
    tasks
}
