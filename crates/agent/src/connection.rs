//! Checks whether a connection to the lead exists.
//!
//! A broker that has lost its lead does not exit: it keeps connecting to the old
//! address, but a lead that is replaced by another pod has a new one. So a
//! worker's agent checks for itself. It reads the kernel's list of connections
//! rather than asking the broker, because that does not disturb jobs.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kernel's code for the state ESTABLISHED.
const ESTABLISHED: &str = "01";

/// Whether this machine or container has a connection to `remote`. `None` if that is unknown.
pub fn exists(remote: SocketAddr) -> Option<bool> {
    let lists = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(fs::read_to_string);
    // Without IPv6 there is no second list.
    let lists: Vec<_> = lists.into_iter().flatten().collect();
    (!lists.is_empty()).then(|| lists.iter().any(|list| lists_connection(list, remote)))
}

fn lists_connection(list: &str, remote: SocketAddr) -> bool {
    let wanted = (remote.ip().to_canonical(), remote.port());
    list.lines().filter_map(established_remote).any(|found| found == wanted)
}

/// The remote address of an established connection, from a line such as
/// `0: 0100007F:1F72 0200007F:C350 01 ..`.
fn established_remote(line: &str) -> Option<(IpAddr, u16)> {
    let mut words = line.split_whitespace().skip(2);
    let (address, port) = words.next()?.split_once(':')?;
    if words.next()? != ESTABLISHED {
        return None;
    }
    Some((parse_address(address)?.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

/// Parses an address as the kernel prints it: 32-bit words, each in native byte order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let words: Vec<[u8; 4]> = text
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())
        .map(|word| word.map(u32::to_ne_bytes))
        .collect::<Option<_>>()?;
    match (text.len(), words.as_slice()) {
        (8, [word]) => Some(Ipv4Addr::from(*word).into()),
        (32, words) => Some(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_are_read_as_the_kernel_prints_them() {
        if cfg!(target_endian = "big") {
            return;
        }
        let list = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            0: 0100007F:1F72 0200007F:C350 01 00000000:00000000 00:00000000\n\
            1: 0100007F:1F72 0300007F:C350 0A 00000000:00000000 00:00000000\n\
            2: 0:0 B80D01200000000067452301EFCDAB89:1F72 01 0\n\
            3: 0:0 0000000000000000FFFF00000400007F:1F72 01 0\n\
            4: x\n5: 1 2 3\n6: 0:0 zz:1 01\n";
        for (address, expected) in [
            ("127.0.0.2:50000", true),
            ("127.0.0.2:50001", false),
            ("127.0.0.3:50000", false),
            ("[2001:db8::123:4567:89ab:cdef]:8050", true),
            ("127.0.0.4:8050", true),
        ] {
            assert_eq!(lists_connection(list, address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn a_connection_exists_while_it_is_open() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(exists(address), Some(false));
        let stream = TcpStream::connect(address).unwrap();
        assert_eq!(exists(address), Some(true));
        drop((listener.accept().unwrap(), stream));
        assert_eq!(exists(address), Some(false));
    }
}
