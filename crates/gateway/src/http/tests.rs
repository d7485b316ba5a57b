use super::*;
use crate::testing::{broker, soon};
use std::net::SocketAddr;

async fn start(listed: bool) -> (SocketAddr, watch::Sender<bool>, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, listed) = watch::channel(listed);
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_http(listener, Metrics::new(), listed));
    (address, sender, tasks)
}

async fn get_path(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: gateway\r\n\r\n");
    String::from_utf8(broker::send(address, request.as_bytes()).await).unwrap()
}

#[tokio::test]
async fn it_is_ready_once_the_miniclusters_have_been_listed() {
    let (address, listed, _tasks) = start(false).await;
    assert!(get_path(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get_path(address, "/readyz").await.starts_with("HTTP/1.1 503"));
    listed.send_replace(true);
    assert!(get_path(address, "/readyz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn metrics_are_served() {
    let (address, _listed, _tasks) = start(true).await;
    let text = get_path(address, "/metrics").await;
    assert!(text.contains("flux_operator_gateway_ports 0"), "{text}");
    assert!(text.contains(OPEN_METRICS), "{text}");
}

#[tokio::test]
async fn silent_clients_do_not_keep_probes_from_being_answered() {
    let (address, _listed, _tasks) = start(true).await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS + 10 {
        silent.push(broker::reach(address).await);
    }
    assert!(get_path(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    soon(broker::wait_for_end(&mut silent[0])).await;
}
