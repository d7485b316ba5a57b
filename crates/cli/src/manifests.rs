//! `flux-operator manifests`: the manifests that install the operator, as YAML.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::builder::NonEmptyStringValueParser;
use flux_operator_install::{BurstClusters, InstallSettings, crds, operator_objects};
use serde_json::Value;

use crate::number::number;
use crate::{crd, image, print};

/// Print the manifests that install the operator in a cluster as YAML, for
/// `kubectl apply --server-side -f -`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Namespace of the operator itself.
    #[arg(long, value_name = "NAMESPACE", default_value = "operator-system")]
    namespace: String,

    /// Image with the operator and the agent.
    #[arg(long, env = "FLUX_OPERATOR_IMAGE", default_value = image::BUILT_IN)]
    image: Option<String>,

    /// Manage only the MiniClusters of this namespace, without permissions beyond it.
    #[arg(long, value_name = "NAMESPACE")]
    namespaced: Option<String>,

    /// Add NetworkPolicies that close all ports of the operator and of the gateway, except those that
    /// they serve.
    #[arg(long)]
    network_policy: bool,

    /// Leave out the gateway, by which brokers of other Kubernetes clusters join.
    #[arg(long)]
    no_gateway: bool,

    /// Install the burst controller, and let it serve the policies of this namespace: read its
    /// Secrets, and write its MiniClusters. Can be repeated.
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace_name)]
    burst_namespace: Vec<String>,

    /// Let the burst controller create Clusters of Cluster API in the namespaces that it serves, for
    /// targets of the kind clusterAPI.
    #[arg(long, requires = "burst_namespace")]
    burst_cluster_api: bool,

    /// Let the burst controller run programs of users as Jobs in the namespaces that it serves, with any
    /// ServiceAccount of the namespace, for targets of the kind command.
    #[arg(long, requires = "burst_namespace")]
    burst_commands: bool,

    /// Image of the program flux-operator-gke, with which the burst controller has clusters of Google
    /// Kubernetes Engine made for targets of the kind gke. It runs as Jobs in the namespaces that are
    /// served, with any ServiceAccount of the namespace.
    #[arg(
        long,
        value_name = "IMAGE",
        requires = "burst_namespace",
        value_parser = NonEmptyStringValueParser::new()
    )]
    burst_gke: Option<String>,

    /// Number of replicas. One is the leader, the others are on standby.
    #[arg(long, default_value_t = 1, value_parser = number(1..=u16::MAX))]
    replicas: u16,

    /// DNS domain of the Kubernetes cluster.
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,

    /// Write files into `crd` and `operator` of this directory instead of printing.
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let settings = arguments.settings()?;
    match &arguments.output {
        Some(directory) => write(directory, &settings)?,
        None => {
            // The namespace comes first, because everything else is in it.
            print::output(yaml(operator_objects(&settings).into_iter().chain(crds()))?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// The namespaces with policies, each once: otherwise their roles would be printed twice.
    fn burst_namespaces(&self) -> Vec<String> {
        let namespaces: BTreeSet<&String> = self.burst_namespace.iter().collect();
        namespaces.into_iter().cloned().collect()
    }

    fn settings(&self) -> Result<InstallSettings> {
        if self.namespaced.is_some() && !self.burst_namespace.is_empty() {
            bail!(
                "--burst-namespace cannot be used with --namespaced: the burst controller reads jobs \
                 from the operator, which checks its token with a right for the whole cluster\n\
                 hint: leave out --namespaced"
            );
        }
        Ok(InstallSettings {
            namespace: self.namespace.clone(),
            image: image::require_image(self.image.as_deref(), "--image")?,
            cluster_domain: self.cluster_domain.clone(),
            watched_namespace: self.namespaced.clone(),
            replicas: self.replicas,
            network_policy: self.network_policy,
            gateway: !self.no_gateway,
            burst_namespaces: self.burst_namespaces(),
            burst_clusters: BurstClusters {
                cluster_api: self.burst_cluster_api,
                commands: self.burst_commands,
            },
            gke_image: self.burst_gke.clone(),
        })
    }
}

/// The name of a namespace. Roles are written into it, so that a wildcard makes no sense.
fn namespace_name(text: &str) -> Result<String, &'static str> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    match is_name {
        true => Ok(text.to_owned()),
        false => Err("give the name of one namespace; the option can be repeated"),
    }
}

fn write(directory: &Path, settings: &InstallSettings) -> Result<()> {
    crd::write(&directory.join("crd"))?;
    let folder = directory.join("operator");
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create the directory {}", folder.display()))?;
    let file = folder.join("flux-operator.yaml");
    let mut text = "# Generated by `make manifests`. Its source is crates/install.\n".to_owned();
    if settings.image == image::PLACEHOLDER {
        text += "# No registry has this image: replace it in all places, or regenerate this file\n\
                 # with `flux-operator manifests --image IMAGE`. `make image` builds the image.\n";
    }
    text += &yaml(operator_objects(settings))?;
    fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()))
}

fn yaml(objects: impl IntoIterator<Item = Value>) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object).context("failed to write YAML")?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_named_and_not_a_pattern() {
        assert_eq!(namespace_name("team-1"), Ok("team-1".into()));
        for wrong in ["", "*", "A B", "-a", "a-", "a.b"] {
            assert!(namespace_name(wrong).is_err(), "{wrong:?}");
        }
    }
}
