//! `POST /v1/report`: handles one request of an agent, from its headers to the sealed response.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use flux_operator_api::MiniCluster;
use flux_operator_wire::names::header;
use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{Reply, Report, Work};
use k8s_openapi::jiff::Timestamp;

use super::exchange::{AgentHeaders, SealCheck};
use super::nonces::max_concurrent_requests;
use super::work;
use crate::connections::ConnectionGuard;
use crate::http::ServerState;

/// How long the request of an agent that needs the lead's address is kept open: shorter than the
/// timeouts of proxies that may be in between.
const LEAD_POLL_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a report whose request is kept open: the report is kept in memory meanwhile.
const MAX_LONG_POLL_BODY: usize = 2048;

pub(crate) async fn report(
    State(server): State<ServerState>,
    Extension(connection): Extension<Arc<ConnectionGuard>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let metrics = &server.metrics;
    let Some(speaker) = AgentHeaders::parse(&headers) else {
        metrics.count_report("malformed");
        return (StatusCode::BAD_REQUEST, "a header is missing or too long").into_response();
    };
    let known = server.stores.by_uid(&speaker.cluster_uid);
    let Some(Ok(minicluster)) = known.as_deref().map(|known| &known.0) else {
        metrics.count_report("unknown-cluster");
        return (StatusCode::NOT_FOUND, "no such cluster").into_response();
    };
    let Some(key) = server.key(minicluster, &speaker.cluster_uid).await else {
        metrics.count_report("no-key");
        return (StatusCode::SERVICE_UNAVAILABLE, "cannot read the cluster's key").into_response();
    };
    let key = match &speaker.invitation {
        None => key,
        Some(invitation) => {
            let Some(key) = server.invitation_key(minicluster, invitation, &key) else {
                metrics.count_report("unknown-invitation");
                return (StatusCode::NOT_FOUND, "no such invitation").into_response();
            };
            key
        }
    };
    match server.reports.check(&key, &speaker, &body) {
        SealCheck::Invalid => {
            server.reports.doubt_key(&speaker.cluster_uid);
            // Only the leader writes it down.
            if let Some(invitation) = &speaker.invitation
                && server.leadership.is_leader()
            {
                server.reports.store_wrong_key(minicluster, invitation);
            }
            metrics.count_report("refused");
            StatusCode::FORBIDDEN.into_response()
        }
        // Only an agent with the key learns the address of the leader.
        SealCheck::StaleNonce | SealCheck::Valid if !server.leadership.is_leader() => {
            metrics.count_report("sent-on");
            match server.forward(&speaker, &headers, body).await {
                Some(answer) => answer,
                None => server.redirect(minicluster, &key, &speaker),
            }
        }
        SealCheck::StaleNonce => {
            metrics.count_report("stale");
            let reply = Reply::default();
            server.reply(StatusCode::UNAUTHORIZED, minicluster, &key, &speaker, reply)
        }
        SealCheck::Valid => {
            let Ok(report) = Report::parse(&body) else {
                metrics.count_report("malformed");
                return (StatusCode::BAD_REQUEST, "the body is not a valid report").into_response();
            };
            metrics.count_report("heard");
            let is_small = body.len() <= MAX_LONG_POLL_BODY;
            // The request may be kept open for long: only what is needed stays in memory.
            drop((headers, body));
            let hold = || {
                is_small
                    && connection.start_long_poll(
                        &speaker.cluster_uid,
                        max_concurrent_requests(minicluster, None),
                    )
            };
            let work = server.work(minicluster, &speaker, report, hold).await;
            let reply = Reply { work, ..Reply::default() };
            server.reply(StatusCode::OK, minicluster, &key, &speaker, reply)
        }
    }
}

impl ServerState {
    /// A sealed response, with the nonce for the next request.
    fn reply(
        &self,
        status: StatusCode,
        minicluster: &MiniCluster,
        key: &SealKey,
        agent: &AgentHeaders,
        reply: Reply,
    ) -> Response {
        let Some(nonce) = self.reports.issue_nonce(minicluster, agent) else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let reply = Reply { nonce, ..reply };
        let body = serde_json::to_vec(&reply).expect("a reply can be serialized");
        let seal = agent.seal_response(key, status.as_u16(), &body);
        (status, [(header::SEAL, seal)], body).into_response()
    }

