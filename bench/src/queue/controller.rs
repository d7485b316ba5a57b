//! Our queues alone, as Kueue's own test runs its scheduler alone: they admit, and somebody else
//! carries out.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use flux_operator_operator::queue::{Options as QueueOptions, Rate, run_queue};
use kube::Client;
use tokio::net::TcpListener;

use crate::bed::NAMESPACE;

/// How they run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where their metrics are served
    #[arg(long)]
    bind: SocketAddr,

    /// Writes a second, at most; without it as many as can be
    #[arg(long, requires = "burst")]
    rate: Option<f64>,

    /// Writes that may come at once after a pause
    #[arg(long)]
    burst: Option<u32>,
}

/// Runs until the process is ended.
pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(options: &Options) -> Result<()> {
    let rate = options.rate.zip(options.burst);
    ensure!(rate.is_none_or(|(rate, _)| rate > 0.0), "--rate must be more than 0");
    let queue = QueueOptions {
        namespace: None,
        home: NAMESPACE.into(),
        make_miniclusters: false,
        rate: rate.map(|(per_second, burst)| Rate { per_second, burst }),
    };
    // As the operator itself has it.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::try_default().await.context("failed to find the cluster")?;
        let listener = TcpListener::bind(options.bind).await.context("failed to listen")?;
        run_queue(client, queue, Some(listener), std::future::pending()).await;
        Ok(())
    })
}
