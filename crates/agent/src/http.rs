//! An HTTP client for one request, to the operator or to other agents.
//!
//! Plain HTTP/1.1 to `http://host:port`, one request per connection: messages are
//! sealed, so they cannot be changed, and contain no secret. The response is
//! untrusted input and is read with limits on size and time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use flux_operator_wire::names::header;

use crate::dns;
use crate::endpoint;

/// The maximum size of a response. A reply has a few hundred bytes.
const MAX_BYTES: usize = 64 * 1024;

/// How many headers a response may have.
const MAX_HEADERS: usize = 64;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The header `X-Flux-Seal`.
    pub seal: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Not `http://host:port`.
    #[error("{url:?} is not of the form http://host:port")]
    Url {
        /// What was given.
        url: String,
    },
    /// The host name does not resolve.
    #[error("failed to resolve host {host:?}")]
    Resolve {
        /// The host.
        host: String,
    },
    /// The connection failed.
    #[error("failed to communicate with {address}")]
    Connection {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The response is not valid HTTP.
    #[error("{address} sent an invalid response")]
    InvalidResponse {
        /// Where.
        address: SocketAddr,
    },
}

/// Posts `body` as JSON to `path` at `url`. `limit` is the timeout of the whole request.
pub fn post(
    url: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    limit: Duration,
) -> Result<Response, HttpError> {
    let deadline = Instant::now() + limit;
    let authority = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let (authority, (host, port)) = authority
        .and_then(|authority| Some((authority, endpoint::split_host_port(authority)?)))
        .ok_or_else(|| HttpError::Url { url: url.to_owned() })?;
    let address =
        dns::lookup(host, limit).ok_or_else(|| HttpError::Resolve { host: host.to_owned() })?;
    send(SocketAddr::new(address, port), &build_request(authority, path, headers, body), deadline)
}

/// Gets `path` from `address`. `limit` is the timeout of the whole request.
pub fn get(address: SocketAddr, path: &str, limit: Duration) -> Result<Response, HttpError> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    send(address, request.as_bytes(), Instant::now() + limit)
}

fn send(address: SocketAddr, request: &[u8], deadline: Instant) -> Result<Response, HttpError> {
    let bytes = exchange(address, request, deadline)
        .map_err(|source| HttpError::Connection { address, source })?;
    parse_response(&bytes).ok_or(HttpError::InvalidResponse { address })
}

fn build_request(authority: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: {authority}\r\n");
    for (name, value) in headers {
        // A value that could inject another header is omitted; it is not valid anyway.
        if value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            head += &format!("{name}: {value}\r\n");
        }
    }
    head += &format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn exchange(address: SocketAddr, request: &[u8], deadline: Instant) -> io::Result<Vec<u8>> {
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() < MAX_BYTES && !is_complete(&bytes) {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Whether the response is complete, although the connection is still open.
fn is_complete(bytes: &[u8]) -> bool {
    parse_head(bytes)
        .is_some_and(|head| head.length.is_some_and(|length| bytes.len() >= head.end + length))
}

fn parse_response(bytes: &[u8]) -> Option<Response> {
    let head = parse_head(bytes)?;
    let rest = &bytes[head.end..];
    let body = match head.length {
        Some(length) => rest.get(..length)?,
        None => rest,
    };
    Some(Response { status: head.status, seal: head.seal, body: body.to_vec() })
}

struct Head {
    status: u16,
    seal: Option<String>,
    length: Option<usize>,
    end: usize,
}

fn parse_head(bytes: &[u8]) -> Option<Head> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(end) = response.parse(bytes).ok()? else { return None };
    let value = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        header.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    // Chunked responses are not supported: ours are short.
    if value("Transfer-Encoding").is_some() {
        return None;
    }
    let length = match value("Content-Length") {
        Some(length) => Some(length.trim().parse().ok().filter(|length| *length <= MAX_BYTES)?),
        None => None,
    };
    Some(Head { status: response.code?, seal: value(header::SEAL).map(str::to_owned), length, end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    /// Answers one request with these bytes; the handle returns the request.
    fn server(answer: &'static [u8]) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"body") {
                let mut buffer = [0; 64];
                let read = stream.read(&mut buffer).unwrap();
                asked.extend_from_slice(&buffer[..read]);
            }
            stream.write_all(answer).unwrap();
            String::from_utf8(asked).unwrap()
        });
        (url, asked)
    }

    #[test]
    fn a_request_is_answered() {
        let (url, asked) = server(
            b"HTTP/1.1 401 Unauthorized\r\nx-flux-seal: abc\r\ncontent-length: 2\r\n\r\n{}more",
        );
        let headers = [("X-A", "1"), ("X-B", "2\r\nX-C: 3")];
        let answer = post(&url, "/v1/report", &headers, b"body", Duration::from_secs(20)).unwrap();
        let expected = Response { status: 401, seal: Some("abc".into()), body: b"{}".to_vec() };
        assert_eq!(answer, expected);
        let asked = asked.join().unwrap();
        assert!(asked.starts_with("POST /v1/report HTTP/1.1\r\nHost: 127.0.0.1:"), "{asked}");
        assert!(asked.contains("\r\nX-A: 1\r\n") && !asked.contains("X-C"), "{asked}");
        assert!(asked.contains("Content-Length: 4\r\n"), "{asked}");
    }

    #[test]
    fn an_unreachable_server_and_an_invalid_response_are_errors() {
        let limit = Duration::from_millis(300);
        let send = |url: &str| post(url, "/", &[], b"body", limit);
        for url in ["https://h:1", "http://h", "http://:1", "h:1", "http://h:99999"] {
            assert!(matches!(send(url), Err(HttpError::Url { .. })), "{url}");
        }
        let free = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.local_addr().unwrap()
        };
        assert!(matches!(send(&format!("http://{free}")), Err(HttpError::Connection { .. })));
        for answer in
            [&b""[..], b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"]
        {
            let (url, _asked) = server(answer);
            assert!(matches!(send(&url), Err(HttpError::InvalidResponse { .. })));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_responses_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut whole = b"HTTP/1.1 200 OK\r\n".to_vec();
            whole.extend(&bytes);
            parse_response(&bytes);
            parse_response(&whole);
        }
    }
}
