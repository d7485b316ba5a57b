//! `POST /v1/report`: one request of an agent, from its headers to a sealed answer.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{REPORT_KEY, secret_name};
use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{Reply, Report, Work};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};

use super::exchange::{Outcome, Speaker};
use crate::http::Server;

/// How long an agent that waits for the lead's address is kept waiting: below
/// the time-outs of what may be in between.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn report(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let metrics = &server.metrics;
    let Some(speaker) = speaker(&headers) else {
        metrics.report("malformed");
        return (StatusCode::BAD_REQUEST, "a header is missing").into_response();
    };
    let known = server.stores.by_uid(&speaker.cluster_uid);
    let Some(Ok(minicluster)) = known.as_deref().map(|known| &known.0) else {
        metrics.report("unknown-cluster");
        return (StatusCode::NOT_FOUND, "no such cluster").into_response();
    };
    let Some(key) = server.key(minicluster, &speaker.cluster_uid).await else {
        metrics.report("no-key");
        return (StatusCode::SERVICE_UNAVAILABLE, "the cluster has no key").into_response();
    };
    match server.reports.check(&key, &speaker, &body) {
        Outcome::Refused => {
            metrics.report("refused");
            StatusCode::FORBIDDEN.into_response()
        }
        // Only who has the key learns where the leader is.
        Outcome::Stale | Outcome::Heard if !server.leadership.leads() => {
            metrics.report("sent-on");
            server.send_on(&key, &speaker)
        }
        Outcome::Stale => {
            metrics.report("stale");
            server.reply(StatusCode::UNAUTHORIZED, &key, &speaker, Reply::default())
        }
        Outcome::Heard => {
            let Ok(said) = serde_json::from_slice::<Report>(&body) else {
                metrics.report("malformed");
                return (StatusCode::BAD_REQUEST, "not a report").into_response();
            };
            metrics.report("heard");
            let work = server.work(minicluster, &speaker, said).await;
            server.reply(StatusCode::OK, &key, &speaker, Reply { work, ..Reply::default() })
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
        reply: Reply,
    ) -> Response {
        let Some(nonce) = self.reports.give_nonce(speaker) else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let reply = Reply { nonce, ..reply };
        let body = serde_json::to_vec(&reply).expect("a reply is JSON");
        let seal = key.seal(speaker.exchange(&speaker.nonce), &body);
        (status, [("X-Flux-Seal", seal)], body).into_response()
    }

    /// The answer of a replica that does not lead. Between two leaders nobody can
    /// be asked: the agent tries again later.
    fn send_on(&self, key: &SealKey, speaker: &Speaker) -> Response {
        let leader = self.leadership.leader().map(|address| address.to_string());
        let status = match leader {
            Some(_) => StatusCode::MISDIRECTED_REQUEST,
            None => StatusCode::SERVICE_UNAVAILABLE,
        };
        self.reply(status, key, speaker, Reply { leader, ..Reply::default() })
    }

    /// Keeps what was said, and finds what the speaker waits for.
    async fn work(&self, minicluster: &MiniCluster, speaker: &Speaker, said: Report) -> Vec<Work> {
        let uid = &speaker.cluster_uid;
        if let Some(known) = &said.wants_work {
            return self.reports.other_work(uid, known).await;
        }
        let (rank, wants_lead) = (said.rank, said.wants_lead);
        self.reports.keep(minicluster, speaker, said);
        if wants_lead {
            return self.lead(minicluster).await.map(Work::Lead).into_iter().collect();
        }
        if rank == 0 { self.reports.work(uid) } else { Vec::new() }
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
        let Some(secret) = secrets.get_opt(&secret_name(minicluster)).await.ok()? else {
            self.reports.lose_key(minicluster, uid);
            return None;
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filled::Watched;
    use crate::index::Index;
    use crate::lease::Leadership;
    use crate::metrics::Metrics;
    use crate::reports::Reports;
    use crate::stores::Stores;
    use flux_operator_wire::seal::Exchange;
    use kube::client::Body;
    use kube::core::DeserializeGuard;
    use kube::runtime::watcher::Event;

    const NONCE: &str = "";

    fn key() -> SealKey {
        SealKey::from_bytes([7; 32])
    }

    /// A replica that knows one cluster and its key, and has no API server.
    fn server(leadership: Leadership) -> Server {
        let (miniclusters, mut writer) = Watched::new();
        let minicluster: MiniCluster = serde_json::from_value(serde_json::json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniCluster",
            "metadata": { "name": "a", "namespace": "a", "uid": "uid" },
            "spec": { "containers": [{ "image": "a" }] },
        }))
        .unwrap();
        writer.apply_watcher_event(&Event::Apply(DeserializeGuard(Ok(minicluster))));
        let nobody = tower::service_fn(async |_: axum::http::Request<Body>| {
            Err::<axum::http::Response<Body>, _>(std::io::Error::other("there is no API server"))
        });
        let reports = Reports::new(tokio::sync::mpsc::unbounded_channel().0);
        reports.remember_key("uid", key(), &std::iter::once("uid".to_owned()).collect());
        let metrics = Metrics::new();
        let queues = crate::queue::Start::new("default", miniclusters.clone(), &metrics).queues;
        Server {
            client: kube::Client::new(nobody, "default"),
            stores: Stores {
                miniclusters,
                jobs: Index::new(),
                pods: Index::new(),
                config_maps: Index::new(),
                services: Index::new(),
            },
            reports,
            leadership,
            metrics,
            queues,
        }
    }

    fn exchange(nonce: &str) -> Exchange<'_> {
        Exchange { cluster_uid: "uid", pod_uid: "pod", nonce }
    }

    /// Asks with the right key or another one; the reply, if it is sealed for this request.
    async fn ask(server: &Server, key: &SealKey) -> (StatusCode, Option<Reply>) {
        let body = serde_json::to_vec(&Report::default()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("X-Flux-Cluster", "uid".parse().unwrap());
        headers.insert("X-Flux-Pod", "pod".parse().unwrap());
        headers.insert("X-Flux-Nonce", NONCE.parse().unwrap());
        headers.insert("X-Flux-Seal", key.seal(exchange(NONCE), &body).parse().unwrap());
        let response = report(State(server.clone()), headers, body.into()).await;
        let status = response.status();
        let seal = response.headers().get("X-Flux-Seal").cloned();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let sealed =
            seal.is_some_and(|seal| key.verify(exchange(NONCE), &body, seal.to_str().unwrap()));
        (status, sealed.then(|| serde_json::from_slice(&body).unwrap()))
    }

    #[tokio::test]
    async fn a_replica_that_does_not_lead_sends_agents_on_to_the_one_that_does() {
        let leader = "10.0.0.1:8080";
        let server = server(Leadership::elsewhere(leader.parse().unwrap()));
        let (status, reply) = ask(&server, &key()).await;
        assert_eq!(status, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(reply.unwrap().leader.as_deref(), Some(leader));
        let (status, reply) = ask(&server, &SealKey::from_bytes([8; 32])).await;
        assert_eq!((status, reply), (StatusCode::FORBIDDEN, None), "a stranger learned it");
    }

    #[tokio::test]
    async fn the_leader_gives_a_nonce_to_who_has_none() {
        let (status, reply) = ask(&server(Leadership::always()), &key()).await;
        let reply = reply.unwrap();
        assert_eq!((status, reply.leader), (StatusCode::UNAUTHORIZED, None));
        assert!(!reply.nonce.is_empty());
    }
}
