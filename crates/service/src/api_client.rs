//! A Kubernetes client whose requests do not hang: every request has a timeout.

use std::time::Duration;

use axum::http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};

/// One page of a list, or an Event, until the last byte of the response; a watch until its first. A
/// healthy API server needs milliseconds, and gives up by itself after 60 seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The API server did not respond in time.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not respond to {method} {path} within {} s", REQUEST_TIMEOUT.as_secs())]
struct RequestTimedOut {
    method: Method,
    path: String,
}

/// A client whose requests do not hang.
pub fn with_timeouts(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| send(client.clone(), request));
    Client::new(service, namespace)
}

async fn send(client: Client, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = async {
        let response = client.send(request).await?;
        if is_watch {
            return Ok(response);
        }
        // The timeout covers the whole response: the server can stall in the middle of it.
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(head, Body::from(body.collect_bytes().await?)))
    };
    match timeout_at(deadline, response).await {
        Ok(answer) => answer,
        Err(_elapsed) => Err(kube::Error::Service(RequestTimedOut { method, path }.into())),
    }
}
