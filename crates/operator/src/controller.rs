//! Starts the watches, the HTTP server and the reconcilers.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_plan::kubernetes::Settings;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::filled::Watched;
use crate::http::{Server, serve};
use crate::lease::Election;
use crate::minicluster::MiniClusters;
use crate::queue::{self, Rate};
use crate::reconciler::{Memory, Pacing, Reconciler, forget};
use crate::replica::{Common, RunError, lead};
use crate::reports::Reports;
use crate::stop::told_to_stop;
use crate::tasks::Tasks;
use crate::watches::{self, Asked};

/// For MiniClusters. Reconciliations mostly wait for the API server, and changes that arrive
/// together are reconciled once.
const MINICLUSTERS: Pacing = Pacing { concurrency: 16, debounce: Duration::from_millis(20) };

/// The options of the operator.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only namespace to watch; all namespaces if unset.
    pub namespace: Option<String>,
    /// How objects are rendered.
    pub settings: Settings,
    /// The leader election; if unset, this is the only replica.
    pub election: Option<Election>,
    /// The maximum rate of writes by the queues; unlimited if unset.
    pub rate: Option<Rate>,
}

/// Runs until SIGTERM or SIGINT. It then starts no new work, waits for running work to finish, and
/// releases the Lease. Fails if the Lease is lost, or if one of its tasks exits. Reports, metrics
/// and health are served on `listener`.
pub async fn run(client: Client, listener: TcpListener, options: Options) -> Result<(), RunError> {
    let election = options.election.clone();
    lead(client, election, told_to_stop(), |common, for_all| {
        start(common, for_all, listener, options)
    })
    .await
}

/// Starts all tasks. Each waits on its own until this replica is the leader.
fn start(common: &Common, for_all: Client, listener: TcpListener, options: Options) -> Tasks {
    let Common { client, leadership, health, metrics } = common;
    let mut tasks = Tasks::default();
    let (changed, changes) = mpsc::unbounded_channel();
    let reports = Reports::new(changed.clone());
    let (miniclusters, writer) = Watched::new();
    let queue_options = queue::Options {
        // An operator that watches one namespace reads its FluxSetups there.
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
                // The receiver is dropped only while the operator stops; a lost change does not
                // matter then.
                let _ = changed.send(reference);
            }
        },
    );
    tasks.spawn("watch of MiniClusters", watch);
    start.run(&mut tasks, &queue_options, common);
    tasks.spawn("age of reports", reports.clone().watch_age());
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
