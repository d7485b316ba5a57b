//! One connection to a lease's port: recognized, relayed during the handshake, then copied.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::greeting::{Protocol, Recognition, recognize};
use crate::handshake::{HandshakeSide, Outcome};
use crate::metrics::{LeaseMetrics, Metrics};
use crate::places::{Place, Places};
use crate::refusal::{LeaseName, RefusalReason, Refusals};
use crate::relay::{Side, relay};
use crate::route::Route;
use crate::socket::{read_some, set_options, write_all};

/// How long each step of a connection may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Until the client is recognized.
    pub(crate) first_bytes: Duration,
    /// From accepting the connection until the lead has accepted the client.
    pub(crate) handshake: Duration,
    /// To connect to the lead or to the operator.
    pub(crate) connect: Duration,
    /// A request of an agent, from its start to its end.
    pub(crate) request: Duration,
    /// The time that one direction has after the other one has ended.
    pub(crate) linger: Duration,
    /// Between two attempts to listen on a port that another program uses.
    pub(crate) bind_retry: Duration,
}

/// A client sends its first bytes at once, and a handshake takes three round trips. The rest is for
/// lost packets and busy machines. The operator answers a request within 25 s.
pub(crate) const TIMEOUTS: Timeouts = Timeouts {
    first_bytes: Duration::from_secs(5),
    handshake: Duration::from_secs(10),
    connect: Duration::from_secs(4),
    request: Duration::from_secs(30),
    linger: Duration::from_secs(2),
    bind_retry: Duration::from_secs(3),
};

/// The maximum number of bytes that a client may send before they are forwarded.
const MAX_WITHHELD: usize = 4096;

/// What all ports share.
pub(crate) struct Shared {
    pub(crate) timeouts: Timeouts,
    /// The operator's server for reports, as `host:port`.
    pub(crate) report_address: Option<String>,
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
        in_handshake = place.wait_until_cut() => in_handshake.then_some(RefusalReason::TooMany),
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
    let recognized = timeout(timeouts.first_bytes, read_first_bytes(client)).await;
    let Some((protocol, first)) = recognized.map_err(|_elapsed| RefusalReason::Silent)?? else {
        return Ok(());
    };
    if protocol == Protocol::Request {
        return forward_request(client, first, place, port).await;
    }
    let lead = port.route.borrow().lead.ok_or(RefusalReason::NoLead)?;
    tokio::select! {
        result = forward_broker(client, protocol, first, lead, deadline, place, port) => result,
        // The lead has moved. The broker connects again.
        () = port.wait_until(|route| route.lead != Some(lead)) => Ok(()),
    }
}

/// Reads until the client is recognized. None if it disconnects without having sent a byte, as load
/// balancers do to check whether a port is open.
async fn read_first_bytes(
    client: &TcpStream,
) -> Result<Option<(Protocol, Vec<u8>)>, RefusalReason> {
    let mut bytes = Vec::new();
    loop {
        match read_some(client, &mut bytes).await {
            Ok(1..) => {}
            Ok(0) | Err(_) if bytes.is_empty() => return Ok(None),
            Ok(0) | Err(_) => return Err(RefusalReason::Silent),
        }
        match recognize(&bytes) {
            Recognition::Incomplete => {}
            Recognition::Recognized(protocol) => return Ok(Some((protocol, bytes))),
            Recognition::Garbage => return Err(RefusalReason::Garbage),
        }
    }
}

/// Forwards an agent's request to the operator.
async fn forward_request(
    client: &TcpStream,
    first: Vec<u8>,
    place: &Place,
    port: &Port,
) -> Result<(), RefusalReason> {
    let Shared { timeouts, report_address, .. } = &*port.shared;
    let address = report_address.as_deref().ok_or(RefusalReason::Garbage)?;
    place.become_request().map_err(|_no_place| RefusalReason::TooMany)?;
    let forwarded = async {
        let operator = connect(timeouts.connect, TcpStream::connect(address))
            .await
            .ok_or(RefusalReason::OperatorUnreachable)?;
        port.metrics.count_request();
        if write_all(&operator, &first).await.is_err() {
            return Err(RefusalReason::OperatorUnreachable);
        }
        // Bytes of requests are not counted.
        let uncounted = Default::default();
        let one = Side { stream: client, received: &uncounted };
        let other = Side { stream: &operator, received: &uncounted };
        // A connection that fails now concerns only the agent, which asks again.
        let _ = relay(one, other, timeouts.request, || {}).await;
        Ok(())
    };
    timeout(timeouts.request, forwarded).await.unwrap_or(Ok(()))
}

