//! Writes the scheduler's decisions: one request each, several at a time.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_plan::queueing::admission;
use flux_operator_queue::{Kind, Millis, NewAdmission, Uid};
use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::ledger::AdmissionWrite;
use super::queues::Queues;
use super::rate_limit::RateLimiter;
use super::schedule::now;
use crate::backoff::Backoff;
use crate::client::is_outcome_unknown;
use crate::health::Health;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::reconciler::{patch_status, replace_status};
use crate::tasks::panic_message;
use flux_operator_service::error_chain::chain;

/// The number of concurrent writes. An API server on two cores does not get faster with more.
const MAX_CONCURRENT_WRITES: usize = 64;

/// Writes decisions.
pub(super) struct DecisionWriter {
    pub(super) client: Client,
    pub(super) queues: Queues,
    pub(super) leadership: Leadership,
    pub(super) health: Health,
    pub(super) rate_limiter: Arc<RateLimiter>,
    pub(super) metrics: Metrics,
    pub(super) backoff: Backoff<Uid>,
}

/// A decision to write.
pub(super) enum DecisionWrite {
    /// A job gets quota.
    Admit(AdmissionWrite),
    /// A change of the admission record of a MiniCluster that names a queue itself: the MiniCluster
    /// loses its quota, or the record has to name the setup that replaced its own.
    Change { uid: Uid, namespace: Arc<str>, name: Arc<str>, version: u64, change: Value },
}

/// Writes all decisions. They are started in order, and several are written at the same time.
pub(super) async fn write_all(
    mut to_write: UnboundedReceiver<DecisionWrite>,
    writer: Arc<DecisionWriter>,
) {
    let in_flight = Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES));
    let mut writes = JoinSet::new();
    while let Some(write) = to_write.recv().await {
        let slot = WritePermit::acquire(&in_flight).await;
        writer.rate_limiter.acquire().await;
        let writer = writer.clone();
        writes.spawn(async move { writer.write(write, slot).await });
        while let Some(written) = writes.try_join_next() {
            // `write` did not catch the panic, so the ledger may be half changed.
            if let Err(Ok(panic)) = written.map_err(|error| error.try_into_panic()) {
                resume_unwind(panic);
            }
        }
    }
}

/// A permit for one of the concurrent writes.
struct WritePermit {
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl WritePermit {
    async fn acquire(semaphore: &Arc<Semaphore>) -> WritePermit {
        WritePermit {
            semaphore: semaphore.clone(),
            permit: semaphore.clone().acquire_owned().await.ok(),
        }
    }

    /// Waits, and lets others write meanwhile: writes that keep failing must not block all others.
    async fn pause(&mut self, time: Duration) {
        self.permit = None;
        tokio::time::sleep(time).await;
        self.permit = self.semaphore.clone().acquire_owned().await.ok();
    }
}

/// The result of a write.
enum WriteResult {
    Written,
    /// The object has changed or is deleted.
    Outdated,
    /// The API server rejected it, and will do so again.
    Rejected(kube::Error),
    /// It is not known whether it was executed.
    Unknown(kube::Error),
}

impl DecisionWriter {
    /// Writes one decision. A panic affects only that object: the decision is reverted, and made
    /// again after a delay.
    async fn write(&self, write: DecisionWrite, mut permit: WritePermit) {
        let (what, uid, version) = match &write {
            DecisionWrite::Admit(AdmissionWrite { admit, version, .. }) => {
                (format!("{}/{}", admit.namespace, admit.name), admit.uid.clone(), *version)
            }
            DecisionWrite::Change { uid, namespace, name, version, .. } => {
                (format!("{namespace}/{name}"), uid.clone(), *version)
            }
        };
        let written = async {
            match write {
                DecisionWrite::Admit(admitted) => self.admit(admitted, &mut permit).await,
                DecisionWrite::Change { uid, namespace, name, version, change } => {
                    self.change(&uid, (&namespace, &name), version, &change, &mut permit).await;
                }
            }
        };
        let Err(panic) = AssertUnwindSafe(written).catch_unwind().await else { return };
        tracing::error!(object = what, panic = panic_message(&*panic), "a write panicked");
        self.revert(&uid, &mut permit).await;
        self.queues.ledger().record_write_failed(&uid, version);
    }

