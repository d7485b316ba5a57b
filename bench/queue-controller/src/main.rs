//! Our queues alone, as Kueue's own test runs its scheduler alone: they admit, and somebody else
//! carries out. A program of its own, so that its memory is that of the queues.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use flux_operator_operator::queue::{Options as QueueOptions, Rate, run_queue};
use kube::Client;
use tokio::net::TcpListener;

#[derive(Parser)]
#[command(name = "queue-controller", about = "Admit FluxJobs, and do no more")]
struct Options {
    /// Where metrics are served
    #[arg(long)]
    bind: SocketAddr,

    /// The namespace whose setups may serve others
    #[arg(long)]
    home: String,

    /// Writes a second, at most; without it as many as can be
    #[arg(long, requires = "burst")]
    rate: Option<f64>,

    /// Writes that may come at once after a pause
    #[arg(long)]
    burst: Option<u32>,
}

/// Runs until the process is ended.
fn main() -> Result<()> {
    let options = Options::parse();
    let rate = options.rate.zip(options.burst);
    ensure!(rate.is_none_or(|(rate, _)| rate > 0.0), "--rate must be more than 0");
    let queue = QueueOptions {
        namespace: None,
        home: options.home,
        make_miniclusters: false,
        rate: rate.map(|(per_second, burst)| Rate { per_second, burst }),
    };
    // As the operator itself has it.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::try_default().await.context("failed to find the cluster")?;
        let listener = TcpListener::bind(options.bind).await.context("failed to listen")?;
        let ended = run_queue(client, queue, Some(listener), std::future::pending()).await;
        ended.context("the queues have ended")
    })
}
