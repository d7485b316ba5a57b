//! `flux-operator run`: the controllers.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use flux_operator_operator::Options;

use crate::render::RenderSettings;

/// Run the controllers until told to stop.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Look at this namespace only.
    #[arg(long)]
    namespace: Option<String>,

    /// Where to serve reports and health.
    #[arg(long, default_value = "0.0.0.0:8080")]
    bind: SocketAddr,

    /// Address at which pods reach this operator, as http://host:port. Without it
    /// pods find each other by name alone and report nothing.
    #[arg(long, value_name = "URL")]
    report_url: Option<String>,

    #[command(flatten)]
    settings: RenderSettings,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let options = Options {
        namespace: arguments.namespace.clone(),
        settings: arguments.settings.with_reports(arguments.report_url.clone()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(async {
        // Its message holds all causes already.
        let no_cluster = |error| {
            anyhow!("failed to find a cluster: {error}\nhint: set KUBECONFIG to a kubeconfig file")
        };
        let client = kube::Client::try_default().await.map_err(no_cluster)?;
        let address = arguments.bind;
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("failed to listen on {address}"))?;
        tracing::info!(%address, "serving reports");
        flux_operator_operator::run(client, listener, options).await;
        anyhow::Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
