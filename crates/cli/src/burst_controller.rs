//! `flux-operator burst-controller`: run the controller of bursts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use flux_operator_burst_controller::{Options, Token};
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
    #[arg(long, value_name = "URL")]
    operator_url: String,

    /// File with the token by which the operator knows the controller.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    token_file: PathBuf,

    /// Image with the agent, for brokers at targets.
    #[arg(long, env = "FLUX_OPERATOR_IMAGE", default_value = image::BUILT_IN)]
    agent_image: Option<String>,

    /// Image of the program that makes clusters of Google Kubernetes Engine. Unset: none are made.
    #[arg(long, value_name = "IMAGE")]
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
        Ok(Options {
            namespace: self.namespace.clone(),
            served: self.serve.iter().cloned().collect(),
            operator_url: self.operator_url.clone(),
            token: Token::File(self.token_file.clone()),
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
