//! A small HTTP server for short requests, from the kubelet and from other agents.
//!
//! Every pod of the Kubernetes cluster can connect. So one thread serves all connections
//! without blocking on any of them, and each connection is bounded: in memory by
//! [`MAX_HEAD`], in time by [`REQUEST_TIMEOUT`]. When there are too many, the oldest is closed. A
//! well-behaved client sends its request at once and is answered before it becomes the
//! oldest, so idle connections are closed first.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The timeout of a whole request. The kubelet gives up after a few seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum size of a request's head. The kubelet's has 120 bytes; a proxy may add some.
const MAX_HEAD: usize = 4096;

/// How many headers a request may have.
const MAX_HEADERS: usize = 32;

/// The maximum number of connections: at most one MiB of heads.
const MAX_CONNECTIONS: usize = 256;

/// The maximum number of connections from one address: more than an agent needs, and few enough
/// that a single pod cannot displace those of others.
const MAX_PER_PEER: usize = 32;

/// How many connections are accepted before open ones are served again.
const MAX_ACCEPTED_AT_ONCE: usize = 16;

/// A request: a `GET` without a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The path, from its first `/`.
    pub path: &'a str,
    /// The part after the first `?`, not decoded; empty without one.
    pub query: &'a str,
}

/// A response of at most a few hundred bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// A header in addition to those of every response.
    pub header: Option<(&'static str, String)>,
    /// The body, as plain text.
    pub body: String,
}

impl Response {
    /// Creates a response without an additional header.
    pub fn new(status: u16, body: impl Into<String>) -> Response {
        Response { status, header: None, body: body.into() }
    }

    fn to_text(&self) -> String {
        let Response { status, header, body } = self;
        let header = header.as_ref().map(|(name, value)| format!("{name}: {value}\r\n"));
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
             Connection: close\r\n{header}\r\n{body}",
            reason = reason_phrase(*status),
            length = body.len(),
            header = header.unwrap_or_default(),
        )
    }
}

