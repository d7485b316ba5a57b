//! `flux-operator render`: the Kubernetes objects of a manifest, without a cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use flux_operator_api::manifest::Document;
use flux_operator_api::minicluster::ExposeType;
use flux_operator_api::validate::{self, Validate};
use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_plan::kubernetes::{DeliveryMethod, Keys, NewCertificate, Settings};
use flux_operator_plan::{Object, Observed, Step, decide, lender_of, new_exposed_service};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

use crate::named_secrets::is_secret;
use crate::{image, input, print};

/// Print the Kubernetes objects that the operator would create for a manifest.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Manifest to render; `-` is standard input.
    #[arg(short, long = "filename", value_name = "FILE")]
    filename: PathBuf,

    /// File with the CURVE certificate to use. Without it, each run generates and prints a new one.
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,

    #[command(flatten)]
    settings: RenderSettings,
}

/// The settings of rendering.
#[derive(clap::Args)]
pub(crate) struct RenderSettings {
    /// Image that contains the agent.
    #[arg(long, env = "FLUX_OPERATOR_IMAGE", value_name = "IMAGE", default_value = image::BUILT_IN)]
    agent_image: Option<String>,

    /// DNS domain of the Kubernetes cluster.
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
}

impl RenderSettings {
    /// For objects that are only printed: without an image they name one that cannot be pulled.
    fn offline(&self) -> Settings {
        let image = self.agent_image.as_deref().filter(|image| !image.is_empty());
        if image.is_none() {
            print::message(format_args!(
                "note: no image is given, so the objects name {}: give --agent-image IMAGE to apply them",
                image::PLACEHOLDER
            ));
        }
        self.settings(image.unwrap_or(image::PLACEHOLDER).to_owned(), None)
    }

    /// For objects that are created. Agents report to `report_url`.
    pub(crate) fn with_reports(&self, report_url: Option<String>) -> Result<Settings> {
        let image = image::require_image(self.agent_image.as_deref(), "--agent-image")?;
        Ok(self.settings(image, report_url))
    }

