//! The MiniCluster that a FluxJob creates.

use flux_operator_api::fluxjob::DEFAULT_IMAGE;
use flux_operator_api::fluxsetup::JobDefaults;
use flux_operator_api::minicluster::Container;
use flux_operator_api::{FluxJob, FluxJobSpec, FluxSetupSpec, MiniCluster, MiniClusterSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use crate::cluster::non_empty_or;
use crate::fingerprint::Fingerprint;
use crate::valid::runner_mut;

/// The label with the name of the job that owns a MiniCluster.
pub const JOB_LABEL: &str = "flux-framework.org/fluxjob";

/// The annotation with the fingerprint of the job that the MiniCluster was created from.
const JOB_SPEC_ANNOTATION: &str = "flux-framework.org/job-spec";

/// Fields of a job that may change while it is admitted: the operator reads them in every
/// reconciliation, or does not need them any more.
const MUTABLE_FIELDS: [&str; 6] = [
    "keepCluster",
    "minSize",
    "priority",
    "priorityClassName",
    "suspend",
    "ttlSecondsAfterFinished",
];

/// The depth to which fields are distinguished: `template.spec.containers`.
const DEPTH: usize = 3;

/// The MiniCluster of a job that was granted `size` nodes: the template, overridden by the
/// fields of the job, and completed with the setup's defaults. It has the job's name, is owned
/// by the job, and always has an image.
pub fn minicluster_of(job: &FluxJob, defaults: &JobDefaults, size: i32) -> MiniCluster {
    let template = job.spec.template.as_ref();
    let mut labels = template.map(|template| template.labels.clone()).unwrap_or_default();
    let mut annotations = template.map(|template| template.annotations.clone()).unwrap_or_default();
    labels.insert(JOB_LABEL.into(), job.name_any());
    annotations.insert(JOB_SPEC_ANNOTATION.into(), fingerprint(&job.spec).to_text());
    MiniCluster {
        metadata: ObjectMeta {
            name: Some(job.name_any()),
            namespace: job.namespace(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: owner(job).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: spec(&job.spec, defaults, size),
        status: None,
    }
}

/// The MiniCluster of a job that a setup has granted `size` nodes, with the setup's defaults and
/// time limit.
pub fn minicluster_at(job: &FluxJob, setup: Option<&FluxSetupSpec>, size: i32) -> MiniCluster {
    let defaults = setup.map(FluxSetupSpec::defaults).unwrap_or_default();
    let mut minicluster = minicluster_of(job, &defaults, size);
    let timeout = setup.and_then(|setup| setup.ready_timeout_seconds);
    minicluster.spec.ready_timeout_seconds = minicluster.spec.ready_timeout_seconds.or(timeout);
    minicluster
}

/// Whether a MiniCluster was created for this very job, and not for a former one of its name.
pub(crate) fn belongs_to(minicluster: &MiniCluster, job: &FluxJob) -> bool {
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    owners(minicluster).any(|owner| owner.uid == uid)
}

/// Whether a MiniCluster was created for a former job of this name. It is deleted with
/// that job.
pub(crate) fn is_of_former_job(minicluster: &MiniCluster, job: &FluxJob) -> bool {
    let name = job.name_any();
    !belongs_to(minicluster, job) && owners(minicluster).any(|owner| owner.name == name)
}

/// Whether a MiniCluster belongs to a FluxJob.
pub(crate) fn is_owned_by_job(minicluster: &MiniCluster) -> bool {
    owners(minicluster).next().is_some()
}

/// Fields of a job that differ from those that its MiniCluster was created from.
pub(crate) fn changed_fields(minicluster: &MiniCluster, job: &FluxJob) -> Vec<String> {
    let made_from = minicluster.annotations().get(JOB_SPEC_ANNOTATION);
    let made_from = made_from.and_then(|text| Fingerprint::parse(text));
    made_from.map(|then| then.differences(&fingerprint(&job.spec))).unwrap_or_default()
}

fn fingerprint(spec: &FluxJobSpec) -> Fingerprint {
    Fingerprint::of(spec, &MUTABLE_FIELDS, DEPTH)
}

fn owners(minicluster: &MiniCluster) -> impl Iterator<Item = &OwnerReference> {
    let kind = FluxJob::kind(&());
    minicluster
        .owner_references()
        .iter()
        .filter(move |owner| owner.kind == kind && owner.controller == Some(true))
}

/// The job as owner; none offline, where it has no uid.
fn owner(job: &FluxJob) -> Option<OwnerReference> {
    let owner = job.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: Some(true), ..owner })
}

fn spec(job: &FluxJobSpec, defaults: &JobDefaults, size: i32) -> MiniClusterSpec {
    let template = job.template.as_ref().map(|template| template.spec.clone());
    let mut spec = template.unwrap_or_default();
    if spec.containers.is_empty() {
        spec.containers.push(Container::default());
    }
    if let Some(runner) = runner_mut(&mut spec.containers) {
        apply_job(runner, job, defaults);
    }
    spec.interactive &= !has_command(job);
    spec.size = size;
    // The quota was granted for this size, so it cannot grow.
    spec.max_size = None;
    spec.min_size = spec.min_size.map(|least| least.min(size));
    spec.tasks = job.tasks.unwrap_or(match spec.tasks {
        // The template's default, which is not meant for several nodes.
        1 => 0,
        tasks => tasks,
    });
    let limit = job.max_runtime_seconds.filter(|seconds| *seconds > 0);
    if let Some(limit) = limit.filter(|limit| !(1..*limit).contains(&spec.deadline_seconds)) {
        spec.deadline_seconds = limit;
    }
    // The job itself handles waiting, suspension and cleanup.
    spec.queue.clear();
    spec.suspend = false;
    spec.cleanup = false;
    spec.ttl_seconds_after_finished = None;
    spec
}

/// Applies the fields of the job, and then the setup's defaults.
fn apply_job(runner: &mut Container, job: &FluxJobSpec, defaults: &JobDefaults) {
    let image = [&job.image, &runner.image, &defaults.image].into_iter().find(|i| !i.is_empty());
    runner.image = non_empty_or(image.map(String::as_str).unwrap_or_default(), DEFAULT_IMAGE);
    if let Some(resources) = &job.resources {
        runner.resources = Some(resources.clone());
    }
    if has_command(job) {
        runner.command.clone_from(&job.command);
        // Other fields that would determine what to run.
        runner.args.clear();
        if let Some(commands) = &mut runner.commands {
            commands.script.clear();
        }
    }
}

fn has_command(job: &FluxJobSpec) -> bool {
    !job.command.trim().is_empty()
}
