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
//! read, and which setup replaces which. An admission that was decided counts at once; the
//! result of its write is reported afterwards ([`Ledger::admission_refused`],
//! [`Ledger::revert_admission`]).
//!
//! An object is read before anything is changed, and through a [`Guard`]: if reading it panics,
//! only that object becomes [`Eligibility::Unreadable`], and everything else stays as it was.

mod decide;
mod facts;
mod guard;
mod jobs;
mod setups;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use flux_operator_api::FluxSetup;
use flux_operator_queue::{EvictReason, Kind, Millis, Resources, Scheduler, Setup, SetupName, Uid};
use kube::ResourceExt;

use super::workload::Mistake;

pub use decide::{Admitted, Decided, Evicted, Renamed};
pub use facts::{Identity, JobFacts, SetupFacts};
pub use guard::{Guard, Unguarded};
pub use jobs::Change;

/// Labels of namespaces, by their names.
pub type Labels = BTreeMap<Arc<str>, BTreeMap<String, String>>;

/// The state of all queues.
#[derive(Debug)]
pub struct Ledger<G = Unguarded> {
    guard: G,
    scheduler: Scheduler,
    home: String,
    // Boxed, because a hash map allocates about twice as many entries as it has.
    known: HashMap<Uid, Box<Known>>,
    /// Those of them whose command is running.
    running: HashSet<Uid>,
    /// Values of PriorityClasses, by their names.
    classes: HashMap<String, i32>,
    namespaces: Labels,
    /// The capacity of nodes, by the setup that takes its quota from it.
    nodes: HashMap<SetupName, Resources>,
    setups: BTreeMap<SetupName, Arc<FluxSetup>>,
    /// The setups as the scheduler has them.
    read: BTreeMap<SetupName, Setup>,
    /// Something has changed that setups are read with.
    unread: bool,
    /// All setups were read again since the last cycle.
    reread: bool,
    /// Setups whose number of running jobs has changed since the last cycle.
    counted: HashSet<SetupName>,
    /// When quota became free since the last cycle.
    freed: HashMap<SetupName, Millis>,
    /// Records to rewrite, with the resource version for which that was decided.
    renaming: HashMap<Uid, u64>,
}

/// What is known of a job besides what the scheduler knows.
#[derive(Debug)]
struct Known {
    kind: Kind,
    namespace: Arc<str>,
    name: Arc<str>,
    /// The resource version that was put last. Versions grow.
    version: u64,
    standing: Standing,
    since: Millis,
    admitted: bool,
    finished: bool,
    evicted: Option<EvictReason>,
    /// The API server refused the eviction. It is decided again when the watch shows the
    /// change.
    eviction_refused: bool,
    writing: Option<Writing>,
}

/// Whether a job can be queued.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It can: it waits, is admitted, or has finished.
    Queued,
    /// It cannot be queued.
    Mistaken(Box<Mistake>),
    /// Another controller manages it.
    Foreign,
    /// Reading it panicked. The quota in its record is counted.
    Unreadable(Box<Mistake>),
}

impl Standing {
    /// Why a job cannot be queued, if it cannot.
    pub fn mistake(&self) -> Option<&Mistake> {
        match self {
            Standing::Mistaken(mistake) | Standing::Unreadable(mistake) => Some(mistake),
            Standing::Queued | Standing::Foreign => None,
        }
    }
}

/// An admission that is being written, for this resource version.
#[derive(Clone, Copy, Debug)]
struct Writing {
    version: u64,
    /// The API server refused it. The job is decided on again when the watch shows
    /// the change.
    refused: bool,
}

impl Ledger {
    /// An empty ledger; setups in `home`, the operator's namespace, may serve
    /// other namespaces.
    pub fn new(home: &str) -> Ledger {
        Ledger::guarded(home, Unguarded)
    }
}

impl<G: Guard> Ledger<G> {
    /// An empty ledger that reads objects through a guard.
    pub fn guarded(home: &str, guard: G) -> Ledger<G> {
        Ledger {
            guard,
            scheduler: Scheduler::new(home),
            home: home.to_owned(),
            known: HashMap::new(),
            running: HashSet::new(),
            classes: HashMap::new(),
            namespaces: Labels::new(),
            nodes: HashMap::new(),
            setups: BTreeMap::new(),
            read: BTreeMap::new(),
            unread: false,
            reread: false,
            counted: HashSet::new(),
            freed: HashMap::new(),
            renaming: HashMap::new(),
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
