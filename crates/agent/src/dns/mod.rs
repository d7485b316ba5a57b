//! Resolves names without the C library: a statically linked program must not
//! load its name service modules.
//!
//! It does only what the C library does for names in a pod: `/etc/hosts` first,
//! then the servers of `/etc/resolv.conf` over UDP, with its search domains. A
//! truncated response is used as it is, because a few addresses are enough.

mod packet;
mod settings;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use packet::{Answer, Family};
pub use settings::Settings;

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
    if let Some(address) = settings::in_hosts(&read("/etc/hosts"), name) {
        return vec![address];
    }
    ask(&Settings::parse(&read("/etc/resolv.conf")), name, Instant::now() + limit)
}

/// Queries the servers for each candidate of `name`.
fn ask(settings: &Settings, name: &str, deadline: Instant) -> Vec<IpAddr> {
    let found = settings.candidates(name).into_iter().find_map(|candidate| {
        match ask_servers(settings, &candidate, Family::V4, deadline) {
            Answer::Addresses(addresses) => Some(addresses),
            // The name has no addresses of the other family either.
            Answer::NoName => None,
            Answer::NoAddress | Answer::Failure => {
                match ask_servers(settings, &candidate, Family::V6, deadline) {
                    Answer::Addresses(addresses) => Some(addresses),
                    _ => None,
                }
            }
        }
    });
    found.unwrap_or_default()
}

fn ask_servers(settings: &Settings, name: &str, family: Family, deadline: Instant) -> Answer {
    for _ in 0..settings.attempts {
        for server in &settings.servers {
            let until = deadline.min(Instant::now() + settings.timeout);
            // A server that cannot be reached counts as one that failed.
            let answer = ask_server(*server, name, family, until).unwrap_or(Answer::Failure);
            if answer != Answer::Failure {
                return answer;
            }
            if Instant::now() >= deadline {
                return Answer::Failure;
            }
        }
    }
    Answer::Failure
}

/// Sends one query and waits for its response. Each query has a new socket and a random ID, so
/// that an attacker would have to guess both.
fn ask_server(
    server: SocketAddr,
    name: &str,
    family: Family,
    deadline: Instant,
) -> io::Result<Answer> {
    let id = random_id()?;
    let Some(question) = packet::question(id, name, family) else { return Ok(Answer::NoName) };
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
        if let Some(answer) = packet::answer(&buffer[..length], id, name, family) {
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

    fn settings(servers: Vec<SocketAddr>) -> Settings {
        Settings { servers, ..Settings::parse("search a.test b.test\noptions timeout:1 ndots:2") }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn a_name_is_found_in_one_of_its_domains_whatever_else_arrives() {
        let settings = settings(vec![server("fs-0.b.test", true)]);
        assert_eq!(ask(&settings, "fs-0", soon()), [IpAddr::from([10, 0, 0, 9])]);
        assert_eq!(ask(&settings, "fs-1", soon()), [] as [IpAddr; 0]);
    }

    #[test]
    fn a_server_that_is_silent_is_passed_over() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let servers = vec![silent.local_addr().unwrap(), server("x.y.z", false)];
        assert_eq!(ask(&settings(servers), "x.y.z", soon()), [IpAddr::from([10, 0, 0, 9])]);
    }

    #[test]
    fn nobody_waits_longer_than_asked_for() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let settings = settings(vec![silent.local_addr().unwrap()]);
        let start = Instant::now();
        assert!(ask(&settings, "x", start + Duration::from_millis(300)).is_empty());
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn addresses_and_this_machine_need_no_server() {
        let limit = Duration::from_millis(1);
        assert_eq!(lookup("10.1.2.3", limit), Some([10, 1, 2, 3].into()));
        assert_eq!(lookup("::1", limit), Some(Ipv6Addr::LOCALHOST.into()));
    }
}
