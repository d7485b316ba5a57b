//! The HTTP endpoints of a program that serves nothing else: `/metrics` for Prometheus, and for the
//! kubelet `/healthz` (the process answers; it exits when one of its tasks does) and `/readyz` (what it
//! watches has been listed once).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The content type of the text that prometheus-client writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The maximum number of connections. When there are more, the oldest is closed: any pod can
/// connect, and the kubelet's probes are answered at once.
const MAX_CONNECTIONS: usize = 64;

/// How long a connection may take, for one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The delay after a failed accept, for example when there are too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Writes all metrics as text.
pub type MetricsText = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves until the future is dropped.
pub async fn serve_probes(
    listener: TcpListener,
    metrics: MetricsText,
    listed: watch::Receiver<bool>,
) {
    let router = Router::new()
        .route("/metrics", get(show_metrics).with_state(metrics))
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(readyz).with_state(listed));
    let mut connections = JoinSet::new();
    let mut handles: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        handles.retain(|handle| !handle.is_finished());
        if handles.len() >= MAX_CONNECTIONS
            && let Some(oldest) = handles.pop_front()
        {
            oldest.abort();
        }
        handles.push_back(connections.spawn(serve_connection(stream, router.clone())));
    }
}

/// Serves one request.
async fn serve_connection(stream: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // An error here, or a timeout, concerns only the client.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
}

async fn show_metrics(State(metrics): State<MetricsText>) -> Response {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics()).into_response()
}

async fn readyz(State(listed): State<watch::Receiver<bool>>) -> Response {
    if *listed.borrow() {
        "ok".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the objects have not been listed yet").into_response()
    }
}

#[cfg(test)]
mod tests;
