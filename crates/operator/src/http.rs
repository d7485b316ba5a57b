//! The operator's HTTP endpoints: `POST /v1/report` for agents, `/v1/queues` and the other
//! endpoints of [`visibility`] for users, `/metrics` for Prometheus, and for the kubelet `/healthz`
//! (no reconciliation hangs) and `/readyz` (the caches have synced, also on a replica that is not
//! the leader).

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flux_operator_api::view::openapi::{
    CLUSTER, CLUSTER_JOBS, JOB_EXPLANATION, JOB_HAND_OVER, PENDING_JOBS, QUEUES,
};
use flux_operator_wire::names::path;
use kube::Client;
use tokio::net::TcpListener;

use crate::health::Health;
use crate::lease::Leadership;
use crate::listener;
use crate::metrics::Metrics;
use crate::queue::{Queues, hand_over, visibility};
use crate::reports::{Reports, report};
use crate::stores::Stores;

/// The content type of the text that prometheus-client writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The state from which requests are answered. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ServerState {
    pub(crate) client: Client,
    pub(crate) stores: Stores,
    pub(crate) reports: Reports,
    pub(crate) leadership: Leadership,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    pub(crate) queues: Queues,
}

/// Serves until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, server: ServerState) {
    let metrics = server.metrics.clone();
    let router = Router::new()
        .route(path::REPORT, post(report))
        .route(QUEUES.path, get(visibility::queues))
        .route(PENDING_JOBS.path, get(visibility::pending))
        .route(JOB_EXPLANATION.path, get(visibility::why))
        .route(CLUSTER.path, get(visibility::cluster))
        .route(CLUSTER_JOBS.path, get(visibility::cluster_jobs))
        .route(JOB_HAND_OVER.path, post(hand_over::hand_over))
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(healthz).with_state(server.health.clone()))
        .route("/readyz", get(readyz))
        .with_state(server);
    listener::serve(listener, router, metrics).await;
}

/// Serves only the metrics of the queues, until the future is dropped.
pub(crate) async fn serve_metrics(listener: TcpListener, metrics: Metrics, queues: Queues) {
    let shown = metrics.clone();
    let text = move || async move {
        let text = shown.render(std::iter::empty(), queues.figures().into_iter());
        ([(header::CONTENT_TYPE, OPEN_METRICS)], text)
    };
    listener::serve(listener, Router::new().route("/metrics", get(text)), metrics).await;
}

async fn show_metrics(State(server): State<ServerState>) -> Response {
    let phases = server.stores.phases().into_iter();
    server.metrics.joins().set_leased(server.stores.statuses().iter());
    let text = server.metrics.render(phases, server.queues.figures().into_iter());
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

async fn healthz(State(health): State<Health>) -> Response {
    match health.describe_stuck_work() {
        None => "ok".into_response(),
        Some(complaint) => (StatusCode::INTERNAL_SERVER_ERROR, complaint).into_response(),
    }
}

async fn readyz(State(server): State<ServerState>) -> Response {
    if server.stores.have_synced() {
        "ok".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the caches have not synced yet").into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    #[tokio::test]
    async fn healthz_fails_while_a_reconciliation_hangs() {
        let health = Health::default();
        let ask = async || {
            let route = Router::new().route("/", get(healthz).with_state(health.clone()));
            let response = route.oneshot(Request::new(Body::empty())).await.unwrap();
            let status = response.status();
            let said = to_bytes(response.into_body(), 1024).await.unwrap();
            (status, String::from_utf8(said.to_vec()).unwrap())
        };
        let working = health.begin("MiniCluster");
        assert_eq!(ask().await, (StatusCode::OK, "ok".to_owned()));
        let hung = health.begin_long_ago("FluxJob");
        let (status, said) = ask().await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(said.contains("FluxJob"), "{said}");
        drop(hung);
        assert_eq!(ask().await.0, StatusCode::OK);
        drop(working);
    }
}
