//! The HTTP side: `POST /v1/report`, `/healthz`, `/readyz`.

use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::REPORT_KEY;
use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{Reply, Report, Work};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tokio::net::TcpListener;

use super::Reports;
use super::exchange::{Outcome, Speaker};
use crate::stores::Stores;

/// More than any report has.
const MAX_BODY: usize = 64 * 1024;

/// How long an agent that waits for the lead's address is kept waiting: below
/// the time-outs of what may be in between.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Server {
    client: Client,
    stores: Stores,
    reports: Reports,
}

/// Serves until it is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    client: Client,
    stores: Stores,
    reports: Reports,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/v1/report", post(report))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|| async { "ok" }))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Server { client, stores, reports });
    axum::serve(listener, router).await
}

async fn report(State(server): State<Server>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(speaker) = speaker(&headers) else {
        return (StatusCode::BAD_REQUEST, "a header is missing").into_response();
    };
    let known = server.stores.by_uid(&speaker.cluster_uid);
    let Some(Ok(minicluster)) = known.as_deref().map(|known| &known.0) else {
        return (StatusCode::NOT_FOUND, "no such cluster").into_response();
    };
    let Some(key) = server.key(minicluster, &speaker.cluster_uid).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the cluster has no key").into_response();
    };
    match server.reports.check(&key, &speaker, &body) {
        Outcome::Refused => StatusCode::FORBIDDEN.into_response(),
        Outcome::Stale => server.reply(StatusCode::UNAUTHORIZED, &key, &speaker, Vec::new()),
        Outcome::Heard => {
            let Ok(said) = serde_json::from_slice::<Report>(&body) else {
                return (StatusCode::BAD_REQUEST, "not a report").into_response();
            };
            let wants_lead = said.wants_lead;
            server.reports.keep(minicluster, &speaker.cluster_uid, said);
            let lead = if wants_lead { server.lead(minicluster).await } else { None };
            let work = lead.map(Work::Lead).into_iter().collect();
            server.reply(StatusCode::OK, &key, &speaker, work)
        }
    }
}

impl Server {
    /// A sealed answer, with the nonce for the next request.
    fn reply(
        &self,
        status: StatusCode,
        key: &SealKey,
        speaker: &Speaker,
        work: Vec<Work>,
    ) -> Response {
        let Some(nonce) = self.reports.give_nonce(speaker) else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let reply = Reply { work, nonce, leader: None };
        let body = serde_json::to_vec(&reply).expect("a reply is JSON");
        let seal = key.seal(speaker.exchange(&speaker.nonce), &body);
        (status, [("X-Flux-Seal", seal)], body).into_response()
    }

    /// The lead's address, waited for a while if it has none yet.
    async fn lead(&self, minicluster: &MiniCluster) -> Option<IpAddr> {
        let mut moved = self.reports.pods_moved.subscribe();
        let found = async {
            loop {
                if let Some(address) = self.stores.lead_address(minicluster) {
                    return Some(address);
                }
                moved.changed().await.ok()?;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.ok().flatten()
    }

    /// The cluster's key: remembered, or read from its Secret.
    async fn key(&self, minicluster: &MiniCluster, uid: &str) -> Option<SealKey> {
        if let Some(key) = self.reports.known_key(uid) {
            return Some(key);
        }
        let namespace = minicluster.namespace()?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let secret = secrets.get(&format!("{}-flux", minicluster.name_any())).await.ok()?;
        let data = secret.data?;
        let text = std::str::from_utf8(&data.get(REPORT_KEY)?.0).ok()?.to_owned();
        let key = SealKey::parse(&text).ok()?;
        self.reports.remember_key(uid, key.clone(), &self.stores.uids());
        Some(key)
    }
}

fn speaker(headers: &HeaderMap) -> Option<Speaker> {
    let header = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    Some(Speaker {
        cluster_uid: header("X-Flux-Cluster")?,
        pod_uid: header("X-Flux-Pod")?,
        nonce: header("X-Flux-Nonce").unwrap_or_default(),
        seal: header("X-Flux-Seal")?,
    })
}
