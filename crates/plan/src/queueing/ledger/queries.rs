//! What reconciliations need to know about the queues.

use std::sync::Arc;

use flux_operator_api::FluxSetup;
use flux_operator_queue::{
    EvictionReason, Kind, Millis, Scheduler, Setup, SetupName, Uid, Usage, WaitStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Eligibility, Guard, Ledger, LedgerEntry};

/// What the reconciliation of a job needs to know about the queues.
#[derive(Clone, Debug)]
pub struct JobQueueState {
    /// Whether it can be queued.
    pub eligibility: Eligibility,
    /// Why it waits, if it does.
    pub waiting: Option<WaitStatus>,
    /// Its queue evicts it.
    pub evicted: Option<EvictionReason>,
    /// The setup in whose queue it is, or was before it finished, if that exists.
    pub setup: Option<Arc<FluxSetup>>,
    /// The setup that its record should name: the one it names, or the successor of that.
    pub record: Option<SetupName>,
}

/// What the reconciliation of a setup needs to know about the queues.
#[derive(Clone, Debug)]
pub struct SetupQueueState {
    /// The setup as the scheduler has it.
    pub rules: Setup,
    /// Its usage.
    pub usage: Usage,
    /// Number of its jobs whose command is running.
    pub running: usize,
}

/// Kind and name of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobIdentity {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
}

impl<G: Guard> Ledger<G> {
    /// The state of a job whose record names the setup `recorded`; None for a job
    /// that was never put.
    pub fn job(
        &self,
        uid: &Uid,
        recorded: Option<&SetupName>,
        now: Millis,
    ) -> Option<JobQueueState> {
        let known = self.entries.get(uid)?;
        let current = |name: &SetupName| self.scheduler.successor(name);
        let record = recorded.map(|name| current(name).unwrap_or_else(|| name.clone()));
        // The scheduler forgets what has finished.
        let setup = self.scheduler.queue_of(uid).or(record.as_ref());
        Some(JobQueueState {
            eligibility: known.eligibility.clone(),
            waiting: self.scheduler.explain(uid, now),
            evicted: known.evicted,
            setup: setup.and_then(|name| self.setups.get(name)).cloned(),
            record,
        })
    }

    /// The state of a setup. None while changes have not been read; all setups are
    /// reconciled after that.
    pub fn setup(&self, name: &SetupName) -> Option<SetupQueueState> {
        if self.is_outdated {
            return None;
        }
        let in_it = |uid: &&Uid| self.scheduler.queue_of(uid) == Some(name);
        Some(SetupQueueState {
            rules: self.rules.get(name)?.clone(),
            usage: self.scheduler.usage(name)?,
            running: self.running.iter().filter(in_it).count(),
        })
    }

    /// Whether a job can be queued; None for one that was never put.
    pub fn eligibility(&self, uid: &Uid) -> Option<&Eligibility> {
        self.entries.get(uid).map(|known| &known.eligibility)
    }

    /// Whether a job has finished.
    pub fn is_finished(&self, uid: &Uid) -> bool {
        self.entries.get(uid).is_some_and(|known| known.finished)
    }

    /// Kind and name of a job.
    pub fn identity(&self, uid: &Uid) -> Option<JobIdentity> {
        let LedgerEntry { kind, namespace, name, .. } = &**self.entries.get(uid)?;
        Some(JobIdentity { kind: *kind, namespace: namespace.clone(), name: name.clone() })
    }

    /// Namespace and name of a job that is not admitted and has not finished.
    pub fn waiting_job_name(&self, uid: &Uid) -> Option<(Arc<str>, Arc<str>)> {
        let known = self.entries.get(uid).filter(|known| !known.admitted && !known.finished)?;
        Some((known.namespace.clone(), known.name.clone()))
    }

    /// The setup in whose queue a MiniCluster counts, itself or as the MiniCluster of a job.
    pub fn queue_of_cluster(&self, minicluster: &ObjectMeta) -> Option<&SetupName> {
        let owners = minicluster.owner_references.iter().flatten();
        let owners = owners.map(|owner| owner.uid.as_str());
        let mut uids = owners.chain(minicluster.uid.as_deref()).map(Uid::from);
        uids.find_map(|uid| self.scheduler.queue_of(&uid))
    }

    /// The scheduler, for queries.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}