    async fn admit(&self, admitted: AdmissionWrite, slot: &mut WritePermit) {
        let AdmissionWrite { admit, version, since, freed_at } = admitted;
        let Some(record) = self.record(&admit, version) else {
            // The job was deleted, and the watch is about to report it.
            return self.mark_outdated(&admit.uid);
        };
        // When this replica stops, decisions that were not sent are dropped: the next leader
        // decides again.
        while self.leadership.can_start_work() {
            match self.send(&admit, &record).await {
                WriteResult::Written => {
                    self.backoff.reset(&admit.uid);
                    let waited = elapsed(since);
                    let freed = freed_at.map(elapsed);
                    self.metrics.queue().record_admission(&admit.admission.queue, waited, freed);
                    return;
                }
                WriteResult::Outdated => return self.mark_outdated(&admit.uid),
                WriteResult::Rejected(error) => {
                    self.warn(&admit, &error);
                    return self.revert(&admit.uid, slot).await;
                }
                // If the write was executed after all, the next attempt has an outdated version, so
                // that quota cannot be given twice.
                WriteResult::Unknown(error) => {
                    self.warn(&admit, &error);
                    slot.pause(self.backoff.next(admit.uid.clone())).await;
                }
            }
        }
    }

    /// Changes the record of a MiniCluster, if it is unchanged since the decision. Otherwise the
    /// decision is made again when the watch delivers the change.
    async fn change(
        &self,
        uid: &Uid,
        (namespace, name): (&str, &str),
        version: u64,
        change: &Value,
        slot: &mut WritePermit,
    ) {
        while self.leadership.can_start_work() {
            let under_way = self.health.begin("change of a record");
            let sent = patch_status::<MiniCluster>(&self.client, namespace, name, change).await;
            drop(under_way);
            let Err(error) = sent else { break };
            if matches!(&error, kube::Error::Api(status) if [404, 409, 422].contains(&status.code))
            {
                if self.queues.ledger().record_write_failed(uid, version) {
                    self.queues.wake_scheduler();
                }
                break;
            }
            let error = chain(&error);
            tracing::warn!(cluster = name, namespace, error, "failed to change an admission");
            slot.pause(self.backoff.next(uid.clone())).await;
        }
        self.backoff.reset(uid);
    }

    /// Reverts an admission that could not be written, after a delay. The job keeps its quota
    /// meanwhile; otherwise it would be admitted again at once.
    async fn revert(&self, uid: &Uid, slot: &mut WritePermit) {
        slot.pause(self.backoff.next(uid.clone())).await;
        self.queues.ledger().revert_admission(uid);
        self.queues.wake_scheduler();
    }

    /// Drops an outdated admission. The job is considered again when the watch delivers what has
    /// changed.
    fn mark_outdated(&self, uid: &Uid) {
        self.backoff.reset(uid);
        self.queues.ledger().admission_refused(uid);
        self.queues.wake_scheduler();
    }

    fn warn(&self, admit: &NewAdmission, error: &kube::Error) {
        let (job, namespace, error) = (&*admit.name, &*admit.namespace, chain(error));
        tracing::warn!(job, namespace, error, "failed to write an admission");
    }

    /// The admission record, for the version of the object that was decided on.
    fn record(&self, admit: &NewAdmission, version: u64) -> Option<Value> {
        let now = Timestamp::now();
        let mut record = match admit.kind {
            Kind::FluxJob => {
                let reference = ObjectRef::new(&admit.name).within(&admit.namespace);
                let job = self.queues.jobs.get(&reference)?;
                admission::job_write(&job.unpack().ok()?, admit, now)
            }
            Kind::MiniCluster => {
                let reference = ObjectRef::new(&admit.name).within(&admit.namespace);
                let minicluster = self.queues.miniclusters.get(&reference)?;
                admission::minicluster_patch(minicluster.0.as_ref().ok()?, admit, now)
            }
        };
        // The stored object may be newer than the one that was decided on.
        record["metadata"]["resourceVersion"] = version.to_string().into();
        Some(record)
    }

