//! Requests of agents, for the operator.
//!
//! A request is read as a whole before the operator is connected, so a client cannot occupy a
//! connection to it by sending slowly. And only requests in the name of the port's invitation are
//! forwarded: the operator answers these at once. It would keep others open for up to 25 s, if they are
//! sealed with the key of any cluster (`WorkWanted`).

use std::sync::LazyLock;

use flux_operator_wire::names::{header, path};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connection::{Port, Shared, connect, wait_for_client};
use crate::places::Place;
use crate::refusal::RefusalReason;
use crate::relay::{Side, copy};
use crate::socket::write_all;
use crate::untrusted::Progress;

/// The maximum size of a request. An agent's has one or two KiB.
const MAX_REQUEST: usize = 8 * 1024;

/// The number of requests that are forwarded at the same time, of all ports; others wait. The
/// operator allows 128 connections from one address on which no seal was verified yet, and closes
/// the oldest when there are more (`MAX_UNVERIFIED_PER_PEER`). All requests come from the gateway's
/// address, so this has to be less, or requests without a valid seal would end those that have one.
pub(crate) const MAX_FORWARDED: usize = 64;

/// How many of these one port can have, so that a few ports cannot have all.
pub(crate) const MAX_FORWARDED_PER_PORT: usize = 16;

/// The first line of a request, with its end.
pub(crate) static REQUEST_LINE: LazyLock<String> =
    LazyLock::new(|| format!("POST {} HTTP/1.1\r\n", path::REPORT));

/// The bytes are not those of a request that is forwarded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotARequest;

/// The length of the request that starts with these bytes, in the name of this invitation. While its
/// head is incomplete, it is the maximum.
///
/// Strict, so that the operator finds the same length and the same invitation: it would wait for the
/// rest of a longer one.
pub(crate) fn request_length(bytes: &[u8], invitation: &str) -> Result<usize, NotARequest> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(head) = bytes.windows(END.len()).position(|window| window == END) else {
        return if bytes.len() < MAX_REQUEST { Ok(MAX_REQUEST) } else { Err(NotARequest) };
    };
    let headers = bytes[..head + 2].strip_prefix(REQUEST_LINE.as_bytes()).ok_or(NotARequest)?;
    let (mut body, mut named) = (None, None);
    for line in headers.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r\n").ok_or(NotARequest)?;
        let line = str::from_utf8(line).map_err(|_| NotARequest)?;
        let (name, value) = line.split_once(':').ok_or(NotARequest)?;
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(NotARequest);
        }
        if name.eq_ignore_ascii_case("content-length") {
            let length = value.trim_matches(' ').parse::<u16>().map_err(|_| NotARequest)?;
            if body.replace(usize::from(length)).is_some() {
                return Err(NotARequest);
            }
        }
        if name.eq_ignore_ascii_case(header::INVITATION)
            && named.replace(value.trim_matches([' ', '\t'])).is_some()
        {
            return Err(NotARequest);
        }
    }
    if named != Some(invitation) {
        return Err(NotARequest);
    }
    let length = head + END.len() + body.unwrap_or_default();
    if length <= MAX_REQUEST { Ok(length) } else { Err(NotARequest) }
}

