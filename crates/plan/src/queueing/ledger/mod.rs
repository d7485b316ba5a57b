//! The state of all queues: the scheduler, and the objects that it is given.
//!
//! ```text
//! FluxJob, MiniCluster ─────────────► put_job, put_minicluster ─┐
//! FluxSetup, Namespace, nodes ──────► put_setup, ... ───────────┴► Ledger
//!                          admit, evict, rename ◄── cycle(now) ◄──┤
//!                    facts for plans of objects ◄── job, setup ◄──┘
//! ```
//!
//! The operator, `kubectl minicluster` and `flux-operator local` all use it: only this module
//! decides which object is a job, whose MiniCluster it is, with which setups and classes it is
//! read, and which setup replaces which. An admission that was decided counts at once; if its
//! write fails, the caller reports that afterwards ([`Ledger::admission_refused`],
//! [`Ledger::revert_admission`]).
//!
//! An object is read before anything is changed, and through a [`Guard`]: if reading it panics,
//! only that object becomes [`Eligibility::Unreadable`], and everything else stays as it was.

mod decide;
mod guard;
mod jobs;
mod queries;
mod setups;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use flux_operator_api::FluxSetup;
use flux_operator_queue::{
    EvictionReason, Kind, Millis, Resources, Scheduler, Setup, SetupName, Uid,
};
use kube::ResourceExt;

use super::workload::JobRefusal;

pub use decide::{AdmissionWrite, CycleActions, EvictionWrite, RecordRewrite};
pub use guard::{Guard, Unguarded};
pub use jobs::LedgerChange;
pub use queries::{JobIdentity, JobQueueState, SetupQueueState};

/// Labels of namespaces, by their names.
pub type NamespaceLabels = BTreeMap<Arc<str>, BTreeMap<String, String>>;

/// The state of all queues.
#[derive(Debug)]
pub struct Ledger<G = Unguarded> {
    guard: G,
    scheduler: Scheduler,
    operator_namespace: String,
    // Boxed, because a hash map allocates about twice as many entries as it has.
    entries: HashMap<Uid, Box<LedgerEntry>>,
    /// Those of them whose command is running.
    running: HashSet<Uid>,
    /// Values of PriorityClasses, by their names.
    priority_classes: HashMap<String, i32>,
    namespaces: NamespaceLabels,
    /// The capacity of nodes, by the setup that takes its quota from it.
    nodes: HashMap<SetupName, Resources>,
    setups: BTreeMap<SetupName, Arc<FluxSetup>>,
    /// The setups as the scheduler has them.
    rules: BTreeMap<SetupName, Setup>,
    /// Something has changed that reading setups depends on.
    is_outdated: bool,
    /// All setups were read again since the last cycle.
    was_reread: bool,
    /// Setups whose number of running jobs has changed since the last cycle.
    running_changed: HashSet<SetupName>,
    /// When quota became free since the last cycle.
    freed_at: HashMap<SetupName, Millis>,
    /// Records to rewrite, with the resource version for which that was decided.
    rewriting: HashMap<Uid, u64>,
}

/// What is known of a job besides what the scheduler knows.
#[derive(Debug)]
struct LedgerEntry {
    kind: Kind,
    namespace: Arc<str>,
    name: Arc<str>,
    /// The resource version that was put last. Versions grow.
    version: u64,
    eligibility: Eligibility,
    since: Millis,
    admitted: bool,
    finished: bool,
    evicted: Option<EvictionReason>,
    /// The API server refused the eviction. It is decided again when the watch shows the
    /// change.
    eviction_refused: bool,
    pending_write: Option<PendingWrite>,
}

/// Whether a job can be queued.
#[derive(Clone, Debug, PartialEq)]
pub enum Eligibility {
    /// It can: it waits, is admitted, or has finished.
    Queued,
    /// It cannot be queued.
    Refused(Box<JobRefusal>),
    /// Another controller manages it.
    ManagedElsewhere,
    /// Reading it panicked. The quota in its record is counted.
    Panicked(Box<JobRefusal>),
}

impl Eligibility {
    /// Why a job cannot be queued, if it cannot.
    pub fn refusal(&self) -> Option<&JobRefusal> {
        match self {
            Eligibility::Refused(refusal) | Eligibility::Panicked(refusal) => Some(refusal),
            Eligibility::Queued | Eligibility::ManagedElsewhere => None,
        }
    }
}

/// An admission that is being written, for this resource version.
#[derive(Clone, Copy, Debug)]
struct PendingWrite {
    version: u64,
    /// The API server refused it. The job is decided on again when the watch shows
    /// the change.
    refused: bool,
}

impl Ledger {
    /// An empty ledger; setups in `home`, the operator's namespace, may serve
    /// other namespaces.
    pub fn new(operator_namespace: &str) -> Ledger {
        Ledger::guarded(operator_namespace, Unguarded)
    }
}

impl<G: Guard> Ledger<G> {
    /// An empty ledger that reads objects through a guard.
    pub fn guarded(operator_namespace: &str, guard: G) -> Ledger<G> {
        Ledger {
            guard,
            scheduler: Scheduler::new(operator_namespace),
            operator_namespace: operator_namespace.to_owned(),
            entries: HashMap::new(),
            running: HashSet::new(),
            priority_classes: HashMap::new(),
            namespaces: NamespaceLabels::new(),
            nodes: HashMap::new(),
            setups: BTreeMap::new(),
            rules: BTreeMap::new(),
            is_outdated: false,
            was_reread: false,
            running_changed: HashSet::new(),
            freed_at: HashMap::new(),
            rewriting: HashMap::new(),
        }
    }
}

/// The uid of a job or MiniCluster.
pub fn uid_of<K: ResourceExt>(object: &K) -> Uid {
    Uid::from(object.meta().uid.as_deref().unwrap_or_default())
}

/// The name of a setup.
pub fn setup_name<K: ResourceExt>(setup: &K) -> SetupName {
    SetupName::new(&setup.namespace().unwrap_or_default(), &setup.name_any())
}
