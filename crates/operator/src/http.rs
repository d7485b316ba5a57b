//! What the operator serves: `POST /v1/report` for agents, `/metrics` for
//! Prometheus, and for the kubelet `/healthz` (the process lives) and `/readyz`
//! (the caches are filled, also on a replica that does not lead).

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use kube::Client;
use tokio::net::TcpListener;

use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::reports::{Reports, report};
use crate::stores::Stores;

/// More than any report has.
const MAX_BODY: usize = 64 * 1024;

/// What prometheus-client writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What requests are answered from. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) stores: Stores,
    pub(crate) reports: Reports,
    pub(crate) leadership: Leadership,
    pub(crate) metrics: Metrics,
}

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, server: Server) -> std::io::Result<()> {
    let router = Router::new()
        .route("/v1/report", post(report))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(server);
    axum::serve(listener, router).await
}

async fn metrics(State(server): State<Server>) -> Response {
    let text = server.metrics.text(server.stores.phases().into_iter());
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

async fn ready(State(server): State<Server>) -> Response {
    if server.stores.are_filled() {
        "ok".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet").into_response()
    }
}
