//! Clusters behind a proxy, compressed responses, and tokens of an identity provider.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::server::{ONE_MINICLUSTER, kubeconfig, read_head, serve};
use crate::{command, errors};

/// The API server's host name. Only the proxy can reach it: no resolver has names below `invalid`.
const UNRESOLVABLE_HOST: &str = "api.cluster.invalid";

#[test]
fn a_cluster_is_reached_through_the_proxy_of_its_kubeconfig() {
    let (proxy, targets) = http_proxy(serve(ONE_MINICLUSTER));
    let config = kubeconfig(
        &format!("http://{UNRESOLVABLE_HOST}:80"),
        &format!(", proxy-url: 'http://{proxy}'"),
    );
    assert_eq!(list(&config, &[]), Ok("minicluster.flux-framework.org/fs\n".into()));
    assert_eq!(targets.recv().unwrap(), format!("{UNRESOLVABLE_HOST}:80"));
}

#[test]
fn a_cluster_is_reached_through_a_socks_proxy() {
    let (proxy, requested) = socks_proxy(serve(ONE_MINICLUSTER));
    let config = kubeconfig(
        &format!("http://{UNRESOLVABLE_HOST}:80"),
        &format!(", proxy-url: 'socks5://{proxy}'"),
    );
    assert_eq!(list(&config, &[]), Ok("minicluster.flux-framework.org/fs\n".into()));
    assert_eq!(requested.recv().unwrap(), format!("{UNRESOLVABLE_HOST}:80"));
}

#[test]
fn a_cluster_is_reached_through_the_proxy_of_the_environment() {
    let (proxy, requested) = http_proxy(serve(ONE_MINICLUSTER));
    let config = kubeconfig(&format!("http://{UNRESOLVABLE_HOST}:80"), "");
    let listed = list(&config, &[("HTTP_PROXY", &format!("http://{proxy}"))]);
    assert_eq!(listed, Ok("minicluster.flux-framework.org/fs\n".into()));
    assert_eq!(requested.recv().unwrap(), format!("{UNRESOLVABLE_HOST}:80"));
    // The server behind this proxy does not speak TLS; the test only checks what the proxy was
    // asked for.
    let config = kubeconfig(&format!("https://{UNRESOLVABLE_HOST}:6443"), "");
    let listed = list(&config, &[("HTTPS_PROXY", &format!("http://{proxy}"))]);
    assert!(listed.is_err(), "{listed:?}");
    assert_eq!(requested.recv().unwrap(), format!("{UNRESOLVABLE_HOST}:6443"));
}

#[test]
fn a_cluster_in_no_proxy_is_reached_directly() {
    let (proxy, requested) = http_proxy(serve(ONE_MINICLUSTER));
    let config = kubeconfig(&format!("https://{UNRESOLVABLE_HOST}:6443"), "");
    let proxy = format!("http://{proxy}");
    let listed = list(&config, &[("HTTPS_PROXY", &proxy), ("NO_PROXY", "cluster.invalid")]);
    assert!(listed.is_err(), "{listed:?}");
    assert!(requested.try_recv().is_err(), "the proxy was used");
}

#[test]
fn responses_may_be_compressed() {
    let heads = request_head(&kubeconfig("SERVER", ""));
    assert!(heads.iter().any(|line| line == "accept-encoding: gzip"), "{heads:?}");
}

#[test]
fn the_token_of_an_identity_provider_is_sent() {
    // The signature is not checked before the token is sent. The token expires in the year 2286.
    let token = "eyJhbGciOiJub25lIn0.eyJleHAiOjk5OTk5OTk5OTl9.c2lnbmF0dXJl";
    let provider = format!("auth-provider: {{name: oidc, config: {{id-token: {token}}}}}");
    let config = kubeconfig("SERVER", "").replace("user: {}", &format!("user: {{{provider}}}"));
    let heads = request_head(&config);
    assert!(heads.contains(&format!("authorization: Bearer {token}")), "{heads:?}");
}

/// Lists MiniClusters by name. Returns the output, or the errors.
fn list(kubeconfig: &str, environment: &[(&str, &str)]) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
    let mut command = command(&folder, &["list", "-o", "name"]);
    let ran = command.envs(environment.iter().copied()).output().unwrap();
    match ran.status.success() {
        true => Ok(String::from_utf8(ran.stdout).unwrap()),
        false => Err(errors(&ran)),
    }
}

/// The head of the request that a server at `SERVER` of the kubeconfig receives.
fn request_head(kubeconfig: &str) -> Vec<String> {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", server.local_addr().unwrap());
    let request = thread::spawn(move || read_head(&server.accept().unwrap().0));
    let unanswered = list(&kubeconfig.replace("SERVER", &address), &[]);
    assert!(unanswered.is_err(), "{unanswered:?}");
    request.join().unwrap().iter().map(|line| lowercase_name(line)).collect()
}

fn lowercase_name(line: &str) -> String {
    match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
        None => line.to_owned(),
    }
}

/// A proxy that accepts CONNECT, reports the target, and always connects to `server`.
fn http_proxy(server: SocketAddr) -> (SocketAddr, Receiver<String>) {
    proxy(server, |mut client| {
        let head = read_head(client);
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let target = head[0].strip_prefix("CONNECT ").unwrap();
        target.strip_suffix(" HTTP/1.1").unwrap().to_owned()
    })
}

/// A SOCKS5 proxy (RFC 1928) without authentication.
fn socks_proxy(server: SocketAddr) -> (SocketAddr, Receiver<String>) {
    proxy(server, |client| {
        let (mut from, mut to) = (client, client);
        let mut read = |count: usize| {
            let mut bytes = vec![0; count];
            from.read_exact(&mut bytes).unwrap();
            bytes
        };
        let methods = read(2)[1];
        read(methods.into());
        to.write_all(&[5, 0]).unwrap();
        assert_eq!(read(4), [5, 1, 0, 3], "connect to a name");
        let length = read(1)[0];
        let host = String::from_utf8(read(length.into())).unwrap();
        let port = u16::from_be_bytes(read(2).try_into().unwrap());
        to.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        format!("{host}:{port}")
    })
}

fn proxy(
    server: SocketAddr,
    handshake: fn(&TcpStream) -> String,
) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requested) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            sender.send(handshake(&client)).unwrap();
            let upstream = TcpStream::connect(server).unwrap();
            forward(client.try_clone().unwrap(), upstream.try_clone().unwrap());
            forward(upstream, client);
        }
    });
    (address, requested)
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let _one_side_closed = std::io::copy(&mut from, &mut to);
        let _one_of_them_left = to.shutdown(std::net::Shutdown::Write);
    });
}
