//! The operator's ledger: exports its counts as metrics, and catches panics while an object is
//! read, so that a panic affects only that object.

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_plan::queueing::ledger::{self, Change, Guard};
use flux_operator_queue::{Kind, Millis, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::schedule::now;
use crate::metrics::QueueMetrics;
use crate::tasks::panic_message;

pub(crate) use flux_operator_plan::queueing::ledger::{
    Admitted, Decided, Evicted, JobFacts, Renamed, Standing, setup_name, uid_of,
};

/// The state of all queues. Reads go directly to the pure ledger.
pub(crate) struct Ledger {
    pure: ledger::Ledger<CatchPanics>,
    metrics: QueueMetrics,
}

impl Deref for Ledger {
    type Target = ledger::Ledger<CatchPanics>;

    fn deref(&self) -> &Self::Target {
        &self.pure
    }
}

impl DerefMut for Ledger {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.pure
    }
}

impl Ledger {
    /// An empty ledger; `home` is the operator's namespace.
    pub(crate) fn new(home: &str, metrics: QueueMetrics) -> Ledger {
        Ledger { pure: ledger::Ledger::guarded(home, CatchPanics), metrics }
    }

    /// Adds or updates a job, and the MiniCluster with its name, whoever owns that.
    pub(crate) fn put_job(&mut self, job: &FluxJob, minicluster: Option<&MiniCluster>) {
        let change = self.pure.put_job(job, minicluster, now());
        self.note("FluxJob", &job.metadata, change);
    }

    /// Adds or updates a MiniCluster, which may name a queue itself.
    pub(crate) fn put_minicluster(&mut self, minicluster: &MiniCluster) {
        let change = self.pure.put_minicluster(minicluster, now());
        self.note("MiniCluster", &minicluster.metadata, change);
    }

    /// Removes a job or MiniCluster.
    pub(crate) fn remove(&mut self, uid: &Uid) {
        self.pure.remove(uid, now());
    }

    /// Removes all objects of this kind except these.
    pub(crate) fn retain(&mut self, kind: Kind, left: &HashSet<Uid>) {
        self.pure.retain(kind, left, now());
    }

    /// Runs a scheduler cycle. Admissions count from now on.
    pub(crate) fn cycle(&mut self, now: Millis) -> Decided {
        for (setup, panic) in self.pure.read_setups() {
            tracing::error!(%setup, panic, "failed to read a FluxSetup");
        }
        let begun = Instant::now();
        let decided = self.pure.cycle(now);
        self.metrics.cycle(begun.elapsed(), decided.admit.len());
        for Evicted { queue, reason, .. } in &decided.evict {
            self.metrics.evicted(queue.as_ref(), *reason);
        }
        decided
    }

    fn note(&self, kind: &'static str, object: &ObjectMeta, change: Change) {
        match change {
            Change::None => {}
            Change::Finished(queue) => self.metrics.finished(queue.as_ref()),
            Change::Unreadable(panic) => {
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
pub(crate) const PANICS: &str = "panics-when-read";

impl Guard for CatchPanics {
    fn read<T>(&self, object: &ObjectMeta, read: impl FnOnce() -> T) -> Result<T, String> {
        #[cfg(not(test))]
        let _ = object;
        // The object and its context are only borrowed, so a panic leaves nothing half changed.
        let caught = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(test)]
            assert!(object.name.as_deref() != Some(PANICS), "on purpose");
            read()
        }));
        caught.map_err(|panic| panic_message(&*panic))
    }
}

#[cfg(test)]
mod tests;
