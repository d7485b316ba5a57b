//! The joiner's side: whether its brokers may be started, where, and when they may stop.

mod instance;
mod leave;
mod state;

use std::sync::Arc;

use flux_operator_api::{MiniCluster, Reason};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use self::instance::{Instance, NoInstance, NotedLease};
pub use self::leave::FINALIZER;
pub(crate) use self::leave::has_finalizer;
use self::leave::{finalizers, leave_for_good};
pub(crate) use self::state::JoinState;
use self::state::state;
use super::lease::LeaseNote;
use super::lender::may_join;
use crate::boot::BROKER_PORT;
use crate::cluster::{Cluster, Joining};
use crate::decide::Unplanned;
use crate::job_change::job_change;
use crate::kubernetes::{self, CertificateCopy, NewKeys, Rendering, Settings};
use crate::last_report::first_report_due;
use crate::observed::{Observed, completions, is_terminating};
use crate::ready_timeout::ReadyTimeout;
use crate::resize::Resize;
use crate::stamp;
use crate::status::finished_at;
use crate::step::{FIELD_MANAGER, Object, Step, Target, TargetKind};
use crate::steps::{
    Blocker, Ownership, Plan, clean_up, delete, has_started, ownership, supporting_objects,
};
use crate::valid::Valid;

/// The message if agents cannot ask for permission.
pub(super) const NO_REPORTS: &str = "the operator has no address that pods can report to (--report-url), and \
    brokers join only with its permission";

/// Decides about a joiner.
pub(crate) fn evaluate(
    joiner: &MiniCluster,
    observed: &Observed,
    settings: &Settings,
) -> Result<Plan, Unplanned> {
    let found = Instance::find(joiner, observed);
    if joiner.metadata.deletion_timestamp.is_some() {
        return Ok(leave_for_good(joiner, observed, &found));
    }
    let mut plan = match (finished_at(joiner), Valid::check(joiner.clone())) {
        (Some(since), _) => clean_up(joiner, since, observed.now),
        (None, Ok(valid)) => steps(joiner, valid, observed, settings, &found)?,
        (None, Err(refusal)) => {
            let job =
                own_job(joiner, observed).filter(|job| must_stop(joiner, job, &found, observed));
            let steps = job.map(delete).into_iter().collect();
            Plan { steps, refusal: Some(refusal), ..Plan::default() }
        }
    };
    let until = found.as_ref().ok().and_then(|instance| instance.leave_until(joiner));
    let until = until.filter(|until| *until > observed.now);
    // What was kept over a restart of the operator is decided again without a report.
    let kept = found.as_ref().ok().and_then(|it| it.online_before_restart(observed));
    let kept_until = kept.map(|_| first_report_due(observed.watching_since));
    plan.requeue_at = [plan.requeue_at, until, kept_until].into_iter().flatten().min();
    if plan.refusal.is_some() {
        return Ok(plan);
    }
    let state = state(joiner, observed, &found);
    plan.join = Some(match settings.report_url {
        Some(_) => state,
        None => JoinState {
            is_joined: false,
            reason: Reason::LenderNotReady,
            message: NO_REPORTS.to_owned(),
            ..state
        },
    });
    Ok(plan)
}

/// Whether a joiner's Job must be deleted, whatever its manifest says: its instance does not exist
/// any more, or it has given back all its ranks and their brokers may stop.
fn must_stop(
    joiner: &MiniCluster,
    job: &Job,
    found: &Result<Instance<'_>, NoInstance>,
    observed: &Observed,
) -> bool {
    let instance = match found {
        Ok(instance) => instance,
        Err(none) => return !none.keeps_brokers,
    };
    match (instance.noted_lease(joiner, job), &instance.held) {
        (NotedLease::OtherInstance, _) => true,
        (_, held) if !held.active.is_empty() => false,
        (_, held) if !held.leaving.is_empty() => instance.may_leave(joiner, observed),
        (noted, _) => noted == NotedLease::Released,
    }
}

fn own_job<'a>(joiner: &MiniCluster, observed: &'a Observed) -> Option<&'a Job> {
    match ownership(observed, joiner) {
        Ownership::Ours(job) => Some(job),
        Ownership::NoJob | Ownership::Terminating | Ownership::NotOurs => None,
    }
}

