//! `flux-operator burst-controller`: run the controller of bursts.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::builder::NonEmptyStringValueParser;
use flux_operator_burst_controller::{Options, Token};
use flux_operator_install::BURST_CONTROLLER;
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};

use crate::image;
use crate::service::{client, listen, run_to_end, start_log};

/// Run the controller of bursts until SIGTERM or SIGINT: it gets brokers elsewhere for jobs that wait,
/// as BurstPolicies say, and gives them back.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Watch only this namespace.
    #[arg(long)]
    namespace: Option<String>,

    /// Serve the policies of this namespace: read its Secrets, and write its MiniClusters. Can be
    /// repeated; `*` for all.
    #[arg(long, value_name = "NAMESPACE", required = true)]
    serve: Vec<String>,

    /// Where the operator serves, such as http://operator-reports.operator-system.svc:8080.
    #[arg(long, value_name = "URL", value_parser = operator_url)]
    operator_url: String,

    /// File with the token by which the operator knows the controller.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    token_file: PathBuf,

    /// The operator's image, which has the agent that starts brokers at targets. Required, unless this
    /// build has a default.
    #[arg(long, env = "FLUX_OPERATOR_IMAGE", default_value = image::BUILT_IN)]
    agent_image: Option<String>,

    /// Run programs of users as Jobs, which make clusters for targets of the kind command.
    #[arg(long)]
    commands: bool,

    /// Image of the program that makes clusters of Google Kubernetes Engine. Unset: none are made.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    gke_image: Option<String>,

    /// DNS domain of Kubernetes clusters.
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,

    /// Address on which to serve metrics and health.
    #[arg(long, default_value = "[::]:8080")]
    bind: SocketAddr,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    start_log();
    let options = arguments.options()?;
    run_to_end(async {
        let client = client().await?;
        let probes = listen(arguments.bind).await?;
        let finished = flux_operator_burst_controller::run(client, probes, options).await;
        finished.context("the burst controller stopped")
    })
}

impl Arguments {
    fn options(&self) -> Result<Options> {
        check_token(&self.token_file)?;
        Ok(Options {
            namespace: self.namespace.clone(),
            served: self.serve.iter().cloned().collect(),
            operator_url: self.operator_url.clone(),
            token: Token::File(self.token_file.clone()),
            commands: self.commands,
            gke_image: self.gke_image.clone(),
            settings: Settings {
                agent_image: image::require_image(self.agent_image.as_deref(), "--agent-image")?,
                cluster_domain: self.cluster_domain.clone(),
                // It works on every node: those of a target are not known.
                delivery: DeliveryMethod::Init,
                report_url: None,
            },
        })
    }
}

/// Where the operator serves. It has no certificate.
fn operator_url(text: &str) -> Result<String, &'static str> {
    let url: Option<http::Uri> = text.parse().ok();
    let has_host = |url: &http::Uri| url.host().is_some_and(|host| !host.is_empty());
    match url.filter(|url| url.scheme_str() == Some("http") && has_host(url)) {
        Some(_) => Ok(text.to_owned()),
        None => Err("is not a URL such as http://operator-reports.operator-system.svc:8080"),
    }
}

/// Fails if the token cannot be read. The client library would say so when it is needed, and with its
/// cause three times.
fn check_token(file: &Path) -> Result<()> {
    let opened = File::open(file).map_err(|error| {
        anyhow!(
            "failed to read the token {file:?}: {error}\n\
             hint: give --token-file FILE; outside a pod, `kubectl create token {BURST_CONTROLLER} \
             --namespace operator-system` prints a token"
        )
    });
    opened.map(drop)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(url: &str, more: &[&str]) -> Result<Arguments, String> {
        let words = ["burst-controller", "--serve", "team", "--operator-url", url];
        let words = words.iter().chain(more);
        let parsed = TestCommandLine::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(parsed.arguments)
    }

    #[test]
    fn the_operator_is_at_a_url() {
        for url in ["http://operator:8080", "http://[::1]:8080", "http://192.0.2.7/"] {
            assert_eq!(parse(url, &[]).unwrap().operator_url, url);
        }
        for wrong in ["nonsense", "", "operator:8080", "https://operator:8443", "http://:8080"] {
            let error = parse(wrong, &[]).err().unwrap();
            assert!(error.contains("is not a URL such as http://operator-reports"), "{error}");
        }
    }

    #[test]
    fn the_image_of_the_program_for_gke_is_not_empty() {
        assert!(parse("http://operator:8080", &["--gke-image", "i"]).is_ok());
        assert!(parse("http://operator:8080", &["--gke-image", ""]).is_err());
    }

    #[test]
    fn a_missing_token_says_so_once_and_what_to_do() {
        let error = check_token(Path::new("/no/such/token")).unwrap_err();
        let error = format!("{error:#}");
        assert_eq!(error.matches("No such file").count(), 1, "{error}");
        assert!(error.contains("\nhint: give --token-file FILE"), "{error}");
    }
}
