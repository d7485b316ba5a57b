//! Requests of agents, for the operator.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::connection::Timeouts;
use crate::refusal::RefusalReason;
use crate::request::MAX_FORWARDED_PER_PORT;
use crate::testing::broker::{reach, wait_for_end};
use crate::testing::gateway::{Gateway, Limits, MAXIMUM, PATIENT, free_port, route};
use crate::testing::{REQUEST, soon, until};
use crate::untrusted::Progress;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

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
                receive(&mut stream).await;
                count.fetch_add(1, Ordering::SeqCst);
                if answers {
                    stream.write_all(ANSWER).await.unwrap();
                } else {
                    wait_for_end(&mut stream).await;
                }
            });
        }
    });
    (address, requests)
}

/// Receives a request.
async fn receive(stream: &mut TcpStream) {
    let mut request = vec![0; REQUEST.len()];
    stream.read_exact(&mut request).await.unwrap();
    assert_eq!(request, REQUEST);
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
    assert_eq!(wait_for_end(&mut stream).await, ANSWER);
    assert_eq!(gateway.all_refused(), []);
    let text = gateway.shared.metrics.render();
    assert!(text.contains(r#"invitation="cloud"} 1"#), "{text}");
}

#[tokio::test]
async fn only_some_requests_are_forwarded_at_once_and_others_wait() {
    const ALL: usize = 20;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let operator = listener.local_addr().unwrap().to_string();
    let limits = Limits { untrusted: 100, forwarded: 2, ..MAXIMUM };
    let gateway = Gateway::start_within(limits, PATIENT, Some(operator), None, 1);
    let mut asked = Vec::new();
    for _ in 0..ALL {
        asked.push(ask(&gateway).await);
    }
    let untrusted = &gateway.shared.untrusted;
    until(|| untrusted.count(Progress::Recognized) == ALL).await;
    until(|| untrusted.count(Progress::Opened) == 2).await;
    let mut forwarded = VecDeque::new();
    for number in 0..ALL {
        while forwarded.len() < 2.min(ALL - number) {
            let (mut stream, _) = soon(listener.accept()).await.unwrap();
            receive(&mut stream).await;
            forwarded.push_back(stream);
        }
        let another = listener.accept().now_or_never();
        assert!(another.is_none(), "a third one is forwarded");
        let mut oldest = forwarded.pop_front().unwrap();
        oldest.write_all(ANSWER).await.unwrap();
    }
    drop(forwarded);
    for stream in &mut asked {
        assert_eq!(wait_for_end(stream).await, ANSWER);
    }
    assert_eq!(gateway.all_refused(), []);
}

#[tokio::test]
async fn one_port_does_not_take_the_turns_of_others() {
    const ALL: usize = MAX_FORWARDED_PER_PORT + 5;
    let (operator, requests) = operator(false).await;
    let limits = Limits { forwarded: MAX_FORWARDED_PER_PORT + 1, ..MAXIMUM };
    let gateway = Gateway::start_within(limits, PATIENT, Some(operator), None, 1);
    let mut other = route(None, 1);
    other.lender.name = "other".into();
    let port = free_port();
    gateway.set(|routes| drop(routes.by_port.insert(port, other)));
    let mut asked = Vec::new();
    for _ in 0..ALL {
        asked.push(ask(&gateway).await);
    }
    let untrusted = &gateway.shared.untrusted;
    until(|| untrusted.count(Progress::Recognized) == ALL).await;
    until(|| requests.load(Ordering::SeqCst) == MAX_FORWARDED_PER_PORT).await;
    let mut stream = reach((std::net::Ipv4Addr::LOCALHOST, port).into()).await;
    stream.write_all(REQUEST).await.unwrap();
    until(|| requests.load(Ordering::SeqCst) == MAX_FORWARDED_PER_PORT + 1).await;
    assert_eq!(untrusted.count(Progress::Recognized), ALL + 1);
}

#[tokio::test]
async fn incomplete_requests_neither_reach_the_operator_nor_keep_others_out() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let operator = listener.local_addr().unwrap().to_string();
    let limits = Limits { untrusted: 10, forwarded: 1, ..MAXIMUM };
    let gateway = Gateway::start_within(limits, PATIENT, Some(operator), None, 1);
    let mut incomplete = Vec::new();
    for length in (26..REQUEST.len()).cycle().take(60) {
        let mut stream = reach(gateway.address()).await;
        stream.write_all(&REQUEST[..length]).await.unwrap();
        incomplete.push(stream);
    }
    until(|| gateway.shared.untrusted.count(Progress::Recognized) == 10).await;
    let mut stream = ask(&gateway).await;
    // The first that is forwarded.
    let (mut forwarded, _) = soon(listener.accept()).await.unwrap();
    soon(receive(&mut forwarded)).await;
    forwarded.write_all(ANSWER).await.unwrap();
    drop(forwarded);
    assert_eq!(wait_for_end(&mut stream).await, ANSWER);
    assert!(listener.accept().now_or_never().is_none(), "another one is forwarded");
}

#[tokio::test]
async fn an_agent_that_gives_up_frees_its_turn() {
    let (operator, requests) = operator(false).await;
    let limits = Limits { untrusted: 10, forwarded: 1, ..MAXIMUM };
    let gateway = Gateway::start_within(limits, PATIENT, Some(operator), None, 1);
    for number in 1..=3 {
        let asked = ask(&gateway).await;
        until(|| requests.load(Ordering::SeqCst) == number).await;
        drop(asked);
    }
    assert_eq!(gateway.all_refused(), []);
}

#[tokio::test]
async fn nothing_follows_a_request() {
    let (operator, requests) = operator(false).await;
    let gateway = Gateway::start_with(PATIENT, Some(operator), None, 1);
    let mut stream = ask(&gateway).await;
    until(|| requests.load(Ordering::SeqCst) == 1).await;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(wait_for_end(&mut stream).await, b"");
    assert_eq!(gateway.all_refused(), [(RefusalReason::Garbage, 1)]);
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
