use super::*;
use crate::testing::zmtp::{command, greeting, long_command};
use proptest::prelude::*;

/// Feeds bytes in pieces of this length. Returns how many were forwarded, and the outcome.
fn feed(mut side: HandshakeSide, bytes: &[u8], piece: usize) -> (usize, Outcome) {
    let (mut arrived, mut forwarded) = (0, 0);
    let mut outcome = Outcome::Pending;
    while arrived < bytes.len() {
        arrived = (arrived + piece).min(bytes.len());
        let progress = side.advance(&bytes[forwarded..arrived]);
        forwarded += progress.forward;
        outcome = progress.outcome;
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

#[test]
fn ready_means_accepted_and_is_withheld() {
    let before = concat(&[&greeting(b"CURVE"), &command(b"WELCOME", 160)]);
    let all = concat(&[&before, &command(b"READY", 40), b"anything"]);
    assert_eq!(fed(lead, &all), (before.len(), Outcome::Done));
    assert_eq!(fed(lead, &before), (before.len(), Outcome::Pending));
    let long = concat(&[&before, &long_command(b"READY", 300)]);
    assert_eq!(fed(lead, &long), (before.len(), Outcome::Done));
}

#[test]
fn ready_is_recognized_by_its_name_before_it_is_complete() {
    let before = concat(&[&greeting(b"CURVE"), &command(b"WELCOME", 160)]);
    let all = concat(&[&before, &command(b"READY", 40)[..8]]);
    assert_eq!(fed(lead, &all), (before.len(), Outcome::Done));
    assert_eq!(fed(lead, &all[..all.len() - 1]), (before.len(), Outcome::Pending));
}

#[test]
fn an_error_is_forwarded_and_means_refused() {
    let all = concat(&[&greeting(b"CURVE"), &command(b"WELCOME", 160), &command(b"ERROR", 4)]);
    assert_eq!(fed(lead, &all), (all.len(), Outcome::Refused));
    assert_eq!(fed(lead, &all[..all.len() - 1]), (all.len() - 1, Outcome::Pending));
    let at_once = concat(&[&greeting(b"CURVE"), &command(b"ERROR", 4), b"more"]);
    assert_eq!(fed(lead, &at_once), (at_once.len() - 4, Outcome::Refused));
}

#[test]
fn a_lead_that_does_not_keep_to_the_protocol_is_malformed() {
    let greeting = greeting(b"CURVE");
    for bytes in [
        concat(&[&greeting, &command(b"READY", 40)]),
        concat(&[&greeting, &command(b"WELCOME", 160), &command(b"WELCOME", 160)]),
        concat(&[&greeting, &[0x00, 5], b"hello"]),
        b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
    ] {
        assert_eq!(fed(lead, &bytes).1, Outcome::Malformed);
    }
}

#[test]
fn what_follows_initiate_is_withheld() {
    let handshake =
        concat(&[&greeting(b"CURVE"), &command(b"HELLO", 194), &long_command(b"INITIATE", 400)]);
    let all = concat(&[&handshake, &command(b"MESSAGE", 100)]);
    assert_eq!(fed(client, &all), (handshake.len(), Outcome::Done));
    assert_eq!(fed(client, &handshake), (handshake.len(), Outcome::Done));
}

#[test]
fn a_client_cannot_send_a_message_in_place_of_a_command() {
    let greeting = greeting(b"CURVE");
    for rest in [
        command(b"INITIATE", 300 - 60),
        command(b"READY", 10),
        command(b"MESSAGE", 10),
        concat(&[&[0x00, 8], b"\x05HELLO.."]),
        concat(&[&[0x04, 3], b"\x05HELLO"]),
        concat(&[&[0x06], &u64::MAX.to_be_bytes(), b"\x05HELLO"]),
        concat(&[&[0x04, 200, 255]]),
        vec![0x44; 100],
    ] {
        let all = concat(&[&greeting, &rest]);
        assert_eq!(fed(client, &all), (GREETING, Outcome::Malformed));
    }
    let twice = concat(&[&greeting, &command(b"HELLO", 194), &command(b"HELLO", 194)]);
    assert_eq!(fed(client, &twice).1, Outcome::Malformed);
}

#[test]
fn the_greeting_is_forwarded_at_the_points_where_libzmq_waits() {
    let greeting = greeting(b"CURVE");
    let mut forwarded = 0;
    let mut side = client();
    let mut points = Vec::new();
    for arrived in 1..=greeting.len() {
        forwarded += side.advance(&greeting[forwarded..arrived]).forward;
        points.push(forwarded);
    }
    points.dedup();
    assert_eq!(points, [0, 10, 11, 64]);
    assert!(side.has_greeted());
}

#[test]
fn another_mechanism_does_not_reach_the_lead() {
    for mechanism in [&b"NULL"[..], b"PLAIN", b"GSSAPI", b"CURVE2"] {
        let all = greeting(mechanism);
        let (forwarded, outcome) = feed(client(), &all, 1);
        assert_eq!((forwarded, outcome), (11, Outcome::Malformed));
        assert_eq!(feed(client(), &all, 64), (0, Outcome::Malformed));
    }
}

#[test]
fn the_answer_of_fluxlet_is_withheld() {
    let client = || HandshakeSide::of_client(Protocol::Fluxlet);
    let lead = || HandshakeSide::of_lead(Protocol::Fluxlet);
    let message = concat(&[&[0, 48], &[7; 48]]);
    let more = concat(&[&message, b"more"]);
    assert_eq!(fed(client, &message), (50, Outcome::Done));
    assert_eq!(fed(client, &more), (50, Outcome::Done));
    assert_eq!(fed(lead, &message), (0, Outcome::Done));
    assert_eq!(fed(lead, &message[..49]), (0, Outcome::Pending));
    assert_eq!(fed(lead, b"\x00\x31"), (0, Outcome::Malformed));
    assert_eq!(fed(lead, b"POST "), (0, Outcome::Malformed));
}

proptest! {
    #[test]
    fn no_bytes_of_a_client_make_it_forward_more_than_a_handshake(
        rest in proptest::collection::vec(any::<u8>(), 0..600),
        first in prop_oneof![Just(command(b"HELLO", 194)), Just(Vec::new())],
        piece in 1_usize..100,
    ) {
        let all = concat(&[&greeting(b"CURVE"), &first, &rest]);
        let (forwarded, _) = feed(client(), &all, piece);
        // Random bytes are not a command, and the rest of a handshake needs INITIATE.
        prop_assert!(forwarded <= GREETING + first.len());
    }

    #[test]
    fn the_lead_is_accepted_only_after_its_ready(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        piece in 1_usize..100,
    ) {
        prop_assert_ne!(feed(lead(), &bytes, piece).1, Outcome::Done);
    }
}
