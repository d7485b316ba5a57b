//! `flux-operator gateway`: run the gateway for brokers of other Kubernetes clusters.

use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use flux_operator_gateway::Options;

use crate::connection;
use crate::run::listen;

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
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(colours).init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let result = runtime.block_on(async {
        let no_cluster = |error| {
            anyhow!("failed to find a cluster: {error}\nhint: set KUBECONFIG to a kubeconfig file")
        };
        let config = connection::load_config(None, None).await.map_err(no_cluster)?;
        let client = kube::Client::try_from(config).context("failed to create a client")?;
        let address = arguments.bind;
        let metrics =
            listen(address).await.with_context(|| format!("failed to listen on {address}"))?;
        let options = Options {
            namespace: arguments.namespace.clone(),
            listen: arguments.listen,
            report_address: arguments.report_address.clone(),
        };
        let finished = flux_operator_gateway::run(client, metrics, options).await;
        finished.context("the gateway stopped")?;
        tracing::info!("stopped");
        anyhow::Ok(())
    });
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}
