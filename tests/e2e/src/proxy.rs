//! A proxy between an operator and the API server. It counts requests, and can inject faults: drop
//! the response to a write, which is then executed without the operator's knowledge; delay
//! admissions; and stall watches.
//!
//! Every POST, PUT, PATCH and DELETE counts as a write: of objects, of the status and of Events.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use flux_operator_testkit::cluster::TIMEOUT;
use futures::{StreamExt, stream};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long no request must arrive for the operator to be idle.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// The number of watches of an operator for one namespace once it has started: MiniClusters, Jobs,
/// pods, ConfigMaps, Services, EndpointSlices, FluxJobs, FluxSetups, ResourceQuotas and BurstPolicies.
const WATCHES: usize = 10;

/// The fault that the proxy injects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// The response to the n-th write is dropped, and all later requests are blocked.
    CutAfter(usize),
    /// The same for the first write that the API server accepts: to create what exists changes
    /// nothing.
    CutAfterChange,
    /// The response to every second write is dropped.
    Lossy,
    /// Writes to the status of FluxJobs reach the API server this much later, even if the operator
    /// no longer waits for the response.
    Delay(Duration),
    /// Immediately before the next write to the status of the object at this path, another client
    /// changes the object with this merge patch.
    ConcurrentChange(String, Value),
}

/// The entry in [`Proxy::executed_writes`] for a release of the Lease.
pub const RELEASED: &str = "released";

/// A proxy. It stops when it is dropped.
pub struct Proxy {
    url: String,
    traffic: watch::Sender<Traffic>,
    _server: JoinSet<std::io::Result<()>>,
}

/// The recorded traffic.
#[derive(Debug)]
struct Traffic {
    /// Requests except watches and those for the Lease, as method and path.
    requests: Vec<String>,
    watches: usize,
    /// The number of writes since the fault was injected.
    writes: usize,
    fault: Fault,
    is_cut: bool,
    /// Writes to which the API server has responded, as method and path.
    executed: Vec<String>,
    /// How often all watches were stalled.
    stalls: usize,
}

impl Proxy {
    /// Starts a proxy that forwards requests with `client`.
    pub async fn start(client: Client) -> Result<Proxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let nothing = Traffic {
            requests: Vec::new(),
            watches: 0,
            writes: 0,
            fault: Fault::None,
            is_cut: false,
            executed: Vec::new(),
            stalls: 0,
        };
        let traffic = watch::Sender::new(nothing);
        let router = Router::new()
            .fallback(handle)
            .with_state(Arc::new(ProxyState { client, traffic: traffic.clone() }));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await });
        Ok(Proxy { url, traffic, _server: server })
    }

    /// A client that uses the proxy.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::try_from(Config::new(self.url.parse()?))?)
    }

    /// A kubeconfig for a program that uses the proxy.
    pub fn kubeconfig(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "namespace": namespace } }],
            "clusters": [{ "name": "proxy", "cluster": { "server": self.url } }],
        })
    }

    /// Injects a fault from now on, and starts counting writes. Requests are no longer blocked.
    pub fn inject(&self, fault: Fault) {
        self.traffic.send_modify(|traffic| {
            traffic.writes = 0;
            traffic.is_cut = false;
            traffic.fault = fault;
        });
    }

    /// The number of writes since the fault was injected.
    pub fn writes(&self) -> usize {
        self.traffic.borrow().writes
    }

    /// Requests except watches, as method and path.
    pub fn requests(&self) -> Vec<String> {
        self.traffic.borrow().requests.clone()
    }

    /// Writes to which the API server has responded, in order, as method and path; a release of the
    /// Lease is [`RELEASED`].
    pub fn executed_writes(&self) -> Vec<String> {
        self.traffic.borrow().executed.clone()
    }

    /// Waits until the requests except watches, and the executed writes, satisfy `wanted`.
    pub async fn wait_for_traffic(
        &self,
        wanted: impl Fn(&[String], &[String]) -> bool,
    ) -> Result<()> {
        let found = |traffic: &Traffic| wanted(&traffic.requests, &traffic.executed);
        self.wait_for("the operator never made the requests", found).await
    }

    /// Stops forwarding data on all watches that are open now, and keeps them open: as if the
    /// backend had silently disappeared.
    pub fn stall_watches(&self) {
        self.traffic.send_modify(|traffic| traffic.stalls += 1);
    }

    /// Waits until an operator has listed everything and watches it.
    pub async fn wait_until_watched(&self) -> Result<()> {
        self.wait_for("no operator started its watches", |traffic| traffic.watches >= WATCHES).await
    }

    /// Waits until the operator is cut off, which may be never.
    pub async fn wait_until_cut(&self) {
        // We own the sender, so the channel is open.
        let _ = self.traffic.subscribe().wait_for(|traffic| traffic.is_cut).await;
    }

    /// Waits until the operator makes no more requests. Only time can show that.
    pub async fn wait_until_idle(&self) -> Result<()> {
        let mut traffic = self.traffic.subscribe();
        let silence =
            async { while tokio::time::timeout(IDLE_TIME, traffic.changed()).await.is_ok() {} };
        let outcome = tokio::time::timeout(TIMEOUT, silence).await;
        outcome.with_context(|| format!("the operator does not become idle: {:?}", self.requests()))
    }

    async fn wait_for(&self, otherwise: &str, found: impl Fn(&Traffic) -> bool) -> Result<()> {
        let mut traffic = self.traffic.subscribe();
        let found = tokio::time::timeout(TIMEOUT, traffic.wait_for(found)).await;
        found.with_context(|| otherwise.to_owned())??;
        Ok(())
    }
}

