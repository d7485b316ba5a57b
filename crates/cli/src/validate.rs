//! `flux-operator validate`: check manifests without a cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use flux_operator_api::manifest::Document;
use flux_operator_api::validate::{self, Problem, Validate};
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_plan::Valid;
use flux_operator_plan::queueing::setup;
use flux_operator_plan::queueing::workload::{self, JobContext};
use flux_operator_queue::Resources;

use crate::{input, print};

/// Check manifests of MiniClusters, FluxJobs and FluxSetups without a cluster, with the rules of
/// the API server and those of the operator. Prints one line per problem.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Manifest to check; `-` is standard input. Can be given more than once.
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    filename: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut clean = true;
    for file in &arguments.filename {
        clean &= check(file)?;
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks one file and prints the problems; returns whether there are none. A file that cannot be
/// read does not prevent the check of the others.
fn check(file: &Path) -> Result<bool> {
    let manifest = match input::read_manifest(file) {
        Ok(manifest) => manifest,
        Err(error) => {
            print::message(format_args!("{:#}", anyhow::Error::new(error)));
            return Ok(false);
        }
    };
    for warning in &manifest.warnings {
        print::message(format_args!("{}: warning: {warning}", input::display_name(file)));
    }
    let documents = &manifest.documents;
    let mut clean = true;
    for document in documents {
        let mut problems: Vec<String> =
            validate::check_document(document).iter().map(ToString::to_string).collect();
        if problems.is_empty() {
            problems.extend(refusal(document));
        }
        let label = label(file, document, documents.len());
        for problem in &problems {
            print::message(format_args!("{label}: {problem}"));
        }
        for warning in warnings(document) {
            print::message(format_args!("{label}: warning: {warning}"));
        }
        if problems.is_empty() {
            print::output(format!("{label}: ok\n"))?;
        }
        clean &= problems.is_empty();
    }
    Ok(clean)
}

/// Settings of a MiniCluster that are valid but probably a mistake.
fn warnings(document: &Document) -> Vec<Problem> {
    let minicluster = (document.kind() == Some(MiniCluster::KIND))
        .then(|| validate::read_minicluster(&document.value).ok())
        .flatten();
    minicluster.map(|minicluster| validate::warnings(&minicluster)).unwrap_or_default()
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
        _ => None,
    }
}

/// The file name, and the document if the file has several.
fn label(file: &Path, document: &Document, documents: usize) -> String {
    let file = input::display_name(file);
    let number = document.number;
    match (documents, document.kind(), document.name()) {
        (1, ..) => file,
        (_, Some(kind), Some(name)) => format!("{file} (document {number}, {kind} {name:?})"),
        (_, Some(kind), None) => format!("{file} (document {number}, {kind})"),
        (_, None, _) => format!("{file} (document {number})"),
    }
}
