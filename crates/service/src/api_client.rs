//! A Kubernetes client whose requests do not hang: every request has a timeout, and a response a
//! largest size.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, Response, StatusCode};
use kube::core::Status;
use kube::{Client, client};
use tokio::time::{Instant, timeout_at};

use crate::field_sets;

/// The limits of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Until the last byte of the response; of a watch and of a pod's log, until its first.
    pub timeout: Duration,
    /// The largest response. Who follows a watch, or reads a log, limits that.
    pub response_bytes: usize,
}

/// Limits for our own API server. A page of a list, or an Event, takes a healthy one milliseconds, and it
/// gives up by itself after 60 seconds.
const OWN: RequestLimits =
    RequestLimits { timeout: Duration::from_secs(20), response_bytes: 512 * 1024 * 1024 };

/// The largest error that is parsed. One whose parts are empty objects takes 24 times as much memory.
const MAX_ERROR: usize = 64 * 1024;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("the API server did not respond to {method} {path} within {seconds} s")]
    TimedOut { method: Method, path: String, seconds: u64 },
    #[error("the response to {method} {path} cannot be read, or is larger than {limit} bytes")]
    Response { method: Method, path: String, limit: usize },
}

/// A client whose requests to our own API server do not hang.
pub fn with_timeouts(client: Client) -> Client {
    limited(client, OWN)
}

/// A client whose requests have these limits.
pub fn limited(client: Client, limits: RequestLimits) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<client::Body>| {
        send(client.clone(), request, limits)
    });
    Client::new(service, namespace)
}

async fn send(
    client: Client,
    request: Request<client::Body>,
    limits: RequestLimits,
) -> Result<Response<Body>, kube::Error> {
    let deadline = Instant::now() + limits.timeout;
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let is_log = method == Method::GET && is_log(&path);
    let limit = limits.response_bytes;
    let too_large = RequestError::Response { method: method.clone(), path: path.clone(), limit };
    let response = async {
        let response = client.send(request).await?;
        if is_watch || (is_log && response.status().is_success()) {
            return Ok(field_sets::removed_from_stream(response));
        }
        // The timeout covers the whole response: the server can stall in the middle of it.
        let (head, body) = response.into_parts();
        let body = to_bytes(Body::new(body), limit).await;
        let body = body.map_err(|_error| kube::Error::Service(too_large.into()))?;
        let body = match head.status.is_success() || body.len() <= MAX_ERROR {
            true => field_sets::removed_from(&head.headers, body),
            false => too_large_error(head.status).into(),
        };
        Ok(Response::from_parts(head, Body::from(body)))
    };
    let seconds = limits.timeout.as_secs();
    match timeout_at(deadline, response).await {
        Ok(answer) => answer,
        Err(_elapsed) => {
            Err(kube::Error::Service(RequestError::TimedOut { method, path, seconds }.into()))
        }
    }
}

/// What stands for an error that is too large to be parsed.
fn too_large_error(status: StatusCode) -> Vec<u8> {
    let error =
        Status::failure("its error is too large to be shown", "").with_code(status.as_u16());
    serde_json::to_vec(&error).unwrap_or_default()
}

/// Whether the log of a pod is at this path.
fn is_log(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    parts.next() == Some("log") && parts.nth(1) == Some("pods")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RequestLimits =
        RequestLimits { timeout: Duration::from_secs(5), response_bytes: 1000 };

    async fn text_of(bytes: usize) -> Result<String, kube::Error> {
        let server = tower::service_fn(move |_: Request<client::Body>| async move {
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(vec![b'a'; bytes])))
        });
        let client = limited(Client::new(server, "default"), LIMITS);
        client.request_text(Request::get("/x").body(Vec::new()).unwrap()).await
    }

    #[tokio::test]
    async fn a_response_that_is_too_large_is_an_error() {
        assert_eq!(text_of(1000).await.unwrap().len(), 1000);
        let error = text_of(1001).await.unwrap_err();
        let error = crate::error_chain::chain(&error);
        assert!(error.contains("larger than 1000 bytes"), "{error}");
    }

    async fn answer_to(request: &str, status: u16, text: String) -> Result<String, kube::Error> {
        let server = tower::service_fn(move |_: Request<client::Body>| {
            let answer = Response::builder().status(status);
            let answer =
                answer.header("content-type", "application/json").body(Body::from(text.clone()));
            std::future::ready(answer)
        });
        let limits = RequestLimits { response_bytes: 1_000_000, ..LIMITS };
        let client = limited(Client::new(server, "default"), limits);
        client.request_text(Request::get(request).body(Vec::new()).unwrap()).await
    }

    #[tokio::test]
    async fn field_sets_are_removed_from_every_response() {
        let text = |fields: &str| {
            format!(r#"{{"metadata":{{"managedFields":[{{"manager":"m","fieldsV1":{fields}}}]}}}}"#)
        };
        for request in ["/x", "/x?watch=true"] {
            let received = answer_to(request, 200, text(r#"{"f:spec":{}}"#)).await.unwrap();
            assert_eq!(received, text("{}"), "{request}");
        }
    }

    #[tokio::test]
    async fn a_large_error_is_not_parsed() {
        let error = |parts: usize| {
            let parts = vec!["{}"; parts].join(",");
            let details = format!(r#""details":{{"causes":[{parts}]}}"#);
            format!(r#"{{"kind":"Status","status":"Failure","message":"m","code":403,{details}}}"#)
        };
        for (parts, message) in [(10, "m"), (100_000, "its error is too large to be shown")] {
            let kube::Error::Api(status) = answer_to("/x", 403, error(parts)).await.unwrap_err()
            else {
                panic!("it is an error of the API server");
            };
            assert_eq!((status.code, status.message.as_str()), (403, message));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_respond_is_an_error() {
        let server = tower::service_fn(|_: Request<client::Body>| {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
        });
        let client = limited(Client::new(server, "default"), LIMITS);
        let error = client.request_text(Request::get("/x").body(Vec::new()).unwrap()).await;
        let error = crate::error_chain::chain(&error.unwrap_err());
        assert_eq!(error, "the API server did not respond to GET /x within 5 s");
    }
}
