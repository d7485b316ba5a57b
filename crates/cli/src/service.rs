//! How the long-running programs, `run` and `gateway`, start: log, runtime, client, listener.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use tokio::net::TcpListener;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::connection;

/// Writes the log to standard error.
pub(crate) fn start_log() {
    start(LogReader::Operations);
}

/// Writes the log to standard error, for the user who has started the program.
pub(crate) fn start_user_log() {
    start(LogReader::User);
}

/// Who reads a log.
#[derive(PartialEq)]
enum LogReader {
    /// Those who operate the program. They also want to know where a line comes from.
    Operations,
    /// The user who has started it.
    User,
}

fn start(reader: LogReader) {
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let log = log.with_target(reader == LogReader::Operations);
    tracing_subscriber::registry().with(log_filter()).with(log).init();
}

/// What is logged. The client library warns of a response that it cannot parse with the whole text, which
/// may be a Secret.
fn log_filter() -> Targets {
    Targets::new().with_default(LevelFilter::INFO).with_target("kube_client", LevelFilter::ERROR)
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

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn what_the_client_library_cannot_parse_is_not_logged() {
        let filter = log_filter();
        assert!(!filter.would_enable("kube_client::client", &Level::WARN));
        assert!(filter.would_enable("kube_client::client", &Level::ERROR));
        assert!(filter.would_enable("flux_operator_burst_controller::bursts", &Level::INFO));
        assert!(!filter.would_enable("flux_operator_burst_controller::bursts", &Level::DEBUG));
    }
}
