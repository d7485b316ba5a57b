//! One connection to a lease's port: its opening is read, and it is forwarded to where it belongs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::broker::forward_broker;
use crate::brokers::Brokers;
use crate::metrics::{LeaseMetrics, Metrics};
use crate::opening::{GREETING, Protocol, Recognition, recognize};
use crate::places::{Place, Places};
use crate::refusal::{LeaseName, RefusalReason, Refusals};
use crate::request::forward_request;
use crate::route::Route;
use crate::socket::{read_some, set_options, write_all};
use crate::untrusted::{Progress, Untrusted};

/// How long each step of a connection may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Until the client's opening is complete.
    pub(crate) opening: Duration,
    /// From accepting the connection until the lead has accepted the client.
    pub(crate) handshake: Duration,
    /// From the lead's WELCOME until the client's INITIATE is complete.
    pub(crate) initiate: Duration,
    /// To connect to the lead or to the operator.
    pub(crate) connect: Duration,
    /// A request of an agent, from when it is complete to the end of the answer.
    pub(crate) request: Duration,
    /// The time that one direction has after the other one has ended.
    pub(crate) linger: Duration,
    /// Between two attempts to listen on a port that another program uses.
    pub(crate) bind_retry: Duration,
}

/// A client sends its first bytes at once, an opening takes two round trips, INITIATE one and a
/// handshake four. The rest is for lost packets and busy machines. An agent waits 4 s for the answer to its request.
pub(crate) const TIMEOUTS: Timeouts = Timeouts {
    opening: Duration::from_secs(5),
    handshake: Duration::from_secs(10),
    initiate: Duration::from_secs(2),
    connect: Duration::from_secs(4),
    request: Duration::from_secs(5),
    linger: Duration::from_secs(2),
    bind_retry: Duration::from_secs(3),
};

/// What all ports share.
pub(crate) struct Shared {
    pub(crate) timeouts: Timeouts,
    /// The operator's server for reports, as `host:port`.
    pub(crate) report_address: Option<String>,
    pub(crate) untrusted: Arc<Untrusted>,
    pub(crate) brokers: Arc<Brokers>,
    /// One for each request that may be forwarded at the same time.
    pub(crate) requests: Semaphore,
    pub(crate) refusals: Refusals,
    pub(crate) metrics: Metrics,
}

/// One port.
pub(crate) struct Port {
    pub(crate) number: u16,
    pub(crate) lease: LeaseName,
    /// Its sender is dropped when the port is closed.
    pub(crate) route: watch::Receiver<Route>,
    pub(crate) places: Arc<Places>,
    /// One for each request of this port that may be forwarded at the same time.
    pub(crate) requests: Semaphore,
    pub(crate) metrics: LeaseMetrics,
    pub(crate) shared: Arc<Shared>,
}

impl Port {
    /// Records that a connection was refused.
    pub(crate) fn refuse(&self, reason: RefusalReason, peer: IpAddr) {
        let Port { lease: LeaseName { lender, invitation }, .. } = self;
        let (namespace, cluster) = (&lender.namespace, &lender.name);
        let (port, reason_text) = (self.number, reason.as_str());
        // Reports about many refused connections are logged with the Event.
        tracing::debug!(
            namespace,
            cluster,
            invitation,
            port,
            %peer,
            reason = reason_text,
            "refused a connection"
        );
        self.metrics.count_refused(reason);
        self.shared.refusals.record(&self.lease, reason, peer);
    }

    /// Waits until the route fulfils the condition, or the port is closed.
    async fn wait_until(&self, condition: impl FnMut(&Route) -> bool) {
        // An error means that the port is closed.
        let _ = self.route.clone().wait_for(condition).await;
    }
}

/// Serves a connection until it ends, is refused or is cut. It is closed when this returns.
pub(crate) async fn serve(client: TcpStream, peer: IpAddr, place: Place, port: Arc<Port>) {
    let refused = tokio::select! {
        result = forward(&client, &place, &port) => result.err(),
        is_too_many = place.wait_until_cut() => is_too_many.then_some(RefusalReason::TooMany),
        () = port.wait_until(|route| !route.allows(peer)) => None,
    };
    if let Some(reason) = refused {
        // The place is free before others can see that this connection was refused.
        place.leave();
        port.refuse(reason, peer);
    }
}

/// Forwards a connection to where it belongs, until it ends.
async fn forward(client: &TcpStream, place: &Place, port: &Port) -> Result<(), RefusalReason> {
    let timeouts = port.shared.timeouts;
    let deadline = Instant::now() + timeouts.handshake;
    // A failure means that the client has disconnected, which shows when it is read from.
    let _ = set_options(client);
    let opened = read_opening(client, place, &port.lease.invitation);
    let opened = timeout(timeouts.opening, opened).await;
    let Some((protocol, opening)) = opened.map_err(|_elapsed| RefusalReason::Silent)?? else {
        return Ok(());
    };
    if protocol == Protocol::Request {
        return forward_request(client, &opening, place, port).await;
    }
    place.advance(Progress::Opened);
    let lead = port.route.borrow().lead.ok_or(RefusalReason::NoLead)?;
    tokio::select! {
        result = forward_broker(client, protocol, &opening, lead, deadline, place, port) => result,
        // The lead has moved. The broker connects again.
        () = port.wait_until(|route| route.lead != Some(lead)) => Ok(()),
    }
}

/// Reads until the client's opening is complete. None if it disconnects without having sent a byte,
/// as load balancers do to check whether a port is open.
async fn read_opening(
    client: &TcpStream,
    place: &Place,
    invitation: &str,
) -> Result<Option<(Protocol, Vec<u8>)>, RefusalReason> {
    let mut bytes = Vec::new();
    let mut has_greeted = false;
    loop {
        match read_some(client, &mut bytes).await {
            Ok(1..) => {}
            Ok(0) | Err(_) if bytes.is_empty() => return Ok(None),
            Ok(0) | Err(_) => return Err(RefusalReason::Silent),
        }
        match recognize(&bytes, invitation) {
            Recognition::Unknown => {}
            Recognition::Recognized(protocol) => {
                place.advance(Progress::Recognized);
                // A broker of Flux waits for it.
                if protocol == Protocol::Zmtp && !std::mem::replace(&mut has_greeted, true) {
                    let sent = write_all(client, &GREETING).await;
                    sent.map_err(|_disconnected| RefusalReason::Silent)?;
                }
            }
            Recognition::Complete(protocol) => return Ok(Some((protocol, bytes))),
            Recognition::Garbage => return Err(RefusalReason::Garbage),
        }
    }
}

/// Waits until a client acts that has to wait for an answer. Returns whether it has sent something;
/// otherwise it has disconnected.
pub(crate) async fn wait_for_client(client: &TcpStream) -> bool {
    matches!(client.peek(&mut [0]).await, Ok(1..))
}

/// Connects within a time.
pub(crate) async fn connect(
    limit: Duration,
    connecting: impl Future<Output = io::Result<TcpStream>>,
) -> Option<TcpStream> {
    let stream = timeout(limit, connecting).await.ok()?.ok()?;
    set_options(&stream).ok()?;
    Some(stream)
}
