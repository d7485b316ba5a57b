//! The queues: who gets room, and the life of those who have it.
//!
//! ```text
//! watches ──► ledger (the scheduler, and what it was told)
//!               │ cycle: schedule ──► writer: one status write per admission
//!               ├──► job: a pass over a FluxJob makes and deletes its MiniCluster
//!               ├──► untold: jobs stand in line to be told why they wait
//!               ├──► setups: what is true of each FluxSetup, once a second
//!               └──► visibility: who waits where, over HTTP
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

use flux_operator_api::Reason;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::backoff::Backoff;
use crate::expected::Expected;
use crate::filled::Watched;
use crate::http::serve_metrics;
use crate::lease::Leadership;
use crate::metrics::{Metrics, counting};
use crate::status::Unreadable;
use crate::stores::Guarded;

use pace::Pace;
pub use pace::Rate;
use packed::PackedJob;
use queues::GuardedSetup;
pub(crate) use queues::Queues;

/// Passes over FluxJobs that run at the same time. They mostly wait for the API server.
const CONCURRENCY: u16 = 32;

/// How the queues are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only namespace to look at; all of them if unset.
    pub namespace: Option<String>,
    /// The operator's own namespace, whose setups may serve others.
    pub home: String,
    /// Whether admitted jobs are carried out. If not, somebody else must see to them.
    pub make_miniclusters: bool,
    /// How fast the queues may write; as fast as can be if unset.
    pub rate: Option<Rate>,
}

/// The queues before they run: what they share, and what their tasks need.
pub(crate) struct Start {
    pub(crate) queues: Queues,
    changes: mpsc::UnboundedReceiver<ObjectRef<PackedJob>>,
    unkept: mpsc::UnboundedReceiver<ObjectRef<GuardedSetup>>,
    jobs: Writer<PackedJob>,
    setups: Writer<GuardedSetup>,
}

impl Start {
    /// Queues of which nothing is known yet. Somebody else watches MiniClusters, and tells
    /// by [`Queues::take_minicluster`].
    pub(crate) fn new(home: &str, miniclusters: Watched<Guarded>, metrics: &Metrics) -> Start {
        let (changed, changes) = mpsc::unbounded_channel();
        let (unkept_sender, unkept) = mpsc::unbounded_channel();
        let (job_store, jobs) = Watched::new();
        let (setup_store, setups) = Watched::new();
        let queues = Queues::new(
            home,
            job_store,
            setup_store,
            miniclusters,
            changed,
            unkept_sender,
            metrics,
        );
        Start { queues, changes, unkept, jobs, setups }
    }

    /// Starts everything. It ends with `tasks`.
    pub(crate) fn run(
        self,
        tasks: &mut JoinSet<()>,
        client: &Client,
        options: &Options,
        leadership: &Leadership,
        metrics: &Metrics,
    ) {
        let Start { queues, changes, unkept, jobs, setups } = self;
        let pace = Arc::new(Pace::new(options.rate));
        watches::start(tasks, client, options.namespace.as_deref(), &queues, jobs, setups);
        if options.namespace.is_none() {
            tasks.spawn(nodes::count(queues.clone(), client.clone()));
        }
        let (writes, to_write) = mpsc::unbounded_channel();
        tasks.spawn(schedule::schedule(
            queues.clone(),
            leadership.clone(),
            client.clone(),
            options.namespace.clone(),
            writes,
        ));
        let writer = writer::Writer {
            client: client.clone(),
            queues: queues.clone(),
            pace: pace.clone(),
            metrics: metrics.clone(),
            backoff: Backoff::default(),
        };
        tasks.spawn(writer::write_all(to_write, Arc::new(writer)));
        let setups = Arc::new(setups::Context {
            client: client.clone(),
            queues: queues.clone(),
            leadership: leadership.clone(),
            pace: pace.clone(),
            unreadable: Unreadable::default(),
        });
        tasks.spawn(setups::keep_new_ones(setups.clone(), unkept));
        tasks.spawn(setups::pass_over_all(setups));
        tasks.spawn(untold::give_turns(queues.clone(), pace));
        let context = Arc::new(job::Context {
            client: client.clone(),
            recorder: Recorder::new(client.clone(), Reporter::from("flux-operator")),
            queues,
            backoff: Backoff::default(),
            expected: Expected::default(),
            unreadable: Unreadable::default(),
            metrics: metrics.clone(),
            make_miniclusters: options.make_miniclusters,
        });
        tasks.spawn(pass_over_jobs(context, changes, leadership.clone()));
    }
}

/// Passes over jobs when they are asked for, while this replica leads.
async fn pass_over_jobs(
    context: Arc<job::Context>,
    changes: mpsc::UnboundedReceiver<ObjectRef<PackedJob>>,
    leadership: Leadership,
) {
    // A pass that sees only part of what is there would make it a second time.
    context.queues.filled().await;
    let gained = leadership.gained();
    Controller::for_stream(futures::stream::pending(), (*context.queues.jobs).clone())
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(UnboundedReceiverStream::new(changes))
        .reconcile_all_on(gained)
        .run(
            move |job, context| {
                let leads = leadership.leads();
                async move {
                    match leads {
                        true => job::reconcile(job, context).await,
                        false => Ok(Action::await_change()),
                    }
                }
            },
            job::retry,
            context,
        )
        // What a pass had to say it has said.
        .for_each(|_| std::future::ready(()))
        .await;
}

/// Runs the queues alone, without the controller of MiniClusters, until `stop`. With
/// `metrics`, what they count is served there.
pub async fn run_queue(
    client: Client,
    options: Options,
    listener: Option<TcpListener>,
    stop: impl Future<Output = ()>,
) {
    let metrics = Metrics::new();
    let client = counting(client, metrics.clone());
    let (miniclusters, writer) = Watched::new();
    let start = Start::new(&options.home, miniclusters.clone(), &metrics);
    let queues = start.queues.clone();
    let mut tasks = JoinSet::new();
    let take = queues.clone();
    tasks.spawn(crate::watches::miniclusters(
        client.clone(),
        options.namespace.clone(),
        (miniclusters, writer),
        move |event| take.take_minicluster(event),
    ));
    start.run(&mut tasks, &client, &options, &Leadership::always(), &metrics);
    if let Some(listener) = listener {
        tasks.spawn(serve_metrics(listener, metrics, queues));
    }
    stop.await;
}

/// The status of an object that could not be read: why not.
fn unreadable(condition: &str, invalid: &InvalidObject) -> Value {
    let told = Condition {
        type_: condition.into(),
        status: "False".into(),
        reason: Reason::Unreadable.to_string(),
        message: format!(
            "the object cannot be read, so nothing is done about it: {}",
            invalid.error
        ),
        observed_generation: invalid.metadata.generation,
        last_transition_time: Time(Timestamp::now()),
    };
    json!({ "conditions": [told] })
}
