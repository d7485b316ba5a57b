//! A broker: its handshake with the lead is relayed until the lead has accepted it, then all bytes are
//! copied.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::connection::{Port, connect, wait_for_client};
use crate::handshake::{HandshakeSide, Outcome};
use crate::opening::Protocol;
use crate::places::Place;
use crate::refusal::{LeaseName, RefusalReason};
use crate::relay::{Side, relay};
use crate::socket::{read_some, write_all};

/// The maximum number of bytes of a client that are read before they can be forwarded.
const MAX_WITHHELD: usize = 4096;

/// Forwards a broker to the lead.
pub(crate) async fn forward_broker(
    client: &TcpStream,
    protocol: Protocol,
    opening: &[u8],
    address: SocketAddr,
    deadline: Instant,
    place: &Place,
    port: &Port,
) -> Result<(), RefusalReason> {
    let Port { metrics, shared, .. } = port;
    let lead = tokio::select! {
        lead = connect(shared.timeouts.connect, TcpStream::connect(address)) => {
            lead.ok_or(RefusalReason::LeadUnreachable)?
        }
        has_sent = wait_for_client(client) => return Err(when_client_acts(has_sent)),
    };
    let shaken = relay_handshake(client, &lead, protocol, opening, place, shared.timeouts.initiate);
    let Withheld { from_client, from_lead } =
        timeout_at(deadline, shaken).await.map_err(|_elapsed| RefusalReason::Silent)??;
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

/// Bytes of both sides that follow the handshake, or complete it.
struct Withheld {
    from_client: Vec<u8>,
    from_lead: Vec<u8>,
}

/// Sends the client's opening to the lead, and relays the handshake until the lead has accepted the
/// client. What the lead says then is withheld.
async fn relay_handshake(
    client: &TcpStream,
    lead: &TcpStream,
    protocol: Protocol,
    opening: &[u8],
    place: &Place,
    initiate: Duration,
) -> Result<Withheld, RefusalReason> {
    let (mut from_client, mut from_lead) = (Vec::new(), Vec::new());
    let mut side_of_client = HandshakeSide::of_client(protocol);
    let mut side_of_lead = HandshakeSide::of_lead(protocol);
    // When INITIATE is due, once there is WELCOME.
    let mut initiate_due = None;
    let sent = write_all(lead, opening).await;
    sent.map_err(|_| when_lead_disconnects(protocol, &side_of_lead, &from_lead))?;
    loop {
        let relayed = side_of_client.advance(&from_client);
        if relayed.outcome == Outcome::Malformed {
            return Err(RefusalReason::Garbage);
        }
        let has_initiated = relayed.outcome == Outcome::Done;
        let sent = write_all(lead, &from_client[..relayed.forward]).await;
        from_client.drain(..relayed.forward);
        sent.map_err(|_| when_lead_disconnects(protocol, &side_of_lead, &from_lead))?;

        let relayed = side_of_lead.advance(&from_lead);
        if relayed.outcome == Outcome::Malformed {
            return Err(RefusalReason::LeadUnreachable);
        }
        from_lead.drain(..relayed.skip);
        if side_of_lead.has_welcomed() && initiate_due.is_none() {
            place.prove();
            initiate_due = Some(Instant::now() + initiate);
        }
        let sent = write_all(client, &from_lead[..relayed.forward]).await;
        from_lead.drain(..relayed.forward);
        sent.map_err(|_| RefusalReason::Silent)?;
        match relayed.outcome {
            Outcome::Pending => {}
            Outcome::Done => return Ok(Withheld { from_client, from_lead }),
            Outcome::Refused | Outcome::Malformed => return Err(RefusalReason::WrongKey),
        }

        tokio::select! {
            read = read_some(client, &mut from_client), if from_client.len() < MAX_WITHHELD => {
                let has_sent = matches!(read, Ok(1..));
                // It can send nothing valid before WELCOME, which contains keys that it needs.
                if !has_sent || !side_of_lead.has_welcomed() {
                    return Err(when_client_acts(has_sent));
                }
            }
            read = read_some(lead, &mut from_lead) => {
                if !matches!(read, Ok(1..)) {
                    return Err(when_lead_disconnects(protocol, &side_of_lead, &from_lead));
                }
            }
            () = sleep_until_some(initiate_due), if !has_initiated => {
                return Err(RefusalReason::Silent);
            }
        }
    }
}

/// Waits until this time, and forever if there is none.
async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Why a client is refused that has sent something or has disconnected while it should wait.
fn when_client_acts(has_sent: bool) -> RefusalReason {
    if has_sent { RefusalReason::Garbage } else { RefusalReason::Silent }
}

/// Why the lead has disconnected during a handshake, of which it has sent these bytes and maybe more
/// before. One that did not even start to greet was not a lead, or was just stopping; fluxlet has no
/// greeting. A lead that does not accept HELLO may have sent only the start of its greeting.
fn when_lead_disconnects(protocol: Protocol, lead: &HandshakeSide, sent: &[u8]) -> RefusalReason {
    if protocol == Protocol::Zmtp && !lead.has_greeted() && sent.is_empty() {
        RefusalReason::LeadUnreachable
    } else {
        RefusalReason::WrongKey
    }
}
