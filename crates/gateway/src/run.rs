//! Starts the watch, the proxy, the reports and the HTTP server.

use std::net::IpAddr;
use std::sync::Arc;

use flux_operator_service::api_client::with_timeouts;
use flux_operator_service::file_limit::raise_file_limit;
use flux_operator_service::probe_server::serve_probes;
use flux_operator_service::stop_signal::wait_for_stop_signal;
use flux_operator_service::tasks::{TaskExited, Tasks};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::brokers::{Brokers, MAX_BROKERS};
use crate::connection::{Shared, TIMEOUTS};
use crate::current_routes::{Lenders, keep_routes};
use crate::events::report_refusals;
use crate::metrics::Metrics;
use crate::proxy::serve_routes;
use crate::refusal::Refusals;
use crate::request::MAX_FORWARDED;
use crate::untrusted::{MAX_UNTRUSTED, Untrusted};
use crate::watch::watch_lenders;

/// The options of the gateway.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only namespace to watch; all namespaces if unset.
    pub namespace: Option<String>,
    /// The address on which the ports of leases are opened. `::` means all addresses, also those of
    /// IPv4.
    pub listen: IpAddr,
    /// The operator's server for reports, as `host:port`, to which requests of agents are forwarded.
    /// Without it they are refused.
    pub report_address: Option<String>,
}

/// Why the gateway stopped.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address of the server for reports is malformed.
    #[error("the report address {address:?} is not host:port")]
    ReportAddress {
        /// The address.
        address: String,
    },
    /// One of its tasks has exited.
    #[error(transparent)]
    TaskExited(TaskExited),
}

/// Runs until SIGTERM or SIGINT, or until the future is dropped; then all ports are closed and all
/// connections are cut. Fails if one of its tasks exits. Metrics and health are served on `metrics`.
pub async fn run(
    client: Client,
    metrics: TcpListener,
    options: Options,
) -> Result<(), GatewayError> {
    if let Some(address) = options.report_address.as_ref().filter(|it| !is_host_and_port(it)) {
        return Err(GatewayError::ReportAddress { address: address.clone() });
    }
    // Each connection needs two files. A quarter of the files is left for the ports and the rest.
    let files = raise_file_limit();
    let limits = (
        Untrusted::new((files / 8).min(MAX_UNTRUSTED)),
        Brokers::new((files / 4).min(MAX_BROKERS)),
    );
    let mut tasks = start(with_timeouts(client), metrics, options, limits);
    tokio::select! {
        () = wait_for_stop_signal() => Ok(()),
        exited = tasks.wait_for_exit() => Err(GatewayError::TaskExited(exited)),
    }
}

fn start(
    client: Client,
    listener: TcpListener,
    options: Options,
    (untrusted, brokers): (Arc<Untrusted>, Arc<Brokers>),
) -> Tasks {
    let Options { namespace, listen, report_address } = options;
    let mut tasks = Tasks::default();
    let (metrics, refusals) = (Metrics::new(), Refusals::default());
    let (lenders, observed) = watch::channel(Lenders::new());
    let (published, routes) = watch::channel(Arc::default());
    let (listed, is_listed) = watch::channel(false);
    let shared = Arc::new(Shared {
        timeouts: TIMEOUTS,
        report_address,
        untrusted,
        brokers,
        requests: Semaphore::new(MAX_FORWARDED),
        refusals: refusals.clone(),
        metrics: metrics.clone(),
    });
    let shown = metrics.clone();
    let show = Arc::new(move || shown.render());
    tasks.spawn("HTTP server", serve_probes(listener, show, is_listed));
    tasks.spawn(
        "watch of MiniClusters",
        watch_lenders(client.clone(), namespace, lenders, listed, metrics),
    );
    tasks.spawn("routes", keep_routes(observed, published, Timestamp::now));
    tasks.spawn("proxy", serve_routes(routes, listen, shared));
    tasks.spawn("reports", report_refusals(client, refusals));
    tasks
}

/// Whether the text is a host, or an address in brackets, and a port.
fn is_host_and_port(address: &str) -> bool {
    let port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match address.rsplit_once(':') {
        Some((host, text)) if host.starts_with('[') => host.ends_with(']') && port(text),
        Some((host, text)) => !host.is_empty() && !host.contains([':', '/']) && port(text),
        None => false,
    }
}

#[cfg(test)]
mod tests;