    async fn send(&self, admit: &NewAdmission, record: &Value) -> WriteResult {
        let _under_way = self.health.begin("admission");
        let (namespace, name) = (&*admit.namespace, &*admit.name);
        let client = &self.client;
        let sent = match admit.kind {
            Kind::FluxJob => replace_status::<FluxJob>(client, namespace, name, record).await,
            Kind::MiniCluster => patch_status::<MiniCluster>(client, namespace, name, record).await,
        };
        match sent {
            Ok(_) => WriteResult::Written,
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                WriteResult::Outdated
            }
            Err(error) if is_outcome_unknown(&error) => WriteResult::Unknown(error),
            Err(error) => WriteResult::Rejected(error),
        }
    }
}

/// The time since `since`.
fn elapsed(since: Millis) -> Duration {
    Duration::from_millis(now().saturating_sub(since).max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{Request, Response};
    use flux_operator_api::FluxSetup;
    use flux_operator_service::guarded::Guarded;
    use kube::client::Body;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use crate::cache_sync::SyncedStore;
    use crate::queue::PreparedQueues;

    /// A writer whose requests panic and are counted, and an admission for it to write.
    fn writer() -> (DecisionWriter, AdmissionWrite, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            async { panic!("on purpose") as Result<Response<Body>, kube::Error> }
        });
        let metrics = Metrics::new();
        let (store, mut miniclusters) = SyncedStore::new();
        let (changed, _) = tokio::sync::mpsc::unbounded_channel();
        let queues = PreparedQueues::new("home", store, changed, &metrics).queues;
        let setup: FluxSetup = serde_json::from_value(json!({
            "metadata": { "name": "main", "namespace": "a", "uid": "s", "resourceVersion": "1" },
            "spec": { "quota": { "nodes": 1 } },
        }))
        .unwrap();
        let minicluster: MiniCluster = serde_json::from_value(json!({
            "metadata": { "name": "b", "namespace": "a", "uid": "b", "resourceVersion": "2" },
            "spec": { "queue": "main", "size": 1, "containers": [{ "image": "c" }] },
        }))
        .unwrap();
        queues.ledger().put_setup(&setup);
        queues.ledger().put_minicluster(&minicluster);
        miniclusters.apply_watcher_event(&Event::Apply(Guarded(Ok(minicluster))));
        let admitted = queues.ledger().cycle(now()).admit.pop().expect("there is quota");
        let writer = DecisionWriter {
            client: Client::new(service, "default"),
            queues,
            leadership: Leadership::always(),
            health: Health::default(),
            rate_limiter: Arc::new(RateLimiter::new(None)),
            metrics,
            backoff: Backoff::default(),
        };
        (writer, admitted, sent)
    }

    async fn permit() -> WritePermit {
        WritePermit::acquire(&Arc::new(Semaphore::new(1))).await
    }

    /// Otherwise a few failing writes would block all others.
    #[tokio::test(start_paused = true)]
    async fn a_paused_write_releases_its_permit() {
        let one = Arc::new(Semaphore::new(1));
        let mut permit = WritePermit::acquire(&one).await;
        assert!(one.try_acquire().is_err());
        let pause = permit.pause(Duration::from_secs(60));
        let other = async { WritePermit::acquire(&one).await.permit.is_some() };
        let began = tokio::time::Instant::now();
        let ((), (other, at)) =
            tokio::join!(pause, async { (other.await, tokio::time::Instant::now()) });
        assert!(other && at == began, "it had to wait");
        assert!(permit.permit.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_admission_whose_write_panics_is_decided_again() {
        let (writer, admitted, sent) = writer();
        assert!(writer.queues.ledger().cycle(now()).admit.is_empty(), "it is being written");
        writer.write(DecisionWrite::Admit(admitted), permit().await).await;
        assert_eq!(sent.load(Ordering::SeqCst), 1);
        assert_eq!(writer.queues.ledger().cycle(now()).admit.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unsent_admission_is_dropped_when_the_replica_stops() {
        let (writer, admitted, sent) = writer();
        writer.leadership.stop_deciding();
        writer.write(DecisionWrite::Admit(admitted), permit().await).await;
        assert_eq!(sent.load(Ordering::SeqCst), 0);
    }
}
