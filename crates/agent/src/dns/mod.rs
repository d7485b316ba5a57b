//! Resolves names without the C library: a statically linked program must not
//! load the library's name service modules.
//!
//! It does only what the C library does for names in a pod: `/etc/hosts` first,
//! then the servers of `/etc/resolv.conf` over UDP, with its search domains. A
//! truncated response is used as it is, because a few addresses are enough.

mod packet;
mod resolver_config;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use packet::{DnsResponse, Family};
pub use resolver_config::ResolverConfig;

/// The maximum size of a packet that is read. Servers send at most 512 bytes unless the query
/// allows more.
const MAX_PACKET: usize = 4096;

/// Looks a name up once. `None` if it does not resolve now. `limit` is the timeout of the whole
/// lookup.
pub fn lookup(name: &str, limit: Duration) -> Option<IpAddr> {
    lookup_all(name, limit).first().copied()
}

/// Looks a name up once, and returns all its addresses of one family. While a pod is being
/// replaced, its name may resolve to both the old and the new address.
pub fn lookup_all(name: &str, limit: Duration) -> Vec<IpAddr> {
    if let Ok(address) = name.parse() {
        return vec![address];
    }
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    if let Some(address) = resolver_config::find_in_hosts(&read("/etc/hosts"), name) {
        return vec![address];
    }
    query(&ResolverConfig::parse(&read("/etc/resolv.conf")), name, Instant::now() + limit)
}

/// Queries the servers for each candidate of `name`.
fn query(settings: &ResolverConfig, name: &str, deadline: Instant) -> Vec<IpAddr> {
    let found = settings.candidates(name).into_iter().find_map(|candidate| {
        match query_servers(settings, &candidate, Family::V4, deadline) {
            DnsResponse::Addresses(addresses) => Some(addresses),
            // The name has no addresses of the other family either.
            DnsResponse::NoName => None,
            DnsResponse::NoAddress | DnsResponse::Failure => {
                match query_servers(settings, &candidate, Family::V6, deadline) {
                    DnsResponse::Addresses(addresses) => Some(addresses),
                    _ => None,
                }
            }
        }
    });
    found.unwrap_or_default()
}

fn query_servers(
    settings: &ResolverConfig,
    name: &str,
    family: Family,
    deadline: Instant,
) -> DnsResponse {
    for _ in 0..settings.attempts {
        for server in &settings.servers {
            let until = deadline.min(Instant::now() + settings.timeout);
            // A server that cannot be reached counts as one that failed.
            let answer = query_server(*server, name, family, until).unwrap_or(DnsResponse::Failure);
            if answer != DnsResponse::Failure {
                return answer;
            }
            if Instant::now() >= deadline {
                return DnsResponse::Failure;
            }
        }
    }
    DnsResponse::Failure
}

/// Sends one query and waits for its response. Each query has a new socket and a random ID, so
/// that an attacker would have to guess both.
fn query_server(
    server: SocketAddr,
    name: &str,
    family: Family,
    deadline: Instant,
) -> io::Result<DnsResponse> {
    let id = random_id()?;
    let Some(question) = packet::build_query(id, name, family) else {
        return Ok(DnsResponse::NoName);
    };
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // From now on the kernel drops packets from other addresses.
    socket.connect(server)?;
    socket.send(&question)?;
    let mut buffer = [0; MAX_PACKET];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if let Some(answer) = packet::parse_response(&buffer[..length], id, name, family) {
            return Ok(answer);
        }
    }
}

fn random_id() -> io::Result<u16> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).map_err(|_| io::ErrorKind::Other)?;
    Ok(u16::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::RCODE;
    use simple_dns::rdata::{A, RData};
    use std::thread;

    /// A server that resolves only the name `known`. With `garbage` it sends invalid packets
    /// before each response.
    fn server(known: &'static str, garbage: bool) -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let question = &buffer[..length];
                let name =
                    simple_dns::Packet::parse(question).unwrap().questions[0].qname.to_string();
                if garbage {
                    socket.send_to(b"\xff garbage", from).unwrap();
                    socket.send_to(question, from).unwrap();
                }
                let data = RData::A(A { address: u32::from(Ipv4Addr::new(10, 0, 0, 9)) });
                let reply = match name == known {
                    true => packet::tests::reply(question, RCODE::NoError, vec![(known, data)]),
                    false => packet::tests::reply(question, RCODE::NameError, vec![]),
                };
                socket.send_to(&reply, from).unwrap();
            }
        });
        address
    }

    fn settings(servers: Vec<SocketAddr>) -> ResolverConfig {
        ResolverConfig {
            servers,
            ..ResolverConfig::parse("search a.test b.test\noptions timeout:1 ndots:2")
        }
    }

    fn deadline() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn a_name_is_found_in_a_search_domain_despite_invalid_packets() {
        let settings = settings(vec![server("fs-0.b.test", true)]);
        assert_eq!(query(&settings, "fs-0", deadline()), [IpAddr::from([10, 0, 0, 9])]);
        assert_eq!(query(&settings, "fs-1", deadline()), [] as [IpAddr; 0]);
    }

    #[test]
    fn a_silent_server_is_skipped() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let servers = vec![silent.local_addr().unwrap(), server("x.y.z", false)];
        assert_eq!(query(&settings(servers), "x.y.z", deadline()), [IpAddr::from([10, 0, 0, 9])]);
    }

    #[test]
    fn a_query_ends_at_its_deadline() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let settings = settings(vec![silent.local_addr().unwrap()]);
        let start = Instant::now();
        assert!(query(&settings, "x", start + Duration::from_millis(300)).is_empty());
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn literal_addresses_need_no_server() {
        let limit = Duration::from_millis(1);
        assert_eq!(lookup("10.1.2.3", limit), Some([10, 1, 2, 3].into()));
        assert_eq!(lookup("::1", limit), Some(Ipv6Addr::LOCALHOST.into()));
    }
}
