//! Runs only our queues, as Kueue's own test runs only its scheduler: they admit jobs, and the
//! benchmark simulates the execution of the jobs. This is a separate program, so that its memory
//! is only that of the queues.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use flux_operator_operator::queue::{Options as QueueOptions, WriteRate, run_queue};
use kube::Client;
use tokio::net::TcpListener;

#[derive(Parser)]
#[command(name = "queue-controller", about = "Admit FluxJobs, without running them")]
struct Arguments {
    /// Address on which to serve metrics
    #[arg(long)]
    bind: SocketAddr,

    /// Namespace whose setups may serve other namespaces
    #[arg(long)]
    home: String,

    /// Maximum writes per second; unlimited by default
    #[arg(long, requires = "burst")]
    rate: Option<f64>,

    /// Maximum burst of writes after a pause
    #[arg(long)]
    burst: Option<u32>,
}

/// Runs until the process is killed.
fn main() -> Result<()> {
    let options = Arguments::parse();
    let rate = options.rate.zip(options.burst);
    ensure!(rate.is_none_or(|(rate, _)| rate > 0.0), "--rate must be more than 0");
    let queue = QueueOptions {
        namespace: None,
        operator_namespace: options.home,
        run_jobs: false,
        rate: rate.map(|(per_second, burst)| WriteRate { per_second, burst }),
    };
    // As in the operator itself.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::try_default().await.context("failed to find the cluster")?;
        let listener = TcpListener::bind(options.bind).await.context("failed to listen")?;
        let stopped = run_queue(client, queue, Some(listener), std::future::pending()).await;
        stopped.context("the queues stopped")
    })
}
