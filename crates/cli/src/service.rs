//! How the long-running programs, `run` and `gateway`, start: log, runtime, client, listener.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use tokio::net::TcpListener;

use crate::connection;

/// Writes the log to standard error.
pub(crate) fn start_log() {
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(colours).init();
}

/// Runs a program to its end.
pub(crate) fn run_to_end(program: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let result = runtime.block_on(program);
    if result.is_ok() {
        tracing::info!("stopped");
    }
    // A hanging thread must not keep the process from exiting.
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

/// A client for the cluster that this program runs in, or of the kubeconfig.
pub(crate) async fn client() -> Result<kube::Client> {
    // The message already contains all causes.
    let no_cluster = |error| {
        anyhow!("failed to find a cluster: {error}\nhint: set KUBECONFIG to a kubeconfig file")
    };
    let config = connection::load_config(None, None).await.map_err(no_cluster)?;
    kube::Client::try_from(config).context("failed to create a client")
}

/// Listens on an address. `[::]` falls back to IPv4 on machines without IPv6.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let mut listener = TcpListener::bind(address).await;
    if listener.is_err() && address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await;
    }
    listener.with_context(|| format!("failed to listen on {address}"))
}
