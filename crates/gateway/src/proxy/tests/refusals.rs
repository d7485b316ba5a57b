//! Every reason for which a connection is refused.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::connection::Timeouts;
use crate::lender::Sources;
use crate::refusal::RefusalReason;
use crate::testing::broker::{begin, connect, connect_fluxlet, reach, send, wait_for_end};
use crate::testing::gateway::{Gateway, PATIENT};
use crate::testing::lead::{Conduct, KEY, Lead};
use crate::testing::{REQUEST, zmtp};

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn garbage() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x02\x00", b"\xFFxxxxxxxxxxxx"] {
        assert_eq!(send(gateway.address(), bytes).await, b"");
    }
    assert_eq!(gateway.all_refused(), [(RefusalReason::Garbage, 3)]);
    assert_eq!(lead.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_greeting_of_another_mechanism_is_garbage() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    for mechanism in [&b"NULL"[..], b"PLAIN"] {
        // Its first pieces look like any other, so it is greeted.
        let mut stream = reach(gateway.address()).await;
        let _ = zmtp::greet(&mut stream, mechanism).await;
        wait_for_end(&mut stream).await;
    }
    assert_eq!(gateway.all_refused(), [(RefusalReason::Garbage, 2)]);
    assert_eq!(lead.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_request_is_garbage_if_there_is_no_operator() {
    let gateway = Gateway::start(None, 1);
    assert_eq!(send(gateway.address(), REQUEST).await, b"");
    assert_eq!(gateway.all_refused(), [(RefusalReason::Garbage, 1)]);
}

#[tokio::test]
async fn a_request_that_is_not_in_the_name_of_the_invitation_is_garbage() {
    let operator = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = operator.local_addr().unwrap().to_string();
    let gateway = Gateway::start_with(PATIENT, Some(address), None, 1);
    let request = b"POST /v1/report HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(send(gateway.address(), request).await, b"");
    gateway.update(|route| route.invitation = "other".into());
    crate::testing::until(|| gateway.shared.metrics.render().contains("other")).await;
    assert_eq!(send(gateway.address(), REQUEST).await, b"");
    assert!(operator.accept().now_or_never().is_none(), "it reached the operator");
}

#[tokio::test]
async fn silent_before_the_opening_is_complete() {
    let timeouts = Timeouts { opening: SHORT, ..PATIENT };
    let gateway = Gateway::start_with(timeouts, None, None, 1);
    for bytes in [&b""[..], b"\xFF", b"\x00\x30", b"POST", &REQUEST[..REQUEST.len() - 1]] {
        assert_eq!(send(gateway.address(), bytes).await, b"");
    }
    let greeted = send(gateway.address(), &zmtp::greeting(b"CURVE")).await;
    assert_eq!(greeted, zmtp::greeting(b"CURVE"));
    assert_eq!(gateway.all_refused(), [(RefusalReason::Silent, 6)]);
}

#[tokio::test]
async fn silent_during_the_handshake() {
    let lead = Lead::start(Conduct::Normal).await;
    let timeouts = Timeouts { handshake: Duration::from_millis(500), ..PATIENT };
    let gateway = Gateway::start_with(timeouts, None, Some(lead.address), 1);
    let mut stream = begin(gateway.address(), KEY).await.unwrap();
    wait_for_end(&mut stream).await;
    assert_eq!(gateway.all_refused(), [(RefusalReason::Silent, 1)]);
}

#[tokio::test]
async fn silent_after_welcome() {
    let lead = Lead::start(Conduct::Normal).await;
    let timeouts = Timeouts { initiate: SHORT, ..PATIENT };
    let gateway = Gateway::start_with(timeouts, None, Some(lead.address), 1);
    let mut silent = begin(gateway.address(), KEY).await.unwrap();
    wait_for_end(&mut silent).await;
    let mut incomplete = begin(gateway.address(), KEY).await.unwrap();
    incomplete.write_all(&zmtp::initiate()[..100]).await.unwrap();
    wait_for_end(&mut incomplete).await;
    assert_eq!(gateway.all_refused(), [(RefusalReason::Silent, 2)]);
}

#[tokio::test]
async fn what_a_client_sends_before_it_is_answered_is_garbage() {
    let lead = Lead::start(Conduct::Silent).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut stream = reach(gateway.address()).await;
    zmtp::greet(&mut stream, b"CURVE").await.unwrap();
    stream.write_all(&zmtp::hello(KEY)).await.unwrap();
    crate::testing::until(|| lead.bytes.load(Ordering::SeqCst) > 0).await;
    stream.write_all(&zmtp::initiate()).await.unwrap();
    assert_eq!(wait_for_end(&mut stream).await, b"");
    assert_eq!(gateway.all_refused(), [(RefusalReason::Garbage, 1)]);
}

#[tokio::test]
async fn silent_is_also_a_client_that_gives_up() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    drop(begin(gateway.address(), KEY).await.unwrap());
    crate::testing::until(|| gateway.refused(RefusalReason::Silent) == 1).await;
}

#[tokio::test]
async fn a_silent_lead() {
    let lead = Lead::start(Conduct::Silent).await;
    let timeouts = Timeouts { handshake: SHORT, ..PATIENT };
    let gateway = Gateway::start_with(timeouts, None, Some(lead.address), 1);
    assert!(connect_fluxlet(gateway.address(), KEY).await.is_err());
    assert_eq!(gateway.all_refused(), [(RefusalReason::Silent, 1)]);
}

#[tokio::test]
async fn a_wrong_key() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    assert!(connect(gateway.address(), KEY + 1).await.is_err());
    assert!(connect_fluxlet(gateway.address(), KEY + 1).await.is_err());
    assert_eq!(gateway.all_refused(), [(RefusalReason::WrongKey, 2)]);
}

