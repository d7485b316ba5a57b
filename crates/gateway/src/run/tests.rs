use super::*;
use crate::testing::api_server::ApiServer;
use crate::testing::broker::{connect, exchange, send, wait_for_end};
use crate::testing::gateway::free_port;
use crate::testing::lead::{Conduct, KEY, Lead};
use crate::testing::{minicluster, soon};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A MiniCluster with one invitation, whose port and lead are these.
fn lending(port: u16, lead: SocketAddr) -> Value {
    let mut object = minicluster();
    let expires = "2999-01-01T00:00:00Z";
    object["spec"]["flux"]["bursting"]["invitations"][0]["expires"] = expires.into();
    object["status"]["leases"][0]["invitation"] =
        json!({ "expires": expires, "gatewayPort": port });
    object["status"]["external"]["leadAddress"] = lead.to_string().into();
    object
}

struct Running {
    server: ApiServer,
    metrics: SocketAddr,
    tasks: JoinSet<Result<(), GatewayError>>,
}

async fn start(objects: Vec<Value>) -> Running {
    let server = ApiServer::new(objects);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let metrics = listener.local_addr().unwrap();
    let options =
        Options { namespace: None, listen: Ipv4Addr::LOCALHOST.into(), report_address: None };
    let mut tasks = JoinSet::new();
    tasks.spawn(run(server.client(), listener, options));
    Running { server, metrics, tasks }
}

#[tokio::test]
async fn a_minicluster_is_served_until_its_invitation_is_revoked() {
    let lead = Lead::start(Conduct::Normal).await;
    let port = free_port();
    let running = start(vec![lending(port, lead.address)]).await;
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let mut broker = connect(address, KEY).await.unwrap();
    exchange(&mut broker, b"hello").await;
    let ready = send(running.metrics, b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(ready.starts_with(b"HTTP/1.1 200"));
    running.server.wait_for_watch().await;
    let mut revoked = lending(port, lead.address);
    revoked["spec"]["flux"]["bursting"]["invitations"] = json!([]);
    running.server.change("MODIFIED", &revoked);
    assert_eq!(wait_for_end(&mut broker).await, b"");
    soon(async { while TcpStream::connect(address).await.is_ok() {} }).await;
}

#[tokio::test]
async fn a_refused_connection_becomes_an_event_of_the_minicluster() {
    let lead = Lead::start(Conduct::Normal).await;
    let port = free_port();
    let running = start(vec![lending(port, lead.address)]).await;
    send((Ipv4Addr::LOCALHOST, port).into(), b"GET / HTTP/1.1\r\n\r\n").await;
    let events = running.server.wait_for_events(1).await;
    let event = &events[0];
    assert_eq!(
        event["note"],
        "refused 1 connection to the port of invitation \"cloud\": 1 Garbage; \
         the last came from 127.0.0.1"
    );
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("GatewayRefused")));
    let regarding = &event["regarding"];
    assert_eq!(
        (&regarding["kind"], &regarding["name"], &regarding["uid"]),
        (&json!("MiniCluster"), &json!("lender"), &json!("uid-1"))
    );
}

#[tokio::test]
async fn brokers_stay_connected_while_the_api_server_is_unreachable() {
    let lead = Lead::start(Conduct::Normal).await;
    let port = free_port();
    let running = start(vec![lending(port, lead.address)]).await;
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let mut broker = connect(address, KEY).await.unwrap();
    running.server.set_reachable(false);
    exchange(&mut broker, b"hello").await;
    let mut another = connect(address, KEY).await.unwrap();
    exchange(&mut another, b"hello").await;
}

#[tokio::test]
async fn everything_stops_when_it_is_dropped() {
    let lead = Lead::start(Conduct::Normal).await;
    let port = free_port();
    let Running { server, metrics, mut tasks } = start(vec![lending(port, lead.address)]).await;
    let mut broker = connect((Ipv4Addr::LOCALHOST, port).into(), KEY).await.unwrap();
    tasks.shutdown().await;
    assert_eq!(wait_for_end(&mut broker).await, b"");
    soon(async { while TcpStream::connect(metrics).await.is_ok() {} }).await;
    drop(server);
}

#[test]
fn a_report_address_is_host_and_port() {
    for address in ["operator:8080", "operator.flux.svc:8080", "10.0.0.1:80", "[fd00::1]:80"] {
        assert!(is_host_and_port(address), "{address}");
    }
    for address in ["operator", "http://operator:80", ":80", "operator:0", "fd00::1:80", "a:b", ""]
    {
        assert!(!is_host_and_port(address), "{address}");
    }
}
