//! Serves a router to clients that may be anybody: every step of a connection has a limit
//! of time and of bytes, and [`connections`](crate::connections) limits their number.
//!
//! A connection has one request. Agents and the kubelet send no second one, and for
//! others, such as Prometheus, a connection costs nothing beside what they ask for.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use crate::connections::{Closed, Connections, Slot, Surplus};
use crate::metrics::Metrics;
use crate::tasks::panic_message;

/// How long each step of a connection may take.
#[derive(Clone, Copy)]
struct Limits {
    /// From the connection to the last byte of its request.
    request: Duration,
    /// From there to the first byte of the answer.
    answer: Duration,
    /// From there to its last.
    send: Duration,
}

/// Clients send the whole request at once, and read the answer at once; a busy machine or
/// a lost packet may cost seconds. A long poll takes 25 s at most, to which a busy machine
/// may add some.
const LIMITS: Limits = Limits {
    request: Duration::from_secs(5),
    answer: Duration::from_secs(40),
    send: Duration::from_secs(10),
};

/// The longest head of a request: the least that hyper allows. Tokens of users have one
/// or two KiB.
const MAX_HEAD: usize = 8 * 1024;

/// How many headers a request may have.
const MAX_HEADERS: usize = 64;

/// The longest body: more than any report has.
const MAX_BODY: usize = 64 * 1024;

/// Before the next try when the system can give no more connections.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is dropped. Handlers get their connection's [`Slot`] as an extension.
pub(crate) async fn serve(listener: TcpListener, router: Router, metrics: Metrics) {
    serve_within(LIMITS, listener, router, metrics).await;
}

async fn serve_within(limits: Limits, listener: TcpListener, router: Router, metrics: Metrics) {
    let connections = Connections::new(raise_file_limit());
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if is_of_client(error.kind()) => continue,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (slot, surplus) = connections.admit(address.ip(), limits.request);
        match surplus {
            Some(Surplus::Peer) => metrics.closed_connection("peer-limit"),
            Some(Surplus::Total) => metrics.closed_connection("total-limit"),
            None => {}
        }
        let served = connection(stream, Arc::new(slot), limits, router.clone());
        let metrics = metrics.clone();
        tokio::spawn(async move {
            match AssertUnwindSafe(served).catch_unwind().await {
                Ok(Some(Closed::Overdue)) => metrics.closed_connection("too-slow"),
                Ok(_) => {}
                Err(panic) => {
                    let panic = panic_message(&*panic);
                    tracing::error!(%address, panic, "a request panicked, and its connection is closed");
                }
            }
        });
    }
}

/// Allows as many open files as the system does, and says how many. Container runtimes
/// start programs with 1024, for those that cannot handle more.
fn raise_file_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = if raised.is_ok() { maximum } else { current };
    // None means that there is no limit.
    files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// Whether a client went away before its connection was taken.
fn is_of_client(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(kind, ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Serves one connection. Says why it was closed, if it was.
async fn connection(
    stream: TcpStream,
    slot: Arc<Slot>,
    limits: Limits,
    router: Router,
) -> Option<Closed> {
    let service = service_fn(|request| answer(request, Arc::clone(&slot), limits, router.clone()));
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // What went wrong is the client's to know.
        _ = served => None,
        closed = slot.closed() => Some(closed),
    }
}

async fn answer(
    request: Request<Incoming>,
    slot: Arc<Slot>,
    limits: Limits,
    router: Router,
) -> Result<Response, Infallible> {
    let (mut head, body) = request.into_parts();
    // Read here and not by a handler: from now on we may take our time, and the client
    // may not.
    let Ok(body) = to_bytes(Body::new(body), MAX_BODY).await else {
        return Ok(StatusCode::PAYLOAD_TOO_LARGE.into_response());
    };
    slot.allow(limits.answer);
    head.extensions.insert(Arc::clone(&slot));
    let response = router.oneshot(Request::from_parts(head, Body::from(body))).await;
    slot.allow(limits.send);
    response
}

#[cfg(test)]
mod tests;