#[tokio::test]
async fn an_error_of_the_lead_is_a_wrong_key() {
    let lead = Lead::start(Conduct::Error).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    let mut broker = begin(gateway.address(), KEY).await.unwrap();
    broker.write_all(&zmtp::initiate()).await.unwrap();
    assert_eq!(wait_for_end(&mut broker).await, zmtp::command(b"ERROR", 4));
    assert_eq!(gateway.all_refused(), [(RefusalReason::WrongKey, 1)]);
}

#[tokio::test]
async fn another_source() {
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start(Some(lead.address), 1);
    gateway.update(|route| route.sources = Sources::Only(vec!["203.0.113.0/24".parse().unwrap()]));
    // The port may have been opened before its sources were changed, but not be used.
    assert!(connect(gateway.address(), KEY).await.is_err());
    crate::testing::until(|| gateway.refused(RefusalReason::Source) == 1).await;
    gateway.update(|route| route.sources = Sources::Only(vec!["127.0.0.0/8".parse().unwrap()]));
    crate::testing::soon(async { while connect(gateway.address(), KEY).await.is_err() {} }).await;
}

#[tokio::test]
async fn no_lead() {
    let gateway = Gateway::start(None, 1);
    assert!(connect(gateway.address(), KEY).await.is_err());
    assert_eq!(gateway.all_refused(), [(RefusalReason::NoLead, 1)]);
}

/// An address at which nothing listens.
async fn unused_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn an_unreachable_lead() {
    let gateway = Gateway::start(Some(unused_address().await), 1);
    assert!(connect(gateway.address(), KEY).await.is_err());
    let lead = Lead::start(Conduct::Disconnects).await;
    gateway.update(|route| route.lead = Some(lead.address));
    crate::testing::soon(async {
        while lead.connections.load(Ordering::SeqCst) == 0 {
            assert!(connect(gateway.address(), KEY).await.is_err());
        }
    })
    .await;
    let all = gateway.all_refused();
    assert!(matches!(all[..], [(RefusalReason::LeadUnreachable, 2..)]), "{all:?}");
}

#[tokio::test]
async fn an_unreachable_operator() {
    let operator = unused_address().await.to_string();
    let gateway = Gateway::start_with(PATIENT, Some(operator), None, 1);
    assert_eq!(send(gateway.address(), REQUEST).await, b"");
    assert_eq!(gateway.all_refused(), [(RefusalReason::OperatorUnreachable, 1)]);
}

#[tokio::test]
async fn a_check_of_a_load_balancer_is_not_refused() {
    let gateway = Gateway::start(None, 1);
    for _ in 0..5 {
        let mut probe = reach(gateway.address()).await;
        probe.shutdown().await.unwrap();
        wait_for_end(&mut probe).await;
    }
    assert_eq!(gateway.all_refused(), []);
}
