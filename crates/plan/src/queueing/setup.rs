//! FluxSetups: as the queue sees them, and what to say of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flux_operator_api::fluxsetup::{OverQuota as Over, QueueingStrategy, StopPolicy};
use flux_operator_api::validate::{Checked, Problem};
use flux_operator_api::{FluxSetup, FluxSetupSpec, FluxSetupStatus, Reason};
use flux_operator_queue::{
    Inactive, Millis, OtherNamespaces, OverQuota, Resource, Resources, Setup, SetupMistake,
    SetupName, Stop, Strategy, Usage,
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::quantity;
use crate::reason::of_inactive;
use crate::verdict::{conditions, no, yes};

/// How long a job that does not fit lets others pass, if the setup does not say.
const PATIENCE_SECONDS: i32 = 300;

/// What must be known besides a setup to read it.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The operator's namespace.
    pub home: &'a str,
    /// Labels of all namespaces, by their names.
    pub namespaces: &'a BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// What the nodes have room for, if the setup asks for it.
    pub nodes: Option<&'a Resources>,
}

/// The finalizer that keeps a setup while jobs have room of it.
pub const FINALIZER: &str = "flux-framework.org/jobs";

/// A setup as the queue sees it. What is wrong with it is in its `mistake`.
pub fn read(setup: &FluxSetup, around: Around<'_>) -> Setup {
    let spec = &setup.spec;
    let name = name(setup);
    let mut mistakes = Vec::new();
    if !spec.cohort.is_empty() {
        let message = "cohorts are not supported yet: remove spec.cohort";
        mistakes.push(Inactive::mistaken(SetupMistake::NotYetSupported, message));
    }
    let quota = quota(spec).unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        Resources::default()
    });
    let serves = serves(setup, around).unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        OtherNamespaces::None
    });
    let problems: Vec<String> =
        setup.check_beyond_schema().iter().map(Problem::to_string).collect();
    if !problems.is_empty() {
        mistakes.push(Inactive::mistaken(SetupMistake::Invalid, problems.join("; ")));
    }
    // Last, because it may resolve itself; only the first mistake is reported.
    let room = room(spec, quota, around.nodes).unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        Resources::default()
    });
    let replaced = spec.replaces.iter();
    let seconds = spec.patience_seconds.unwrap_or(PATIENCE_SECONDS);
    Setup {
        created: setup.creation_timestamp().map_or(0, |created| created.0.as_millisecond()),
        room,
        max_size: spec.max_size().and_then(|size| u32::try_from(size).ok()),
        default_size: spec.defaults().size.and_then(|size| u32::try_from(size).ok()).unwrap_or(1),
        serves,
        strategy: match spec.queueing_strategy {
            QueueingStrategy::BestEffortFIFO => Strategy::BestEffort,
            QueueingStrategy::StrictFIFO => Strategy::Strict,
            QueueingStrategy::Backfill => Strategy::Backfill,
        },
        patience: Millis::from(seconds).saturating_mul(1000),
        stop: match spec.stop_policy {
            StopPolicy::None => Stop::No,
            StopPolicy::Hold => Stop::Hold,
            StopPolicy::HoldAndDrain => Stop::HoldAndDrain,
        },
        over_quota: match spec.over_quota {
            Over::Drain => OverQuota::Drain,
            Over::Evict => OverQuota::Evict,
        },
        replaces: replaced.map(|old| SetupName::new(&name.namespace, old)).collect(),
        going: setup.metadata.deletion_timestamp.is_some(),
        mistake: mistakes.into_iter().next(),
        name,
    }
}

/// Namespaces that a selector matches.
pub type Namespaces = BTreeSet<Arc<str>>;

fn quota(spec: &FluxSetupSpec) -> Result<Resources, Inactive> {
    quantity::amounts(&spec.quota).map_err(|name| {
        let message = format!(
            "spec.quota.{name} is not valid: write a resource with a number, such as nodes: 4 or memory: 16Gi"
        );
        Inactive::mistaken(SetupMistake::BadQuota, message)
    })
}

