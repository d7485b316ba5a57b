//! `flux-operator validate`: check manifests without a cluster.

mod invitations;
mod together;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use flux_operator_api::burst::BurstTarget;
use flux_operator_api::manifest::{Document, Manifest};
use flux_operator_api::validate::{self, Problem, Validate};
use flux_operator_api::{Burst, BurstPolicy, FluxJob, FluxSetup, MiniCluster};
use flux_operator_flux::JobId;
use flux_operator_plan::Valid;
use flux_operator_plan::queueing::setup;
use flux_operator_plan::queueing::workload::{self, JobContext};
use flux_operator_queue::Resources;
use jiff::Timestamp;

use crate::named_secrets::NamedSecrets;
use crate::{input, print};
use invitations::invitation_warnings;
use together::{LabelledDocument, join_warnings};

/// Check manifests of MiniClusters, FluxJobs, FluxSetups, BurstPolicies and Bursts without a cluster,
/// with the rules of the API server and those of the operator, and with each other. Prints one line per
/// problem. A Secret that one of the MiniClusters names, as in the file of an invitation, is checked for
/// its keys.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Manifest to check; `-` is standard input. Can be given more than once.
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    filename: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let files: Vec<(&PathBuf, Manifest)> =
        arguments.filename.iter().filter_map(|file| Some((file, read(file)?))).collect();
    let labelled = files.iter().flat_map(|(file, Manifest { documents, .. })| {
        documents.iter().map(|document| {
            let label = input::document_label(file, document, documents.len());
            LabelledDocument { label, document }
        })
    });
    let labelled: Vec<LabelledDocument<'_>> = labelled.collect();
    let (duplicates, joins) = (together::duplicates(&labelled), join_warnings(&labelled));
    let secrets = NamedSecrets::of(labelled.iter().map(|it| it.document));
    let mut clean = files.len() == arguments.filename.len();
    for ((it, duplicate), join) in labelled.iter().zip(duplicates).zip(joins) {
        clean &= check(it, &secrets, duplicate, join)?;
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a file. One that cannot be read is reported, and does not prevent the check of the others.
fn read(file: &Path) -> Option<Manifest> {
    let manifest = input::read_manifest(file)
        .map_err(|error| print::message(format_args!("{:#}", anyhow::Error::new(error))))
        .ok()?;
    for warning in &manifest.warnings {
        print::message(format_args!("{}: warning: {warning}", input::display_name(file)));
    }
    Some(manifest)
}

/// Checks one document and prints the problems; returns whether there are none.
fn check(
    LabelledDocument { label, document }: &LabelledDocument<'_>,
    secrets: &NamedSecrets<'_>,
    duplicate: Option<String>,
    join_warning: Option<String>,
) -> Result<bool> {
    let checked = || validate::check_document(document).iter().map(ToString::to_string).collect();
    let mut problems: Vec<String> = secrets.problems(document).unwrap_or_else(checked);
    if problems.is_empty() {
        problems.extend(refusal(document));
    }
    problems.extend(duplicate);
    for problem in &problems {
        print::message(format_args!("{label}: {problem}"));
    }
    let warnings = [warnings(document), invitation_warnings(document, Timestamp::now())].concat();
    let warnings = warnings.into_iter().map(|warning| warning.to_string());
    for warning in warnings.chain(join_warning) {
        print::message(format_args!("{label}: warning: {warning}"));
    }
    if problems.is_empty() {
        print::output(format!("{label}: ok\n"))?;
    }
    Ok(problems.is_empty())
}

/// Settings of an object that are valid but probably a mistake.
fn warnings(document: &Document) -> Vec<Problem> {
    match document.kind() {
        Some(MiniCluster::KIND) => validate::read_minicluster(&document.value)
            .map(|minicluster| validate::warnings(&minicluster))
            .unwrap_or_default(),
        Some(BurstPolicy::KIND) => validate::read::<BurstPolicy>(&document.value)
            .ok()
            .filter(|policy| policy.spec.isolated == Some(true))
            .filter(|policy| !policy.spec.targets.iter().any(BurstTarget::is_elsewhere))
            .map(|_| {
                let message = "no target is in another Kubernetes cluster, where jobs could run as a \
                               whole: add one, or set isolated to false";
                Problem::new("spec.isolated", message)
            })
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

/// Why the operator would refuse an object that passes the other checks.
fn refusal(document: &Document) -> Option<String> {
    match document.kind() {
        Some(MiniCluster::KIND) => {
            let minicluster = validate::read_minicluster(&document.value).ok()?;
            Valid::check(minicluster).err().map(|refusal| refusal.to_string())
        }
        Some(FluxJob::KIND) => {
            let job = validate::read::<FluxJob>(&document.value).ok()?;
            // Whether the PriorityClass exists is only known in a cluster.
            let class_value = (!job.spec.priority_class_name.is_empty()).then_some(0);
            let context = JobContext { minicluster: None, class_value };
            workload::of_job(&job, context).err().map(|mistake| mistake.message)
        }
        Some(FluxSetup::KIND) => {
            let mut setup = validate::read::<FluxSetup>(&document.value).ok()?;
            // Treated as one in the operator's namespace, which may serve other namespaces.
            let operator_namespace =
                setup.metadata.namespace.get_or_insert_with(|| "default".into()).clone();
            // The capacity of nodes is only known in a cluster.
            let nodes = Some(&Resources::default());
            let context = setup::SetupContext {
                operator_namespace: &operator_namespace,
                namespaces: &BTreeMap::new(),
                node_capacity: nodes,
            };
            setup::read(&setup, context).problem.map(|mistake| mistake.message)
        }
        Some(Burst::KIND) => {
            let job = validate::read::<Burst>(&document.value).ok()?.spec.isolated_job;
            let error = job.parse::<JobId>().err().filter(|_| !job.is_empty())?;
            let hint = "`flux jobs` prints ids, such as f2bGzJKq";
            Some(format!("spec.isolatedJob: is {job:?}, which is no job id: {error}: {hint}"))
        }
        _ => None,
    }
}
