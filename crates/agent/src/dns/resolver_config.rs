//! The system's resolver configuration: `/etc/resolv.conf` and `/etc/hosts`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The maximum number of servers, the same as in the C library.
const MAX_SERVERS: usize = 3;

/// The port that name servers listen on.
const PORT: u16 = 53;

/// How names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverConfig {
    /// Servers to query, in order.
    pub servers: Vec<SocketAddr>,
    /// Search domains.
    pub search: Vec<String>,
    /// A name with at least this many dots is tried unchanged before the search domains.
    pub ndots: usize,
    /// How long to wait for a server's response.
    pub timeout: Duration,
    /// How often each server is queried.
    pub attempts: u32,
}

impl ResolverConfig {
    /// Parses the text of `/etc/resolv.conf`. Invalid entries are ignored, as in the C library.
    pub fn parse(text: &str) -> ResolverConfig {
        let mut settings = ResolverConfig {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => settings.servers.extend(words.next().and_then(parse_server)),
                // The last of these lines takes effect.
                Some("search" | "domain") => {
                    settings.search = words.map(|word| word.trim_matches('.').to_owned()).collect();
                }
                Some("options") => words.for_each(|word| settings.apply_option(word)),
                _ => {}
            }
        }
        settings.servers.truncate(MAX_SERVERS);
        settings.search.retain(|domain| !domain.is_empty());
        if settings.servers.is_empty() {
            settings.servers.push(SocketAddr::new([127, 0, 0, 1].into(), PORT));
        }
        settings
    }

    fn apply_option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else { return };
        // The limits are those of resolv.conf(5).
        match (name, value.parse::<u32>()) {
            ("ndots", Ok(value)) => self.ndots = value.min(15) as usize,
            ("timeout", Ok(value)) => self.timeout = Duration::from_secs(value.clamp(1, 30).into()),
            ("attempts", Ok(value)) => self.attempts = value.clamp(1, 5),
            _ => {}
        }
    }

    /// The names to query, in order, when looking up `name`.
    pub fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let within = self.search.iter().map(|domain| format!("{name}.{domain}"));
        let itself = std::iter::once(name.to_owned());
        if name.matches('.').count() >= self.ndots {
            itself.chain(within).collect()
        } else {
            within.chain(itself).collect()
        }
    }
}

/// Returns the address of a name in the text of `/etc/hosts`.
pub fn find_in_hosts(text: &str, name: &str) -> Option<IpAddr> {
    let name = name.trim_end_matches('.');
    text.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    })
}

fn parse_server(word: &str) -> Option<SocketAddr> {
    // Zone IDs, as in `fe80::1%eth0`, are not supported; such servers are rare.
    word.parse().ok().map(|address| SocketAddr::new(address, PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD_RESOLV_CONF: &str = "\
search default.svc.cluster.local svc.cluster.local cluster.local
nameserver 10.96.0.10
options ndots:5
";

    #[test]
    fn the_resolv_conf_of_a_pod_is_parsed() {
        let settings = ResolverConfig::parse(POD_RESOLV_CONF);
        assert_eq!(settings.servers, ["10.96.0.10:53".parse().unwrap()]);
        assert_eq!(settings.ndots, 5);
        assert_eq!(
            settings.candidates("fs-0.fs.default.svc"),
            [
                "fs-0.fs.default.svc.default.svc.cluster.local",
                "fs-0.fs.default.svc.svc.cluster.local",
                "fs-0.fs.default.svc.cluster.local",
                "fs-0.fs.default.svc",
            ]
        );
        // Five dots: this name is tried first, so it costs one query.
        let whole = "fs-0.fs.default.svc.cluster.local";
        assert_eq!(settings.candidates(whole)[0], whole);
        assert_eq!(settings.candidates("fs-0.fs."), ["fs-0.fs"]);
    }

    #[test]
    fn malformed_files_give_usable_settings() {
        let settings = ResolverConfig::parse("");
        assert_eq!(settings.servers, ["127.0.0.1:53".parse().unwrap()]);
        assert_eq!(settings.candidates("a.b"), ["a.b"]);
        let odd = "nameserver\nnameserver fe80::1%eth0\nnameserver ::1 # c\nsearch . a.\nsearch b\n\
                   options ndots:99 timeout:0 attempts:77 rotate ndots:x\nnameserver 1.1.1.1\n\
                   nameserver 2.2.2.2\nnameserver 3.3.3.3\n";
        let settings = ResolverConfig::parse(odd);
        assert_eq!(settings.servers.len(), 3);
        assert_eq!(settings.servers[0], "[::1]:53".parse().unwrap());
        assert_eq!(settings.search, ["b"]);
        assert_eq!((settings.ndots, settings.attempts), (15, 5));
        assert_eq!(settings.timeout, Duration::from_secs(1));
        assert_eq!(settings.candidates("a"), ["a.b", "a"]);
    }

    #[test]
    fn hosts_are_found_by_any_of_their_names() {
        let text = "# comment\n127.0.0.1 localhost\n10.0.0.1\tfs-0.fs FS-0 # fs-1\nbad fs-2\n";
        let address = |name| find_in_hosts(text, name).map(|address| address.to_string());
        assert_eq!(address("fs-0").as_deref(), Some("10.0.0.1"));
        assert_eq!(address("fs-0.fs.").as_deref(), Some("10.0.0.1"));
        for name in ["fs-1", "fs-2", "10.0.0.1", ""] {
            assert_eq!(address(name), None, "{name}");
        }
    }
}
