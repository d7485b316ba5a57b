//! What happens to connections when the routes change.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::current_routes::{Lenders, keep_routes};
use crate::lender::Sources;
use crate::refusal::RefusalReason;
use crate::testing::broker::{begin, connect, exchange, reach, wait_for_end};
use crate::testing::gateway::{Gateway, free_port};
use crate::testing::lead::{Conduct, KEY, Lead, LeadEvent};
use crate::testing::{at, lender, soon, until};

/// Waits until a port does not accept connections any more.
async fn wait_until_closed(gateway: &Gateway) {
    soon(async { while TcpStream::connect(gateway.address()).await.is_ok() {} }).await;
}

#[tokio::test]
async fn a_revocation_cuts_all_connections() {
    let mut lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 2);
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    assert_eq!(lead.event().await, LeadEvent::Accepted);
    let mut in_handshake = begin(gateway.address(), KEY).await.unwrap();
    let mut silent = reach(gateway.address()).await;
    gateway.revoke();
    for stream in [&mut broker, &mut in_handshake, &mut silent] {
        assert_eq!(wait_for_end(stream).await, b"");
    }
    assert_eq!(lead.event().await, LeadEvent::Ended);
    wait_until_closed(&gateway).await;
    until(|| !gateway.shared.metrics.render().contains("cloud")).await;
}

#[tokio::test]
async fn an_expiry_cuts_all_connections_without_the_api_server() {
    let mut lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let now = Arc::new(AtomicI64::new(0));
    let clock = Arc::clone(&now);
    let port = free_port();
    let mut lent = lender("a", &[(port, 0, 2)]);
    lent.lead = Some(lead.address);
    let lenders = Lenders::from([(("ns".into(), "a".into()), lent)]);
    let (_sender, lenders) = watch::channel(lenders);
    tokio::spawn(keep_routes(lenders, gateway.routes.clone(), move || {
        at(clock.load(Ordering::SeqCst))
    }));
    let address = (IpAddr::V4(Ipv4Addr::LOCALHOST), port).into();
    let mut broker = connect(address, KEY).await.unwrap();
    assert_eq!(lead.event().await, LeadEvent::Accepted);
    exchange(&mut broker, b"hello").await;
    now.store(2, Ordering::SeqCst);
    assert_eq!(wait_for_end(&mut broker).await, b"");
    soon(async { while TcpStream::connect(address).await.is_ok() {} }).await;
}

#[tokio::test]
async fn connections_are_cut_when_the_lead_moves() {
    let (mut before, mut after) =
        (Lead::start(Conduct::Normal).await, Lead::start(Conduct::Normal).await);
    let gateway = Gateway::start(Some(before.address), 1);
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    assert_eq!(before.event().await, LeadEvent::Accepted);
    gateway.update(|route| route.lead = None);
    assert_eq!(wait_for_end(&mut broker).await, b"");
    assert_eq!(before.event().await, LeadEvent::Ended);
    assert!(connect(gateway.address(), KEY).await.is_err());
    gateway.update(|route| route.lead = Some(after.address));
    let mut broker = soon(async {
        loop {
            if let Ok(broker) = connect(gateway.address(), KEY).await {
                break broker;
            }
        }
    })
    .await;
    assert_eq!(after.event().await, LeadEvent::Accepted);
    exchange(&mut broker, b"hello").await;
    assert_eq!(gateway.connections(), 1);
}

#[tokio::test]
async fn connections_from_a_network_that_is_not_allowed_any_more_are_cut() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    gateway.update(|route| route.sources = Sources::Only(vec!["127.0.0.0/8".parse().unwrap()]));
    exchange(&mut broker, b"still").await;
    gateway.update(|route| route.sources = Sources::Only(Vec::new()));
    assert_eq!(wait_for_end(&mut broker).await, b"");
    assert_eq!(gateway.all_refused(), []);
}

#[tokio::test]
async fn a_lower_limit_cuts_the_newest_brokers() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 2);
    let mut first = connect(gateway.address(), KEY).await.unwrap();
    let mut second = connect(gateway.address(), KEY).await.unwrap();
    gateway.update(|route| route.limit = 1);
    assert_eq!(wait_for_end(&mut second).await, b"");
    exchange(&mut first, b"hello").await;
    assert!(connect(gateway.address(), KEY).await.is_err());
    assert_eq!(gateway.all_refused(), [(RefusalReason::TooMany, 1)]);
    gateway.update(|route| route.limit = 2);
    soon(async { while connect(gateway.address(), KEY).await.is_err() {} }).await;
}

#[tokio::test]
async fn another_lease_can_have_the_port_at_once() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    gateway.update(|route| route.invitation = "another".into());
    assert_eq!(wait_for_end(&mut broker).await, b"", "its lease does not exist any more");
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    exchange(&mut broker, b"hello").await;
    let text = gateway.shared.metrics.render();
    assert!(
        text.contains(
            r#"connections{namespace="default",cluster="lender",invitation="another"} 1"#
        )
    );
    assert!(!text.contains("cloud"), "{text}");
}

#[tokio::test]
async fn a_port_that_is_in_use_is_opened_later() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let port = free_port();
    let taken = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    gateway.set(|routes| {
        let route = routes.by_port.remove(&gateway.port).unwrap();
        routes.by_port.insert(port, route);
    });
    let has_failed = || {
        let text = gateway.shared.metrics.render();
        !text.contains("gateway_bind_failures_total 0\n")
    };
    until(has_failed).await;
    drop(taken);
    let address = (IpAddr::V4(Ipv4Addr::LOCALHOST), port).into();
    let mut broker = connect(address, KEY).await.unwrap();
    exchange(&mut broker, b"hello").await;
}

#[tokio::test]
async fn a_gateway_that_stops_cuts_everything() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    let address = gateway.address();
    gateway.stop().await;
    assert_eq!(soon(broker.read(&mut [0])).await.unwrap_or(0), 0);
    soon(async { while TcpStream::connect(address).await.is_ok() {} }).await;
}
