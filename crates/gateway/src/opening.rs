//! Which protocol a client speaks, and whether its *opening* is complete: all that it can send before
//! the lead or the operator has answered.
//!
//! | client | opening |
//! |---|---|
//! | a broker of Flux | the greeting of ZMTP 3 (ZeroMQ RFC 23 and 37) and HELLO of CURVE (RFC 26) |
//! | a broker of fluxlet | one message |
//! | an agent | one request of HTTP, in the name of the port's invitation |
//!
//! A lead or operator is connected only to clients whose opening is complete, and answers it at once:
//! libzmq and fluxlet check with the certificate's key that the client knows it, and disconnect
//! otherwise. So a client that stops in the middle costs them nothing.
//!
//! The greeting has 64 bytes:
//!
//! ```text
//! 0      1        9     10     11     12                   32         33
//! FF     8 bytes  7F    major  minor  mechanism, 20 bytes  as-server  31 bytes
//! └──── signature ────┘
//! ```
//!
//! libzmq sends it in pieces, each once it has the same piece of its peer. So the gateway greets a
//! broker in the name of the lead: all leads send the same greeting, [`GREETING`].

use crate::request::{REQUEST_LINE, request_length};

/// A protocol that clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// A broker of Flux: ZMTP with the mechanism CURVE.
    Zmtp,
    /// A broker of fluxlet, our stand-in for Flux: Noise.
    Fluxlet,
    /// An agent's request for permission to start a broker, for the operator: HTTP.
    Request,
}

/// What is known about a client from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recognition {
    /// More bytes are needed.
    Unknown,
    /// It speaks this protocol, and its opening is incomplete.
    Recognized(Protocol),
    /// Its opening is complete.
    Complete(Protocol),
    /// It speaks none of them, has sent more than its opening, or a request that is not forwarded.
    Garbage,
}

/// The length of a greeting.
pub(crate) const GREETING_LENGTH: usize = 64;

/// The greeting that libzmq sends since version 4.3: ZMTP 3.1, CURVE. What is new in 3.1 concerns
/// only subscriptions, which brokers do not use, so it also fits a lead with 3.0.
pub(crate) const GREETING: [u8; GREETING_LENGTH] = {
    let mut greeting = [0; GREETING_LENGTH];
    greeting[0] = 0xFF;
    greeting[8] = 1;
    greeting[SIGNATURE - 1] = 0x7F;
    greeting[10] = 3;
    greeting[11] = 1;
    let mut position = 0;
    while position < MECHANISM.len() {
        greeting[12 + position] = MECHANISM[position];
        position += 1;
    }
    greeting
};

/// The length of the signature: by it a client is recognized.
const SIGNATURE: usize = 10;

const MECHANISM: &[u8; 20] = b"CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The first bytes of HELLO: a command, its size, its name. Its size is fixed.
const HELLO: &[u8] = b"\x04\xC8\x05HELLO";

/// The length of HELLO: its size and the two bytes before.
const HELLO_LENGTH: usize = 202;

/// A handshake message of fluxlet: its length in two bytes, an ephemeral key of 32 and a tag of 16.
pub(crate) const FLUXLET_MESSAGE: usize = 50;

/// Its first bytes.
pub(crate) const FLUXLET_LENGTH: &[u8] = &[0, 48];

/// Recognizes a client by all bytes that it has sent to the port of this invitation.
pub(crate) fn recognize(bytes: &[u8], invitation: &str) -> Recognition {
    let Some(first) = bytes.first() else { return Recognition::Unknown };
    let (protocol, needed, length) = match first {
        0xFF if is_valid_greeting(bytes) => {
            let hello = bytes.get(GREETING_LENGTH..).unwrap_or_default();
            let length = starts_like(hello, HELLO).then_some(GREETING_LENGTH + HELLO_LENGTH);
            (Protocol::Zmtp, SIGNATURE, length)
        }
        0x00 if starts_like(bytes, FLUXLET_LENGTH) => {
            (Protocol::Fluxlet, FLUXLET_LENGTH.len(), Some(FLUXLET_MESSAGE))
        }
        b'P' if starts_like(bytes, REQUEST_LINE.as_bytes()) => {
            (Protocol::Request, REQUEST_LINE.len(), request_length(bytes, invitation).ok())
        }
        _ => return Recognition::Garbage,
    };
    match length {
        Some(length) if bytes.len() == length => Recognition::Complete(protocol),
        Some(length) if bytes.len() < length && bytes.len() < needed => Recognition::Unknown,
        Some(length) if bytes.len() < length => Recognition::Recognized(protocol),
        _ => Recognition::Garbage,
    }
}

