//! Every step that brings a MiniCluster's objects to its spec. Same arguments, same
//! plan. A settled cluster has no steps. After a crash between two steps the next plan
//! starts from what exists, and reaches the same state.

use flux_operator_api::{MiniCluster, Reason};
use flux_operator_wire::Drain;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::json;

use crate::cluster::Cluster;
use crate::exposing::{ExposeState, expose_state, expose_steps, note_step};
use crate::job_change::job_change;
use crate::joining::{
    JoinState, LeaseDecision, SizeLimit, decide_leases, drain_request, highest_free_size,
    take_back_leases,
};
use crate::kubernetes::{self, NewKeys, Rendering, belongs_to_kueue};
use crate::observed::{LEAD_INDEX, Observed, is_lead, is_terminating};
use crate::queueing::{granted_nodes, is_waiting};
use crate::ready_timeout::{ReadyTimeout, ready_timeout};
use crate::resize::{Resize, Shrinking, lead_state, resize};
use crate::stamp::BootedSizes;
use crate::status::{finished_at, readiness};
use crate::step::{FIELD_MANAGER, Object, Step, Target, TargetKind};
use crate::time::seconds_after;
use crate::valid::{Refusal, Valid};
use crate::{drift, stamp};

/// Why a spec is not applied as it is, although it is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// These fields went into a Job that has started, and cannot change any more.
    Immutable(Vec<String>),
    /// More hosts than the brokers were started with.
    TooLarge {
        /// The requested size.
        size: i32,
        /// The number of hosts that there may be.
        ranks: i32,
    },
    /// More nodes than the queue has granted.
    ExceedsGrant {
        /// The requested size.
        size: i32,
        /// The number of nodes that were granted.
        granted: i32,
    },
    /// The next hosts are leased to a joiner.
    RanksLeased {
        /// The requested size.
        size: i32,
        /// The size that it can have.
        free: i32,
        /// What holds the next host, as it is shown.
        holder: String,
    },
    /// Pods of former joiners may have the next hosts.
    UnknownPods {
        /// The requested size.
        size: i32,
    },
    /// A Job of this name has another owner.
    NotOurs,
}

impl Blocker {
    /// The condition's reason.
    pub fn reason(&self) -> Reason {
        match self {
            Blocker::Immutable(_) => Reason::Immutable,
            Blocker::TooLarge { .. } => Reason::TooLarge,
            Blocker::ExceedsGrant { .. } => Reason::NoRoom,
            Blocker::RanksLeased { .. } | Blocker::UnknownPods { .. } => Reason::RanksLeased,
            Blocker::NotOurs => Reason::NotOurs,
        }
    }
}

impl std::fmt::Display for Blocker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Blocker::Immutable(fields) => write!(
                f,
                "{} cannot change once the cluster has started: change it back, or delete the MiniCluster and create it again",
                fields.join(", ")
            ),
            Blocker::TooLarge { size, ranks } => write!(
                f,
                "spec.size {size} is more than the {ranks} hosts the cluster was started with: set spec.maxSize before it starts"
            ),
            Blocker::ExceedsGrant { size, granted } => write!(
                f,
                "spec.size {size} is more than the {granted} nodes that its queue has granted: suspend the cluster and resume it, so that it waits for quota for all of them"
            ),
            Blocker::RanksLeased { size, free, holder } => write!(
                f,
                "spec.size {size} needs host {free}, which {holder} leases: lower spec.size, or delete that MiniCluster or revoke the invitation"
            ),
            Blocker::UnknownPods { size } => write!(
                f,
                "spec.size {size} waits until the pods of former joiners are deleted: they may have its hosts"
            ),
            Blocker::NotOurs => {
                f.write_str("a Job of this name has another owner: rename one of them")
            }
        }
    }
}

/// What to do now, and when to reconcile again if nothing changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The steps, in order.
    pub(crate) steps: Vec<Step>,
    /// Why the spec is not applied as it is.
    pub(crate) blocker: Option<Blocker>,
    /// Why the manifest is refused, although there are steps: a joiner leaves all the same.
    pub(crate) refusal: Option<Refusal>,
    /// What the lead should drain, if that is known.
    pub(crate) drain: Option<Drain>,
    /// The ranks that are removed, and what they wait for.
    pub(crate) shrinking: Option<Shrinking>,
    /// When the plan changes with time alone.
    pub(crate) requeue_at: Option<Timestamp>,
    /// The leases from now on; `None` to leave them as they are.
    pub(crate) leases: Option<LeaseDecision>,
    /// How it stands in the instance that it joins.
    pub(crate) join: Option<JoinState>,
    /// How others reach it; `None` if they do not, or if that was not decided.
    pub(crate) expose: Option<ExposeState>,
}

