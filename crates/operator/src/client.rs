//! The operator's clients. Every request is counted and has a time limit, whoever makes it;
//! what only the leader may write goes through the [`Gate`] besides.

use std::time::Duration;

use axum::http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};

use crate::gate::Gate;
use crate::metrics::{Metrics, verb};

/// How long a request may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A write, or a read of one object, to the last byte of its answer.
    pub(crate) object: Duration,
    /// One page of a list, to its last byte.
    pub(crate) list: Duration,
    /// The beginning of a watch, to its first byte. How long it stays open is the watch's own
    /// matter: see [`watches`](crate::watches).
    pub(crate) watch: Duration,
}

/// A healthy API server answers in milliseconds, a busy one within a second.
///
/// Writes must have ended before another replica may lead: the time is below the margin between
/// a leader's giving up and the end of its Lease, which is 5 s. It also allows two attempts to
/// renew the Lease. A page of a list has up to 500 objects, some MB, and takes a second on a
/// machine with two busy cores; the API server itself gives up after 60 s.
pub(crate) const LIMITS: Limits = Limits {
    object: Duration::from_secs(4),
    list: Duration::from_secs(20),
    watch: Duration::from_secs(10),
};

/// The API server did not answer in time. It may have acted all the same.
#[derive(Debug, thiserror::Error)]
#[error(
    "the API server did not answer {method} {path} within {} s, and may or may not have acted on it",
    limit.as_secs_f64()
)]
pub(crate) struct Unanswered {
    method: Method,
    path: String,
    limit: Duration,
}

/// A client that anybody in the operator may use, whether or not this replica leads.
pub(crate) fn for_all(client: Client, metrics: Metrics, limits: Limits) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        metrics.request_of(&request);
        answer_within(limits, client.clone(), request)
    });
    Client::new(service, namespace)
}

/// A client that writes only while this replica leads.
pub(crate) fn for_leader(client: Client, metrics: Metrics, limits: Limits, gate: Gate) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, metrics, gate) = (client.clone(), metrics.clone(), gate.clone());
        async move {
            let _write = match *request.method() {
                Method::GET => None,
                _ => Some(gate.begin_write().map_err(|error| kube::Error::Service(error.into()))?),
            };
            metrics.request_of(&request);
            answer_within(limits, client, request).await
        }
    });
    Client::new(service, namespace)
}

/// Sends a request, and gives up when its time is over. The answer is complete, unless it is a
/// watch.
async fn answer_within(
    limits: Limits,
    client: Client,
    request: Request<Body>,
) -> Result<Response<Body>, kube::Error> {
    let kind = verb(&request);
    let limit = match kind {
        "watch" => limits.watch,
        "list" => limits.list,
        _ => limits.object,
    };
    let until = Instant::now() + limit;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answer = async {
        let response = client.send(request).await?;
        if kind == "watch" {
            return Ok(response);
        }
        // The time is for the whole answer: the server may go silent within it.
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(head, Body::from(body.collect_bytes().await?)))
    };
    match timeout_at(until, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(Unanswered { method, path, limit }.into())),
    }
}

/// Whether it is unknown if the API server has acted on a request that failed like this. A write
/// may then have happened.
pub(crate) fn is_unknown(error: &kube::Error) -> bool {
    match error {
        // Refused before it was sent.
        kube::Error::Service(error) if error.is::<crate::gate::NotLeading>() => false,
        // Of an error of its own the server says it after it has begun.
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
