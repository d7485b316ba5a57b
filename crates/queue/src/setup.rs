//! The rules of a queue, and its usage.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Millis, Resources, SetupName};

/// Which jobs may overtake a job that does not fit. The order is always by priority, then by age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Later jobs may overtake a job that does not fit, until its patience ends.
    #[default]
    BestEffort,
    /// A job that does not fit blocks all jobs behind it.
    Strict,
    /// Later jobs may overtake a job that does not fit if they finish before it could start.
    Backfill,
}

/// Whether a queue is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// It is not stopped.
    #[default]
    No,
    /// It admits no more jobs.
    Hold,
    /// It admits no more jobs and evicts those that are admitted.
    HoldAndDrain,
}

/// What happens to jobs that exceed a lowered quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverQuota {
    /// They run until they finish.
    #[default]
    Drain,
    /// The youngest jobs of the lowest priority are evicted until the rest fits.
    Evict,
}

/// Which namespaces a setup serves besides its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServedNamespaces {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// These. The caller has evaluated the selector.
    Some(std::collections::BTreeSet<Arc<str>>),
}

/// The rules of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Its name.
    pub name: SetupName,
    /// When it was created.
    pub created: Millis,
    /// The quota that all jobs share; a resource that is missing is not limited.
    pub quota: Resources,
    /// Largest size of one job.
    pub max_size: Option<u32>,
    /// Size of a job without a size.
    pub default_size: u32,
    /// Namespaces it serves besides its own.
    pub serves: ServedNamespaces,
    /// Which jobs may overtake a job that does not fit.
    pub strategy: Strategy,
    /// How long later jobs may overtake a waiting job that does not fit (best effort).
    pub patience: Millis,
    /// Whether it is stopped.
    pub stop: Stop,
    /// What happens when the quota is lowered below what is used.
    pub over_quota: OverQuota,
    /// Setups that it replaces: their jobs become its jobs.
    pub replaces: Vec<SetupName>,
    /// It is being deleted, and admits no more jobs.
    pub terminating: bool,
    /// Why it cannot be used at all, as the caller has determined.
    pub problem: Option<Inactive>,
}

/// Why a setup admits no jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inactive {
    /// The reason.
    pub reason: InactiveReason,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl Inactive {
    /// A setup whose rules cannot be used.
    pub fn unusable(problem: SetupProblem, message: impl Into<String>) -> Inactive {
        Inactive { reason: InactiveReason::Unusable(problem), message: message.into() }
    }
}

/// Why a setup admits no jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InactiveReason {
    /// Another setup has replaced it.
    Replaced,
    /// Its rules cannot be used.
    Unusable(SetupProblem),
    /// Its `replaces` conflicts with itself or with that of another setup.
    Conflict,
    /// It is being deleted.
    Terminating,
    /// It is stopped.
    Stopped,
}

/// Why the rules of a setup cannot be used, as the caller has determined. The scheduler only
/// passes it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupProblem {
    /// They are not valid.
    Invalid,
    /// They need a feature that this version does not have.
    NotYetSupported,
    /// An amount of the quota is not valid.
    BadQuota,
    /// The namespace selector is not valid.
    BadSelector,
    /// It selects other namespaces, which only setups in the operator's namespace may do.
    SelectorNotHere,
    /// Its quota is taken from the nodes, which are not known.
    NodesUnknown,
    /// Reading them failed because of a bug in the caller.
    Panicked,
}

/// The usage of a setup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What admitted jobs use.
    pub used: Resources,
    /// Jobs that wait.
    pub pending: usize,
    /// Jobs that are admitted.
    pub admitted: usize,
    /// Why it admits no jobs, if it does not.
    pub inactive: Option<Inactive>,
    /// The setup that has replaced it, if there is one.
    pub successor: Option<SetupName>,
    /// Whether the setup must not be deleted although it may be idle: an admission record names
    /// it, or a job or an older setup gets to its successor through it.
    pub is_needed: bool,
}

/// What the ResourceQuotas of a namespace leave for pods that do not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceQuota {
    /// What is left, by the name of the ResourceQuota. A resource that is missing is not
    /// limited by it.
    pub remaining: BTreeMap<Arc<str>, Resources>,
}
