//! Brokers that are accepted, and the limit of their number.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::connection::Timeouts;
use crate::refusal::RefusalReason;
use crate::testing::broker::{begin, connect, connect_fluxlet, exchange, wait_for_end};
use crate::testing::gateway::{Gateway, PATIENT};
use crate::testing::lead::{Conduct, KEY, Lead, LeadEvent};
use crate::testing::{until, zmtp};

#[tokio::test]
async fn a_broker_with_the_key_reaches_the_lead() {
    let mut lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    assert_eq!(lead.event().await, LeadEvent::Accepted);
    exchange(&mut broker, b"hello").await;
    assert_eq!(lead.event().await, LeadEvent::Received(b"hello".to_vec()));
    assert_eq!(gateway.connections(), 1);
    let much: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 7) as u8).collect();
    exchange(&mut broker, &much).await;
    drop(broker);
    until(|| gateway.connections() == 0).await;
    assert_eq!(gateway.all_refused(), []);
    let metrics = gateway.metrics();
    assert_eq!(metrics.bytes_to_lead.get(), 3_000_005);
    assert_eq!(metrics.bytes_from_lead.get(), 3_000_005);
    gateway.stop().await;
}

#[tokio::test]
async fn a_broker_of_fluxlet_with_the_key_reaches_the_lead() {
    let mut lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut broker = connect_fluxlet(gateway.address(), KEY).await.unwrap();
    assert_eq!(lead.event().await, LeadEvent::Accepted);
    exchange(&mut broker, b"hello").await;
    assert!(connect_fluxlet(gateway.address(), KEY).await.is_err());
    assert_eq!(gateway.all_refused(), [(RefusalReason::TooMany, 1)]);
    drop(broker);
    until(|| gateway.connections() == 0).await;
    connect_fluxlet(gateway.address(), KEY).await.unwrap();
}

#[tokio::test]
async fn a_broker_beyond_the_limit_never_receives_ready() {
    let mut lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 2);
    let mut first = connect(gateway.address(), KEY).await.unwrap();
    let mut second = connect(gateway.address(), KEY).await.unwrap();
    let mut third = begin(gateway.address(), KEY).await.unwrap();
    third.write_all(&zmtp::initiate()).await.unwrap();
    assert_eq!(wait_for_end(&mut third).await, b"", "READY is withheld");
    assert_eq!(gateway.all_refused(), [(RefusalReason::TooMany, 1)]);
    // The lead sees that it connects and disconnects.
    for _ in 0..3 {
        assert_eq!(lead.event().await, LeadEvent::Accepted);
    }
    assert_eq!(lead.event().await, LeadEvent::Ended);
    exchange(&mut first, b"one").await;
    exchange(&mut second, b"two").await;
    drop(first);
    until(|| gateway.connections() == 1).await;
    let mut third = connect(gateway.address(), KEY).await.unwrap();
    exchange(&mut third, b"three").await;
}

#[tokio::test]
async fn a_broker_beyond_the_limit_cannot_send_its_hello_early() {
    let mut lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let early = [zmtp::initiate(), zmtp::command(b"MESSAGE", 200)].concat();
    let mut first = begin(gateway.address(), KEY).await.unwrap();
    first.write_all(&early).await.unwrap();
    assert_eq!(lead.event().await, LeadEvent::Accepted);
    let message = LeadEvent::Received(zmtp::command(b"MESSAGE", 200));
    assert_eq!(lead.event().await, message, "it arrives once there is a place");
    let mut second = begin(gateway.address(), KEY).await.unwrap();
    second.write_all(&early).await.unwrap();
    assert_eq!(wait_for_end(&mut second).await, b"");
    assert_eq!(lead.event().await, LeadEvent::Accepted);
    assert_eq!(lead.event().await, LeadEvent::Ended, "it received nothing in between");
    assert_eq!(gateway.all_refused(), [(RefusalReason::TooMany, 1)]);
}

#[tokio::test]
async fn the_place_of_a_broker_is_free_before_the_lead_has_disconnected() {
    let mut lead = Lead::start(Conduct::Lingers).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut brokers = Vec::new();
    for _ in 0..5 {
        let mut broker = connect(gateway.address(), KEY).await.unwrap();
        assert_eq!(lead.event().await, LeadEvent::Accepted);
        broker.shutdown().await.unwrap();
        // The lead may receive the end a little before the place is free.
        assert_eq!(lead.event().await, LeadEvent::Ended);
        tokio::task::yield_now().await;
        brokers.push(broker);
    }
    assert_eq!(gateway.all_refused(), []);
    assert_eq!(gateway.connections(), 5, "they linger");
}

#[tokio::test]
async fn a_handshake_does_not_take_a_place() {
    let lead = Lead::start(Conduct::Normal).await;
    let timeouts = Timeouts { handshake: Duration::from_secs(600), ..PATIENT };
    let gateway = Gateway::start_with(timeouts, None, Some(lead.address), 1);
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(begin(gateway.address(), KEY).await.unwrap());
    }
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    exchange(&mut broker, b"hello").await;
    assert_eq!((gateway.connections(), gateway.all_refused()), (1, vec![]));
}
