//! Serves a router to untrusted clients: every step of a connection has a limit of time and of
//! bytes, and [`connections`](crate::connections) limits the number of connections.
//!
//! A connection serves one request. Agents and the kubelet never send a second one, and for others,
//! such as Prometheus, a new connection costs little compared with the request.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use flux_operator_service::file_limit::raise_file_limit;
use futures::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use crate::connections::{CloseReason, ConnectionGuard, ConnectionLimit, Connections};
use crate::metrics::Metrics;
use crate::tasks::panic_message;

/// How long each step of a connection may take.
#[derive(Clone, Copy)]
struct ConnectionTimeouts {
    /// From accepting the connection to the last byte of the request.
    request: Duration,
    /// From there to the first byte of the response.
    answer: Duration,
    /// From there to its last byte.
    send: Duration,
}

/// Clients send the whole request at once and read the response at once; a busy machine or a lost
/// packet may delay them for seconds. A long poll takes up to 25 s, and longer on a busy machine.
const CONNECTION_TIMEOUTS: ConnectionTimeouts = ConnectionTimeouts {
    request: Duration::from_secs(5),
    answer: Duration::from_secs(40),
    send: Duration::from_secs(10),
};

/// The maximum size of a request's head: the smallest that hyper allows. Users' tokens have one or
/// two KiB.
const MAX_HEAD: usize = 8 * 1024;

/// The maximum number of headers.
const MAX_HEADERS: usize = 64;

/// The maximum size of a body: larger than any report.
const MAX_BODY: usize = 64 * 1024;

/// The delay after a failed accept, for example when there are too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves until the future is dropped. Handlers get the [`ConnectionGuard`] of their connection as
/// an extension of the request.
pub(crate) async fn serve(listener: TcpListener, router: Router, metrics: Metrics) {
    serve_within(CONNECTION_TIMEOUTS, listener, router, metrics).await;
}

async fn serve_within(
    limits: ConnectionTimeouts,
    listener: TcpListener,
    router: Router,
    metrics: Metrics,
) {
    let connections = Connections::new(raise_file_limit());
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if is_client_error(error.kind()) => continue,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let (slot, reached_limit) = connections.admit(address.ip(), limits.request);
        match reached_limit {
            Some(ConnectionLimit::PerPeer) => metrics.count_closed_connection("peer-limit"),
            Some(ConnectionLimit::Total) => metrics.count_closed_connection("total-limit"),
            None => {}
        }
        let served = serve_connection(stream, Arc::new(slot), limits, router.clone());
        let metrics = metrics.clone();
        tokio::spawn(async move {
            match AssertUnwindSafe(served).catch_unwind().await {
                Ok(Some(CloseReason::TimedOut)) => metrics.count_closed_connection("too-slow"),
                Ok(_) => {}
                Err(panic) => {
                    let panic = panic_message(&*panic);
                    tracing::error!(%address, panic, "a request panicked; closing its connection");
                }
            }
        });
    }
}

/// Whether the client disconnected before its connection was accepted.
fn is_client_error(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(kind, ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Serves one connection. Returns why it was closed early, if it was.
async fn serve_connection(
    stream: TcpStream,
    connection: Arc<ConnectionGuard>,
    limits: ConnectionTimeouts,
    router: Router,
) -> Option<CloseReason> {
    let service =
        service_fn(|request| respond(request, Arc::clone(&connection), limits, router.clone()));
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // An error here concerns only the client.
        _ = served => None,
        closed = connection.wait_until_closed() => Some(closed),
    }
}

async fn respond(
    request: Request<Incoming>,
    slot: Arc<ConnectionGuard>,
    limits: ConnectionTimeouts,
    router: Router,
) -> Result<Response, Infallible> {
    let (mut head, body) = request.into_parts();
    // The body is read here and not by a handler: only the client's part has the short time limit.
    let Ok(body) = to_bytes(Body::new(body), MAX_BODY).await else {
        return Ok(StatusCode::PAYLOAD_TOO_LARGE.into_response());
    };
    slot.reset_deadline(limits.answer);
    head.extensions.insert(Arc::clone(&slot));
    let response = router.oneshot(Request::from_parts(head, Body::from(body))).await;
    slot.reset_deadline(limits.send);
    response
}

#[cfg(test)]
mod tests;