/// The MiniCluster with the hosts its brokers were started with: the rank table is
/// fixed at boot, and a replaced pod must get the same hosts. In a queue it has no
/// more nodes than it was granted.
pub(crate) fn with_booted_hosts(minicluster: Valid, observed: &Observed) -> Valid {
    let booted = with_booted_hosts_of(minicluster, observed.job.as_deref());
    // Without a Job there is no instance, and its table has not been made.
    let cluster = observed.job.as_ref().and_then(|_| Cluster::of(&booted).ok());
    let size = cluster.map(|it| highest_free_size(&booted, &it, observed, booted.spec.size).0);
    booted.resized(|spec| spec.size = size.unwrap_or(spec.size))
}

/// The same with a given Job, but leases are ignored: the size may include leased hosts.
pub(crate) fn with_booted_hosts_of(minicluster: Valid, job: Option<&Job>) -> Valid {
    let booted = job.and_then(BootedSizes::of);
    let granted = granted_nodes(&minicluster);
    minicluster.resized(|spec| {
        if let Some(booted) = booted {
            booted.restore(spec);
        }
        if let Some(granted) = granted {
            spec.size = spec.size.min(granted);
        }
    })
}

/// Computes the plan. `rendering` is that of the MiniCluster [`with_booted_hosts`],
/// `requested` is the MiniCluster as the user wrote it.
pub(crate) fn plan(
    requested: &MiniCluster,
    rendering: &Rendering<'_>,
    observed: &Observed,
) -> Plan {
    if let Some(since) = finished_at(requested) {
        // A finished cluster is not run again, even if its Job was deleted.
        let leases = take_back_leases(requested, rendering.cluster, observed);
        let plan = clean_up(requested, since, observed.now);
        let requeue_at = [plan.requeue_at, leases.requeue_at].into_iter().flatten().min();
        return Plan { leases: Some(leases), requeue_at, ..plan };
    }
    match ownership(observed, requested) {
        Ownership::NoJob => {
            Plan { steps: create(requested, rendering, observed), ..Plan::default() }
        }
        Ownership::Terminating => Plan::default(),
        Ownership::NotOurs => Plan { blocker: Some(Blocker::NotOurs), ..Plan::default() },
        // Kubernetes deletes the pods of a namespace first and waits for them. But a Job
        // keeps its last failed pods until it has replaced them, which it cannot do in that
        // namespace any more: unless the Job is deleted, that takes forever.
        Ownership::Ours(job) if observed.namespace_is_terminating() => {
            Plan { steps: vec![delete(job)], ..Plan::default() }
        }
        Ownership::Ours(job) => maintain(requested, rendering, observed, job),
    }
}

/// Whose the Job with a MiniCluster's name is.
pub(crate) enum Ownership<'a> {
    /// There is none.
    NoJob,
    /// It is being deleted, or will be in a moment because its former MiniCluster was. Its
    /// replacement is created then.
    Terminating,
    /// It has another owner.
    NotOurs,
    /// It is the MiniCluster's.
    Ours(&'a Job),
}

/// Whose the observed Job is.
pub(crate) fn ownership<'a>(observed: &'a Observed, minicluster: &MiniCluster) -> Ownership<'a> {
    match observed.job.as_deref() {
        None => Ownership::NoJob,
        Some(job) if job.metadata.deletion_timestamp.is_some() => Ownership::Terminating,
        Some(job) if is_of_former_minicluster(job, minicluster) => Ownership::Terminating,
        Some(job) if !is_owned(job.owner_references(), minicluster) => Ownership::NotOurs,
        Some(job) => Ownership::Ours(job),
    }
}

pub(crate) fn delete(job: &Job) -> Step {
    Step::Delete(Target::of(TargetKind::Job, job))
}

/// Everything that is missing, the Job last: its pods need the rest.
fn create(requested: &MiniCluster, rendering: &Rendering<'_>, observed: &Observed) -> Vec<Step> {
    let mut steps = vec![Step::CreateKeys(Box::new(NewKeys::of(rendering)))];
    steps.extend(supporting_objects(rendering, observed, true));
    let mut job = kubernetes::job(rendering);
    stamp::stamp(&mut job, rendering, &requested.spec);
    steps.push(Step::Create(Object::Job(Box::new(job))));
    steps
}

