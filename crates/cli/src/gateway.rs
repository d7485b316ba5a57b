//! `flux-operator gateway`: run the gateway for brokers of other Kubernetes clusters.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context, Result};
use flux_operator_gateway::Options;

use crate::service::{client, listen, run_to_end, start_log};

/// Run the gateway until SIGTERM or SIGINT: a TCP proxy with one port for each invitation, by which
/// brokers of other Kubernetes clusters reach the leads of MiniClusters.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Serve only the MiniClusters of this namespace.
    #[arg(long)]
    namespace: Option<String>,

    /// Address on which to serve metrics and health.
    #[arg(long, default_value = "[::]:8080")]
    bind: SocketAddr,

    /// Address on which to open the ports of invitations.
    #[arg(long, value_name = "ADDRESS", default_value = "::")]
    listen: IpAddr,

    /// Host and port of the operator, to which requests for permission are forwarded. Without it
    /// brokers that ask for permission get none.
    #[arg(long, value_name = "HOST:PORT")]
    report_address: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    start_log();
    run_to_end(async {
        let client = client().await?;
        let metrics = listen(arguments.bind).await?;
        let options = Options {
            namespace: arguments.namespace.clone(),
            listen: arguments.listen,
            report_address: arguments.report_address.clone(),
        };
        let finished = flux_operator_gateway::run(client, metrics, options).await;
        finished.context("the gateway stopped")
    })
}
