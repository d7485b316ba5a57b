//! A Kubernetes client whose requests do not hang: every request has a timeout, and a response a
//! largest size.

use std::time::Duration;

use axum::body::to_bytes;
use axum::http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};

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
    let service =
        tower::service_fn(move |request: Request<Body>| send(client.clone(), request, limits));
    Client::new(service, namespace)
}

async fn send(
    client: Client,
    request: Request<Body>,
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
            return Ok(response);
        }
        // The timeout covers the whole response: the server can stall in the middle of it.
        let (head, body) = response.into_parts();
        let body = to_bytes(axum::body::Body::new(body), limit).await;
        let body = body.map_err(|_error| kube::Error::Service(too_large.into()))?;
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
        let server = tower::service_fn(move |_: Request<Body>| async move {
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

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_respond_is_an_error() {
        let server = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
        });
        let client = limited(Client::new(server, "default"), LIMITS);
        let error = client.request_text(Request::get("/x").body(Vec::new()).unwrap()).await;
        let error = crate::error_chain::chain(&error.unwrap_err());
        assert_eq!(error, "the API server did not respond to GET /x within 5 s");
    }
}
