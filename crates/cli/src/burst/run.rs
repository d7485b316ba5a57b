//! `flux-operator burst --policy FILE`: get nodes for jobs of the instance of this machine.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use flux_operator_agent::VersionQuery;
use flux_operator_api::manifest::Document;
use flux_operator_api::validate::Validate;
use flux_operator_api::{BurstPolicy, MiniCluster};
use flux_operator_burst_controller::{
    Finished, RecordError, StandaloneOptions, StandaloneRunError, run_standalone,
};
use flux_operator_flux::{BrokerConfig, Certificate};
use flux_operator_local::FluxProgram;
use flux_operator_plan::bursting::{StandaloneInstance, standalone_problem};
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_wire::BrokerFacts;
use kube::ResourceExt;

use super::ConfigArguments;
use crate::service::{run_to_end, start_user_log};
use crate::{image, input, print};

#[derive(clap::Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    config: ConfigArguments,

    /// File with BurstPolicies and, if you like, one MiniCluster, whose image, Flux, environment and hooks
    /// the brokers then have. `-` reads standard input.
    #[arg(long, value_name = "FILE", required = true)]
    policy: Option<PathBuf>,

    /// Kubeconfig that stands for the Secret NAME of a target. Can be repeated.
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_kubeconfig)]
    kubeconfig: Vec<(String, PathBuf)>,

    /// URI of the instance. Default: the instance that this command runs in.
    #[arg(long, env = "FLUX_URI")]
    uri: Option<String>,

    /// Prefix of an installed Flux. Default: the first `flux` in the search path.
    #[arg(long, value_name = "PREFIX")]
    flux_root: Option<PathBuf>,

    /// The operator's image, which has the agent that starts brokers at targets. Required, unless this
    /// build has a default.
    #[arg(long, env = "FLUX_OPERATOR_IMAGE", default_value = image::BUILT_IN)]
    agent_image: Option<String>,
}

/// Parses `NAME=FILE`.
fn parse_kubeconfig(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), file.into()))
        }
        _ => Err("it is not NAME=FILE, where NAME is kubeconfig.secret of a target".to_owned()),
    }
}

pub(super) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let options = options(arguments)?;
    let uri = options.uri.clone();
    start_user_log();
    run_to_end(async {
        match run_standalone(options).await {
            Ok(Finished::InstanceExited) => {
                tracing::info!("the instance has exited, and everything was given back");
                Ok(())
            }
            Ok(Finished::GivenBack) => {
                tracing::info!("everything was given back");
                Ok(())
            }
            Ok(Finished::Stopped { left: 0 }) => Ok(()),
            Ok(Finished::Stopped { left }) => {
                tracing::warn!(bursts = left, "nodes are left: the next call continues with them");
                Ok(())
            }
            Err(error @ StandaloneRunError::Silent { .. }) => Err(with_hint(
                error,
                &format!("`FLUX_URI={uri} flux uptime` shows whether it runs"),
            )),
            Err(error @ StandaloneRunError::Kubeconfig { .. }) => {
                Err(with_hint(error, "`kubectl --kubeconfig FILE get pods` tries a kubeconfig"))
            }
            Err(error @ StandaloneRunError::OtherInstance { .. }) => {
                Err(with_hint(error, "--config-path is the folder that its `flux start` got"))
            }
            Err(StandaloneRunError::Records(error)) => Err(of_records(error)),
        }
    })
}

fn options(arguments: &RunArguments) -> Result<StandaloneOptions> {
    let file = arguments.policy.as_deref().context("--policy is required")?;
    let documents = input::parse_checked(file, &input::read_bytes(file)?)?;
    let (policies, template) = policies(file, documents)?;
    let mut kubeconfigs = BTreeMap::new();
    for (name, path) in &arguments.kubeconfig {
        if kubeconfigs.insert(name.clone(), path.clone()).is_some() {
            bail!(
                "--kubeconfig {name} is given twice\nhint: give each name once; another target needs another \
                 kubeconfig.secret"
            );
        }
    }
    check_targets(&policies, template.is_some(), &kubeconfigs)?;
    let config = broker_config(&arguments.config.file())?;
    let certificate = certificate(&config)?;
    let uri = arguments.uri.clone().filter(|uri| !uri.is_empty()).context(
        "the Flux instance is not known\nhint: run this command inside it, such as with \
         `flux start --config-path=DIRECTORY -Sbroker.quorum=1`, or give --uri",
    )?;
    let flux = flux(arguments.flux_root.as_deref())?;
    let version = VersionQuery::start(&flux).wait().map(|it| it.to_string()).unwrap_or_default();
    let uid = rustix::process::geteuid().as_raw();
    let lead = BrokerFacts { version, uid, cores: 0 };
    let instance = StandaloneInstance::of(&config, &certificate, lead);
    let instance = instance.map_err(|error| {
        let what = format!("brokers elsewhere cannot join with {:?}", arguments.config.file());
        with_hint(anyhow!(error).context(what), INIT)
    })?;
    Ok(StandaloneOptions {
        instance,
        certificate,
        flux,
        uri,
        policies,
        template,
        kubeconfigs,
        records: arguments.config.records(),
        settings: Settings {
            agent_image: image::require_image(arguments.agent_image.as_deref(), "--agent-image")?,
            cluster_domain: "cluster.local".to_owned(),
            // It works on every node: those of a target are not known.
            delivery: DeliveryMethod::Init,
            report_url: None,
        },
    })
}

