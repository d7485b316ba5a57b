//! Writes down what was decided: one request each, several at a time.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_plan::queueing::admission;
use flux_operator_queue::{Admit, EvictReason, Kind, Millis, SetupName, Uid};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::ledger::Admitted;
use super::pace::Pace;
use super::queues::Queues;
use super::schedule::now;
use crate::backoff::Backoff;
use crate::errors::chain;
use crate::metrics::Metrics;
use crate::status::{patch_status, replace_status};

/// Writes that are under way at the same time. An API server on two cores answers
/// no faster to more.
const IN_FLIGHT: usize = 64;

/// What a write is done with.
pub(super) struct Writer {
    pub(super) client: Client,
    pub(super) queues: Queues,
    pub(super) pace: Arc<Pace>,
    pub(super) metrics: Metrics,
    pub(super) backoff: Backoff<Uid>,
}

/// Something to write down.
pub(super) enum Write {
    /// A job gets room.
    Admit(Admitted),
    /// A MiniCluster that names a queue itself loses its room: it is stopped as if it were
    /// suspended.
    Withdraw { namespace: Arc<str>, name: Arc<str>, reason: EvictReason },
    /// The record of such a MiniCluster is to name the setup that has replaced its own.
    Rename { namespace: Arc<str>, name: Arc<str>, version: u64, queue: SetupName },
}

/// Writes down whatever comes, in order as far as the API server keeps it.
pub(super) async fn write_all(mut to_write: UnboundedReceiver<Write>, writer: Arc<Writer>) {
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut writes = JoinSet::new();
    while let Some(write) = to_write.recv().await {
        let permit = in_flight.clone().acquire_owned().await;
        writer.pace.turn().await;
        let writer = writer.clone();
        writes.spawn(async move {
            match write {
                Write::Admit(admitted) => writer.admit(admitted).await,
                Write::Withdraw { namespace, name, reason } => {
                    writer.withdraw(&namespace, &name, reason).await;
                }
                Write::Rename { namespace, name, version, queue } => {
                    writer.rename(&namespace, &name, version, &queue).await;
                }
            }
            drop(permit);
        });
        while writes.try_join_next().is_some() {}
    }
}

/// What the API server said of a write.
enum Answer {
    Written,
    /// The object has changed or is gone.
    Outdated,
    /// It will never be taken.
    Refused(kube::Error),
    /// Nobody knows whether it was.
    Unknown(kube::Error),
}

impl Writer {
    async fn admit(&self, admitted: Admitted) {
        let Admitted { admit, version, since, freed } = admitted;
        let Some(record) = self.record(&admit, version) else {
            // The watch has shown its end, and says so in a moment.
            return self.outdated(&admit.uid);
        };
        loop {
            match self.send(&admit, &record).await {
                Answer::Written => {
                    self.backoff.reset(&admit.uid);
                    let waited = elapsed(since);
                    let freed = freed.map(elapsed);
                    self.metrics.queue().admitted(&admit.admission.queue, waited, freed);
                    return;
                }
                Answer::Outdated => return self.outdated(&admit.uid),
                Answer::Refused(error) => {
                    self.warn(&admit, &error);
                    // Its room stays taken meanwhile, or it would be the next again at once.
                    tokio::time::sleep(self.backoff.next(admit.uid.clone())).await;
                    self.queues.ledger().take_back(&admit.uid);
                    return self.queues.happened();
                }
                // If it was taken after all, the next is outdated, because its version is
                // the same; so nothing can be given twice.
                Answer::Unknown(error) => {
                    self.warn(&admit, &error);
                    tokio::time::sleep(self.backoff.next(admit.uid.clone())).await;
                }
            }
        }
    }

    async fn withdraw(&self, namespace: &str, name: &str, reason: EvictReason) {
        let patch = admission::taken_from_minicluster(reason);
        let uid = Uid::from(format!("{namespace}/{name}").as_str());
        let client = &self.client;
        while let Err(error) = patch_status::<MiniCluster>(client, namespace, name, &patch).await {
            // It is gone, or has no room any more.
            if matches!(&error, kube::Error::Api(status) if [404, 422].contains(&status.code)) {
                break;
            }
            tracing::warn!(
                cluster = name,
                namespace,
                error = chain(&error),
                "failed to take room back"
            );
            tokio::time::sleep(self.backoff.next(uid.clone())).await;
        }
        self.backoff.reset(&uid);
    }

    /// Has a record name another setup. If the object has changed, this is decided again when
    /// the watch shows that.
    async fn rename(&self, namespace: &str, name: &str, version: u64, queue: &SetupName) {
        let patch = admission::renamed_minicluster(version, queue);
        let uid = Uid::from(format!("{namespace}/{name}").as_str());
        let client = &self.client;
        while let Err(error) = patch_status::<MiniCluster>(client, namespace, name, &patch).await {
            if matches!(&error, kube::Error::Api(status) if [404, 409, 422].contains(&status.code))
            {
                break;
            }
            let error = chain(&error);
            tracing::warn!(cluster = name, namespace, error, "failed to rewrite an admission");
            tokio::time::sleep(self.backoff.next(uid.clone())).await;
        }
        self.backoff.reset(&uid);
    }

    /// The job is looked at again as soon as the watch shows what has changed.
    fn outdated(&self, uid: &Uid) {
        self.queues.ledger().refused(uid);
        self.queues.happened();
    }

    fn warn(&self, admit: &Admit, error: &kube::Error) {
        let (job, namespace, error) = (&*admit.name, &*admit.namespace, chain(error));
        tracing::warn!(job, namespace, error, "failed to write an admission");
    }

    /// The record, for the version of the object that was decided on.
    fn record(&self, admit: &Admit, version: u64) -> Option<Value> {
        let now = Timestamp::now();
        let mut record = match admit.kind {
            Kind::FluxJob => {
                let reference = ObjectRef::new(&admit.name).within(&admit.namespace);
                let job = self.queues.jobs.get(&reference)?;
                admission::of_job(&job.open().ok()?, admit, now)
            }
            Kind::MiniCluster => {
                let reference = ObjectRef::new(&admit.name).within(&admit.namespace);
                let minicluster = self.queues.miniclusters.get(&reference)?;
                admission::of_minicluster(minicluster.0.as_ref().ok()?, admit, now)
            }
        };
        // What is in memory may be newer than what was decided on.
        record["metadata"]["resourceVersion"] = version.to_string().into();
        Some(record)
    }

    async fn send(&self, admit: &Admit, record: &Value) -> Answer {
        let (namespace, name) = (&*admit.namespace, &*admit.name);
        let client = &self.client;
        let sent = match admit.kind {
            Kind::FluxJob => replace_status::<FluxJob>(client, namespace, name, record).await,
            Kind::MiniCluster => patch_status::<MiniCluster>(client, namespace, name, record).await,
        };
        match sent {
            Ok(()) => Answer::Written,
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Answer::Outdated,
            Err(error) => match &error {
                kube::Error::Api(status) if status.code < 500 && status.code != 429 => {
                    Answer::Refused(error)
                }
                _ => Answer::Unknown(error),
            },
        }
    }
}

/// How long ago a time is.
fn elapsed(since: Millis) -> Duration {
    Duration::from_millis(now().saturating_sub(since).max(0).unsigned_abs())
}