/// Forwards a broker to the lead.
async fn forward_broker(
    client: &TcpStream,
    protocol: Protocol,
    first: Vec<u8>,
    address: SocketAddr,
    deadline: Instant,
    place: &Place,
    port: &Port,
) -> Result<(), RefusalReason> {
    let Port { metrics, shared, .. } = port;
    let lead = connect(shared.timeouts.connect, TcpStream::connect(address))
        .await
        .ok_or(RefusalReason::LeadUnreachable)?;
    let shaken = timeout_at(deadline, relay_handshake(client, &lead, protocol, first)).await;
    let Withheld { from_client, from_lead } =
        shaken.map_err(|_elapsed| RefusalReason::Silent)??;
    place.become_broker().map_err(|_no_place| RefusalReason::TooMany)?;
    let _open = metrics.begin_connection();
    let (one, other) = (
        Side { stream: client, received: &metrics.bytes_from_lead },
        Side { stream: &lead, received: &metrics.bytes_to_lead },
    );
    let copied = async {
        write_all(client, &from_lead).await?;
        write_all(&lead, &from_client).await?;
        // A broker that connects again may do so before the lead has noticed the end.
        relay(one, other, shared.timeouts.linger, || place.leave()).await
    };
    if let Err(error) = copied.await {
        let LeaseName { lender, invitation } = &port.lease;
        let (namespace, cluster) = (&lender.namespace, &lender.name);
        tracing::debug!(namespace, cluster, invitation, %error, "a connection failed");
    }
    Ok(())
}

/// Connects within a time.
async fn connect(
    limit: Duration,
    connecting: impl Future<Output = io::Result<TcpStream>>,
) -> Option<TcpStream> {
    let stream = timeout(limit, connecting).await.ok()?.ok()?;
    set_options(&stream).ok()?;
    Some(stream)
}

/// Bytes of both sides that follow the handshake, or complete it.
struct Withheld {
    from_client: Vec<u8>,
    from_lead: Vec<u8>,
}

/// Relays the handshake until the lead has accepted the client. What the lead says then is withheld.
async fn relay_handshake(
    client: &TcpStream,
    lead: &TcpStream,
    protocol: Protocol,
    first: Vec<u8>,
) -> Result<Withheld, RefusalReason> {
    let (mut from_client, mut from_lead) = (first, Vec::new());
    let mut side_of_client = HandshakeSide::of_client(protocol);
    let mut side_of_lead = HandshakeSide::of_lead(protocol);
    loop {
        let progress = side_of_client.advance(&from_client);
        if progress.outcome == Outcome::Malformed {
            return Err(RefusalReason::Garbage);
        }
        let sent = write_all(lead, &from_client[..progress.forward]).await;
        from_client.drain(..progress.forward);
        sent.map_err(|_| when_lead_disconnects(protocol, &side_of_lead))?;

        let progress = side_of_lead.advance(&from_lead);
        if progress.outcome == Outcome::Malformed {
            return Err(RefusalReason::LeadUnreachable);
        }
        let sent = write_all(client, &from_lead[..progress.forward]).await;
        from_lead.drain(..progress.forward);
        sent.map_err(|_| RefusalReason::Silent)?;
        match progress.outcome {
            Outcome::Pending => {}
            Outcome::Done => return Ok(Withheld { from_client, from_lead }),
            Outcome::Refused | Outcome::Malformed => return Err(RefusalReason::WrongKey),
        }

        tokio::select! {
            read = read_some(client, &mut from_client), if from_client.len() < MAX_WITHHELD => {
                if !matches!(read, Ok(1..)) {
                    return Err(RefusalReason::Silent);
                }
            }
            read = read_some(lead, &mut from_lead) => {
                if !matches!(read, Ok(1..)) {
                    return Err(when_lead_disconnects(protocol, &side_of_lead));
                }
            }
        }
    }
}

/// Why the lead has disconnected during a handshake. One that did not even greet was not a lead, or
/// was just stopping; fluxlet has no greeting.
fn when_lead_disconnects(protocol: Protocol, lead: &HandshakeSide) -> RefusalReason {
    if protocol == Protocol::Zmtp && !lead.has_greeted() {
        RefusalReason::LeadUnreachable
    } else {
        RefusalReason::WrongKey
    }
}
