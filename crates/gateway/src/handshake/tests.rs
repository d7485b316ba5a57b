use super::*;
use crate::testing::zmtp::{command, greeting, long_command};
use proptest::prelude::*;

/// Feeds bytes in pieces of this length. Returns how many were forwarded, and the outcome.
fn feed(mut side: HandshakeSide, bytes: &[u8], piece: usize) -> (usize, Outcome) {
    let (mut arrived, mut taken, mut forwarded) = (0, 0, 0);
    let mut outcome = Outcome::Pending;
    while arrived < bytes.len() {
        arrived = (arrived + piece).min(bytes.len());
        let relayed = side.advance(&bytes[taken..arrived]);
        taken += relayed.skip + relayed.forward;
        forwarded += relayed.forward;
        outcome = relayed.outcome;
    }
    (forwarded, outcome)
}

/// The result must not depend on how the bytes arrive.
fn fed(side: fn() -> HandshakeSide, bytes: &[u8]) -> (usize, Outcome) {
    let whole = feed(side(), bytes, bytes.len().max(1));
    for piece in 1..bytes.len() {
        assert_eq!(feed(side(), bytes, piece), whole, "in pieces of {piece}");
    }
    whole
}

fn client() -> HandshakeSide {
    HandshakeSide::of_client(Protocol::Zmtp)
}

fn lead() -> HandshakeSide {
    HandshakeSide::of_lead(Protocol::Zmtp)
}

fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// What a lead sends first: its greeting, and WELCOME, of which the greeting is not forwarded.
fn before_ready() -> (Vec<u8>, usize) {
    let welcome = command(b"WELCOME", 160);
    (concat(&[&greeting(b"CURVE"), &welcome]), welcome.len())
}

#[test]
fn ready_means_accepted_and_is_withheld() {
    let (before, forwarded) = before_ready();
    let all = concat(&[&before, &command(b"READY", 40), b"anything"]);
    assert_eq!(fed(lead, &all), (forwarded, Outcome::Done));
    assert_eq!(fed(lead, &before), (forwarded, Outcome::Pending));
    let long = concat(&[&before, &long_command(b"READY", 300)]);
    assert_eq!(fed(lead, &long), (forwarded, Outcome::Done));
}

#[test]
fn ready_is_recognized_by_its_name_before_it_is_complete() {
    let (before, forwarded) = before_ready();
    let all = concat(&[&before, &command(b"READY", 40)[..8]]);
    assert_eq!(fed(lead, &all), (forwarded, Outcome::Done));
    assert_eq!(fed(lead, &all[..all.len() - 1]), (forwarded, Outcome::Pending));
}

#[test]
fn a_lead_has_welcomed_once_all_of_it_is_forwarded() {
    let (before, _) = before_ready();
    let mut side = lead();
    assert!(!side.has_greeted());
    let taken = side.advance(&before[..before.len() - 1]);
    assert!(side.has_greeted() && !side.has_welcomed());
    side.advance(&before[taken.skip + taken.forward..]);
    assert!(side.has_welcomed());
}

#[test]
fn an_error_is_forwarded_and_means_refused() {
    let (before, forwarded) = before_ready();
    let error = command(b"ERROR", 4);
    let all = concat(&[&before, &error]);
    assert_eq!(fed(lead, &all), (forwarded + error.len(), Outcome::Refused));
    let incomplete = (forwarded + error.len() - 1, Outcome::Pending);
    assert_eq!(fed(lead, &all[..all.len() - 1]), incomplete);
    let at_once = concat(&[&greeting(b"CURVE"), &error, b"more"]);
    assert_eq!(fed(lead, &at_once), (error.len(), Outcome::Refused));
}

#[test]
fn a_lead_that_does_not_keep_to_the_protocol_is_malformed() {
    let greeting = greeting(b"CURVE");
    for bytes in [
        concat(&[&greeting, &command(b"READY", 40)]),
        concat(&[&greeting, &command(b"WELCOME", 160), &command(b"WELCOME", 160)]),
        concat(&[&greeting, &[0x00, 5], b"hello"]),
        crate::testing::zmtp::greeting(b"NULL"),
        b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
    ] {
        assert_eq!(fed(lead, &bytes).1, Outcome::Malformed);
    }
}

#[test]
fn what_follows_initiate_is_withheld() {
    let initiate = long_command(b"INITIATE", 400);
    let all = concat(&[&initiate, &command(b"MESSAGE", 100)]);
    assert_eq!(fed(client, &all), (initiate.len(), Outcome::Done));
    assert_eq!(fed(client, &initiate), (initiate.len(), Outcome::Done));
}

#[test]
fn a_client_cannot_send_a_message_in_place_of_a_command() {
    for bytes in [
        command(b"HELLO", 194),
        command(b"READY", 10),
        command(b"ERROR", 10),
        command(b"MESSAGE", 10),
        concat(&[&[0x00, 11], b"\x08INITIATE.."]),
        concat(&[&[0x04, 3], b"\x08INITIATE"]),
        concat(&[&[0x06], &u64::MAX.to_be_bytes(), b"\x08INITIATE"]),
        concat(&[&[0x04, 200, 255]]),
        vec![0x44; 100],
    ] {
        assert_eq!(fed(client, &bytes), (0, Outcome::Malformed));
    }
}

#[test]
fn the_answer_of_fluxlet_is_withheld() {
    let client = || HandshakeSide::of_client(Protocol::Fluxlet);
    let lead = || HandshakeSide::of_lead(Protocol::Fluxlet);
    let message = concat(&[&[0, 48], &[7; 48]]);
    let more = concat(&[&message, b"more"]);
    assert_eq!(fed(client, b"more"), (0, Outcome::Done));
    assert_eq!(fed(lead, &message), (0, Outcome::Done));
    assert_eq!(fed(lead, &more), (0, Outcome::Done));
    assert_eq!(fed(lead, &message[..49]), (0, Outcome::Pending));
    assert_eq!(fed(lead, b"\x00\x31"), (0, Outcome::Malformed));
    assert_eq!(fed(lead, b"POST "), (0, Outcome::Malformed));
}

proptest! {
    #[test]
    fn no_bytes_of_a_client_make_it_forward_more_than_a_handshake(
        rest in proptest::collection::vec(any::<u8>(), 0..600),
        first in prop_oneof![Just(long_command(b"INITIATE", 300)), Just(Vec::new())],
        piece in 1_usize..100,
    ) {
        let (forwarded, _) = feed(client(), &concat(&[&first, &rest]), piece);
        // Random bytes are not INITIATE.
        prop_assert!(forwarded <= first.len());
    }

    #[test]
    fn the_lead_is_accepted_only_after_its_ready(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        piece in 1_usize..100,
    ) {
        prop_assert_ne!(feed(lead(), &bytes, piece).1, Outcome::Done);
    }
}
