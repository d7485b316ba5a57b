//! Checks whether components are ready.
//!
//! Components that use TLS are checked with kubectl: the testbed has it anyway, and a TLS client in
//! this crate would be compiled in every test run. kubectl needs 0.05 s of CPU time, so it is only
//! run after the port is open.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::command;
use crate::component::{Probe, Settings};

/// Long enough for a busy machine, short enough to retry.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the probe succeeds now.
pub(crate) fn succeeds(probe: &Probe, settings: &Settings) -> bool {
    match probe {
        Probe::Tcp(address) => TcpStream::connect_timeout(address, TIMEOUT).is_ok(),
        Probe::Socket(path) => UnixStream::connect(path).is_ok(),
        Probe::Http(address, path) => http_status(*address, path) == Some(200),
        Probe::Api(path) => get_from_api_server(path, settings).is_some(),
        Probe::NodeReady(name) => get_from_api_server(&format!("/api/v1/nodes/{name}"), settings)
            .and_then(|text| serde_json::from_str(&text).ok())
            .is_some_and(|node| is_ready(&node)),
    }
}

fn http_status(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    // In one piece: a server that has read only a part may respond and close.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).ok()?;
    status_of(&String::from_utf8_lossy(&answer))
}

fn status_of(answer: &str) -> Option<u16> {
    answer.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

fn get_from_api_server(path: &str, settings: &Settings) -> Option<String> {
    command::run(
        Command::new(settings.bin.join("kubectl"))
            .env_clear()
            // kubectl caches API discovery in the home directory.
            .env("HOME", settings.home.path())
            .arg("--kubeconfig")
            .arg(settings.home.kubeconfig())
            .args(["--request-timeout=5s", "get", "--raw", path]),
    )
    .ok()
}

fn is_ready(node: &Value) -> bool {
    node["status"]["conditions"].as_array().is_some_and(|conditions| {
        conditions.iter().any(|each| each["type"] == "Ready" && each["status"] == "True")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_status_is_the_second_word() {
        assert_eq!(status_of("HTTP/1.1 200 OK\r\n"), Some(200));
        assert_eq!(status_of("HTTP/1.0 503 Service Unavailable\r\n"), Some(503));
        assert_eq!(status_of("SSH-2.0"), None);
        assert_eq!(status_of(""), None);
    }

    #[test]
    fn a_node_is_ready_if_its_condition_is_true() {
        let node = |status| {
            json!({ "status": { "conditions": [
                { "type": "MemoryPressure", "status": "False" },
                { "type": "Ready", "status": status },
            ]}})
        };
        assert!(is_ready(&node("True")));
        assert!(!is_ready(&node("Unknown")));
        assert!(!is_ready(&json!({})));
    }

    #[test]
    fn a_plain_http_server_is_probed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nok").unwrap();
            String::from_utf8(request).unwrap()
        });
        assert_eq!(http_status(address, "/healthz"), Some(200));
        assert!(server.join().unwrap().starts_with("GET /healthz HTTP/1.0\r\n"));
    }
}
