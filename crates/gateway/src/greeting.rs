//! Which protocol a client speaks, from its first bytes.
//!
//! A broker of Flux starts with the greeting of ZMTP 3 (ZeroMQ RFC 23 and 37), 64 bytes:
//!
//! ```text
//! 0      1        9     10     11     12                   32         33
//! FF     8 bytes  7F    major  minor  mechanism, 20 bytes  as-server  31 bytes
//! └──── signature ────┘
//! ```
//!
//! libzmq sends it in three pieces: the signature, then the major version once it has the peer's
//! signature, then the rest once it has the peer's major version. So the lead's greeting has to be
//! relayed to the client while the client's is still incomplete.

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
    Incomplete,
    /// It speaks this protocol.
    Recognized(Protocol),
    /// It speaks none of them.
    Garbage,
}

/// The length of a greeting of ZMTP.
pub(crate) const GREETING: usize = 64;

/// The lengths at which libzmq waits for its peer.
pub(crate) const GREETING_PIECES: [usize; 3] = [10, 11, GREETING];

/// A handshake message of fluxlet: its length in two bytes, an ephemeral key of 32 and a tag of 16.
pub(crate) const FLUXLET_MESSAGE: usize = 50;

const FLUXLET_LENGTH: &[u8] = &[0, 48];

const REQUEST: &[u8] = b"POST ";

const MECHANISM: &[u8; 20] = b"CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Recognizes a client by the first bytes that it sent. One that is recognized as a broker has sent
/// as much as it can send without an answer: a lead is not disturbed by less.
pub(crate) fn recognize(bytes: &[u8]) -> Recognition {
    let Some(first) = bytes.first() else { return Recognition::Incomplete };
    let (protocol, needed, is_valid) = match first {
        0xFF => (Protocol::Zmtp, GREETING_PIECES[0], is_valid_greeting(0, bytes)),
        0x00 => (Protocol::Fluxlet, FLUXLET_MESSAGE, starts_like(bytes, FLUXLET_LENGTH)),
        b'P' => (Protocol::Request, REQUEST.len(), starts_like(bytes, REQUEST)),
        _ => return Recognition::Garbage,
    };
    match is_valid {
        false => Recognition::Garbage,
        true if bytes.len() < needed => Recognition::Incomplete,
        true => Recognition::Recognized(protocol),
    }
}

/// Whether these bytes, from this position on, can be those of a greeting of ZMTP 3 with the
/// mechanism CURVE. Bytes after the greeting are ignored.
pub(crate) fn is_valid_greeting(position: usize, bytes: &[u8]) -> bool {
    (position..GREETING).zip(bytes).all(|(position, byte)| match position {
        0 => *byte == 0xFF,
        9 => *byte == 0x7F,
        10 => *byte == 3,
        12..32 => *byte == MECHANISM[position - 12],
        _ => true,
    })
}

/// Whether one of them starts with the other.
fn starts_like(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes.iter().zip(pattern).all(|(byte, expected)| byte == expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::zmtp::greeting;
    use proptest::prelude::*;

    #[test]
    fn a_client_is_recognized_as_soon_as_it_can_be() {
        let zmtp = greeting(b"CURVE");
        let mut fluxlet = [7; FLUXLET_MESSAGE];
        fluxlet[..2].copy_from_slice(FLUXLET_LENGTH);
        let request = b"POST /v1/report HTTP/1.1\r\n";
        let cases: [(&[u8], usize, Protocol); 3] = [
            (&zmtp, 10, Protocol::Zmtp),
            (&fluxlet, 50, Protocol::Fluxlet),
            (request, 5, Protocol::Request),
        ];
        for (bytes, needed, protocol) in cases {
            for length in 0..needed {
                assert_eq!(recognize(&bytes[..length]), Recognition::Incomplete, "{protocol:?}");
            }
            for length in needed..=bytes.len() {
                assert_eq!(recognize(&bytes[..length]), Recognition::Recognized(protocol));
            }
        }
    }

    #[test]
    fn everything_else_is_garbage() {
        let mut zmtp_2 = greeting(b"CURVE");
        zmtp_2[10] = 1;
        let mut unversioned = greeting(b"CURVE");
        unversioned[9] = 0x00;
        let cases: [&[u8]; 12] = [
            b"GET / HTTP/1.1\r\n",
            b"PUT /v1/report",
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
        ];
        for bytes in cases {
            assert_eq!(recognize(bytes), Recognition::Garbage, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn more_bytes_never_revoke_a_verdict(
            first in proptest::sample::select(vec![0xFF_u8, 0x00, b'P', b'G', 0x80]),
            rest in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let bytes: Vec<u8> = std::iter::once(first).chain(rest).collect();
            let mut garbage = false;
            for length in 1..=bytes.len() {
                let recognition = recognize(&bytes[..length]);
                prop_assert!(!garbage || recognition == Recognition::Garbage);
                garbage = recognition == Recognition::Garbage;
            }
        }
    }
}
