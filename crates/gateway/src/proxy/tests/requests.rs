//! Requests of agents, for the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::connection::Timeouts;
use crate::refusal::RefusalReason;
use crate::testing::broker::{connect, exchange, reach, wait_for_end};
use crate::testing::gateway::{Gateway, PATIENT};
use crate::testing::lead::{Conduct, KEY, Lead};
use crate::testing::{soon, until};

const REQUEST: &[u8] = b"POST /v1/report HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";

/// A server that answers once it has the whole request, or never.
async fn operator(answers: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut request = vec![0; REQUEST.len()];
                stream.read_exact(&mut request).await.unwrap();
                assert_eq!(request, REQUEST);
                count.fetch_add(1, Ordering::SeqCst);
                if answers {
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                } else {
                    wait_for_end(&mut stream).await;
                }
            });
        }
    });
    (address, requests)
}

async fn ask(gateway: &Gateway) -> TcpStream {
    let mut stream = reach(gateway.address()).await;
    stream.write_all(REQUEST).await.unwrap();
    stream
}

#[tokio::test]
async fn a_request_is_forwarded_to_the_operator_even_without_a_lead() {
    let (operator, _) = operator(true).await;
    let gateway = Gateway::start_with(PATIENT, Some(operator), None, 1);
    let mut stream = reach(gateway.address()).await;
    let (first, rest) = REQUEST.split_at(3);
    stream.write_all(first).await.unwrap();
    stream.flush().await.unwrap();
    stream.write_all(rest).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(wait_for_end(&mut stream).await, b"HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(gateway.all_refused(), []);
    let text = gateway.shared.metrics.render();
    assert!(text.contains(r#"invitation="cloud"} 1"#), "{text}");
}

#[tokio::test]
async fn requests_have_a_limit_of_their_own() {
    let (operator, requests) = operator(false).await;
    let lead = Lead::start(Conduct::Normal).await;
    let gateway = Gateway::start_with(PATIENT, Some(operator), Some(lead.address), 2);
    let mut asked = Vec::new();
    for _ in 0..10 {
        asked.push(ask(&gateway).await);
    }
    until(|| requests.load(Ordering::SeqCst) == 10).await;
    let mut another = ask(&gateway).await;
    wait_for_end(&mut another).await;
    assert_eq!(gateway.all_refused(), [(RefusalReason::TooMany, 1)]);
    let mut broker = connect(gateway.address(), KEY).await.unwrap();
    exchange(&mut broker, b"requests are not counted against the ranks").await;
    drop(asked);
    soon(async {
        while requests.load(Ordering::SeqCst) == 10 {
            let mut stream = ask(&gateway).await;
            // It is either refused, or forwarded and never answered.
            let _ = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut [0])).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_ends_after_a_while() {
    let (operator, _) = operator(false).await;
    let timeouts = Timeouts { request: Duration::from_millis(100), ..PATIENT };
    let gateway = Gateway::start_with(timeouts, Some(operator), None, 1);
    let mut stream = ask(&gateway).await;
    assert_eq!(wait_for_end(&mut stream).await, b"");
    assert_eq!(gateway.all_refused(), []);
}

#[tokio::test]
async fn a_revocation_cuts_requests_too() {
    let (operator, requests) = operator(false).await;
    let gateway = Gateway::start_with(PATIENT, Some(operator), None, 1);
    let mut stream = ask(&gateway).await;
    until(|| requests.load(Ordering::SeqCst) == 1).await;
    gateway.revoke();
    assert_eq!(wait_for_end(&mut stream).await, b"");
}