    /// The response of a replica that is not the leader. If there is currently no leader, the agent
    /// retries later.
    fn redirect(
        &self,
        minicluster: &MiniCluster,
        key: &SealKey,
        speaker: &AgentHeaders,
    ) -> Response {
        let leader = self.leadership.leader().map(|address| address.to_string());
        let status = match leader {
            Some(_) => StatusCode::MISDIRECTED_REQUEST,
            None => StatusCode::SERVICE_UNAVAILABLE,
        };
        self.reply(status, minicluster, key, speaker, Reply { leader, ..Reply::default() })
    }

    /// Stores what was reported, and returns the work that the agent asks for. Waits for new work
    /// only if `hold` returns true.
    async fn work(
        &self,
        minicluster: &MiniCluster,
        speaker: &AgentHeaders,
        said: Report,
        may_wait: impl FnOnce() -> bool,
    ) -> Vec<Work> {
        let patience = |longest| if may_wait() { longest } else { Duration::ZERO };
        let (uid, lists) = (&speaker.cluster_uid, speaker.is_directed());
        // An invitation's key is for one kind of request, and only that key is for it.
        if speaker.invitation.is_some() != matches!(said, Report::InvitedJoinWanted(_)) {
            return Vec::new();
        }
        match said {
            Report::LeadWanted => {
                let lead = self.wait_for_lead(minicluster, patience(LEAD_POLL_TIMEOUT)).await;
                return lead.map(Work::Lead).into_iter().collect();
            }
            Report::JoinWanted(request) => {
                return vec![Work::Join(self.answer_join(minicluster, speaker, request).await)];
            }
            Report::InvitedJoinWanted(asked) => {
                return vec![Work::Invited(self.answer_invited(minicluster, speaker, asked).await)];
            }
            Report::WorkWanted { known } => {
                let patience = patience(work::WORK_POLL_TIMEOUT);
                return self.reports.wait_for_other_work(uid, &known, lists, patience).await;
            }
            Report::Instance(state) => {
                self.reports.store(minicluster, speaker, state, Timestamp::now());
            }
            Report::Pending(page) => {
                let namespace = minicluster.metadata.namespace.as_deref().unwrap_or_default();
                self.reports.store_pending(namespace, uid, page);
            }
            Report::Job(answer) => self.reports.store_answer(uid, answer),
        }
        self.reports.work(uid, lists)
    }

    /// The lead's address, waiting up to `patience` until it has one.
    async fn wait_for_lead(&self, minicluster: &MiniCluster, patience: Duration) -> Option<IpAddr> {
        let mut pods_changed = self.reports.pods_changed.subscribe();
        let found = async {
            loop {
                if let Some(address) = self.stores.lead_address(minicluster) {
                    return Some(address);
                }
                pods_changed.changed().await.ok()?;
            }
        };
        tokio::time::timeout(patience, found).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Connections;
    use crate::lease::Leadership;
    use crate::reports::fixture::{key, server_with, server_with_key};
    use flux_operator_wire::seal::{Exchange, Message};
    use flux_operator_wire::{
        BrokerFacts, Drain, InstanceState, InvitedAnswer, InvitedRequest, JoinRequest,
    };
    use serde_json::json;
    use tokio::time::Instant;

    const POD: &str = "pod";

    /// A request, sealed with the right key or another one.
    struct TestRequest<'a> {
        key: SealKey,
        pod: &'a str,
        nonce: &'a str,
        report: Report,
        /// Whether the agent is of the first build, which seals without a direction.
        first_build: bool,
        /// The invitation that it names.
        invitation: Option<&'a str>,
    }