/// Quota, nodes, or the lesser of both; without either, the largest job.
fn room(
    spec: &FluxSetupSpec,
    quota: Resources,
    nodes: Option<&Resources>,
) -> Result<Resources, Inactive> {
    if spec.quota_from_nodes.is_none() {
        let whole = spec.max_size().filter(|_| spec.quota.is_empty());
        return Ok(match whole {
            Some(size) => Resources::of([(Resource::Nodes, i64::from(size))]),
            None => quota,
        });
    }
    let Some(nodes) = nodes else {
        let message = "the operator does not know the nodes of the cluster: it must be allowed to \
            list nodes and pods, or give spec.quota instead of spec.quotaFromNodes";
        return Err(Inactive::mistaken(SetupMistake::NodesUnknown, message));
    };
    let mut least: BTreeMap<Resource, i64> =
        nodes.iter().map(|(resource, amount)| (resource.clone(), amount)).collect();
    for (resource, amount) in quota.iter() {
        let known = least.entry(resource.clone()).or_insert(amount);
        *known = amount.min(*known);
    }
    Ok(Resources::of(least))
}

/// Namespaces that a setup serves besides its own.
fn serves(setup: &FluxSetup, around: Around<'_>) -> Result<OtherNamespaces, Inactive> {
    let Some(selector) = &setup.spec.namespace_selector else { return Ok(OtherNamespaces::None) };
    if setup.namespace().as_deref() != Some(around.home) {
        let message = format!(
            "spec.namespaceSelector counts only in the operator's namespace, {:?}: without it the \
             setup serves its own namespace",
            around.home
        );
        return Err(Inactive::mistaken(SetupMistake::SelectorNotHere, message));
    }
    let selector = Selector::try_from(selector.clone()).map_err(|error| {
        let message = format!("spec.namespaceSelector is not valid: {error}");
        Inactive::mistaken(SetupMistake::BadSelector, message)
    })?;
    if selector.selects_all() {
        return Ok(OtherNamespaces::All);
    }
    let matching = around.namespaces.iter().filter(|(_, labels)| selector.matches(labels));
    let matching: Namespaces = matching.map(|(name, _)| name.clone()).collect();
    Ok(OtherNamespaces::Some(matching))
}

fn name(setup: &FluxSetup) -> SetupName {
    SetupName::new(&setup.namespace().unwrap_or_default(), &setup.name_any())
}

/// One change of a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupStep {
    /// Put the finalizer on it, before anybody has room of it.
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
    /// The time.
    pub now: Timestamp,
}

/// Decides what to do about a setup.
pub fn plan(seen: SetupSeen<'_>) -> SetupPlan {
    SetupPlan { step: step(seen), status: status(seen) }
}

/// Whether a setup is held until the operator lets it go.
fn is_kept(setup: &FluxSetup) -> bool {
    setup.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// What to do about a setup of which nothing else is known yet. One that goes cannot be
/// kept any more.
pub fn first_step(setup: &FluxSetup) -> Option<SetupStep> {
    let goes = setup.metadata.deletion_timestamp.is_some();
    (!goes && !is_kept(setup)).then_some(SetupStep::Keep)
}

fn step(seen: SetupSeen<'_>) -> Option<SetupStep> {
    let in_use = seen.usage.admitted > 0;
    match (seen.read.going, in_use) {
        (true, false) if is_kept(seen.setup) => Some(SetupStep::Release),
        (true, _) => None,
        (false, false) if seen.usage.successor.is_some() => Some(SetupStep::Delete),
        (false, _) if !is_kept(seen.setup) => Some(SetupStep::Keep),
        (false, _) => None,
    }
}

fn status(seen: SetupSeen<'_>) -> FluxSetupStatus {
    let SetupSeen { setup, read, usage, .. } = seen;
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let before = setup.status.as_ref().map(|status| status.conditions.as_slice());
    let active = match &usage.inactive {
        Some(Inactive { reason, message }) => no(of_inactive(*reason), message),
        None => yes(Reason::Active, "jobs are admitted as there is room"),
    };
    let generation = setup.metadata.generation;
    let verdicts = [("Active", active)];
    FluxSetupStatus {
        room: quantity::quantities(&read.room),
        used: quantity::quantities(&usage.used),
        usage: usage_text(&read.room, &usage.used),
        used_resources: i32::try_from(usage.used.amount(&Resource::Nodes)).unwrap_or(i32::MAX),
        pending_workloads: count(usage.pending),
        admitted_workloads: count(usage.admitted),
        running_workloads: count(seen.running),
        observed_generation: generation,
        conditions: conditions(verdicts, generation, before.unwrap_or_default(), seen.now),
    }
}

/// Use of the first resource that has a limit, such as `3/4 nodes`.
fn usage_text(room: &Resources, used: &Resources) -> String {
    match room.iter().next() {
        Some((resource, limit)) => {
            let used = resource.quantity(used.amount(resource));
            format!("{used}/{} {resource}", resource.quantity(limit))
        }
        None => Resource::Nodes.amount(used.amount(&Resource::Nodes)),
    }
}