/// The state of the request handler.
struct ProxyState {
    client: Client,
    traffic: watch::Sender<Traffic>,
}

/// What to do with a response.
enum ResponseAction {
    Deliver,
    Drop,
    DropAndCut,
    DropAndCutIfAccepted,
}

async fn handle(State(state): State<Arc<ProxyState>>, request: Request) -> Response {
    if state.traffic.borrow().is_cut {
        return std::future::pending().await;
    }
    let (answer, late) = (state.record(&request), state.delay_of(&request));
    // In a separate task, because a sent request is executed even if the sender is cancelled.
    let forwarding = state.clone();
    let forwarded = tokio::spawn(async move { forwarding.forward(request, late).await });
    let forwarded = match forwarded.await.map_err(anyhow::Error::from).flatten() {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    };
    match answer {
        ResponseAction::DropAndCutIfAccepted if !forwarded.status().is_success() => forwarded,
        ResponseAction::Deliver => forwarded,
        ResponseAction::Drop => StatusCode::GATEWAY_TIMEOUT.into_response(),
        ResponseAction::DropAndCut | ResponseAction::DropAndCutIfAccepted => {
            state.traffic.send_modify(|traffic| traffic.is_cut = true);
            std::future::pending().await
        }
    }
}

impl ProxyState {
    fn record(&self, request: &Request) -> ResponseAction {
        let query = request.uri().query().unwrap_or_default();
        let mut action = ResponseAction::Deliver;
        self.traffic.send_if_modified(|traffic| {
            if is_watch(query) {
                traffic.watches += 1;
                // Watches are renewed regularly; the operator is idle nevertheless.
                return traffic.watches <= WATCHES;
            }
            if is_lease(request.uri().path()) {
                return false;
            }
            traffic.requests.push(format!("{} {}", request.method(), request.uri().path()));
            if *request.method() == Method::GET {
                return true;
            }
            traffic.writes += 1;
            action = match &traffic.fault {
                Fault::CutAfter(last) if traffic.writes >= *last => ResponseAction::DropAndCut,
                Fault::CutAfterChange => ResponseAction::DropAndCutIfAccepted,
                Fault::Lossy if traffic.writes % 2 == 1 => ResponseAction::Drop,
                Fault::None
                | Fault::CutAfter(_)
                | Fault::Lossy
                | Fault::Delay(_)
                | Fault::ConcurrentChange(..) => ResponseAction::Deliver,
            };
            true
        });
        action
    }