/// Serves `port` on all addresses for as long as the process lives. `handler` runs on the only
/// thread of the server, so it must not block.
pub fn serve(
    port: u16,
    handler: impl Fn(&Request<'_>) -> Response + Send + 'static,
) -> io::Result<()> {
    // The IPv6 listener accepts IPv4 too; IPv4 alone is for systems without IPv6.
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
    serve_at(listener, REQUEST_TIMEOUT, handler)
}

/// Like [`serve`], with an existing listener and another timeout for a request.
pub fn serve_at(
    listener: TcpListener,
    limit: Duration,
    handler: impl Fn(&Request<'_>) -> Response + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut server = Server { listener, limit, connections: Vec::new() };
    thread::spawn(move || {
        loop {
            server.poll_once(&handler);
        }
    });
    Ok(())
}

struct Server {
    listener: TcpListener,
    limit: Duration,
    /// Connections whose request is not complete, oldest first.
    connections: Vec<Connection>,
}

struct Connection {
    stream: TcpStream,
    peer: IpAddr,
    deadline: Instant,
    head: Vec<u8>,
}

impl Server {
    /// Waits for events, and handles them.
    fn poll_once(&mut self, handler: &dyn Fn(&Request<'_>) -> Response) {
        let Some(ready) = self.wait() else { return };
        let now = Instant::now();
        let mut ready = ready.into_iter();
        self.connections.retain_mut(|connection| {
            let is_ready = ready.next().unwrap_or_default();
            // A client that has disconnected gets no response.
            let stays = !is_ready || connection.advance(handler).unwrap_or(false);
            stays && connection.deadline > now
        });
        if ready.next().unwrap_or_default() {
            self.accept();
        }
    }

    /// Which connections are readable and, as the last entry, whether there is a new one. `None`
    /// if the wait was interrupted.
    fn wait(&self) -> Option<Vec<bool>> {
        let mut events: Vec<PollFd<'_>> = self
            .connections
            .iter()
            .map(|connection| PollFd::new(&connection.stream, PollFlags::IN))
            .chain([PollFd::new(&self.listener, PollFlags::IN)])
            .collect();
        // All have the same timeout, so the oldest reaches it first.
        let left = self.connections.first().map(|oldest| {
            let left = oldest.deadline.saturating_duration_since(Instant::now());
            Timespec::try_from(left).expect("a few seconds fit into a timespec")
        });
        poll(&mut events, left.as_ref()).ok()?;
        Some(events.iter().map(|event| !event.revents().is_empty()).collect())
    }

    fn accept(&mut self) {
        for _ in 0..MAX_ACCEPTED_AT_ONCE {
            let (stream, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Most likely there is no free file descriptor; there will be one.
                Err(_) => return thread::sleep(Duration::from_millis(10)),
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let peer = address.ip().to_canonical();
            let open = self.connections.iter().map(|open| open.peer);
            if let Some(surplus) = connection_to_close(open, peer) {
                self.connections.remove(surplus);
            }
            let until = Instant::now() + self.limit;
            self.connections.push(Connection { stream, peer, deadline: until, head: Vec::new() });
        }
    }
}

/// The open connection to close before accepting another one from `new`, if any.
fn connection_to_close(open: impl Iterator<Item = IpAddr> + Clone, new: IpAddr) -> Option<usize> {
    let is_of_new = |peer: &IpAddr| *peer == new;
    if open.clone().filter(is_of_new).count() >= MAX_PER_PEER {
        return open.clone().position(|peer| is_of_new(&peer));
    }
    (open.count() >= MAX_CONNECTIONS).then_some(0)
}

impl Connection {
    /// Reads available data, and answers a complete request. Returns whether the connection
    /// stays open.
    fn advance(&mut self, handler: &dyn Fn(&Request<'_>) -> Response) -> io::Result<bool> {
        let mut buffer = [0; MAX_HEAD];
        let read = match self.stream.read(&mut buffer[self.head.len()..]) {
            Ok(0) => return Ok(false),
            Ok(read) => read,
            Err(error) if is_transient(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        self.head.extend_from_slice(&buffer[self.head.len()..][..read]);
        let Some(response) = respond(&self.head, handler) else {
            return Ok(self.head.len() < MAX_HEAD);
        };
        // The send buffer of a new socket always has space for a short response.
        self.stream.write_all(response.to_text().as_bytes())?;
        Ok(false)
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The response to a request; `None` while its head is not complete.
fn respond(head: &[u8], handler: &dyn Fn(&Request<'_>) -> Response) -> Option<Response> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(error) => return Some(Response::new(400, format!("{error}\n"))),
    }
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Some(match request.method {
        Some("GET") => handler(&Request { path, query }),
        _ => Response::new(405, "only GET is supported\n"),
    })
}

fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        503 => "Service Unavailable",
        // RFC 9112: the reason phrase may be empty, and clients should ignore it.
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    use std::net::{SocketAddr, SocketAddrV4};

    /// How long a test waits before it fails.
    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    /// A server that echoes the request.
    fn server(limit: Duration) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let echo = |request: &Request<'_>| Response {
            status: 200,
            header: Some(("X-Query", request.query.to_owned())),
            body: request.path.to_owned(),
        };
        serve_at(listener, limit, echo).unwrap();
        address
    }

    /// Connects from the address 127.0.0.`last`.
    fn connect_from(last: u8, address: SocketAddr) -> TcpStream {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0)).unwrap();
        connect(&socket, &address).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream
    }

    fn ask(mut stream: TcpStream, request: &[u8]) -> String {
        stream.write_all(request).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Whether the server has closed an idle connection.
    fn is_closed(stream: &mut TcpStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        let read = stream.read(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn the_handler_gets_path_and_query_and_chooses_the_answer() {
        let stream = connect_from(1, server(TEST_TIMEOUT));
        let text = ask(stream, b"GET /v1/x?a=b&c?d HTTP/1.1\r\nHost: x\r\n\r\n");
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\
            Connection: close\r\nX-Query: a=b&c?d\r\n\r\n/v1/x";
        assert_eq!(text, expected);
    }

    #[test]
    fn idle_connections_do_not_delay_a_response_to_any_peer() {
        // No connection times out in this test.
        let address = server(2 * TEST_TIMEOUT);
        let silent: Vec<TcpStream> = (0..100).map(|_| connect_from(1, address)).collect();
        for peer in [1, 2] {
            let text = ask(connect_from(peer, address), b"GET / HTTP/1.1\r\n\r\n");
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        }
        drop(silent);
    }

    #[test]
    fn a_peer_with_too_many_connections_loses_its_own_oldest() {
        let address = server(2 * TEST_TIMEOUT);
        let mut other = connect_from(2, address);
        let mut many: Vec<TcpStream> =
            (0..MAX_PER_PEER + 10).map(|_| connect_from(1, address)).collect();
        // Closed by the server: reading returns end of file.
        for closed in &mut many[..10] {
            assert!(closed.read(&mut [0]).is_ok_and(|read| read == 0));
        }
        assert!(!is_closed(&mut other));
        assert!(!many[10..].iter_mut().any(is_closed));
    }

    #[test]
    fn a_slow_connection_is_closed_at_the_timeout_of_the_whole_request() {
        let mut slow = connect_from(1, server(Duration::from_millis(300)));
        slow.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let start = Instant::now();
        while slow.write_all(b"G").is_ok() {
            match slow.read(&mut [0]) {
                Err(error) if is_transient(&error) => {}
                closed => {
                    assert!(!matches!(closed, Ok(1..)), "it was answered");
                    break;
                }
            }
            assert!(start.elapsed() < TEST_TIMEOUT, "it is never closed");
        }
    }

    #[test]
    fn an_endless_head_is_not_buffered() {
        let mut stream = connect_from(1, server(2 * TEST_TIMEOUT));
        let mut sent = 0;
        while sent < 100 * 1024 * 1024 && stream.write_all(&[b'a'; 1024]).is_ok() {
            sent += 1024;
        }
        assert!(sent < 100 * 1024 * 1024, "all of it was taken");
    }

    #[test]
    fn with_too_many_connections_from_many_peers_the_oldest_is_closed() {
        let peer = |number: usize| IpAddr::from([10, 0, 0, (number / (MAX_PER_PEER / 2)) as u8]);
        let open = (0..MAX_CONNECTIONS).map(peer);
        let new = IpAddr::from([10, 0, 1, 1]);
        assert_eq!(connection_to_close(open.clone(), new), Some(0));
        assert_eq!(connection_to_close(open.skip(1), new), None);
    }

    #[test]
    fn only_get_requests_are_accepted() {
        let handler = |_: &Request<'_>| Response::new(200, "");
        let status = |head: &[u8]| respond(head, &handler).map(|response| response.status);
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), Some(200));
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: x\r\n"), None);
        assert_eq!(status(b"POST / HTTP/1.1\r\n\r\n"), Some(405));
        assert_eq!(status(b"\xff\xff\xff"), Some(400));
        assert_eq!(
            status(&[&b"GET / HTTP/1.1\r\n"[..], &b"A: b\r\n".repeat(33)].concat()),
            Some(400)
        );
    }

    proptest! {
        #[test]
        fn arbitrary_requests_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let handler = |_: &Request<'_>| Response::default();
            respond(&bytes, &handler);
            respond(&[b"GET ", &bytes[..]].concat(), &handler);
        }
    }
}