/// Corrects what has drifted, and applies the changes that a Job allows.
fn maintain(
    requested: &MiniCluster,
    rendering: &Rendering<'_>,
    observed: &Observed,
    job: &Job,
) -> Plan {
    let changed = stamp::changed_fields(job, &requested.spec);
    // A queue may have granted fewer nodes than requested, and it starts with those.
    let size = granted_nodes(requested)
        .map_or(requested.spec.size, |granted| requested.spec.size.min(granted));
    let ranks = BootedSizes::of(job).map(|booted| booted.own).filter(|ranks| size > *ranks);
    if (!changed.is_empty() || ranks.is_some()) && !has_started(observed, job) {
        return Plan { steps: vec![delete(job)], ..Plan::default() };
    }
    let timeout = ready_timeout(requested, job, readiness(requested, observed), observed.now);
    // If the Job was created from another spec, only its mutable fields follow this one.
    let mut steps = match changed.is_empty() {
        true => supporting_objects(rendering, observed, stamp::is_this_build(job)),
        false => Vec::new(),
    };
    let immutable = Some(changed).filter(|fields| !fields.is_empty()).map(Blocker::Immutable);
    let too_large = ranks.map(|ranks| Blocker::TooLarge { size: requested.spec.size, ranks });
    let exceeds_grant = granted_nodes(requested).filter(|granted| requested.spec.size > *granted);
    let exceeds_grant =
        exceeds_grant.map(|granted| Blocker::ExceedsGrant { size: requested.spec.size, granted });
    // Hosts that are leased cannot be the Job's own at the same time.
    let (free, limit) = highest_free_size(requested, rendering.cluster, observed, size);
    let leased = limit.and_then(|limit| match limit {
        SizeLimit::Leased(holder) => {
            Some(Blocker::RanksLeased { size: requested.spec.size, free, holder })
        }
        SizeLimit::UnknownPods => Some(Blocker::UnknownPods { size: requested.spec.size }),
        // It is asked again in a moment.
        SizeLimit::Unanswered => None,
    });
    let mut wanted = kubernetes::job(rendering);
    if immutable.is_some() {
        // Labels may come from fields that have changed.
        wanted.metadata.labels.clone_from(&job.metadata.labels);
    }
    let (hosts, lead) = (&rendering.cluster.ranks, lead_state(rendering, observed, job));
    let ready = readiness(requested, observed).ready;
    let leases = decide_leases(requested, rendering.cluster, observed, lead, ready);
    let resize = match resize(job, hosts.size, lead, observed.now) {
        // Kueue has counted its pods.
        _ if belongs_to_kueue(job) => Resize::Keep,
        // Another client has scaled it over leased hosts: two brokers would replace each other.
        Resize::Begin(shrinking) | Resize::Wait(shrinking) if leases.has_any(&shrinking.ranks) => {
            Resize::Apply
        }
        resize => resize,
    };
    // First, because the leases must not be written without it.
    steps.splice(0..0, note_step(requested, job, &leases, observed.now));
    let change = job_change(job, &wanted, timeout, &resize, observed.now);
    steps.extend(
        change.map(|patch| Step::Patch { target: Target::of(TargetKind::Job, job), patch }),
    );
    steps.extend(label_lead(observed));
    // Last, so that the cluster does not depend on it.
    steps.extend(expose_steps(requested, rendering, observed, &leases));
    let requeue_at = match timeout {
        ReadyTimeout::Until(until) | ReadyTimeout::BackingOff(until) => Some(until),
        ReadyTimeout::NotApplicable | ReadyTimeout::Release | ReadyTimeout::Retry => {
            resize.requeue_at(lead)
        }
    };
    let expose = expose_state(requested, observed, &leases);
    let (unused, since) = resize.unused_ranks(job, hosts, observed.now);
    Plan {
        steps,
        blocker: immutable.or(too_large).or(exceeds_grant).or(leased),
        refusal: None,
        drain: Some(drain_request(&unused, since, &leases.leases, &rendering.cluster.ranks.hash())),
        shrinking: resize.shrinking().cloned(),
        requeue_at: [requeue_at, leases.requeue_at].into_iter().flatten().min(),
        leases: Some(leases),
        join: None,
        expose,
    }
}