    /// How long to delay a request.
    fn delay_of(&self, request: &Request) -> Duration {
        let path = request.uri().path();
        match &self.traffic.borrow().fault {
            Fault::Delay(late)
                if *request.method() != Method::GET
                    && path.contains("/fluxjobs/")
                    && path.ends_with("/status") =>
            {
                *late
            }
            _ => Duration::ZERO,
        }
    }

    /// Changes an object whose status is about to be written, once, if that is the injected fault.
    async fn change_concurrently(&self, target: &str) -> Result<()> {
        let mut change = None;
        self.traffic.send_if_modified(|traffic| {
            if let Fault::ConcurrentChange(path, patch) = &traffic.fault
                && target.strip_suffix("/status") == Some(path)
            {
                change = Some((path.clone(), patch.clone()));
                traffic.fault = Fault::None;
            }
            false
        });
        let Some((path, patch)) = change else { return Ok(()) };
        let request = axum::http::Request::patch(path)
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(kube::client::Body::from(serde_json::to_vec(&patch)?))?;
        let response = self.client.send(request).await?;
        anyhow::ensure!(response.status().is_success(), "{}", response.status());
        Ok(())
    }

    /// Forwards a request to the API server. The response is streamed, because a watch does not
    /// end.
    async fn forward(&self, request: Request, delay: Duration) -> Result<Response> {
        let silenced = self.traffic.borrow().stalls;
        let (head, body) = request.into_parts();
        let is_watch = is_watch(head.uri.query().unwrap_or_default());
        let write = (head.method != Method::GET).then(|| head.method.clone());
        let target = head.uri.path().to_owned();
        let path = head.uri.path_and_query().context("a request without a path")?;
        let mut request = axum::http::Request::builder().method(head.method).uri(path.as_str());
        for name in [ACCEPT, CONTENT_TYPE] {
            if let Some(value) = head.headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let body = to_bytes(body, usize::MAX).await?;
        tokio::time::sleep(delay).await;
        if write.is_some() {
            self.change_concurrently(&target).await?;
        }
        let lease = is_lease(&target).then(|| is_released(&body));
        let request = request.body(kube::client::Body::from(body))?;
        let (head, body) = self.client.send(request).await?.into_parts();
        let executed = write.and_then(|method| match lease {
            None => Some(format!("{method} {target}")),
            Some(true) => Some(RELEASED.to_owned()),
            Some(false) => None,
        });
        if let Some(landed) = executed {
            self.traffic.send_modify(|traffic| traffic.executed.push(landed));
        }
        let mut response = Response::builder().status(head.status);
        if let Some(value) = head.headers.get(CONTENT_TYPE) {
            response = response.header(CONTENT_TYPE, value);
        }
        if !is_watch {
            return Ok(response.body(Body::new(body))?);
        }
        let events = (Body::new(body).into_data_stream(), self.traffic.subscribe());
        let shown = stream::unfold(events, move |(mut shown, mut traffic)| async move {
            let is_silenced =
                async { traffic.wait_for(|traffic| traffic.stalls > silenced).await.map(drop) };
            let next = tokio::select! {
                biased;
                // The connection stays open.
                _ = is_silenced => std::future::pending().await,
                next = shown.next() => next?,
            };
            Some((next, (shown, traffic)))
        });
        Ok(response.body(Body::from_stream(shown))?)
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|part| part == "watch=true")
}

/// Whether a request is about the Lease, which a replica renews regularly.
fn is_lease(path: &str) -> bool {
    path.split('/').any(|part| part == "leases")
}

/// Whether the written Lease has no holder.
fn is_released(lease: &[u8]) -> bool {
    let lease: Value = serde_json::from_slice(lease).unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty()
}
