//! Endpoints of the form `scheme://host:port`: of the lead, and of the operator.

use std::net::{IpAddr, SocketAddr};

/// The host of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointHost {
    /// There is no host, as in `ipc://path`, or it is in a form that only Flux understands.
    Opaque,
    /// An address, which can be used as it is.
    Address(IpAddr),
    /// A name, which must be resolved.
    Name(String),
}

/// The host of a broker's endpoint.
pub fn host(endpoint: &str) -> EndpointHost {
    let Some((host, _)) = endpoint.strip_prefix("tcp://").and_then(split_host_port) else {
        return EndpointHost::Opaque;
    };
    match host.parse() {
        Ok(address) => EndpointHost::Address(address),
        Err(_) => EndpointHost::Name(host.to_owned()),
    }
}

/// The address of an endpoint whose host is replaced by `host`; `None` if it has no host.
pub fn socket_address(endpoint: &str, host: IpAddr) -> Option<SocketAddr> {
    let (_, port) = endpoint.strip_prefix("tcp://").and_then(split_host_port)?;
    Some(SocketAddr::new(host, port))
}

/// Host and port of `host:port` or `[host]:port`.
pub fn split_host_port(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = authority.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let port = port.parse().ok()?;
    match bare {
        Some(host) => Some((host, port)),
        // Without brackets it is ambiguous where an IPv6 address ends.
        None => Some((host, port)).filter(|_| !host.is_empty() && !host.contains(':')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_classified() {
        for (endpoint, expected) in [
            ("ipc:///run/x", EndpointHost::Opaque),
            ("tcp://fs-0", EndpointHost::Opaque),
            ("tcp://:8050", EndpointHost::Opaque),
            ("tcp://fd00::1:8050", EndpointHost::Opaque),
            ("tcp://10.0.0.1:8050", EndpointHost::Address([10, 0, 0, 1].into())),
            ("tcp://[::1]:8050", EndpointHost::Address("::1".parse().unwrap())),
            ("tcp://fs-0.fs.ns.svc:8050", EndpointHost::Name("fs-0.fs.ns.svc".into())),
        ] {
            assert_eq!(host(endpoint), expected, "{endpoint}");
        }
    }

    #[test]
    fn a_host_is_replaced() {
        assert_eq!(
            socket_address("tcp://fs-0:8050", [10, 0, 0, 1].into()),
            Some("10.0.0.1:8050".parse().unwrap())
        );
        assert_eq!(
            socket_address("tcp://[::1]:8050", "::2".parse().unwrap()),
            Some("[::2]:8050".parse().unwrap())
        );
        assert_eq!(socket_address("ipc:///x", [10, 0, 0, 1].into()), None);
    }
}