fn steps(
    joiner: &MiniCluster,
    valid: Valid,
    observed: &Observed,
    settings: &Settings,
    found: &Result<Instance<'_>, NoInstance>,
) -> Result<Plan, Unplanned> {
    let only = |steps| Ok(Plan { steps, ..Plan::default() });
    let job = match ownership(observed, joiner) {
        Ownership::NoJob => None,
        // It is deleted in a moment.
        Ownership::Terminating => return only(Vec::new()),
        Ownership::NotOurs => {
            return Ok(Plan { blocker: Some(Blocker::NotOurs), ..Plan::default() });
        }
        Ownership::Ours(job) if observed.namespace_is_terminating() => {
            return only(vec![delete(job)]);
        }
        Ownership::Ours(job) => Some(job),
    };
    if let Some(job) = job.filter(|job| LeaseNote::of(job).is_none() && has_started(observed, job))
    {
        // It is an instance of its own. The API server refuses such an edit, but the object may
        // have been stored under another schema.
        let blocker = Some(Blocker::Immutable(stamp::changed_fields(job, &joiner.spec)));
        return Ok(Plan { blocker, ..Plan::default() });
    }
    let stop_services = || services_pods(joiner, observed).collect::<Vec<_>>();
    if let Some(job) = job.filter(|job| must_stop(joiner, job, found, observed)) {
        return only([vec![delete(job)], stop_services()].concat());
    }
    let Ok(instance) = found else {
        // Without a Job it waits, and then it has no pods.
        return only(if job.is_none() { stop_services() } else { Vec::new() });
    };
    let held = &instance.held;
    let Some(job) = job else {
        let may_create = instance.is_ready
            && settings.report_url.is_some()
            && may_join(&instance.view.minicluster, joiner);
        if held.active.is_empty() || !may_create {
            return only(stop_services());
        }
        if !has_finalizer(joiner) {
            return only(vec![finalizers(joiner, true)]);
        }
        let size = held.active.len();
        return with_rendering(valid, size, instance, settings, |rendering| Plan {
            steps: create(rendering, observed, instance),
            ..Plan::default()
        });
    };
    if held.active.is_empty() {
        // Its jobs are waited for, or the lender records the lease again.
        return only(Vec::new());
    }
    let waits = !held.leaving.is_empty() && !instance.may_leave(joiner, observed);
    let size = match waits {
        true => completions(Some(job)).max(held.active.len()),
        false => held.active.len(),
    };
    with_rendering(valid, size, instance, settings, |rendering| {
        maintain(joiner, rendering, observed, instance, job)
    })
}

/// Deletes the pod with a joiner's services.
fn services_pods(joiner: &MiniCluster, observed: &Observed) -> impl Iterator<Item = Step> {
    let is_own = |pod: &&Arc<Pod>| {
        let mut owners = pod.owner_references().iter();
        kubernetes::is_services_pod(pod)
            && !is_terminating(pod)
            && owners.any(|owner| Some(&owner.uid) == joiner.metadata.uid.as_ref())
    };
    let pods = observed.pods.iter().filter(is_own);
    pods.map(|pod| Step::Delete(Target::of(TargetKind::Pod, &**pod)))
}

/// Everything that is missing, the Job last.
fn create(rendering: &Rendering<'_>, observed: &Observed, instance: &Instance<'_>) -> Vec<Step> {
    let mut steps = vec![
        Step::CreateKeys(Box::new(NewKeys::of(rendering))),
        Step::CopyCertificate(Box::new(CertificateCopy::of(
            rendering,
            &instance.view.minicluster,
            instance.job,
        ))),
    ];
    steps.extend(supporting_objects(rendering, observed, true));
    let mut job = job(rendering, instance);
    stamp::stamp(&mut job, rendering, &rendering.minicluster.spec);
    steps.push(Step::Create(Object::Job(Box::new(job))));
    steps
}

/// The Job of a joiner: its own suspension is done by leaving, and a suspended lender has no
/// instance to join.
fn job(rendering: &Rendering<'_>, instance: &Instance<'_>) -> Job {
    let mut job = kubernetes::job(rendering);
    if let Some(spec) = &mut job.spec {
        spec.suspend = instance.is_suspended.then_some(true);
    }
    let (name, note) = note(rendering, instance).to_annotation();
    job.annotations_mut().insert(name, note);
    job
}

/// The note on a Job, with the ranks of the pods that it should have.
fn note(rendering: &Rendering<'_>, instance: &Instance<'_>) -> LeaseNote {
    let size = usize::try_from(rendering.minicluster.spec.size).unwrap_or_default();
    instance.note(instance.ranks().split_at(size).0)
}