    impl Default for TestRequest<'_> {
        fn default() -> Self {
            TestRequest {
                key: key(),
                pod: POD,
                nonce: "",
                report: Report::LeadWanted,
                first_build: false,
                invitation: None,
            }
        }
    }

    impl TestRequest<'_> {
        /// Sends the request. Returns the status, and the reply if it is sealed for this request.
        async fn send(
            &self,
            server: &ServerState,
            slot: ConnectionGuard,
        ) -> (StatusCode, Option<Reply>) {
            let exchange = Exchange { cluster_uid: "uid", pod_uid: self.pod, nonce: self.nonce };
            let body = match (self.first_build, &self.report) {
                (true, Report::Instance(_)) => br#"{"rank":0,"programStarted":true}"#.to_vec(),
                (_, report) => serde_json::to_vec(report).unwrap(),
            };
            let request =
                if self.first_build { Message::Plain(&body) } else { Message::Request(&body) };
            let seal = self.key.seal(exchange, request);
            let mut headers = HeaderMap::new();
            for (name, value) in [
                (header::CLUSTER, "uid"),
                (header::POD, self.pod),
                (header::NONCE, self.nonce),
                (header::SEAL, &seal),
            ] {
                headers.insert(name, value.parse().unwrap());
            }
            if let Some(invitation) = self.invitation {
                headers.insert(header::INVITATION, invitation.parse().unwrap());
            }
            let slot = Extension(Arc::new(slot));
            let response = report(State(server.clone()), slot, headers, body.into()).await;
            let status = response.status();
            let seal = response.headers().get(header::SEAL).cloned();
            let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
            let answer = match self.first_build {
                true => Message::Plain(&body),
                false => Message::Answer { status: status.as_u16(), body: &body },
            };
            let sealed =
                seal.is_some_and(|seal| self.key.verify(exchange, answer, seal.to_str().unwrap()));
            (status, sealed.then(|| serde_json::from_slice(&body).unwrap()))
        }
    }

    fn slot(connections: &Connections) -> ConnectionGuard {
        connections.admit([127, 0, 0, 1].into(), Duration::from_secs(600)).0
    }

    fn new_connection() -> ConnectionGuard {
        slot(&Connections::new(10_000))
    }

    #[tokio::test]
    async fn a_replica_that_is_not_leader_redirects_agents_to_the_leader() {
        let leader = "10.0.0.1:8080";
        let server = server_with_key(Leadership::elsewhere(leader.parse().unwrap()));
        let (status, reply) = TestRequest::default().send(&server, new_connection()).await;
        assert_eq!(status, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(reply.unwrap().leader.as_deref(), Some(leader));
        let stranger = TestRequest { key: SealKey::from_bytes([8; 32]), ..TestRequest::default() };
        let (status, reply) = stranger.send(&server, new_connection()).await;
        assert_eq!((status, reply), (StatusCode::FORBIDDEN, None), "the leader was revealed");
    }

    #[tokio::test]
    async fn the_leader_issues_a_nonce_to_an_agent_without_one() {
        let server = server_with_key(Leadership::always());
        let (status, reply) = TestRequest::default().send(&server, new_connection()).await;
        let reply = reply.unwrap();
        assert_eq!((status, reply.leader), (StatusCode::UNAUTHORIZED, None));
        assert!(!reply.nonce.is_empty());
    }

    /// A replica that leads and whose cluster has an invitation, and the invitation's key.
    fn server_with_invitation() -> (ServerState, SealKey) {
        replica_with_invitation(Leadership::always())
    }

    fn replica_with_invitation(leadership: Leadership) -> (ServerState, SealKey) {
        let mut minicluster = crate::reports::fixture::minicluster();
        let expires = "2099-01-01T00:00:00Z";
        let invitation = json!({ "name": "cloud", "ranks": 1, "expires": expires });
        let bursting = json!({ "expose": {}, "invitations": [invitation] });
        let flux = serde_json::from_value(json!({ "bursting": bursting })).unwrap();
        minicluster.spec.flux = Some(flux);
        let ServerState { client, .. } = server_with_key(Leadership::always());
        let server = server_with(leadership, client, [minicluster]);
        server.reports.cache_key("uid", key(), &std::iter::once("uid".to_owned()).collect());
        (server, key().for_invitation("uid", "cloud", expires))
    }

    /// Sends a report twice, the second time with the nonce that the first reply has.
    async fn exchange(server: &ServerState, request: TestRequest<'_>) -> (StatusCode, Vec<Work>) {
        let (status, reply) = request.send(server, new_connection()).await;
        let Some(reply) = reply else { return (status, Vec::new()) };
        let again = TestRequest { nonce: &reply.nonce, ..request };
        let (status, reply) = again.send(server, new_connection()).await;
        (status, reply.unwrap_or_default().work)
    }

    fn asks() -> Report {
        let facts = BrokerFacts { version: "0.88.0".into(), uid: 0, cores: 1 };
        Report::InvitedJoinWanted(InvitedRequest {
            joiner: "there".into(),
            joiner_name: "far/joiner".into(),
            request: JoinRequest {
                index: 0,
                rank: 1,
                table: "table".into(),
                facts,
                last_error: String::new(),
                refusal: None,
            },
        })
    }

    #[tokio::test]
    async fn an_invitation_has_a_key_of_its_own() {
        let (server, invited) = server_with_invitation();
        let request = |key: SealKey, invitation| TestRequest {
            key,
            invitation,
            report: asks(),
            ..TestRequest::default()
        };
        let (status, work) = exchange(&server, request(invited.clone(), Some("cloud"))).await;
        assert_eq!(status, StatusCode::OK);
        // It is noted who asks; the lender has no lease for it yet.
        assert!(matches!(work.as_slice(), [Work::Invited(InvitedAnswer::Wait(_))]), "{work:?}");
        assert_eq!(server.reports.invited("uid")[0].name, "far/joiner");
        for (key, invitation, expected) in [
            (key(), Some("cloud"), StatusCode::FORBIDDEN),
            (invited.clone(), None, StatusCode::FORBIDDEN),
            (invited, Some("other"), StatusCode::NOT_FOUND),
        ] {
            let (status, work) = exchange(&server, request(key, invitation)).await;
            assert_eq!((status, work), (expected, Vec::new()), "{invitation:?}");
        }
        let strangers = server.reports.invited("uid");
        let strangers: Vec<_> = strangers.iter().filter(|it| it.uid.is_empty()).collect();
        let [stranger] = strangers.as_slice() else { panic!("{strangers:?}") };
        assert_eq!(stranger.refusal.as_ref().unwrap().0, flux_operator_api::Reason::WrongKey);
    }

    /// The gateway connects to any replica, and agents elsewhere cannot reach another one.
    #[tokio::test]
    async fn a_replica_that_is_not_leader_forwards_requests_of_invited_agents() {
        let (leader, invited) = server_with_invitation();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serves = tokio::spawn(crate::http::serve(listener, leader.clone()));
        let (follower, _) = replica_with_invitation(Leadership::elsewhere(address));
        let request = |key: SealKey| TestRequest {
            key,
            invitation: Some("cloud"),
            report: asks(),
            ..TestRequest::default()
        };
        let (status, work) = exchange(&follower, request(invited.clone())).await;
        assert_eq!(status, StatusCode::OK);
        assert!(matches!(work.as_slice(), [Work::Invited(InvitedAnswer::Wait(_))]), "{work:?}");
        assert_eq!(leader.reports.invited("uid").len(), 1);
        assert!(follower.reports.invited("uid").is_empty());
        // A request that is not sealed with the invitation's key is not sent on.
        let (status, _) = exchange(&follower, request(key())).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        serves.abort();
        assert!(serves.await.unwrap_err().is_cancelled());
        let (status, reply) = request(invited).send(&follower, new_connection()).await;
        assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "the leader does not answer");
        assert_eq!(reply.unwrap().leader, Some(address.to_string()));
    }

    /// Each of two replicas may take the other one for the leader.
    #[tokio::test]
    async fn a_request_is_forwarded_once() {
        let listeners = [
            tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap(),
            tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap(),
        ];
        let addresses = listeners.each_ref().map(|it| it.local_addr().unwrap());
        let (first, invited) = replica_with_invitation(Leadership::elsewhere(addresses[1]));
        let (second, _) = replica_with_invitation(Leadership::elsewhere(addresses[0]));
        let [to_first, to_second] = listeners;
        tokio::spawn(crate::http::serve(to_first, first.clone()));
        tokio::spawn(crate::http::serve(to_second, second));
        let report = asks();
        let request = TestRequest {
            key: invited,
            invitation: Some("cloud"),
            report,
            ..TestRequest::default()
        };
        let (status, reply) = request.send(&first, new_connection()).await;
        assert_eq!(status, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(reply.unwrap().leader, Some(addresses[0].to_string()), "of the second");
    }

    #[tokio::test]
    async fn an_invitations_key_is_for_nothing_else() {
        let (server, invited) = server_with_invitation();
        let state = InstanceState { program_started: true, ..InstanceState::default() };
        let reports = [Report::Instance(state), Report::LeadWanted, asks()];
        for (report, key, invitation) in [
            (reports[0].clone(), invited.clone(), Some("cloud")),
            (reports[1].clone(), invited, Some("cloud")),
            (reports[2].clone(), key(), None),
        ] {
            let request = TestRequest { key, invitation, report, ..TestRequest::default() };
            let (status, work) = exchange(&server, request).await;
            assert_eq!((status, work), (StatusCode::OK, Vec::new()));
        }
        assert!(server.reports.last("uid").is_none(), "the state of the instance was forged");
        assert!(server.reports.invited("uid").is_empty());
    }

    #[tokio::test]
    async fn reports_of_agents_of_the_first_build_are_accepted_and_answered() {
        let server = server_with_key(Leadership::always());
        for first_build in [true, false] {
            let state = InstanceState { program_started: true, ..InstanceState::default() };
            let ask = || TestRequest {
                report: Report::Instance(state.clone()),
                first_build,
                ..TestRequest::default()
            };
            let (_, reply) = ask().send(&server, new_connection()).await;
            let nonce = reply.unwrap().nonce;
            let (status, reply) =
                TestRequest { nonce: &nonce, ..ask() }.send(&server, new_connection()).await;
            assert_eq!(status, StatusCode::OK);
            assert!(reply.is_some(), "sealed in the form of the request");
            let (pod, last) = server.reports.last("uid").unwrap();
            assert_eq!((pod.as_str(), last.state), (POD, state));
        }
    }

    #[tokio::test]
    async fn overlong_headers_are_rejected_even_if_sealed() {
        let server = server_with_key(Leadership::always());
        let long = "x".repeat(7000);
        for ask in [
            TestRequest { pod: &long, ..TestRequest::default() },
            TestRequest { nonce: &long, ..TestRequest::default() },
        ] {
            let (status, reply) = ask.send(&server, new_connection()).await;
            assert_eq!((status, reply), (StatusCode::BAD_REQUEST, None));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_kept_open_if_its_seal_is_valid_and_few_others_are_open() {
        let server = server_with_key(Leadership::always());
        let connections = Connections::new(10_000);
        let report = Report::WorkWanted { known: Vec::new() };
        let start = Instant::now();
        let stranger = TestRequest {
            key: SealKey::from_bytes([8; 32]),
            report: report.clone(),
            ..TestRequest::default()
        };
        assert_eq!(stranger.send(&server, slot(&connections)).await.0, StatusCode::FORBIDDEN);
        let first = TestRequest { report: report.clone(), ..TestRequest::default() };
        let (_, reply) = first.send(&server, slot(&connections)).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "a request without a nonce is not kept open");
        let nonce = reply.unwrap().nonce;
        let ask = TestRequest { nonce: &nonce, report: report.clone(), ..TestRequest::default() };
        let (status, reply) = ask.send(&server, slot(&connections)).await;
        assert_eq!((status, start.elapsed()), (StatusCode::OK, work::WORK_POLL_TIMEOUT));
        let nonce = reply.unwrap().nonce;
        let others: Vec<ConnectionGuard> = std::iter::repeat_with(|| slot(&connections))
            .take_while(|slot| slot.start_long_poll("uid", usize::MAX))
            .collect();
        let start = Instant::now();
        let ask = TestRequest { nonce: &nonce, report, ..TestRequest::default() };
        let (status, reply) = ask.send(&server, slot(&connections)).await;
        assert_eq!((status, start.elapsed()), (StatusCode::OK, Duration::ZERO));
        drop(others);
        // The memory of a request that is kept open is limited too.
        let ranks: Vec<String> = (0..1000).map(|rank| (2 * rank).to_string()).collect();
        let ranks = ranks.join(",").parse().unwrap();
        let known = vec![Work::Drain(Drain { ranks, since: String::new() })];
        let report = Report::WorkWanted { known };
        let ask = TestRequest { nonce: &reply.unwrap().nonce, report, ..TestRequest::default() };
        let (status, _) = ask.send(&server, slot(&connections)).await;
        assert_eq!((status, start.elapsed()), (StatusCode::OK, Duration::ZERO));
    }
}
