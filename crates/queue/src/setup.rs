//! A queue's rules, and what is true of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Millis, Resources, SetupName};

/// In which order jobs get room: always by priority, then by age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A job that does not fit lets others pass, until its patience ends.
    #[default]
    BestEffort,
    /// A job that does not fit holds up all behind it.
    Strict,
    /// A job that does not fit lets those pass that end before it could begin.
    Backfill,
}

/// Whether a queue is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// It runs.
    #[default]
    No,
    /// It admits nothing more.
    Hold,
    /// It admits nothing more and takes all room back.
    HoldAndDrain,
}

/// What happens to jobs beyond a quota that was lowered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverQuota {
    /// They end by themselves.
    #[default]
    Drain,
    /// The youngest of the lowest priority are evicted until the rest fits.
    Evict,
}

/// Which namespaces a setup serves besides its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OtherNamespaces {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// These, as whoever knows their labels has found out.
    Some(std::collections::BTreeSet<Arc<str>>),
}

/// A queue's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Which setup.
    pub name: SetupName,
    /// When it was made.
    pub created: Millis,
    /// Room that all share; a resource that is missing here is not limited.
    pub room: Resources,
    /// Largest size of one job.
    pub max_size: Option<u32>,
    /// Size of a job that has none.
    pub default_size: u32,
    /// Namespaces it serves besides its own.
    pub serves: OtherNamespaces,
    /// The order.
    pub strategy: Strategy,
    /// How long a job that does not fit lets others pass (best effort), since it waits.
    pub patience: Millis,
    /// Whether it is stopped.
    pub stop: Stop,
    /// What happens when the room becomes less than what is used.
    pub over_quota: OverQuota,
    /// Setups whose place it takes: their jobs are its jobs.
    pub replaces: Vec<SetupName>,
    /// It is being deleted, and admits nothing more.
    pub going: bool,
    /// Why it cannot be used at all, as whoever read it has found out.
    pub mistake: Option<Inactive>,
}

/// Why a setup admits nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inactive {
    /// What is the matter.
    pub reason: InactiveReason,
    /// What to do about it.
    pub message: String,
}

impl Inactive {
    /// The rules of a setup cannot be used.
    pub fn mistaken(mistake: SetupMistake, message: impl Into<String>) -> Inactive {
        Inactive { reason: InactiveReason::Mistaken(mistake), message: message.into() }
    }
}

/// What is the matter with a setup that admits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InactiveReason {
    /// Another has taken its place.
    Replaced,
    /// Its rules cannot be used.
    Mistaken(SetupMistake),
    /// Which setups it replaces contradicts itself or another setup.
    Conflict,
    /// It is being deleted.
    Terminating,
    /// It is stopped.
    Stopped,
}

/// Why the rules of a setup cannot be used, as its reader found out. The scheduler only
/// passes it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupMistake {
    /// They are not valid.
    Invalid,
    /// They ask for what this version cannot do.
    NotYetSupported,
    /// An amount of the quota is not valid.
    BadQuota,
    /// The selector of other namespaces is not valid.
    BadSelector,
    /// It selects other namespaces, and only setups of the home namespace may.
    SelectorNotHere,
    /// Its quota is that of the nodes, which are not known.
    NodesUnknown,
    /// Reading them failed, by a defect of the reader.
    Unreadable,
}

/// What is true of a setup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What admitted jobs take.
    pub used: Resources,
    /// Jobs that wait.
    pub pending: usize,
    /// Jobs that have room.
    pub admitted: usize,
    /// Why it admits nothing, if so.
    pub inactive: Option<Inactive>,
    /// The setup that has taken its place, if one has.
    pub successor: Option<SetupName>,
    /// Whether the setup must not be deleted although it may be idle: an admission record names
    /// it, or a job or an older setup has its successor by way of it.
    pub is_needed: bool,
}

/// What Kubernetes' own quota leaves in a namespace: for each ResourceQuota, what may
/// still be used by pods that do not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRoom {
    /// What is left, by the name of the ResourceQuota. A resource that is missing there
    /// is not limited by it.
    pub left: BTreeMap<Arc<str>, Resources>,
}
