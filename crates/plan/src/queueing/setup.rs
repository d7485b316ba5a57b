//! FluxSetups: as the queue sees them, and what to say of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flux_operator_api::{FluxSetup, FluxSetupStatus};
use flux_operator_queue::{Resources, Setup, Usage};
use k8s_openapi::jiff::Timestamp;

/// What must be known besides a setup to read it.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The operator's namespace.
    pub home: &'a str,
    /// Labels of all namespaces, by their names.
    pub namespaces: &'a BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// What the nodes have room for, if the setup asks for it.
    pub nodes: Option<&'a Resources>,
    /// All setups, to see who takes whose place.
    pub setups: &'a [Arc<FluxSetup>],
}

/// The finalizer that keeps a setup while jobs have room of it.
pub const FINALIZER: &str = "flux-framework.org/jobs";

/// A setup as the queue sees it. What is wrong with it is in its `mistake`.
pub fn read(setup: &FluxSetup, around: Around<'_>) -> Setup {
    let _ = (setup, around);
    todo!()
}

/// Namespaces that a selector matches.
pub type Namespaces = BTreeSet<Arc<str>>;

/// One change of a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupStep {
    /// Put the finalizer on it.
    Keep,
    /// Take the finalizer away: nobody has room of it any more.
    Release,
    /// Delete it: another one has taken its place.
    Delete,
}

/// What to do about a setup, and what to say of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SetupPlan {
    /// What to do.
    pub step: Option<SetupStep>,
    /// The status to show.
    pub status: FluxSetupStatus,
}

/// What is known of a setup.
#[derive(Clone, Copy, Debug)]
pub struct SetupSeen<'a> {
    /// The setup.
    pub setup: &'a FluxSetup,
    /// As the queue sees it.
    pub read: &'a Setup,
    /// What the queue says of it.
    pub usage: &'a Usage,
    /// Its jobs whose command runs.
    pub running: usize,
    /// The setup that takes its place, if one does.
    pub successor: Option<&'a flux_operator_queue::SetupName>,
    /// The time.
    pub now: Timestamp,
}

/// Decides what to do about a setup.
pub fn plan(seen: SetupSeen<'_>) -> SetupPlan {
    let _ = seen;
    todo!()
}
