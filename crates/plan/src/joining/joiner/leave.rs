//! A joiner that is being deleted: a finalizer keeps it until its brokers may leave the instance.

use flux_operator_api::MiniCluster;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::instance::{Instance, NoInstance, NotedLease};
use super::state::state;
use crate::joining::lease::LeaseNote;
use crate::observed::Observed;
use crate::step::Step;
use crate::steps::{Plan, delete};
use crate::time::seconds_after;

/// The finalizer of a joiner that may have brokers: they leave the instance before it is deleted.
pub const FINALIZER: &str = "flux-framework.org/leave";

/// How long jobs on ranks that are given back may take to finish, in seconds, unless the pods have
/// a grace period of their own: as long as most autoscalers wait before they remove a node.
const LEAVE_SECONDS: i64 = 300;

/// How long a lender may take to notice that a joiner is being deleted, in seconds. A lender that
/// cannot write its status must not keep the joiner forever.
const LENDER_SECONDS: i64 = 60;

/// Whether a MiniCluster has the finalizer of joiners.
pub(crate) fn has_finalizer(minicluster: &MiniCluster) -> bool {
    minicluster.finalizers().iter().any(|it| it == FINALIZER)
}

/// The plan for a joiner that is being deleted and has the finalizer: its brokers leave the
/// instance first, if there is one.
pub(super) fn leave_for_good(
    joiner: &MiniCluster,
    observed: &Observed,
    found: &Result<Instance<'_>, NoInstance>,
) -> Plan {
    let job = observed.job.as_deref().filter(|_| !observed.namespace_is_terminating());
    let may_leave = match (found, job) {
        (_, None) => true,
        (Err(none), Some(_)) => !none.keeps_brokers,
        // The lender has not observed yet that it leaves.
        (Ok(instance), Some(_)) if !instance.held.active.is_empty() => false,
        (Ok(instance), Some(_)) if !instance.held.leaving.is_empty() => {
            instance.may_leave(joiner, observed)
        }
        (Ok(instance), Some(job)) => instance.noted_lease(joiner, job) != NotedLease::ToBeRecorded,
    };
    let overdue_at = overdue_at(joiner);
    if may_leave || overdue_at.is_some_and(|at| observed.now >= at) {
        let job = job.filter(|job| is_brokers_job(joiner, job)).map(delete);
        let steps = job.into_iter().chain([finalizers(joiner, false)]).collect();
        return Plan { steps, ..Plan::default() };
    }
    let leave_until = found.as_ref().ok().and_then(|instance| instance.leave_until(joiner));
    Plan {
        requeue_at: [leave_until, overdue_at].into_iter().flatten().min(),
        join: Some(state(joiner, observed, found)),
        ..Plan::default()
    }
}

/// Whether a Job is that of a joiner's brokers. It has no owner any more if the joiner is deleted with
/// `--cascade=orphan`: its brokers must stop all the same, because their ranks are leased to another.
fn is_brokers_job(joiner: &MiniCluster, job: &Job) -> bool {
    let owners = job.owner_references();
    let is_own = owners.iter().any(|owner| Some(&owner.uid) == joiner.metadata.uid.as_ref());
    let is_deleting = job.metadata.deletion_timestamp.is_some();
    LeaseNote::of(job).is_some() && (is_own || owners.is_empty()) && !is_deleting
}

/// From when on a lender cannot have noticed that a joiner is being deleted.
fn overdue_at(joiner: &MiniCluster) -> Option<Timestamp> {
    let deleted = joiner.metadata.deletion_timestamp.as_ref()?;
    Some(seconds_after(deleted.0, leave_seconds(joiner).saturating_add(LENDER_SECONDS)))
}

/// How long jobs on ranks that a joiner gives back may take, in seconds.
pub(super) fn leave_seconds(joiner: &MiniCluster) -> i64 {
    let pod = joiner.spec.pod.as_ref();
    pod.and_then(|pod| pod.termination_grace_period_seconds).unwrap_or(LEAVE_SECONDS)
}

/// Adds or removes our finalizer, for exactly the version that was observed: the list has other
/// owners too.
pub(super) fn finalizers(joiner: &MiniCluster, add: bool) -> Step {
    let mut names: Vec<String> =
        joiner.finalizers().iter().filter(|it| *it != FINALIZER).cloned().collect();
    if add {
        names.push(FINALIZER.to_owned());
    }
    let version = &joiner.metadata.resource_version;
    Step::PatchSelf(json!({ "metadata": { "finalizers": names, "resourceVersion": version } }))
}
