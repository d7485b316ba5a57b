//! Forwards requests of invited agents to the replica that leads. Agents in another Kubernetes cluster
//! reach only the gateway, which connects to any replica, so an answer with the leader's address would be
//! of no use to them.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use axum::response::{IntoResponse, Response};
use flux_operator_wire::names::{header, path};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::exchange::AgentHeaders;
use crate::http::ServerState;

/// Marks a forwarded request, which is not forwarded again: for a while, two replicas may each take the
/// other one for the leader.
const FORWARDED: HeaderName = HeaderName::from_static("x-flux-forwarded");

/// How long the leader may take: less than the 4 seconds that an agent waits for each address.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(3);

/// The maximum size of an answer: a nonce and a sentence.
const MAX_ANSWER: usize = 64 * 1024;

impl ServerState {
    /// The leader's answer to a request whose seal was verified; `None` if the request is not forwarded,
    /// or the leader does not answer.
    pub(super) async fn forward(
        &self,
        agent: &AgentHeaders,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Option<Response> {
        if agent.invitation.is_none() || headers.contains_key(FORWARDED) {
            return None;
        }
        let leader = self.leadership.leader()?;
        let answer = tokio::time::timeout(FORWARD_TIMEOUT, send(leader, headers, body));
        match answer.await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                tracing::info!(%leader, error, "a request was not forwarded to the leader");
                None
            }
            Err(_) => None,
        }
    }
}

/// Sends a request with the headers that the seal includes. The seal is for any replica.
async fn send(leader: SocketAddr, headers: &HeaderMap, body: Bytes) -> Result<Response, String> {
    let failed = |error: &dyn std::error::Error| error.to_string();
    let mut request =
        Request::post(path::REPORT).body(Body::from(body)).map_err(|it| failed(&it))?;
    let sent = request.headers_mut();
    for name in [header::CLUSTER, header::POD, header::NONCE, header::SEAL, header::INVITATION] {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|it| failed(&it))?;
        if let Some(value) = headers.get(&name) {
            sent.insert(name, value.clone());
        }
    }
    sent.insert(FORWARDED, HeaderValue::from_static("true"));
    let host = HeaderValue::from_str(&leader.to_string()).map_err(|it| failed(&it))?;
    sent.insert(axum::http::header::HOST, host);
    let stream = TcpStream::connect(leader).await.map_err(|it| failed(&it))?;
    let (mut sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(|it| failed(&it))?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|it| failed(&it))?;
        let (parts, body) = answer.into_parts();
        let body = to_bytes(Body::new(body), MAX_ANSWER).await.map_err(|it| failed(&it))?;
        Ok(match parts.headers.get(header::SEAL) {
            Some(seal) => (parts.status, [(header::SEAL, seal.clone())], body).into_response(),
            None => (parts.status, body).into_response(),
        })
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The leader closes the connection after its answer, which may not have been read yet.
        _ = connection => exchange.await,
    }
}