/// Forwards a request to the operator, and its answer to the client.
pub(crate) async fn forward_request(
    client: &TcpStream,
    request: &[u8],
    place: &Place,
    port: &Port,
) -> Result<(), RefusalReason> {
    let Shared { timeouts, report_address, requests, .. } = &*port.shared;
    let address = report_address.as_deref().ok_or(RefusalReason::Garbage)?;
    // One that only waits for its turn must not keep handshakes out.
    place.advance(Progress::Recognized);
    let forwarded = async {
        // Never closed, so both are acquired in the end. The port's own first, so that those that wait
        // for it do not take the turns of other ports.
        let _turn_of_port = port.requests.acquire().await;
        let _turn = requests.acquire().await;
        place.advance(Progress::Opened);
        let operator = connect(timeouts.connect, TcpStream::connect(address))
            .await
            .ok_or(RefusalReason::OperatorUnreachable)?;
        port.metrics.count_request();
        if write_all(&operator, request).await.is_err() {
            return Err(RefusalReason::OperatorUnreachable);
        }
        // Bytes of requests are not counted.
        let uncounted = Default::default();
        // A connection that fails now concerns only the agent, which asks again.
        let _ = copy(&operator, &Side { stream: client, received: &uncounted }).await;
        Ok(())
    };
    tokio::select! {
        // Its agent has given up when a request takes longer.
        result = timeout(timeouts.request, forwarded) => result.unwrap_or(Ok(())),
        // Nothing may follow a request; an agent that has given up disconnects.
        has_sent = wait_for_client(client) => match has_sent {
            true => Err(RefusalReason::Garbage),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(text: &str) -> Result<usize, NotARequest> {
        request_length(text.as_bytes(), "cloud")
    }

    #[test]
    fn the_length_follows_from_the_head() {
        let head = "POST /v1/report HTTP/1.1\r\nHost: a\r\nCoNTent-Length: 10\r\n\
                    x-FLUX-invitation:\tcloud \r\n\r\n";
        assert_eq!(length(head), Ok(head.len() + 10));
        assert_eq!(length(&[head, "0123456789 more"].concat()), Ok(head.len() + 10));
        for end in 0..head.len() {
            assert_eq!(length(&head[..end]), Ok(MAX_REQUEST), "{end}");
        }
        let without_body = "POST /v1/report HTTP/1.1\r\nX-Flux-Invitation: cloud\r\n\r\n";
        assert_eq!(length(without_body), Ok(without_body.len()));
    }

    #[test]
    fn what_the_operator_could_read_differently_is_not_forwarded() {
        let with = |headers: &str| {
            length(&format!(
                "POST /v1/report HTTP/1.1\r\nX-Flux-Invitation: cloud\r\n{headers}\r\n"
            ))
        };
        assert!(with("").is_ok());
        for headers in [
            "Transfer-Encoding: chunked\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 8192\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "A: b\nContent-Length: 10\r\n",
            "no colon\r\n",
            "X-Flux-Invitation: cloud\r\n",
        ] {
            assert_eq!(with(headers), Err(NotARequest), "{headers}");
        }
        let endless = format!("{}X: {}", *REQUEST_LINE, "x".repeat(MAX_REQUEST));
        assert_eq!(length(&endless), Err(NotARequest));
    }

    /// The operator keeps requests open that are not in the name of an invitation.
    #[test]
    fn only_a_request_in_the_name_of_the_ports_invitation_is_forwarded() {
        let cloud = "X-Flux-Invitation: cloud";
        for (line, header) in [
            ("POST /v1/report HTTP/1.1", "Host: a"),
            ("POST /v1/report HTTP/1.1", "X-Flux-Invitation: other"),
            ("POST /v1/report HTTP/1.1", "X-Flux-Invitation: Cloud"),
            ("POST /v1/report HTTP/1.1", "X-Flux-Invitation:"),
            ("POST /v1/report HTTP/1.1", "X-Flux-Invitation : cloud"),
            ("POST /v1/report HTTP/1.1", "X-Flux-Invitation: cloud\r\nX-Flux-Invitation: other"),
            ("POST /v1/lead HTTP/1.1", cloud),
            ("POST /v1/report?a HTTP/1.1", cloud),
            ("POST /v1/report HTTP/1.0", cloud),
            ("POST  /v1/report HTTP/1.1", cloud),
            ("GET /v1/report HTTP/1.1", cloud),
        ] {
            let request = format!("{line}\r\n{header}\r\n\r\n");
            assert_eq!(length(&request), Err(NotARequest), "{request}");
        }
    }
}
