//! The operator's Kubernetes clients. Every request is counted and has a timeout; a client made by
//! [`leader_client`] also checks the [`WriteGate`] before each write.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, Response};
use flux_operator_service::field_sets;
use kube::{Client, client};
use tokio::time::{Instant, timeout_at};

use crate::gate::WriteGate;
use crate::metrics::{Metrics, verb};

/// Timeouts of requests, by kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTimeouts {
    /// A write, or a read of one object, until the last byte of the response.
    pub(crate) object: Duration,
    /// One page of a list, until its last byte.
    pub(crate) list: Duration,
    /// The start of a watch, until its first byte. How long a watch stays open is decided in
    /// [`watches`](crate::watches).
    pub(crate) watch: Duration,
}

/// A healthy API server responds in milliseconds, a busy one within a second.
///
/// A write must finish before another replica can become leader: `object` is less than the 5 s
/// between the time at which a leader gives up and the time at which its Lease expires. It also
/// leaves time for two attempts to renew the Lease. A page of a list has up to 500 objects, a few
/// MB, and takes a second on a machine with two busy cores; the API server itself gives up after
/// 60 seconds.
pub(crate) const REQUEST_TIMEOUTS: RequestTimeouts = RequestTimeouts {
    object: Duration::from_secs(4),
    list: Duration::from_secs(20),
    watch: Duration::from_secs(10),
};

/// The API server did not respond in time. It may have executed the request nevertheless.
#[derive(Debug, thiserror::Error)]
#[error(
    "the API server did not respond to {method} {path} within {} s, but may have executed it",
    limit.as_secs_f64()
)]
pub(crate) struct RequestTimedOut {
    method: Method,
    path: String,
    limit: Duration,
}

/// A client for requests that do not depend on leadership.
pub(crate) fn shared_client(client: Client, metrics: Metrics, limits: RequestTimeouts) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<client::Body>| {
        metrics.observe_request(&request);
        send_with_timeout(limits, client.clone(), request)
    });
    Client::new(service, namespace)
}

/// A client whose writes fail unless this replica is the leader.
pub(crate) fn leader_client(
    client: Client,
    metrics: Metrics,
    limits: RequestTimeouts,
    gate: WriteGate,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<client::Body>| {
        let (client, metrics, gate) = (client.clone(), metrics.clone(), gate.clone());
        async move {
            let _write = match *request.method() {
                Method::GET => None,
                _ => Some(gate.begin_write().map_err(|error| kube::Error::Service(error.into()))?),
            };
            metrics.observe_request(&request);
            send_with_timeout(limits, client, request).await
        }
    });
    Client::new(service, namespace)
}

/// Sends a request and gives up after its timeout. The returned response is complete, unless it is
/// a watch.
async fn send_with_timeout(
    limits: RequestTimeouts,
    client: Client,
    request: Request<client::Body>,
) -> Result<Response<Body>, kube::Error> {
    let kind = verb(&request);
    let limit = match kind {
        "watch" => limits.watch,
        "list" => limits.list,
        _ => limits.object,
    };
    let deadline = Instant::now() + limit;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = async {
        let response = client.send(request).await?;
        if kind == "watch" {
            return Ok(field_sets::removed_from_stream(response));
        }
        // The timeout covers the whole response: the server can stall in the middle of it.
        let (head, body) = response.into_parts();
        let body = field_sets::removed_from(&head.headers, body.collect_bytes().await?);
        Ok(Response::from_parts(head, Body::from(body)))
    };
    match timeout_at(deadline, response).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(RequestTimedOut { method, path, limit }.into())),
    }
}

/// Whether a request that failed with this error may still have been executed by the API server.
pub(crate) fn is_outcome_unknown(error: &kube::Error) -> bool {
    match error {
        // Rejected before it was sent.
        kube::Error::Service(error) if error.is::<crate::gate::NotLeading>() => false,
        // The server may have executed part of the request before it responded with an error.
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
