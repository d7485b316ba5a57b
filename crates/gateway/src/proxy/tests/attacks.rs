//! Clients that are not brokers, in numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use tokio::io::AsyncWriteExt;

use crate::refusal::RefusalReason;
use crate::testing::broker::{connect, exchange, reach, send, wait_for_end};
use crate::testing::gateway::Gateway;
use crate::testing::lead::{Conduct, KEY, Lead};
use crate::testing::{soon, zmtp};

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
    assert_eq!(lead.bytes.load(Ordering::SeqCst), 0);
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

#[tokio::test]
async fn many_silent_clients_are_bounded_and_do_not_keep_a_broker_out() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let _silent = join_all((0..200).map(|_| reach(gateway.address()))).await;
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    exchange(&mut broker, b"hello").await;
    // One rank and 16 more, of which the broker's was one.
    crate::testing::until(|| gateway.refused(RefusalReason::TooMany) == 184).await;
    assert_eq!(gateway.all_refused(), [(RefusalReason::TooMany, 184)]);
    exchange(&mut broker, b"still").await;
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