/// Whether these bytes can be the first of a greeting of ZMTP 3 with the mechanism CURVE. Bytes after
/// the greeting are ignored.
pub(crate) fn is_valid_greeting(bytes: &[u8]) -> bool {
    (0..GREETING_LENGTH).zip(bytes).all(|(position, byte)| match position {
        0 | 9 | 10 | 12..32 => *byte == GREETING[position],
        _ => true,
    })
}

/// Whether one of them starts with the other.
pub(crate) fn starts_like(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes.iter().zip(pattern).all(|(byte, expected)| byte == expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::zmtp::{command, greeting, hello};
    use proptest::prelude::*;

    fn recognize(bytes: &[u8]) -> Recognition {
        super::recognize(bytes, "cloud")
    }

    fn zmtp() -> Vec<u8> {
        [greeting(b"CURVE"), hello(1)].concat()
    }

    fn fluxlet() -> Vec<u8> {
        [FLUXLET_LENGTH, &[7; FLUXLET_MESSAGE - 2]].concat()
    }

    #[test]
    fn a_client_is_recognized_as_soon_as_it_can_be() {
        let request = crate::testing::REQUEST.to_vec();
        let cases = [
            (zmtp(), 10, Protocol::Zmtp),
            (fluxlet(), 2, Protocol::Fluxlet),
            (request, 26, Protocol::Request),
        ];
        for (bytes, needed, protocol) in cases {
            for length in 0..bytes.len() {
                let expected = match length < needed {
                    true => Recognition::Unknown,
                    false => Recognition::Recognized(protocol),
                };
                assert_eq!(recognize(&bytes[..length]), expected, "{length} {protocol:?}");
            }
            assert_eq!(recognize(&bytes), Recognition::Complete(protocol));
            let more = [&bytes[..], b"x"].concat();
            assert_eq!(recognize(&more), Recognition::Garbage, "it has to wait for an answer");
        }
    }

    #[test]
    fn everything_else_is_garbage() {
        let mut zmtp_2 = greeting(b"CURVE");
        zmtp_2[10] = 1;
        let mut unversioned = greeting(b"CURVE");
        unversioned[9] = 0x00;
        let after_greeting = |command: Vec<u8>| [greeting(b"CURVE"), command].concat();
        let cases: [&[u8]; 20] = [
            b"GET / HTTP/1.1\r\n",
            b"PUT /v1/report",
            b"POST /v1/lead",
            b"POST /v1/report HTTP/1.0",
            b"POST /v1/report HTTP/1.1\r\nX-Flux-Invitation: other\r\n\r\n",
            b"PRI * HTTP/2.0",
            b"SSH-2.0-OpenSSH",
            &[0x16, 0x03, 0x01],
            &[0x00, 0x31],
            &[0x01],
            &unversioned,
            &zmtp_2,
            &greeting(b"NULL"),
            &greeting(b"PLAIN"),
            &greeting(b"CURVES"),
            &after_greeting(command(b"INITIATE", 100)),
            &after_greeting(command(b"HELLO", 193)),
            &after_greeting(command(b"MESSAGE", 10)),
            &after_greeting(b"\x00\xC8\x05HELLO".to_vec()),
            &after_greeting(vec![0x44; 100]),
        ];
        for bytes in cases {
            assert_eq!(recognize(bytes), Recognition::Garbage, "{bytes:?}");
        }
    }

    #[test]
    fn our_greeting_is_that_of_libzmq() {
        assert_eq!(GREETING[..], greeting(b"CURVE"));
        assert!(is_valid_greeting(&GREETING));
    }

    proptest! {
        #[test]
        fn more_bytes_never_revoke_a_verdict(
            first in prop_oneof![
                Just(vec![0xFF_u8]), Just(zmtp()), Just(fluxlet()), Just(b"POST /".to_vec()),
                Just(b"G".to_vec()), Just(vec![0x80]),
            ],
            kept in 1_usize..300,
            rest in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let bytes: Vec<u8> = first.into_iter().take(kept).chain(rest).collect();
            let mut garbage = false;
            for length in 1..=bytes.len() {
                let recognition = recognize(&bytes[..length]);
                prop_assert!(!garbage || recognition == Recognition::Garbage);
                garbage = recognition == Recognition::Garbage;
            }
        }
    }
}
