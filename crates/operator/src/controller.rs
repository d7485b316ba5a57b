//! Starts the watches, the HTTP server and the reconcilers.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_plan::kubernetes::Settings;
use flux_operator_service::stop_signal::wait_for_stop_signal;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::cache_sync::SyncedStore;
use crate::gateway::GatewayLocation;
use crate::http::{ServerState, serve};
use crate::lease::Election;
use crate::minicluster::MiniClusterKind;
use crate::partner_relay::PartnerRelay;
use crate::queue::{self, WriteRate};
use crate::reconciler::{Memory, Reconciler, RunLimits, forget_deleted};
use crate::replica::{ReplicaContext, RunError, run_replica};
use crate::reports::Reports;
use crate::tasks::Tasks;
use crate::watches::{self, ReconcileSelector};

/// For MiniClusters. Reconciliations mostly wait for the API server, and changes that arrive
/// together are reconciled once.
const MINICLUSTERS: RunLimits = RunLimits { concurrency: 16, debounce: Duration::from_millis(20) };

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
    pub rate: Option<WriteRate>,
    /// Where the gateway is, for brokers of other Kubernetes clusters; if unset, there is none.
    pub gateway: Option<GatewayLocation>,
}

/// Runs until SIGTERM or SIGINT. It then starts no new work, waits for running work to finish, and
/// releases the Lease. Fails if the Lease is lost, or if one of its tasks exits. Reports, metrics
/// and health are served on `listener`.
pub async fn run(client: Client, listener: TcpListener, options: Options) -> Result<(), RunError> {
    let election = options.election.clone();
    run_replica(client, election, wait_for_stop_signal(), |common, for_all| {
        start(common, for_all, listener, options)
    })
    .await
}

/// Starts all tasks. Each waits on its own until this replica is the leader.
fn start(
    context: &ReplicaContext,
    shared_client: Client,
    listener: TcpListener,
    options: Options,
) -> Tasks {
    let ReplicaContext { client, leadership, health, metrics } = context;
    let mut tasks = Tasks::default();
    let (changed, observed_changes) = mpsc::unbounded_channel();
    let (relayed, changes) = mpsc::unbounded_channel();
    let reports = Reports::new(changed.clone(), leadership.clone());
    let (miniclusters, writer) = SyncedStore::new();
    let queue_options = queue::Options {
        // An operator that watches one namespace reads its FluxSetups there.
        operator_namespace: options
            .namespace
            .clone()
            .unwrap_or_else(|| client.default_namespace().to_owned()),
        namespace: options.namespace.clone(),
        run_jobs: true,
        rate: options.rate,
    };
    let prepared = queue::PreparedQueues::new(
        &queue_options.operator_namespace,
        miniclusters.clone(),
        changed.clone(),
        metrics,
    );
    let queues = prepared.queues.clone();
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
    let gateway = stores.gateway.clone();
    let follow_gateway = gateway.clone().follow(client.clone(), options.gateway.clone());
    tasks.spawn("address of the gateway", follow_gateway);
    tasks.spawn("addresses of nodes", gateway.follow_nodes(client.clone()));
    let joins = stores.joins.clone();
    let (former, former_lenders) = mpsc::unbounded_channel();
    let relay = PartnerRelay::new(joins.clone(), miniclusters.clone(), relayed);
    tasks.spawn("partners of MiniClusters", relay.run(observed_changes, former_lenders));
    let memory: Arc<Memory> = Arc::default();
    let memory_of_watch = memory.clone();
    let (queues_of_watch, mut selector) = (queues.clone(), ReconcileSelector::default());
    let watch = watches::miniclusters(
        client.clone(),
        options.namespace.clone(),
        leadership.clone(),
        (miniclusters, writer),
        move |event| {
            queues_of_watch.apply_minicluster_event(event);
            forget_deleted(&memory_of_watch, event, &store);
            // The receivers are dropped only while the operator stops; a lost change does not matter
            // then.
            for lender in joins.apply(event) {
                let _ = former.send(lender);
            }
            for reference in selector.select(event, &store) {
                let _ = changed.send(reference);
            }
        },
    );
    tasks.spawn("watch of MiniClusters", watch);
    prepared.run(&mut tasks, &queue_options, context);
    tasks.spawn("age of reports", reports.clone().watch_age());
    let server_state = ServerState {
        client: shared_client,
        stores: stores.clone(),
        reports: reports.clone(),
        leadership: leadership.clone(),
        health: health.clone(),
        metrics: metrics.clone(),
        queues: queues.clone(),
    };
    tasks.spawn("HTTP server", serve(listener, server_state));
    let kind = MiniClusterKind {
        settings: options.settings,
        scope: options.namespace,
        stores: stores.clone(),
        reports,
        queues,
        metrics: metrics.clone(),
        memory: memory.clone(),
    };
    let reconciler = Reconciler::new(kind, context, memory);
    let store = (*stores.miniclusters).clone();
    let wait_until_synced = async move |term| stores.wait_until_synced(term).await;
    tasks.spawn("MiniClusters", reconciler.run(store, changes, MINICLUSTERS, wait_until_synced));
    tasks
}
