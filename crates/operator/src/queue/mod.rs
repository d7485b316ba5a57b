//! The queues: which jobs get quota, and how the jobs that have it are run.
//!
//! ```text
//! watches ──► ledger (the scheduler and its input)
//!               │ cycle: schedule ──► writer: one status write per admission
//!               ├──► job: reconciling a FluxJob creates and deletes its MiniCluster
//!               ├──► untold: waiting jobs queue up to get their status written
//!               ├──► setups: the status of each FluxSetup, at most once a second
//!               └──► visibility: the waiting jobs of each queue, over HTTP
//! ```
//!
//! All replicas watch and keep the ledger; only the leader decides and writes.

mod access;
mod job;
mod ledger;
mod nodes;
mod pace;
mod packed;
mod queues;
mod schedule;
mod setups;
mod untold;
pub(crate) mod visibility;
mod watches;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::backoff::Backoff;
use crate::filled::Watched;
use crate::http::serve_metrics;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::reconciler::{Pacing, Reconciler};
use crate::replica::Common;
use crate::stores::Guarded;
use crate::tasks::{TaskEnded, Tasks};
use crate::watches::Changed;

use pace::Pace;
pub use pace::Rate;
use packed::PackedJob;
use queues::GuardedSetup;
use queues::Names;
pub(crate) use queues::Queues;

/// For FluxJobs. Reconciliations mostly wait for the API server.
const JOBS: Pacing = Pacing { concurrency: 32, debounce: Duration::ZERO };

/// For FluxSetups.
const SETUPS: Pacing = Pacing { concurrency: 8, debounce: Duration::ZERO };

/// The options of the queues.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only namespace to watch; all namespaces if unset.
    pub namespace: Option<String>,
    /// The operator's own namespace, whose setups may serve other namespaces.
    pub home: String,
    /// Whether to run admitted jobs. If not, another controller must run them.
    pub make_miniclusters: bool,
    /// The maximum rate of writes by the queues; unlimited if unset.
    pub rate: Option<Rate>,
}

/// The queues before their tasks are started: the shared state, and what the tasks need.
pub(crate) struct Start {
    pub(crate) queues: Queues,
    changes: mpsc::UnboundedReceiver<ObjectRef<PackedJob>>,
    changed_setups: mpsc::UnboundedReceiver<ObjectRef<GuardedSetup>>,
    jobs: Writer<PackedJob>,
    setups: Writer<GuardedSetup>,
}

impl Start {
    /// Empty queues. The caller watches MiniClusters, passes the events to
    /// [`Queues::take_minicluster`], and reconciles `changed_miniclusters`.
    pub(crate) fn new(
        home: &str,
        miniclusters: Watched<Guarded>,
        changed_miniclusters: Changed,
        metrics: &Metrics,
    ) -> Start {
        let (changed_job, changes) = mpsc::unbounded_channel();
        let (changed_setup, changed_setups) = mpsc::unbounded_channel();
        let changed =
            Names { jobs: changed_job, setups: changed_setup, miniclusters: changed_miniclusters };
        let (job_store, jobs) = Watched::new();
        let (setup_store, setups) = Watched::new();
        let queues = Queues::new(home, job_store, setup_store, miniclusters, changed, metrics);
        Start { queues, changes, changed_setups, jobs, setups }
    }

    /// Starts all tasks of the queues in `tasks`.
    pub(crate) fn run(self, tasks: &mut Tasks, options: &Options, common: &Common) {
        let Start { queues, changes, changed_setups, jobs, setups } = self;
        let Common { client, leadership, health, metrics } = common;
        let namespace = options.namespace.as_deref();
        let pace = Arc::new(Pace::new(options.rate));
        watches::start(tasks, client, namespace, leadership, &queues, jobs, setups);
        if options.namespace.is_none() {
            tasks.spawn("quota from nodes", nodes::count(queues.clone(), client.clone()));
        }
        let (writes, to_write) = mpsc::unbounded_channel();
        let scheduler =
            schedule::schedule(queues.clone(), leadership.clone(), health.clone(), writes);
        tasks.spawn("scheduler", scheduler);
        let writer = writer::Writer {
            client: client.clone(),
            queues: queues.clone(),
            leadership: leadership.clone(),
            health: health.clone(),
            pace: pace.clone(),
            metrics: metrics.clone(),
            backoff: Backoff::default(),
        };
        tasks.spawn("writer of admissions", writer::write_all(to_write, Arc::new(writer)));
        let stale = setups::ask_for_stale(queues.clone(), leadership.clone());
        tasks.spawn("stale FluxSetups", stale);
        let kind = setups::Setups { queues: queues.clone(), pace: pace.clone() };
        let setups = Reconciler::new(kind, common, queues.setup_memory.clone());
        let (to, store) = (queues.clone(), (*queues.setups).clone());
        let filled = async move |term| to.filled(term).await;
        tasks.spawn("FluxSetups", setups.run(store, changed_setups, SETUPS, filled));
        tasks.spawn("turns of waiting FluxJobs", untold::give_turns(queues.clone(), pace));
        let kind = job::Jobs {
            queues: queues.clone(),
            metrics: metrics.clone(),
            make_miniclusters: options.make_miniclusters,
        };
        let jobs = Reconciler::new(kind, common, queues.job_memory.clone());
        let store = (*queues.jobs).clone();
        let filled = async move |term| queues.filled(term).await;
        tasks.spawn("FluxJobs", jobs.run(store, changes, JOBS, filled));
    }
}

/// Runs only the queues, without the controller of MiniClusters, until `stop`. If `listener` is
/// given, serves metrics there.
pub async fn run_queue(
    client: Client,
    options: Options,
    listener: Option<TcpListener>,
    stop: impl Future<Output = ()>,
) -> Result<(), TaskEnded> {
    let common = Common::new(client, Leadership::always(), Metrics::new());
    let (miniclusters, writer) = Watched::new();
    // Another controller reconciles MiniClusters.
    let (changed_miniclusters, _) = mpsc::unbounded_channel();
    let start =
        Start::new(&options.home, miniclusters.clone(), changed_miniclusters, &common.metrics);
    let queues = start.queues.clone();
    let mut tasks = Tasks::default();
    let take = queues.clone();
    let watch = crate::watches::miniclusters(
        common.client.clone(),
        options.namespace.clone(),
        common.leadership.clone(),
        (miniclusters, writer),
        move |event| take.take_minicluster(event),
    );
    tasks.spawn("watch of MiniClusters", watch);
    start.run(&mut tasks, &options, &common);
    if let Some(listener) = listener {
        tasks.spawn("metrics", serve_metrics(listener, common.metrics, queues));
    }
    tokio::select! {
        () = stop => Ok(()),
        ended = tasks.first_end() => Err(ended),
    }
}