/// The steps for ConfigMap, Services and services pod, if they differ from what is wanted.
pub(crate) fn supporting_objects(
    rendering: &Rendering<'_>,
    observed: &Observed,
    is_this_build: bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let map = kubernetes::config_map(rendering);
    let same = observed.config_map.as_deref().map(|found| drift::config_map_matches(found, &map));
    let map = Object::ConfigMap(Box::new(map));
    match same {
        None => steps.push(Step::CreateOrApply(map)),
        Some(false) if is_this_build => {
            steps.push(Step::Apply { object: map, manager: FIELD_MANAGER.into() });
        }
        Some(_) => {}
    }
    let services = services(rendering);
    for (service, manager) in &services {
        let found = observed.services.iter().find(|found| found.name_any() == service.name_any());
        let same = found.map(|found| drift::service_matches(found, service));
        let (object, manager) = (Object::Service(Box::new(service.clone())), manager.clone());
        match same {
            // A Service that others may have created already is applied.
            None if manager == FIELD_MANAGER => steps.push(Step::CreateOrApply(object)),
            Some(true) => {}
            None | Some(false) => steps.push(Step::Apply { object, manager }),
        }
    }
    let pod = kubernetes::services_pod(rendering);
    // It uses quota too.
    let pod = pod.filter(|_| !is_waiting(rendering.minicluster));
    // A terminating one is waited for; only then can the next one be created.
    let pod = pod
        .filter(|pod| !observed.pods.iter().any(|existing| existing.name_any() == pod.name_any()));
    steps.extend(pod.map(|pod| Step::Create(Object::Pod(Box::new(pod)))));
    let unwanted = observed.services.iter().filter(|found| {
        kubernetes::is_owned_by(&found.metadata, rendering.minicluster)
            && found.name_any() != kubernetes::exposed_name(rendering.name())
            && !services.iter().any(|(service, _)| service.name_any() == found.name_any())
    });
    let targets = unwanted.map(|service| Target::of(TargetKind::Service, &**service));
    steps.extend(targets.map(Step::Delete));
    steps
}

/// The Services of a cluster, each with its field manager.
fn services(rendering: &Rendering<'_>) -> Vec<(Service, String)> {
    let manager = match rendering.shares_service() {
        true => format!("{FIELD_MANAGER}-{}", rendering.name()),
        false => FIELD_MANAGER.to_owned(),
    };
    let of_sidecars = kubernetes::sidecar_services(rendering).into_iter();
    let of_sidecars = of_sidecars.map(|service| (service, FIELD_MANAGER.to_owned()));
    std::iter::once((kubernetes::cluster_service(rendering), manager)).chain(of_sidecars).collect()
}

/// Adds the label by which users of the Go operator select the lead. Kubernetes' own label
/// with the index has another name.
fn label_lead(observed: &Observed) -> Option<Step> {
    let lead = observed.job_pods().find(|pod| {
        is_lead(pod) && !is_terminating(pod) && !pod.labels().contains_key("job-index")
    })?;
    let patch = json!({ "metadata": { "labels": { "job-index": LEAD_INDEX } } });
    Some(Step::Patch { target: Target::of(TargetKind::Pod, lead), patch })
}

/// `cleanup` and `ttlSecondsAfterFinished`.
pub(crate) fn clean_up(requested: &MiniCluster, since: Timestamp, now: Timestamp) -> Plan {
    let expiry =
        requested.spec.ttl_seconds_after_finished.map(|seconds| seconds_after(since, seconds));
    let until = if requested.spec.cleanup { Some(since) } else { expiry };
    match until {
        Some(until) if now >= until => Plan { steps: vec![Step::DeleteSelf], ..Plan::default() },
        until => Plan { requeue_at: until, ..Plan::default() },
    }
}

/// Whether a pod of the Job has run, so that the Job cannot be replaced any more.
pub(crate) fn has_started(observed: &Observed, job: &Job) -> bool {
    let status = job.status.clone().unwrap_or_default();
    let finished = [status.failed, status.succeeded].into_iter().flatten().any(|count| count > 0);
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    finished || observed.job_pods().any(|pod| phase(pod).is_some_and(|phase| phase != "Pending"))
}

fn is_owned(owners: &[OwnerReference], minicluster: &MiniCluster) -> bool {
    let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
    owners.iter().any(|owner| owner.uid == uid)
}

/// Whether a Job belongs to a former MiniCluster of this name, and is deleted with it.
fn is_of_former_minicluster(job: &Job, minicluster: &MiniCluster) -> bool {
    let owners = job.owner_references();
    let is_namesake = |owner: &OwnerReference| {
        owner.kind == MiniCluster::kind(&()) && owner.name == minicluster.name_any()
    };
    !is_owned(owners, minicluster) && owners.iter().any(is_namesake)
}
