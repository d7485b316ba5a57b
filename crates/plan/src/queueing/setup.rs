//! FluxSetups: as the scheduler sees them, and their status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flux_operator_api::fluxsetup::{OverQuota as Over, QueueingStrategy, StopPolicy};
use flux_operator_api::validate::{Problem, Validate};
use flux_operator_api::{FluxSetup, FluxSetupSpec, FluxSetupStatus, Reason};
use flux_operator_queue::{
    Inactive, Millis, OverQuota, Resource, Resources, ServedNamespaces, Setup, SetupName,
    SetupProblem, Stop, Strategy, Usage,
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use serde_json::json;

use super::quantity;
use crate::decision::{
    Conclude, Conclusion, Decision, Outcome, earliest_requeue, reportable_failure,
};
use crate::reason::of_inactive;
use crate::status::Urgency;
use crate::step::Step;
use crate::verdict::{conditions, no, yes};

/// How long later jobs may overtake a job that does not fit, if the setup does not set it.
const PATIENCE_SECONDS: i32 = 300;

/// What is needed besides a setup to read it.
#[derive(Clone, Copy, Debug)]
pub struct SetupContext<'a> {
    /// The operator's namespace.
    pub operator_namespace: &'a str,
    /// Labels of all namespaces, by their names.
    pub namespaces: &'a BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// The capacity of the nodes, if the setup takes its quota from it.
    pub node_capacity: Option<&'a Resources>,
}

/// The finalizer that keeps a setup while jobs have quota from it, or records name it.
pub const FINALIZER: &str = "flux-framework.org/jobs";

/// A setup as the scheduler sees it. What is wrong with it is in its `problem`.
pub fn read(setup: &FluxSetup, context: SetupContext<'_>) -> Setup {
    let spec = &setup.spec;
    let name = name(setup);
    let mut inactive = Vec::new();
    if !spec.cohort.is_empty() {
        let message = "cohorts are not supported yet: remove spec.cohort";
        inactive.push(Inactive::unusable(SetupProblem::NotYetSupported, message));
    }
    let quota = quota(spec).unwrap_or_else(|mistake| {
        inactive.push(mistake);
        Resources::default()
    });
    let serves = served_namespaces(setup, context).unwrap_or_else(|mistake| {
        inactive.push(mistake);
        ServedNamespaces::None
    });
    let problems: Vec<String> =
        setup.check_beyond_schema().iter().map(Problem::to_string).collect();
    if !problems.is_empty() {
        inactive.push(Inactive::unusable(SetupProblem::Invalid, problems.join("; ")));
    }
    // Last, because it may resolve itself; only the first problem is reported.
    let quota = effective_quota(spec, quota, context.node_capacity).unwrap_or_else(|mistake| {
        inactive.push(mistake);
        Resources::default()
    });
    let replaced = spec.replaces.iter();
    let seconds = spec.patience_seconds.unwrap_or(PATIENCE_SECONDS);
    Setup {
        created: created(setup),
        quota,
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
        terminating: setup.metadata.deletion_timestamp.is_some(),
        problem: inactive.into_iter().next(),
        name,
    }
}

/// A setup whose reading panicked. It admits no jobs, and keeps those it has.
pub(super) fn panicked_setup(setup: &FluxSetup, panic: &str) -> Setup {
    let name = name(setup);
    let replaced = setup.spec.replaces.iter();
    let message = format!(
        "the operator failed to read the object, so no job is admitted until it changes; please \
         report this: {panic}"
    );
    Setup {
        created: created(setup),
        quota: Resources::default(),
        max_size: None,
        default_size: 1,
        serves: ServedNamespaces::None,
        strategy: Strategy::default(),
        patience: 0,
        stop: Stop::No,
        over_quota: OverQuota::Drain,
        replaces: replaced.map(|old| SetupName::new(&name.namespace, old)).collect(),
        terminating: setup.metadata.deletion_timestamp.is_some(),
        problem: Some(Inactive::unusable(SetupProblem::Panicked, message)),
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
        Inactive::unusable(SetupProblem::BadQuota, message)
    })
}

/// The quota, the nodes, or the lesser of both; without either, the largest job.
fn effective_quota(
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
        let message = "the operator does not know the nodes of the cluster: allow it to list nodes \
            and pods, or set spec.quota instead of spec.quotaFromNodes";
        return Err(Inactive::unusable(SetupProblem::NodesUnknown, message));
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
fn served_namespaces(
    setup: &FluxSetup,
    context: SetupContext<'_>,
) -> Result<ServedNamespaces, Inactive> {
    let Some(selector) = &setup.spec.namespace_selector else { return Ok(ServedNamespaces::None) };
    if setup.namespace().as_deref() != Some(context.operator_namespace) {
        let message = format!(
            "spec.namespaceSelector has an effect only in the operator's namespace, {:?}: without \
             it the setup serves its own namespace",
            context.operator_namespace
        );
        return Err(Inactive::unusable(SetupProblem::SelectorNotHere, message));
    }
    let selector = Selector::try_from(selector.clone()).map_err(|error| {
        let message = format!("spec.namespaceSelector is not valid: {error}");
        Inactive::unusable(SetupProblem::BadSelector, message)
    })?;
    if selector.selects_all() {
        return Ok(ServedNamespaces::All);
    }
    let matching = context.namespaces.iter().filter(|(_, labels)| selector.matches(labels));
    let matching: Namespaces = matching.map(|(name, _)| name.clone()).collect();
    Ok(ServedNamespaces::Some(matching))
}

fn created(setup: &FluxSetup) -> Millis {
    setup.creation_timestamp().map_or(0, |created| created.0.as_millisecond())
}

fn name(setup: &FluxSetup) -> SetupName {
    SetupName::new(&setup.namespace().unwrap_or_default(), &setup.name_any())
}

/// What is known of a setup.
#[derive(Clone, Copy, Debug)]
pub struct ObservedSetup<'a> {
    /// The setup.
    pub setup: &'a FluxSetup,
    /// Its state in the scheduler, once it was read.
    pub queue: Option<QueuedSetup<'a>>,
    /// The time.
    pub now: Timestamp,
}

