use super::*;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Generous, for slow machines.
const SOON: Duration = Duration::from_secs(30);

async fn start(listed: bool) -> (SocketAddr, watch::Sender<bool>, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, listed) = watch::channel(listed);
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_probes(listener, Arc::new(|| "ports 0\n".to_owned()), listed));
    (address, sender, tasks)
}

async fn get_path(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: program\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(SOON, read).await.expect("it answers").unwrap();
    answer
}

#[tokio::test]
async fn it_is_ready_once_the_objects_have_been_listed() {
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
    assert!(text.contains("ports 0"), "{text}");
    assert!(text.contains(OPEN_METRICS), "{text}");
}

#[tokio::test]
async fn silent_clients_do_not_keep_probes_from_being_answered() {
    let (address, _listed, _tasks) = start(true).await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS + 10 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(get_path(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    let mut end = [0];
    let read = tokio::time::timeout(SOON, silent[0].read(&mut end)).await;
    assert!(matches!(read.expect("the oldest is closed"), Ok(0) | Err(_)));
}
