//! Starts the watches, the decisions about policies and the reconciliation of Bursts.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::{Burst, MiniCluster};
use flux_operator_plan::kubernetes::Settings;
use flux_operator_service::api_client::with_timeouts;
use flux_operator_service::file_limit::raise_file_limit;
use flux_operator_service::probe_server::serve_probes;
use flux_operator_service::stop_signal::wait_for_stop_signal;
use flux_operator_service::tasks::{TaskExited, Tasks};
use kube::config::AuthInfo;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Config, ResourceExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::bursts::{Context, reconcile};
use crate::feeds::Feeds;
use crate::home::Home;
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::schedule::{Limits, reconcile_all};
use crate::stores::{Change, Stores, Watches, watch};
use crate::target::Clients;

/// The options of the controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only namespace to watch; all namespaces if unset.
    pub namespace: Option<String>,
    /// The namespaces that are served: `*` for all. Policies of others get a condition that says so.
    pub served: BTreeSet<String>,
    /// Where the operator serves `/v1`, as `http://host:port`.
    pub operator_url: String,
    /// With what the controller proves to the operator who it is.
    pub token: Token,
    /// How brokers elsewhere are rendered.
    pub settings: Settings,
    /// Whether programs of users may make clusters.
    pub commands: bool,
    /// The image of the program that makes clusters of Google Kubernetes Engine. Unset: none are made.
    pub gke_image: Option<String>,
}

/// A token of this Kubernetes cluster.
#[derive(Clone)]
pub enum Token {
    /// In a file, which is read again when it changes.
    File(PathBuf),
    /// As text.
    Text(String),
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::File(path) => write!(f, "File({path:?})"),
            Token::Text(_) => f.write_str("<redacted>"),
        }
    }
}

/// Why the controller stopped.
#[derive(Debug, thiserror::Error)]
pub enum BurstControllerError {
    /// The operator's address is malformed.
    #[error("the operator's address {url:?} is not http://host:port")]
    OperatorUrl {
        /// The address.
        url: String,
    },
    /// There is no client for the operator.
    #[error("failed to create a client for the operator")]
    OperatorClient(#[source] kube::Error),
    /// One of its tasks has exited.
    #[error(transparent)]
    TaskExited(TaskExited),
}

/// Decisions, which are made about one namespace at a time.
const OF_POLICIES: Limits = Limits {
    // One about 10,000 jobs takes some 10 MB.
    in_total: 4,
    of_namespace: 1,
    delay: Duration::from_millis(50),
    interval: Duration::from_millis(250),
};

/// Reconciliations of Bursts. Each asks its target, which may be slow, and answers up to 1 MiB.
const OF_BURSTS: Limits = Limits {
    in_total: 32,
    of_namespace: 4,
    delay: Duration::ZERO,
    interval: Duration::from_millis(250),
};

/// Runs until SIGTERM or SIGINT, or until the future is dropped. Fails if one of its tasks exits.
/// Metrics and health are served on `probes`.
pub async fn run(
    client: Client,
    probes: TcpListener,
    options: Options,
) -> Result<(), BurstControllerError> {
    raise_file_limit();
    let served: Vec<&str> = options.served.iter().map(String::as_str).collect();
    let (served, operator) = (served.join(","), options.operator_url.as_str());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        served,
        operator,
        "the burst controller starts"
    );
    let operator = operator_client(&options)?;
    let mut tasks = start(with_timeouts(client), operator, probes, options);
    tokio::select! {
        () = wait_for_stop_signal() => Ok(()),
        exited = tasks.wait_for_exit() => Err(BurstControllerError::TaskExited(exited)),
    }
}

/// A client for the operator's `/v1`.
fn operator_client(options: &Options) -> Result<Client, BurstControllerError> {
    let url = options.operator_url.parse();
    let url = url.map_err(|_error| BurstControllerError::OperatorUrl {
        url: options.operator_url.clone(),
    })?;
    let mut config = Config::new(url);
    // No certificates of the system are needed, and the image has none.
    config.root_cert = Some(Vec::new());
    config.auth_info = match &options.token {
        Token::File(path) => AuthInfo {
            token_file: Some(path.to_string_lossy().into_owned()),
            ..AuthInfo::default()
        },
        Token::Text(token) => AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() },
    };
    Client::try_from(config).map_err(BurstControllerError::OperatorClient)
}

