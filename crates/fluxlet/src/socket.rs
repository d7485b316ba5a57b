//! Sockets between brokers: the `tcp://` and `ipc://` endpoints of `[bootstrap]`.
//!
//! ZeroMQ's rules: `tcp://*:8050` listens on all addresses, `tcp://eth0:8050` on an interface,
//! `tcp://10.0.0.1:8050` and `tcp://[::1]:8050` on an address. All addresses of a name are tried.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

/// A peer that has not responded for this long is disconnected, as in Flux by default.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection of either kind.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A listening socket of either kind.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Why listening on or connecting to an endpoint failed.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("endpoint {endpoint:?} is not tcp://ADDRESS:PORT or ipc://PATH")]
    Endpoint { endpoint: String },
    #[error("this host has no interface or address {name:?}")]
    Interface { name: String },
    #[error("failed to listen on {endpoint}")]
    Listen { endpoint: String, source: io::Error },
    #[error("failed to resolve {endpoint}")]
    Lookup { endpoint: String, source: io::Error },
    #[error("failed to connect to {endpoint}")]
    Connect { endpoint: String, source: io::Error },
}

/// Listens on `endpoint`.
pub fn listen(endpoint: &str) -> Result<Listener, SocketError> {
    let failed = |source| SocketError::Listen { endpoint: endpoint.to_owned(), source };
    if let Some(path) = endpoint.strip_prefix("ipc://") {
        // Remove the stale socket of a broker that was killed.
        if UnixStream::connect(path).is_err() {
            let _nothing_there = std::fs::remove_file(path);
        }
        return UnixListener::bind(path).map(Listener::Unix).map_err(failed);
    }
    let (host, port) = split_host_port(endpoint)?;
    let address = bind_address(host)?;
    TcpListener::bind(SocketAddr::new(address, port)).map(Listener::Tcp).map_err(failed)
}

/// Connects to `endpoint`, with this timeout for each of its addresses.
pub fn connect(endpoint: &str, timeout: Duration) -> Result<Socket, SocketError> {
    let failed = |source| SocketError::Connect { endpoint: endpoint.to_owned(), source };
    if let Some(path) = endpoint.strip_prefix("ipc://") {
        return UnixStream::connect(path).map(Socket::Unix).map_err(failed);
    }
    let (host, port) = split_host_port(endpoint)?;
    let lookup = |source| SocketError::Lookup { endpoint: endpoint.to_owned(), source };
    let addresses = (host.trim_matches(['[', ']']), port).to_socket_addrs().map_err(lookup)?;
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(Socket::Tcp(stream)),
            Err(source) => error = source,
        }
    }
    Err(failed(error))
}

/// The host and the port of `tcp://HOST:PORT`.
fn split_host_port(endpoint: &str) -> Result<(&str, u16), SocketError> {
    let parts = endpoint.strip_prefix("tcp://").and_then(|address| address.rsplit_once(':'));
    let parts = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    parts.ok_or_else(|| SocketError::Endpoint { endpoint: endpoint.to_owned() })
}

/// The address of `*`, of an interface or of an address. For an interface with both families it is
/// the IPv4 address, because Flux requires `enable_ipv6` for IPv6.
fn bind_address(host: &str) -> Result<IpAddr, SocketError> {
    if host == "*" {
        return Ok(Ipv4Addr::UNSPECIFIED.into());
    }
    if let Ok(address) = host.trim_matches(['[', ']']).parse() {
        return Ok(address);
    }
    let unknown = || SocketError::Interface { name: host.to_owned() };
    let interfaces = if_addrs::get_if_addrs().map_err(|_| unknown())?;
    let mut named: Vec<IpAddr> =
        interfaces.iter().filter(|found| found.name == host).map(|found| found.ip()).collect();
    named.sort_by_key(|address| address.is_ipv6());
    named.first().copied().ok_or_else(unknown)
}

impl Listener {
    /// Accepts the next connection; returns it with its peer's name, for the log.
    pub fn accept(&self) -> io::Result<(Socket, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Ok((Socket::Tcp(stream), peer.to_string()))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                Ok((Socket::Unix(stream), "a local socket".to_owned()))
            }
        }
    }

    /// The address and port on which it listens, if it is TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

impl Socket {
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    /// This side's address.
    pub fn local_address(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok().map(|address| address.ip()),
            Self::Unix(_) => None,
        }
    }

    /// Sets options to detect a peer that vanished, and to send small messages at once.
    pub fn set_options(&self) -> io::Result<()> {
        let Self::Tcp(stream) = self else { return Ok(()) };
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, PEER_TIMEOUT / 4)?;
        sockopt::set_tcp_keepintvl(stream, PEER_TIMEOUT / 4)?;
        sockopt::set_tcp_keepcnt(stream, 3)?;
        let timeout = u32::try_from(PEER_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
        Ok(sockopt::set_tcp_user_timeout(stream, timeout)?)
    }

    /// Shuts down both directions, also for threads that are reading or writing.
    pub fn shut_down(&self) {
        let _already_closed = match self {
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }

    fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket with a deadline for everything, so that a peer that sends a byte now and then cannot
/// keep it open forever.
#[derive(Debug)]
pub struct DeadlineSocket {
    pub socket: Socket,
    deadline: Option<Instant>,
}

impl DeadlineSocket {
    pub fn new(socket: Socket, limit: Duration) -> Self {
        Self { socket, deadline: Some(Instant::now() + limit) }
    }

    pub fn without_deadline(socket: Socket) -> Self {
        Self { socket, deadline: None }
    }

    /// Removes the deadline.
    pub fn clear_deadline(&mut self) -> io::Result<()> {
        self.deadline = None;
        self.socket.set_timeouts(None)
    }

    fn apply_deadline(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_timeouts(Some(left))
    }
}

impl Read for DeadlineSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.apply_deadline()?;
        self.socket.read(buffer)
    }
}

impl Write for DeadlineSocket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.apply_deadline()?;
        self.socket.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_those_of_zeromq() {
        assert_eq!(split_host_port("tcp://fs-0.fs:8050").unwrap(), ("fs-0.fs", 8050));
        assert_eq!(split_host_port("tcp://[::1]:8050").unwrap(), ("[::1]", 8050));
        assert!(split_host_port("tcp://fs-0").is_err());
        assert!(split_host_port("udp://fs-0:1").is_err());
        assert_eq!(bind_address("*").unwrap(), Ipv4Addr::UNSPECIFIED);
        assert_eq!(bind_address("lo").unwrap(), Ipv4Addr::LOCALHOST);
        assert_eq!(bind_address("[::1]").unwrap(), "::1".parse::<IpAddr>().unwrap());
        assert!(bind_address("nosuch0").is_err());
    }

    #[test]
    fn the_stale_socket_of_a_killed_broker_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = format!("ipc://{}", directory.path().join("s").display());
        drop(listen(&endpoint).unwrap());
        let listener = listen(&endpoint).unwrap();
        assert!(listen(&endpoint).is_err(), "a socket in use is not taken");
        drop(listener);
    }

    #[test]
    fn reading_from_a_silent_peer_fails_at_the_deadline() {
        let (one, _two) = UnixStream::pair().unwrap();
        let mut timed = DeadlineSocket::new(Socket::Unix(one), Duration::from_millis(20));
        assert!(timed.read(&mut [0]).is_err());
        assert!(timed.read(&mut [0]).is_err(), "and stays so");
    }
}