/// The state of a setup in the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct QueuedSetup<'a> {
    /// The setup as the scheduler sees it.
    pub rules: &'a Setup,
    /// Its usage.
    pub usage: &'a Usage,
    /// Number of its jobs whose command is running.
    pub running: usize,
}

/// What the conclusion about a FluxSetup is computed from.
#[derive(Clone, Copy, Debug)]
pub struct FluxSetupFacts<'a> {
    observed: ObservedSetup<'a>,
}

/// Decides what to do about a setup.
pub fn decide(observed: ObservedSetup<'_>) -> Decision<FluxSetupFacts<'_>> {
    Decision::new(step(observed).into_iter().collect(), FluxSetupFacts { observed })
}

impl Conclude for FluxSetupFacts<'_> {
    type Status = FluxSetupStatus;

    fn conclude(&self, _: &[Step], outcome: &Outcome) -> Conclusion<FluxSetupStatus> {
        let ObservedSetup { setup, queue, now } = self.observed;
        let status = queue.map(|queue| status(setup, queue, now));
        let same = status.is_none() || status == setup.status;
        Conclusion {
            status,
            // The status changes with every job.
            urgency: if same { Urgency::None } else { Urgency::Later },
            events: Vec::new(),
            requeue_at: earliest_requeue(outcome, now, []),
            retry: reportable_failure(outcome).is_some(),
        }
    }
}

/// Whether a setup has the operator's finalizer.
fn has_finalizer(setup: &FluxSetup) -> bool {
    setup.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Whether a setup still needs the finalizer, before it admits a job. One that is being
/// deleted cannot get it any more.
pub fn needs_finalizer(setup: &FluxSetup) -> bool {
    setup.metadata.deletion_timestamp.is_none() && !has_finalizer(setup)
}

fn step(observed: ObservedSetup<'_>) -> Option<Step> {
    let setup = observed.setup;
    let Some(queue) = observed.queue else {
        return needs_finalizer(setup).then(|| finalizer_patch(setup, true));
    };
    let in_use = queue.usage.admitted > 0 || queue.usage.is_needed;
    match (queue.rules.terminating, in_use) {
        (true, false) if has_finalizer(setup) => Some(finalizer_patch(setup, false)),
        (true, _) => None,
        (false, false) if queue.usage.successor.is_some() => Some(Step::DeleteSelf),
        (false, _) => needs_finalizer(setup).then(|| finalizer_patch(setup, true)),
    }
}

/// Adds our finalizer to a setup, or removes it. A merge patch replaces the whole list,
/// so it must be for this very version.
fn finalizer_patch(setup: &FluxSetup, keep: bool) -> Step {
    let others = setup.finalizers().iter().map(String::as_str).filter(|name| *name != FINALIZER);
    let finalizers: Vec<&str> = others.chain(keep.then_some(FINALIZER)).collect();
    let version = &setup.metadata.resource_version;
    Step::PatchSelf(json!({
        "metadata": { "resourceVersion": version, "finalizers": finalizers },
    }))
}

fn status(setup: &FluxSetup, queue: QueuedSetup<'_>, now: Timestamp) -> FluxSetupStatus {
    let QueuedSetup { rules, usage, running } = queue;
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let before = setup.status.as_ref().map(|status| status.conditions.as_slice());
    let active = match &usage.inactive {
        Some(Inactive { reason, message }) => no(of_inactive(*reason), message),
        None => yes(Reason::Active, "jobs are admitted as quota becomes free"),
    };
    let generation = setup.metadata.generation;
    let verdicts = [("Active", active)];
    FluxSetupStatus {
        room: quantity::quantities(&rules.quota),
        used: quantity::quantities(&usage.used),
        usage: usage_text(&rules.quota, &usage.used),
        used_resources: i32::try_from(usage.used.amount(&Resource::Nodes)).unwrap_or(i32::MAX),
        pending_workloads: count(usage.pending),
        admitted_workloads: count(usage.admitted),
        running_workloads: count(running),
        observed_generation: generation,
        conditions: conditions(verdicts, generation, before.unwrap_or_default(), now),
    }
}

/// Usage of the first resource that has a limit, such as `3/4 nodes`.
fn usage_text(quota: &Resources, used: &Resources) -> String {
    match quota.iter().next() {
        Some((resource, limit)) => {
            let used = resource.to_quantity(used.amount(resource));
            format!("{used}/{} {resource}", resource.to_quantity(limit))
        }
        None => Resource::Nodes.describe(used.amount(&Resource::Nodes)),
    }
}
