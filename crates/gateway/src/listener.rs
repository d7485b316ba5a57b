//! Listens on the port of one lease.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::connection::{Port, serve};
use crate::refusal::RefusalReason;

/// The delay after a failed accept, for example when there are too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves a port until the future is dropped. Then its listener is closed and its connections are
/// cut.
pub(crate) async fn serve_port(port: Arc<Port>, listen: IpAddr) {
    let listener = bind_with_retries(&port, listen).await;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, address)) => {
                    let peer = address.ip().to_canonical();
                    if !port.route.borrow().allows(peer) {
                        port.refuse(RefusalReason::Source, peer);
                    } else if let Ok(place) = port.places.admit(peer) {
                        connections.spawn(serve(client, peer, place, Arc::clone(&port)));
                    } else {
                        port.refuse(RefusalReason::TooMany, peer);
                    }
                }
                Err(error) if is_client_error(error.kind()) => {}
                Err(error) => {
                    tracing::warn!(%error, port = port.number, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, port = port.number, "a connection panicked");
                }
            }
        }
    }
}

/// Listens on the port, as soon as that is possible.
async fn bind_with_retries(port: &Port, listen: IpAddr) -> TcpListener {
    let mut is_first = true;
    loop {
        match bind(listen, port.number).await {
            Ok(listener) => return listener,
            Err(error) => {
                port.shared.metrics.count_bind_failure();
                if std::mem::take(&mut is_first) {
                    let (namespace, cluster) =
                        (&port.lease.lender.namespace, &port.lease.lender.name);
                    tracing::error!(
                        namespace,
                        cluster,
                        invitation = port.lease.invitation,
                        port = port.number,
                        %error,
                        "failed to listen; retrying"
                    );
                }
                tokio::time::sleep(port.shared.timeouts.bind_retry).await;
            }
        }
    }
}

/// Listens on a port. `::` falls back to IPv4 on machines without IPv6.
async fn bind(listen: IpAddr, port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((listen, port)).await;
    match &listener {
        Err(error)
            if listen == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
                && error.kind() != ErrorKind::AddrInUse =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        _ => listener,
    }
}

/// Whether the client disconnected before its connection was accepted.
fn is_client_error(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(kind, ConnectionAborted | ConnectionRefused | ConnectionReset)
}
