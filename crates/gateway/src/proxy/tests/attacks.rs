//! Clients that are not brokers, in numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connection::serve;
use crate::refusal::RefusalReason;
use crate::testing::broker::{begin, connect, exchange, reach, send, wait_for_end};
use crate::testing::gateway::{Gateway, Limits, MAXIMUM, PATIENT, free_port, route};
use crate::testing::lead::{Conduct, KEY, Lead};
use crate::testing::{soon, zmtp};
use crate::untrusted::Progress;

/// Bytes that look random, and are the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

#[tokio::test]
async fn random_bytes_never_reach_the_lead() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut noise = Noise(1);
    for round in 0..300 {
        let length = 1 + noise.next() as usize % 200;
        let mut bytes = noise.bytes(length);
        // Half of them start as a protocol does, and do not go on as it does.
        match round % 6 {
            0 => bytes[0] = 0xFF,
            1 => bytes.splice(..1, [0x00, 0x31]).for_each(drop),
            2 => bytes.splice(..1, *b"POSX").for_each(drop),
            _ => {}
        }
        if bytes.len() < 10 {
            bytes.resize(10, b'x');
        }
        // Neither a signature of ZMTP nor a length of fluxlet.
        bytes[9] &= 0x0F;
        bytes[1] |= 0x40;
        send(gateway.address(), &bytes).await;
    }
    assert_eq!(gateway.all_refused(), [(RefusalReason::Garbage, 300)]);
    assert_eq!(lead.connections.load(Ordering::SeqCst), 0);
    connect(gateway.address(), KEY).await.unwrap();
}