/// Adds the fields of one merge patch to another.
fn merge(patch: &mut Value, other: Value) {
    match (patch, other) {
        (Value::Object(patch), Value::Object(other)) => {
            for (key, value) in other {
                merge(patch.entry(key).or_insert(Value::Null), value);
            }
        }
        (patch, other) => *patch = other,
    }
}

/// Corrects what has drifted, and follows the lease.
fn maintain(
    joiner: &MiniCluster,
    rendering: &Rendering<'_>,
    observed: &Observed,
    instance: &Instance<'_>,
    current: &Job,
) -> Plan {
    let changed = stamp::changed_fields(current, &joiner.spec);
    if !changed.is_empty() && !has_started(observed, current) {
        return Plan { steps: vec![delete(current)], ..Plan::default() };
    }
    let target = || Target::of(TargetKind::Job, current);
    let note = note(rendering, instance);
    let (name, text) = note.to_annotation();
    let is_noted = current.annotations().get(&name) == Some(&text);
    let note_patch = json!({ "metadata": { "annotations": { name: text } } });
    let mut steps = Vec::new();
    // Before the boot plan: no broker may start on a rank that its Job does not note.
    let adds_ranks = !LeaseNote::of(current).is_some_and(|it| it.covers(&note));
    if adds_ranks {
        steps.push(Step::Patch { target: target(), patch: note_patch.clone() });
    }
    let is_this_build = stamp::is_this_build(current);
    if changed.is_empty() {
        steps.extend(supporting_objects(rendering, observed, is_this_build));
    }
    if !changed.is_empty() || !is_this_build {
        // The boot plan stays as it is, except for the ranks of pods that are added.
        steps.extend(updated_ranks(rendering, observed));
    }
    let wanted = job(rendering, instance);
    let size = |job: &Job| job.spec.as_ref().map(|spec| (spec.completions, spec.parallelism));
    let resize = if size(current) == size(&wanted) { Resize::Keep } else { Resize::Apply };
    let patch = job_change(current, &wanted, ReadyTimeout::NotApplicable, &resize, observed.now);
    // Ranks are removed from the note together with their pods.
    let removed = Some(note_patch).filter(|_| !is_noted && !adds_ranks);
    let patch = match (patch, removed) {
        (Some(mut patch), Some(removed)) => {
            merge(&mut patch, removed);
            Some(patch)
        }
        (patch, removed) => patch.or(removed),
    };
    steps.extend(patch.map(|patch| Step::Patch { target: target(), patch }));
    let blocker = Some(changed).filter(|fields| !fields.is_empty()).map(Blocker::Immutable);
    Plan { steps, blocker, ..Plan::default() }
}

/// Writes the ranks of a joiner's pods to the boot plan that exists, and changes nothing else of it.
fn updated_ranks(rendering: &Rendering<'_>, observed: &Observed) -> Option<Step> {
    let found = observed.config_map.as_deref()?;
    let ranks = &rendering.cluster.joining.as_ref()?.ranks;
    let map = kubernetes::config_map_with_ranks(rendering, found, ranks)?;
    let object = Object::ConfigMap(Box::new(map));
    Some(Step::Apply { object, manager: FIELD_MANAGER.into() })
}

/// Calls `act` with the rendering of a joiner of `size` brokers.
fn with_rendering(
    valid: Valid,
    size: usize,
    instance: &Instance<'_>,
    settings: &Settings,
    act: impl FnOnce(&Rendering<'_>) -> Plan,
) -> Result<Plan, Unplanned> {
    let valid = valid.resized(|spec| spec.size = i32::try_from(size).unwrap_or(i32::MAX));
    let cluster =
        Cluster::of(&valid).map_err(|error| Unplanned::InvalidHosts(error.to_string()))?;
    let lender = &instance.view.minicluster;
    let domain = kubernetes::domain(lender, &settings.cluster_domain);
    let lead = instance.cluster.ranks.hosts.nth(0).unwrap_or_default();
    let cluster = cluster.joining(
        &instance.cluster,
        Joining {
            lender: lender.name_any(),
            cluster: lender.uid().unwrap_or_default(),
            job: instance.job.uid().unwrap_or_default(),
            ranks: instance.ranks(),
            table: instance.table.clone(),
            remote: None,
            lead: format!("tcp://{lead}.{domain}:{BROKER_PORT}"),
        },
    );
    Ok(act(&Rendering { minicluster: &valid, cluster: &cluster, settings }))
}