/// An error of the records of Bursts, with what to do.
pub(super) fn of_records(error: RecordError) -> anyhow::Error {
    match error {
        RecordError::Locked { .. } => {
            with_hint(error, "stop that one first, with Ctrl-C in its terminal")
        }
        RecordError::Parse { .. } => with_hint(
            error,
            "if nothing of this Burst is left at its target, remove the file; `kubectl get jobs -l \
             flux-framework.org/burst` there shows what is left",
        ),
        RecordError::File { .. } => error.into(),
    }
}

/// How to get a configuration.
const INIT: &str =
    "`flux-operator burst init DIRECTORY` writes a configuration that brokers elsewhere can join";

/// Where the certificate is named.
const CURVE_CERT: &str = "curve_cert in [bootstrap] of broker.toml names the certificate of the instance, which \
                          `flux keygen` and `flux-operator burst init` write";

/// An error with all its causes, and what to do.
fn with_hint(error: impl Into<anyhow::Error>, hint: &str) -> anyhow::Error {
    anyhow!("{:#}\nhint: {hint}", error.into())
}

/// The policies of a file, and the MiniCluster that the brokers are like.
fn policies(
    file: &Path,
    documents: Vec<Document>,
) -> Result<(Vec<BurstPolicy>, Option<MiniCluster>)> {
    let name = input::display_name(file);
    let (mut policies, mut template) = (Vec::<BurstPolicy>::new(), None);
    for document in documents {
        match document.kind() {
            Some(BurstPolicy::KIND) => policies.push(serde_json::from_value(document.value)?),
            Some(MiniCluster::KIND) if template.is_none() => {
                template = Some(serde_json::from_value(document.value)?);
            }
            Some(MiniCluster::KIND) => {
                bail!(
                    "{name} has two MiniClusters\nhint: leave that which the brokers should be like"
                )
            }
            kind => bail!(
                "{name} has a {}\nhint: it must have BurstPolicies, and may have one MiniCluster",
                kind.unwrap_or("document without a kind")
            ),
        }
    }
    if policies.is_empty() {
        bail!("{name} has no BurstPolicy\nhint: examples/burst/laptop.yaml has one");
    }
    let mut names = HashSet::new();
    if let Some(twice) =
        policies.iter().map(ResourceExt::name_any).find(|it| !names.insert(it.clone()))
    {
        bail!("{name} has two BurstPolicies named {twice:?}\nhint: rename one of them");
    }
    Ok((policies, template))
}

/// Refuses policies with targets that need a MiniCluster, or without a kubeconfig.
fn check_targets(
    policies: &[BurstPolicy],
    has_template: bool,
    kubeconfigs: &BTreeMap<String, PathBuf>,
) -> Result<()> {
    for policy in policies {
        if let Some(problem) = standalone_problem(policy, has_template) {
            bail!("{problem}");
        }
    }
    let targets = || policies.iter().flat_map(|policy| &policy.spec.targets);
    let named = || targets().filter_map(|target| target.kubeconfig.as_ref());
    for kubeconfig in named() {
        let secret = &kubeconfig.secret;
        match kubeconfigs.get(secret) {
            None => bail!(
                "a target needs the kubeconfig {secret:?}\nhint: give --kubeconfig {secret}=FILE"
            ),
            Some(path) if !path.is_file() => bail!(
                "there is no kubeconfig {path:?}\nhint: give --kubeconfig {secret}=FILE with a file that exists"
            ),
            Some(_) => {}
        }
    }
    for name in kubeconfigs.keys().filter(|name| !named().any(|it| it.secret == **name)) {
        print::message(format_args!("note: no target names the kubeconfig {name:?}"));
    }
    Ok(())
}

fn broker_config(file: &Path) -> Result<BrokerConfig> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let error = anyhow!(error).context(format!("failed to read {file:?}"));
        with_hint(error, &format!("give --config-path DIRECTORY, as to `flux start`; {INIT}"))
    })?;
    BrokerConfig::parse(&text).with_context(|| format!("{file:?} is not valid"))
}

fn certificate(config: &BrokerConfig) -> Result<Certificate> {
    let path = config.bootstrap.as_ref().and_then(|bootstrap| bootstrap.curve_cert.as_deref());
    let path = path.ok_or_else(|| {
        with_hint(anyhow!("the configuration has no curve_cert in [bootstrap]"), INIT)
    })?;
    let text = std::fs::read_to_string(path).map_err(|error| {
        with_hint(anyhow!(error).context(format!("failed to read {path:?}")), CURVE_CERT)
    })?;
    Certificate::parse(&text).map_err(|error| {
        with_hint(
            anyhow!(error).context(format!("{path:?} is not a certificate of Flux")),
            CURVE_CERT,
        )
    })
}

fn flux(root: Option<&Path>) -> Result<PathBuf> {
    let this = std::env::current_exe().context("failed to find this program")?;
    match FluxProgram::find(root, std::env::var_os("PATH").as_deref(), &this) {
        FluxProgram::Installed(program) if program.is_file() => Ok(program),
        FluxProgram::Installed(program) => {
            bail!(
                "there is no {program:?}\nhint: give --flux-root PREFIX with the PREFIX of PREFIX/bin/flux"
            )
        }
        FluxProgram::BuiltIn(_) => {
            bail!(
                "there is no `flux` in the search path\nhint: install Flux, or give --flux-root PREFIX"
            )
        }
    }
}
