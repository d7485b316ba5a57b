//! The queues: which jobs get quota, and how the jobs that have it are run.
//!
//! ```text
//! watches ──► ledger (the scheduler and its input)
//!               │ cycle: schedule ──► writer: one status write per admission
//!               ├──► job: reconciling a FluxJob creates and deletes its MiniCluster
//!               ├──► status_turns: waiting jobs queue up to get their status written
//!               ├──► setups: the status of each FluxSetup, at most once a second
//!               └──► visibility: the waiting jobs of each queue, over HTTP
//! ```
//!
//! All replicas watch and keep the ledger; only the leader decides and writes.

mod authorization;
pub(crate) mod hand_over;
mod job;
mod ledger;
mod nodes;
mod packed;
mod queues;
mod rate_limit;
mod schedule;
mod setups;
mod status_turns;
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
use crate::cache_sync::SyncedStore;
use crate::http::serve_metrics;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::reconciler::{Reconciler, RunLimits};
use crate::replica::ReplicaContext;
use crate::stores::GuardedMiniCluster;
use crate::tasks::{TaskExited, Tasks};
use crate::watches::ChangeSender;

use packed::PackedJob;
use queues::GuardedSetup;
pub(crate) use queues::Queues;
use queues::ReconcileRequests;
use rate_limit::RateLimiter;
pub use rate_limit::WriteRate;

/// For FluxJobs. Reconciliations mostly wait for the API server.
const JOBS: RunLimits = RunLimits { concurrency: 32, debounce: Duration::ZERO };

/// For FluxSetups.
const SETUPS: RunLimits = RunLimits { concurrency: 8, debounce: Duration::ZERO };

/// The options of the queues.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only namespace to watch; all namespaces if unset.
    pub namespace: Option<String>,
    /// The operator's own namespace, whose setups may serve other namespaces.
    pub operator_namespace: String,
    /// Whether to run admitted jobs. If not, another controller must run them.
    pub run_jobs: bool,
    /// The maximum rate of writes by the queues; unlimited if unset.
    pub rate: Option<WriteRate>,
}

/// The queues before their tasks are started: the shared state, and what the tasks need.
pub(crate) struct PreparedQueues {
    pub(crate) queues: Queues,
    changed_jobs: mpsc::UnboundedReceiver<ObjectRef<PackedJob>>,
    changed_setups: mpsc::UnboundedReceiver<ObjectRef<GuardedSetup>>,
    jobs: Writer<PackedJob>,
    setups: Writer<GuardedSetup>,
}

impl PreparedQueues {
    /// Empty queues. The caller watches MiniClusters, passes the events to
    /// [`Queues::apply_minicluster_event`], and reconciles `changed_miniclusters`.
    pub(crate) fn new(
        operator_namespace: &str,
        miniclusters: SyncedStore<GuardedMiniCluster>,
        changed_miniclusters: ChangeSender,
        metrics: &Metrics,
    ) -> PreparedQueues {
        let (changed_job, changes) = mpsc::unbounded_channel();
        let (changed_setup, changed_setups) = mpsc::unbounded_channel();
        let changed = ReconcileRequests {
            jobs: changed_job,
            setups: changed_setup,
            miniclusters: changed_miniclusters,
        };
        let (job_store, jobs) = SyncedStore::new();
        let (setup_store, setups) = SyncedStore::new();
        let queues =
            Queues::new(operator_namespace, job_store, setup_store, miniclusters, changed, metrics);
        PreparedQueues { queues, changed_jobs: changes, changed_setups, jobs, setups }
    }

    /// Starts all tasks of the queues in `tasks`.
    pub(crate) fn run(self, tasks: &mut Tasks, options: &Options, common: &ReplicaContext) {
        let PreparedQueues { queues, changed_jobs: changes, changed_setups, jobs, setups } = self;
        let ReplicaContext { client, leadership, health, metrics } = common;
        let namespace = options.namespace.as_deref();
        let rate_limiter = Arc::new(RateLimiter::new(options.rate));
        watches::start(tasks, client, namespace, leadership, &queues, jobs, setups);
        if options.namespace.is_none() {
            tasks.spawn("quota from nodes", nodes::watch_capacity(queues.clone(), client.clone()));
        }
        let (writes, to_write) = mpsc::unbounded_channel();
        let scheduler =
            schedule::schedule(queues.clone(), leadership.clone(), health.clone(), writes);
        tasks.spawn("scheduler", scheduler);
        let writer = writer::DecisionWriter {
            client: client.clone(),
            queues: queues.clone(),
            leadership: leadership.clone(),
            health: health.clone(),
            rate_limiter: rate_limiter.clone(),
            metrics: metrics.clone(),
            backoff: Backoff::default(),
        };
        tasks.spawn("writer of admissions", writer::write_all(to_write, Arc::new(writer)));
        let stale = setups::request_stale(queues.clone(), leadership.clone());
        tasks.spawn("stale FluxSetups", stale);
        let kind =
            setups::FluxSetupKind { queues: queues.clone(), rate_limiter: rate_limiter.clone() };
        let setups = Reconciler::new(kind, common, queues.setup_memory.clone());
        let (to, store) = (queues.clone(), (*queues.setups).clone());
        let wait_until_synced = async move |term| to.wait_until_synced(term).await;
        tasks.spawn("FluxSetups", setups.run(store, changed_setups, SETUPS, wait_until_synced));
        tasks.spawn(
            "turns of waiting FluxJobs",
            status_turns::grant_turns(queues.clone(), rate_limiter),
        );
        let kind = job::FluxJobKind {
            queues: queues.clone(),
            metrics: metrics.clone(),
            runs_jobs: options.run_jobs,
        };
        let jobs = Reconciler::new(kind, common, queues.job_memory.clone());
        let store = (*queues.jobs).clone();
        let filled = async move |term| queues.wait_until_synced(term).await;
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
) -> Result<(), TaskExited> {
    let common = ReplicaContext::new(client, Leadership::always(), Metrics::new());
    let (miniclusters, writer) = SyncedStore::new();
    // Another controller reconciles MiniClusters.
    let (changed_miniclusters, _) = mpsc::unbounded_channel();
    let prepared = PreparedQueues::new(
        &options.operator_namespace,
        miniclusters.clone(),
        changed_miniclusters,
        &common.metrics,
    );
    let queues = prepared.queues.clone();
    let mut tasks = Tasks::default();
    let watched_queues = queues.clone();
    let watch = crate::watches::miniclusters(
        common.client.clone(),
        options.namespace.clone(),
        common.leadership.clone(),
        (miniclusters, writer),
        move |event| watched_queues.apply_minicluster_event(event),
    );
    tasks.spawn("watch of MiniClusters", watch);
    prepared.run(&mut tasks, &options, &common);
    if let Some(listener) = listener {
        tasks.spawn("metrics", serve_metrics(listener, common.metrics, queues));
    }
    tokio::select! {
        () = stop => Ok(()),
        exited = tasks.wait_for_exit() => Err(exited),
    }
}