#[tokio::test]
async fn random_commands_never_reach_the_lead() {
    let lead = Lead::start(Conduct::Silent).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut noise = Noise(2);
    let rounds = 100;
    for _ in 0..rounds {
        let mut command = noise.bytes(100);
        // The flags of a command, so that the rest is parsed too.
        command[0] = if command[1].is_multiple_of(2) { 0x04 } else { 0x06 };
        command[2] |= 0x80;
        send(gateway.address(), &[zmtp::greeting(b"CURVE"), command].concat()).await;
    }
    assert_eq!(gateway.all_refused(), [(RefusalReason::Garbage, rounds)]);
    assert_eq!(lead.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn clients_with_a_wrong_key_do_not_keep_a_broker_out() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let (stop, attempts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let attackers: Vec<_> = (0..8)
        .map(|_| {
            let (stop, attempts) = (Arc::clone(&stop), Arc::clone(&attempts));
            let address = gateway.address();
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    assert!(connect(address, KEY + 1).await.is_err());
                    attempts.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for _ in 0..20 {
        let mut broker = connect(gateway.address(), KEY).await.unwrap();
        exchange(&mut broker, b"hello").await;
        drop(broker);
        crate::testing::until(|| gateway.connections() == 0).await;
    }
    stop.store(true, Ordering::SeqCst);
    soon(join_all(attackers)).await.into_iter().for_each(|ended| ended.unwrap());
    let wrong = attempts.load(Ordering::SeqCst) as u64;
    assert_eq!(gateway.all_refused(), [(RefusalReason::WrongKey, wrong)]);
}

/// A gateway for one broker, with few untrusted connections.
fn start_small(lead: &Lead, untrusted: usize) -> Gateway {
    let limits = Limits { untrusted, forwarded: 1, ..MAXIMUM };
    Gateway::start_within(limits, PATIENT, None, Some(lead.address), 1)
}

#[tokio::test]
async fn many_silent_clients_are_bounded_and_do_not_keep_a_broker_out() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = start_small(&lead, 17);
    let _silent = join_all((0..200).map(|_| reach(gateway.address()))).await;
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    exchange(&mut broker, b"hello").await;
    // Of 17 places the broker had one.
    crate::testing::until(|| gateway.refused(RefusalReason::TooMany) == 184).await;
    assert_eq!(gateway.all_refused(), [(RefusalReason::TooMany, 184)]);
    exchange(&mut broker, b"still").await;
}

#[tokio::test]
async fn clients_that_stop_after_the_greeting_cost_the_lead_nothing_and_keep_no_broker_out() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = start_small(&lead, 10);
    let mut greeted = Vec::new();
    for _ in 0..50 {
        let mut stream = reach(gateway.address()).await;
        zmtp::greet(&mut stream, b"CURVE").await.unwrap();
        greeted.push(stream);
    }
    assert_eq!(lead.connections.load(Ordering::SeqCst), 0);
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    exchange(&mut broker, b"hello").await;
    assert_eq!(lead.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_flood_from_the_address_of_a_broker_does_not_end_its_handshake() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = start_small(&lead, 10);
    let mut broker = begin(gateway.address(), KEY).await.unwrap();
    for round in 1..=100 {
        let mut stream = reach(gateway.address()).await;
        zmtp::greet(&mut stream, b"CURVE").await.unwrap();
        if round > 9 {
            crate::testing::until(|| gateway.refused(RefusalReason::TooMany) == round - 9).await;
        }
        // Each waits until the next ones take its place.
        tokio::spawn(async move { wait_for_end(&mut stream).await });
    }
    broker.write_all(&zmtp::initiate()).await.unwrap();
    let mut ready = vec![0; zmtp::ready().len()];
    soon(broker.read_exact(&mut ready)).await.unwrap();
    assert_eq!(ready, zmtp::ready());
    exchange(&mut broker, b"hello").await;
}

/// HELLO can be recorded and sent again by a client without the certificate.
#[tokio::test]
async fn clients_that_stop_after_welcome_keep_no_broker_out() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = start_small(&lead, 20);
    let mut welcomed = Vec::new();
    for _ in 0..30 {
        welcomed.push(begin(gateway.address(), KEY).await.unwrap());
    }
    // Two for the rank, and four more.
    crate::testing::until(|| gateway.refused(RefusalReason::TooMany) == 24).await;
    assert_eq!(gateway.shared.untrusted.count(Progress::Proven), 6);
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    exchange(&mut broker, b"hello").await;
}

#[tokio::test]
async fn a_lender_with_many_brokers_leaves_places_for_others() {
    let lead = Lead::start(Conduct::Normal).await;
    let limits = Limits { brokers: 3, ..MAXIMUM };
    let gateway = Gateway::start_within(limits, PATIENT, None, Some(lead.address), 10);
    let mut other = route(Some(lead.address), 1);
    other.lender.name = "other".into();
    let port = free_port();
    gateway.set(|routes| drop(routes.by_port.insert(port, other)));
    let mut brokers = Vec::new();
    for _ in 0..3 {
        brokers.push(connect(gateway.address(), KEY).await.unwrap());
    }
    assert!(connect(gateway.address(), KEY).await.is_err());
    assert_eq!(gateway.all_refused(), [(RefusalReason::TooMany, 1)]);
    let address = (std::net::Ipv4Addr::LOCALHOST, port).into();
    let mut broker = connect(address, KEY).await.unwrap();
    exchange(&mut broker, b"hello").await;
    wait_for_end(&mut brokers[2]).await;
    exchange(&mut brokers[1], b"still").await;
    crate::testing::until(|| gateway.refused(RefusalReason::TooMany) == 2).await;
}

/// What the limits of untrusted connections and of brokers are computed from.
#[tokio::test]
async fn an_untrusted_connection_takes_little_memory() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let (client, port) = (reach(gateway.address()).await, gateway.context());
    let peer = [127, 0, 0, 1].into();
    let place = port.places.admit(peer).unwrap();
    let size = size_of_val(&serve(client, peer, place, Arc::new(port)));
    assert!(size <= 4096, "{size}");
}

#[tokio::test]
async fn many_garbage_clients_leave_the_gateway_responsive() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 2);
    let mut connected = connect(gateway.address(), KEY).await.unwrap();
    let garbage = join_all((0..200).map(|number| {
        let address = gateway.address();
        async move {
            let mut stream = reach(address).await;
            // It may be cut already.
            let _ = stream.write_all(&[1, number as u8]).await;
            wait_for_end(&mut stream).await
        }
    }));
    let broker = async {
        exchange(&mut connected, b"hello").await;
        let mut broker = soon(async {
            loop {
                if let Ok(broker) = connect(gateway.address(), KEY).await {
                    break broker;
                }
            }
        })
        .await;
        exchange(&mut broker, b"hello").await;
    };
    let (answers, ()) = tokio::join!(garbage, broker);
    assert!(answers.iter().all(Vec::is_empty));
    let refused: u64 = gateway.all_refused().iter().map(|(_, count)| count).sum();
    assert!(refused >= 200, "{:?}", gateway.all_refused());
}
