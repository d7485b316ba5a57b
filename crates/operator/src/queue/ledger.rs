//! The operator's ledger: exports its counts as metrics, and catches panics while an object is
//! read, so that a panic affects only that object.

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_plan::queueing::ledger::{self, Guard, LedgerChange};
use flux_operator_queue::{Kind, Millis, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::schedule::now;
use crate::metrics::QueueMetrics;
use crate::tasks::panic_message;

pub(crate) use flux_operator_plan::queueing::ledger::{
    AdmissionWrite, CycleActions, Eligibility, EvictionWrite, JobQueueState, RecordRewrite,
    setup_name, uid_of,
};

/// The state of all queues. Reads go directly to the pure ledger.
pub(crate) struct OperatorLedger {
    inner: ledger::Ledger<CatchPanics>,
    metrics: QueueMetrics,
}

impl Deref for OperatorLedger {
    type Target = ledger::Ledger<CatchPanics>;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl DerefMut for OperatorLedger {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

impl OperatorLedger {
    /// An empty ledger; `home` is the operator's namespace.
    pub(crate) fn new(operator_namespace: &str, metrics: QueueMetrics) -> OperatorLedger {
        OperatorLedger { inner: ledger::Ledger::guarded(operator_namespace, CatchPanics), metrics }
    }

    /// Adds or updates a job, and the MiniCluster with its name, whatever its owner.
    pub(crate) fn put_job(&mut self, job: &FluxJob, minicluster: Option<&MiniCluster>) {
        let change = self.inner.put_job(job, minicluster, now());
        self.record("FluxJob", &job.metadata, change);
    }

    /// Adds or updates a MiniCluster, which may name a queue itself.
    pub(crate) fn put_minicluster(&mut self, minicluster: &MiniCluster) {
        let change = self.inner.put_minicluster(minicluster, now());
        self.record("MiniCluster", &minicluster.metadata, change);
    }

    /// Removes a job or MiniCluster.
    pub(crate) fn remove(&mut self, uid: &Uid) {
        self.inner.remove(uid, now());
    }

    /// Removes all objects of this kind except these.
    pub(crate) fn retain(&mut self, kind: Kind, existing: &HashSet<Uid>) {
        self.inner.retain(kind, existing, now());
    }

    /// Runs a scheduler cycle. The admissions it decides use quota at once.
    pub(crate) fn cycle(&mut self, now: Millis) -> CycleActions {
        for (setup, panic) in self.inner.read_setups() {
            tracing::error!(%setup, panic, "failed to read a FluxSetup");
        }
        let begun = Instant::now();
        let decided = self.inner.cycle(now);
        self.metrics.record_cycle(begun.elapsed(), decided.admit.len());
        for EvictionWrite { queue, reason, .. } in &decided.evict {
            self.metrics.count_evicted(queue.as_ref(), *reason);
        }
        decided
    }

    fn record(&self, kind: &'static str, object: &ObjectMeta, change: LedgerChange) {
        match change {
            LedgerChange::None => {}
            LedgerChange::Finished(queue) => self.metrics.count_finished(queue.as_ref()),
            LedgerChange::Panicked(panic) => {
                let (namespace, name) = (&object.namespace, &object.name);
                tracing::error!(kind, namespace, name, panic, "failed to read an object");
            }
        }
    }
}

/// Catches panics while an object is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CatchPanics;

/// In tests, reading an object with this name panics.
#[cfg(test)]
pub(crate) const PANICKING_NAME: &str = "panics-when-read";

impl Guard for CatchPanics {
    fn read<T>(&self, object: &ObjectMeta, read: impl FnOnce() -> T) -> Result<T, String> {
        #[cfg(not(test))]
        let _ = object;
        // The object and its context are only borrowed, so a panic leaves nothing half changed.
        let caught = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(test)]
            assert!(object.name.as_deref() != Some(PANICKING_NAME), "on purpose");
            read()
        }));
        caught.map_err(|panic| panic_message(&*panic))
    }
}

#[cfg(test)]
mod tests;