fn start(client: Client, operator: Client, probes: TcpListener, options: Options) -> Tasks {
    let mut tasks = Tasks::default();
    let metrics = Metrics::new();
    let (changes, changed) = mpsc::unbounded_channel();
    let Watches { stores, policies, bursts, clusters } =
        watch(&client, options.namespace.as_deref(), &options.served, changes.clone());
    let recorder = Recorder::new(client.clone(), Reporter::from("flux-operator-burst"));
    let context = Context {
        home: Home {
            client,
            settings: options.settings,
            served: options.served,
            commands: options.commands,
            gke_image: options.gke_image,
        },
        stores: stores.clone(),
        feeds: Feeds::new(operator, changes),
        clients: Arc::new(Clients::default()),
        views: Arc::default(),
        metrics: metrics.clone(),
        recorder,
    };
    let (listed, is_listed) = watch::channel(false);
    let show = {
        let bursts = stores.bursts.clone();
        Arc::new(move || metrics.render(&bursts.state()))
    };
    tasks.spawn("HTTP server", serve_probes(probes, show, is_listed.clone()));
    tasks.spawn("watch of policies", policies);
    tasks.spawn("watch of Bursts", bursts);
    tasks.spawn("watch of MiniClusters", clusters);
    let (due_namespaces, namespaces) = mpsc::unbounded_channel();
    let (due_bursts, bursts) = mpsc::unbounded_channel();
    tasks.spawn("changes", distribute(stores.clone(), changed, due_namespaces, due_bursts));
    tasks.spawn("policies", apply_policies(context.clone(), namespaces, listed));
    tasks.spawn("Bursts", reconcile_bursts(context, bursts, is_listed));
    tasks
}

/// Waits until everything has been listed once: before that, a Burst that exists looks as if it did
/// not. Only one task may wait like this: a store wakes only the last one.
async fn wait_until_listed(stores: &Stores) {
    // A store is dropped only with its watch, which ends the program.
    let (policies, bursts, clusters) = tokio::join!(
        stores.policies.wait_until_ready(),
        stores.bursts.wait_until_ready(),
        stores.clusters.wait_until_ready()
    );
    drop((policies, bursts, clusters));
}

/// Sends changes to those who act on them.
async fn distribute(
    stores: Stores,
    mut changes: mpsc::UnboundedReceiver<Change>,
    namespaces: mpsc::UnboundedSender<Arc<str>>,
    due: mpsc::UnboundedSender<ObjectRef<Burst>>,
) {
    while let Some(change) = changes.recv().await {
        // The receivers end only with the program.
        drop(namespaces.send(Arc::from(change.namespace())));
        let names: Vec<ObjectRef<Burst>> = match change {
            Change::Policy(_) => Vec::new(),
            Change::Burst(burst) => vec![burst],
            Change::Cluster(cluster) => {
                let bursts = stores.bursts.state().into_iter();
                let of_cluster = bursts.filter(|burst| is_of(burst, &cluster));
                of_cluster.map(|burst| ObjectRef::from_obj(&*burst)).collect()
            }
        };
        names.into_iter().for_each(|name| drop(due.send(name)));
    }
}

fn is_of(burst: &Burst, cluster: &ObjectRef<MiniCluster>) -> bool {
    burst.namespace() == cluster.namespace && burst.spec.cluster == cluster.name
}

/// Applies the policies of each namespace, when something in it has changed or is due.
async fn apply_policies(
    context: Context,
    namespaces: mpsc::UnboundedReceiver<Arc<str>>,
    listed: watch::Sender<bool>,
) {
    wait_until_listed(&context.stores).await;
    listed.send_replace(true);
    let policies = Policies::default();
    let apply = |namespace: Arc<str>| {
        let (context, policies) = (context.clone(), policies.clone());
        async move { policies.apply(&context, &namespace).await }
    };
    reconcile_all(OF_POLICIES, namespaces, apply).await;
}

/// Reconciles Bursts, each when it has changed or is due.
async fn reconcile_bursts(
    context: Context,
    names: mpsc::UnboundedReceiver<ObjectRef<Burst>>,
    mut listed: watch::Receiver<bool>,
) {
    // The sender ends only with the program.
    drop(listed.wait_for(|is_listed| *is_listed).await);
    let reconcile = |name: ObjectRef<Burst>| {
        let context = context.clone();
        async move { reconcile(&context, &name).await }
    };
    reconcile_all(OF_BURSTS, names, reconcile).await;
}
