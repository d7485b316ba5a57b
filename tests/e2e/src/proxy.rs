//! A proxy between an operator and the API server: it counts what passes, and can
//! keep back the answer to a write, which is then carried out without the operator
//! knowing.
//!
//! Every POST, PUT, PATCH and DELETE counts as a write: those of objects, of the
//! status and of Events.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use flux_operator_testkit::cluster::PATIENCE;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long nothing must be asked for it to be silence.
const SILENCE: Duration = Duration::from_secs(2);

/// Watches of an operator of one namespace that has seen everything: MiniClusters, Jobs,
/// pods, ConfigMaps, Services, FluxJobs, FluxSetups and ResourceQuotas.
const WATCHES: usize = 8;

/// What becomes of answers to writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// They arrive.
    None,
    /// That of the n-th write does not, nor anything after it.
    CutAfter(usize),
    /// Every second is lost on its way.
    Lossy,
}

/// A proxy. It ends when it is dropped.
pub struct Proxy {
    url: String,
    traffic: watch::Sender<Traffic>,
    _server: JoinSet<std::io::Result<()>>,
}

/// What has passed.
#[derive(Debug)]
struct Traffic {
    /// Requests that are no watches, as method and path.
    requests: Vec<String>,
    watches: usize,
    /// Writes since there is trouble.
    writes: usize,
    trouble: Trouble,
    cut: bool,
}

impl Proxy {
    /// Starts a proxy that asks the API server by `client`.
    pub async fn start(client: Client) -> Result<Proxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let nothing = Traffic {
            requests: Vec::new(),
            watches: 0,
            writes: 0,
            trouble: Trouble::None,
            cut: false,
        };
        let traffic = watch::Sender::new(nothing);
        let router = Router::new()
            .fallback(pass_on)
            .with_state(Arc::new(Between { client, traffic: traffic.clone() }));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await });
        Ok(Proxy { url, traffic, _server: server })
    }

    /// A client that goes through the proxy.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::try_from(Config::new(self.url.parse()?))?)
    }

    /// Makes trouble from now on, and counts writes from here.
    pub fn trouble(&self, trouble: Trouble) {
        self.traffic.send_modify(|traffic| {
            traffic.writes = 0;
            traffic.trouble = trouble;
        });
    }

    /// Writes since there is trouble.
    pub fn writes(&self) -> usize {
        self.traffic.borrow().writes
    }

    /// Requests that were no watches, as method and path.
    pub fn requests(&self) -> Vec<String> {
        self.traffic.borrow().requests.clone()
    }

    /// Waits until an operator has looked at everything and watches it.
    pub async fn is_watched(&self) -> Result<()> {
        self.until("no operator came", |traffic| traffic.watches >= WATCHES).await
    }

    /// Waits until the operator is cut off, which may be never.
    pub async fn is_cut(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.traffic.subscribe().wait_for(|traffic| traffic.cut).await;
    }

    /// Waits until nothing is asked any more. That is the one thing that shows only in
    /// time.
    pub async fn silence(&self) -> Result<()> {
        let mut traffic = self.traffic.subscribe();
        let silence =
            async { while tokio::time::timeout(SILENCE, traffic.changed()).await.is_ok() {} };
        let outcome = tokio::time::timeout(PATIENCE, silence).await;
        outcome.with_context(|| format!("the operator is never silent: {:?}", self.requests()))
    }

    async fn until(&self, otherwise: &str, found: impl Fn(&Traffic) -> bool) -> Result<()> {
        let mut traffic = self.traffic.subscribe();
        let found = tokio::time::timeout(PATIENCE, traffic.wait_for(found)).await;
        found.with_context(|| otherwise.to_owned())??;
        Ok(())
    }
}

/// What a request goes through.
struct Between {
    client: Client,
    traffic: watch::Sender<Traffic>,
}

/// What becomes of one answer.
enum Answer {
    Arrives,
    IsLost,
    IsTheLast,
}

async fn pass_on(State(between): State<Arc<Between>>, request: Request) -> Response {
    if between.traffic.borrow().cut {
        return std::future::pending().await;
    }
    let answer = between.note(&request);
    let forwarded = match between.forward(request).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    };
    match answer {
        Answer::Arrives => forwarded,
        Answer::IsLost => StatusCode::GATEWAY_TIMEOUT.into_response(),
        Answer::IsTheLast => {
            between.traffic.send_modify(|traffic| traffic.cut = true);
            std::future::pending().await
        }
    }
}

impl Between {
    fn note(&self, request: &Request) -> Answer {
        let query = request.uri().query().unwrap_or_default();
        let mut answer = Answer::Arrives;
        self.traffic.send_modify(|traffic| {
            if query.split('&').any(|part| part == "watch=true") {
                traffic.watches += 1;
                return;
            }
            traffic.requests.push(format!("{} {}", request.method(), request.uri().path()));
            if *request.method() == Method::GET {
                return;
            }
            traffic.writes += 1;
            answer = match traffic.trouble {
                Trouble::CutAfter(last) if traffic.writes >= last => Answer::IsTheLast,
                Trouble::Lossy if traffic.writes % 2 == 1 => Answer::IsLost,
                Trouble::None | Trouble::CutAfter(_) | Trouble::Lossy => Answer::Arrives,
            };
        });
        answer
    }

    /// Asks the API server. The answer is passed on as it comes: a watch has no end.
    async fn forward(&self, request: Request) -> Result<Response> {
        let (head, body) = request.into_parts();
        let path = head.uri.path_and_query().context("a request without a path")?;
        let mut request = axum::http::Request::builder().method(head.method).uri(path.as_str());
        for name in [ACCEPT, CONTENT_TYPE] {
            if let Some(value) = head.headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let body = to_bytes(body, usize::MAX).await?;
        let request = request.body(kube::client::Body::from(body))?;
        let (head, body) = self.client.send(request).await?.into_parts();
        let mut response = Response::builder().status(head.status);
        if let Some(value) = head.headers.get(CONTENT_TYPE) {
            response = response.header(CONTENT_TYPE, value);
        }
        Ok(response.body(Body::new(body))?)
    }
}