    /// The agent and Flux are copied by an init container, which works in every cluster.
    fn settings(&self, agent_image: String, report_url: Option<String>) -> Settings {
        let (cluster_domain, delivery) = (self.cluster_domain.clone(), DeliveryMethod::Init);
        Settings { agent_image, cluster_domain, delivery, report_url }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let manifest = input::read_manifest(&arguments.filename)?;
    let settings = arguments.settings.offline();
    let certificate = certificate(arguments.certificate.as_deref())?;
    input::check_documents(&arguments.filename, &manifest.documents)?;
    let (secrets, documents): (Vec<Document>, Vec<Document>) =
        manifest.documents.iter().cloned().partition(is_secret);
    for secret in &secrets {
        let label = input::document_label(&arguments.filename, secret, manifest.documents.len());
        print::message(format_args!("note: {label}: is left out: it is applied as it is"));
    }
    // Everything is computed before anything is printed: the reader may apply what it gets.
    let mut text = String::new();
    let mut left_out = Vec::new();
    for document in &documents {
        let label = input::document_label(&arguments.filename, document, manifest.documents.len());
        if let Some(kind) = document.kind().filter(|kind| *kind != MiniCluster::KIND) {
            bail!(
                "{label}: only MiniClusters are rendered, and this is a {kind}{}",
                explain_kind(kind)
            );
        }
        let mut minicluster =
            validate::read_minicluster(&document.value).context("failed to read the manifest")?;
        // Compute what the operator would do for a new MiniCluster, whatever the state of this one.
        minicluster.status = None;
        minicluster.metadata.deletion_timestamp = None;
        let observed = Observed::empty(Timestamp::UNIX_EPOCH);
        let decision = decide(&minicluster, &observed, &settings);
        if let Some(refusal) = decision.refusal() {
            bail!("{label}: {refusal}");
        }
        if let Some(lender) = lender_of(&minicluster) {
            left_out.push((label, minicluster.name_any(), lender.name));
            continue;
        }
        text.push_str(&unknown_offline(&minicluster));
        for step in &decision.steps {
            text.push_str(&render_step(step, &certificate)?);
        }
        // The operator creates it once the Job exists.
        if let Some(service) = new_exposed_service(&minicluster, &settings) {
            text.push_str(&yaml(&service)?);
        }
    }
    if let (true, Some((label, name, lender))) = (text.is_empty(), left_out.first()) {
        bail!(
            "{label}: MiniCluster {name:?} joins {lender:?}, so its objects depend on that \
             cluster's ranks, which are leased when both run\n\
             hint: render {lender:?}, or run both with `flux-operator local up`"
        );
    }
    for (label, name, lender) in left_out {
        print::message(format_args!(
            "note: {label}: {name:?} is left out: its objects depend on the ranks that {lender:?} \
             leases to it when both run"
        ));
    }
    print::output(text)?;
    Ok(ExitCode::SUCCESS)
}

/// What is not known before an operator runs the MiniCluster, as a comment.
fn unknown_offline(minicluster: &MiniCluster) -> String {
    let name = minicluster.name_any();
    let bursting = minicluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let expose = bursting.and_then(|bursting| bursting.expose.as_ref());
    if minicluster.spec.remote_lead().is_some() {
        return format!(
            "# MiniCluster {name}: two things are left out, because only the operator knows them:\n\
             # report.key in the Secret {name}-flux, which it generates, and in the ConfigMap its own\n\
             # address. Agents ask it for permission, so without it no broker starts.\n"
        );
    }
    match expose.filter(|expose| !expose.direct && expose.kind != ExposeType::None) {
        Some(_) => format!(
            "# MiniCluster {name}: left out are the ports of invitations in the Service\n\
             # {name}-external, which are chosen when ranks are leased to them, and its EndpointSlice,\n\
             # which has the address of the gateway.\n"
        ),
        None => String::new(),
    }
}

/// What happens for this kind instead.
fn explain_kind(kind: &str) -> &'static str {
    match kind {
        FluxJob::KIND => ": its MiniCluster is created when it is admitted",
        _ => ": no objects are created for it",
    }
}

/// The object that a step creates, as YAML.
fn render_step(step: &Step, certificate: &Certificate) -> Result<String> {
    match step {
        Step::CreateKeys(new) => {
            let certificate = match &new.certificate {
                NewCertificate::Given(given) => Some(given.clone()),
                NewCertificate::Generated => Some(certificate.clone()),
                NewCertificate::Elsewhere => None,
            };
            yaml(&new.secret(&Keys { certificate, report: None }))
        }
        Step::Create(object) | Step::CreateOrApply(object) | Step::Apply { object, .. } => {
            match object {
                Object::ConfigMap(object) => yaml(object),
                Object::Service(object) => yaml(object),
                Object::EndpointSlice(object) => yaml(object),
                Object::Pod(object) => yaml(object),
                Object::Job(object) => yaml(object),
                Object::MiniCluster(object) => yaml(object),
            }
        }
        // There are no objects yet to copy, change or delete.
        Step::CopyCertificate(_)
        | Step::Patch { .. }
        | Step::Delete(_)
        | Step::PatchSelf(_)
        | Step::DeleteSelf => Ok(String::new()),
    }
}

fn yaml(object: &impl Serialize) -> Result<String> {
    let yaml = serde_saphyr::to_string(object).context("failed to write an object as YAML")?;
    Ok(format!("---\n{yaml}"))
}

fn certificate(file: Option<&Path>) -> Result<Certificate> {
    match file {
        Some(file) => {
            let text = fs::read_to_string(file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            Certificate::parse(&text)
                .with_context(|| format!("{} is not a valid certificate", file.display()))
        }
        None => {
            let key = SecretKey::from_os().context("failed to generate a key")?;
            Ok(Certificate::new(key, Metadata::new("flux-operator")?))
        }
    }
}
