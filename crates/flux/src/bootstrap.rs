//! The `[bootstrap]` table: the host of each rank, and its endpoints.
//!
//! Flux expands the host list of every entry in order. A host gets its rank from its first entry.
//! Later entries only set keys that earlier ones did not. Then the defaults are applied, and `%h`
//! and `%p` are replaced by the host and the default port. [`Bootstrap::ranks`] does the same as
//! the brokers do (flux-core 0.88, `libfluxutil/conf_bootstrap.c`).

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::endpoint::{self, EndpointError};
use crate::hostlist::HostList;

/// The maximum number of ranks, counting a host each time it is named. An Indexed Job with a
/// backoff limit per index has at most 100,000 pods, and the resolved endpoints of this many hosts
/// take at most some 100 MB.
pub const MAX_RANKS: usize = 1 << 17;

/// `[bootstrap]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    /// The file with the certificate. Required if there is more than one broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve_cert: Option<String>,
    /// The value of `%p`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_port: Option<u16>,
    /// The endpoint to bind to, for entries without `bind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_bind: Option<String>,
    /// The endpoint to connect to, for entries without `connect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_connect: Option<String>,
    /// Whether brokers use IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_ipv6: Option<bool>,
    /// The hosts in rank order. Without hosts the instance has one broker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostEntry>,
}

/// `[[bootstrap.hosts]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    /// The hosts of this entry.
    pub host: HostList,
    /// The endpoint that they bind to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<String>,
    /// The endpoint at which they are reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<String>,
    /// The host that they connect to, if it is not rank 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// One rank of the instance, with defaults and templates resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankHost {
    /// Its host name.
    pub name: String,
    /// The endpoint that it binds to, if configured.
    pub bind: Option<String>,
    /// The endpoint at which it is reached, if configured.
    pub connect: Option<String>,
    /// The host that it connects to, if it is not rank 0.
    pub parent: Option<String>,
}

/// Why brokers could not start with a `[bootstrap]` table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// More than [`MAX_RANKS`].
    #[error("bootstrap names more than {MAX_RANKS} hosts")]
    TooManyRanks,
    /// Not a valid DNS name, which Flux requires.
    #[error("host {host:?} of bootstrap is not a domain name")]
    HostName {
        /// The host.
        host: String,
    },
    /// A host that is its own parent.
    #[error("host {host:?} of bootstrap is its own parent")]
    OwnParent {
        /// The host.
        host: String,
    },
    /// A parent that is not among the hosts.
    #[error("the parent of host {host:?} is not a host of bootstrap")]
    UnknownParent {
        /// The host.
        host: String,
    },
    /// An endpoint that ZeroMQ does not accept.
    #[error("host {host:?} of bootstrap has an invalid {key} address")]
    Endpoint {
        /// The host.
        host: String,
        /// `bind` or `connect`.
        key: &'static str,
        /// What is wrong with it.
        source: EndpointError,
    },
    /// Several brokers require a certificate.
    #[error("bootstrap has {ranks} hosts but no certificate")]
    NoCertificate {
        /// The number of hosts.
        ranks: usize,
    },
}

impl HostEntry {
    /// Creates an entry that uses the defaults.
    pub fn new(host: HostList) -> Self {
        Self { host, bind: None, connect: None, parent: None }
    }
}

impl Bootstrap {
    /// The hosts in rank order, as Flux resolves them. Empty if no hosts are configured: then there
    /// is one broker, on any host.
    pub fn ranks(&self) -> Result<Vec<RankHost>, BootstrapError> {
        let (merged, ranks) = self.merge()?;
        let mut hosts = Vec::with_capacity(merged.len());
        for MergedEntry { name, bind, connect, parent } in merged {
            check_parent(&name, parent, &ranks)?;
            if !endpoint::is_host_name(&name) {
                return Err(BootstrapError::HostName { host: name });
            }
            hosts.push(RankHost {
                bind: self.resolve("bind", &name, bind, &self.default_bind)?,
                connect: self.resolve("connect", &name, connect, &self.default_connect)?,
                parent: parent.map(str::to_owned),
                name,
            });
        }
        if hosts.len() > 1 && self.curve_cert.is_none() {
            return Err(BootstrapError::NoCertificate { ranks: hosts.len() });
        }
        Ok(hosts)
    }

    /// One host per rank with the keys of all its entries, and the rank of each name.
    fn merge(&self) -> Result<(Vec<MergedEntry<'_>>, HashMap<String, usize>), BootstrapError> {
        let named: usize = self.hosts.iter().map(|entry| entry.host.len()).sum();
        if named > MAX_RANKS {
            return Err(BootstrapError::TooManyRanks);
        }
        let mut merged: Vec<MergedEntry<'_>> = Vec::new();
        let mut ranks = HashMap::new();
        for entry in &self.hosts {
            let HostEntry { host: names, bind, connect, parent } = entry;
            for name in names.iter() {
                let rank = *ranks.entry(name.clone()).or_insert(merged.len());
                if rank == merged.len() {
                    merged.push(MergedEntry { name, bind: None, connect: None, parent: None });
                }
                let host = &mut merged[rank];
                host.bind = host.bind.or(bind.as_deref());
                host.connect = host.connect.or(connect.as_deref());
                host.parent = host.parent.or(parent.as_deref());
            }
        }
        Ok((merged, ranks))
    }

    /// The endpoint of `host`, from its own template or the default one.
    fn resolve(
        &self,
        key: &'static str,
        host: &str,
        own: Option<&str>,
        default: &Option<String>,
    ) -> Result<Option<String>, BootstrapError> {
        let Some(template) = own.or(default.as_deref()) else {
            return Ok(None);
        };
        endpoint::resolve(template, host, self.default_port)
            .map(Some)
            .map_err(|source| BootstrapError::Endpoint { host: host.to_owned(), key, source })
    }
}

/// A host with the keys of its entries. Borrowed: templates are not copied before their length is
/// checked.
struct MergedEntry<'a> {
    name: String,
    bind: Option<&'a str>,
    connect: Option<&'a str>,
    parent: Option<&'a str>,
}

fn check_parent(
    host: &str,
    parent: Option<&str>,
    ranks: &HashMap<String, usize>,
) -> Result<(), BootstrapError> {
    match parent {
        Some(parent) if parent == host => Err(BootstrapError::OwnParent { host: host.to_owned() }),
        Some(parent) if !ranks.contains_key(parent) => {
            Err(BootstrapError::UnknownParent { host: host.to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with these hosts: host, bind, connect, parent; an empty text is not set.
    fn bootstrap(entries: &[[&str; 4]]) -> Bootstrap {
        let entry = |entry: &[&str; 4]| {
            let [_, bind, connect, parent] = row(*entry);
            HostEntry { bind, connect, parent, ..HostEntry::new(entry[0].parse().unwrap()) }
        };
        Bootstrap {
            curve_cert: Some("/etc/flux/curve.cert".to_owned()),
            default_port: Some(8050),
            default_bind: Some("tcp://eth0:%p".to_owned()),
            default_connect: Some("tcp://%h.fs:%p".to_owned()),
            enable_ipv6: None,
            hosts: entries.iter().map(entry).collect(),
        }
    }

    fn resolved(bootstrap: &Bootstrap) -> Vec<[Option<String>; 4]> {
        let hosts = bootstrap.ranks().unwrap().into_iter();
        hosts.map(|host| [Some(host.name), host.bind, host.connect, host.parent]).collect()
    }

    fn row(cells: [&str; 4]) -> [Option<String>; 4] {
        cells.map(|cell| Some(cell.to_owned()).filter(|cell| !cell.is_empty()))
    }

    #[test]
    fn rank_is_the_position_and_defaults_are_applied() {
        let table =
            bootstrap(&[["lead", "", "tcp://10.0.0.9:30093", ""], ["fs-[0-1]", "", "", ""]]);
        assert_eq!(
            resolved(&table),
            [
                row(["lead", "tcp://eth0:8050", "tcp://10.0.0.9:30093", ""]),
                row(["fs-0", "tcp://eth0:8050", "tcp://fs-0.fs:8050", ""]),
                row(["fs-1", "tcp://eth0:8050", "tcp://fs-1.fs:8050", ""]),
            ]
        );
    }

    #[test]
    fn later_entries_of_a_host_only_add_missing_keys() {
        let table = bootstrap(&[
            ["fs-[0-2]", "", "", ""],
            ["fs-0", "tcp://a:1", "", ""],
            ["fs-[0,2]", "tcp://b:2", "tcp://%h:2", ""],
            ["fs-2", "", "tcp://late:3", "fs-1"],
        ]);
        assert_eq!(
            resolved(&table),
            [
                row(["fs-0", "tcp://a:1", "tcp://fs-0:2", ""]),
                row(["fs-1", "tcp://eth0:8050", "tcp://fs-1.fs:8050", ""]),
                row(["fs-2", "tcp://b:2", "tcp://fs-2:2", "fs-1"]),
            ]
        );
    }

    #[test]
    fn without_defaults_an_endpoint_is_unset() {
        let mut table = bootstrap(&[
            ["foo", "tcp://eth0:9001", "tcp://10.0.1.1:9001", ""],
            ["bar", "", "", ""],
        ]);
        table.default_bind = None;
        table.default_connect = None;
        assert_eq!(resolved(&table)[1], row(["bar", "", "", ""]));
        table.hosts.clear();
        assert!(resolved(&table).is_empty());
    }

    #[test]
    fn rejects_what_flux_rejects() {
        let host = || "a".to_owned();
        let endpoint = |key, source| BootstrapError::Endpoint { host: host(), key, source };
        for (entry, error) in [
            (["a", "", "", "a"], BootstrapError::OwnParent { host: host() }),
            (["a", "", "", "b"], BootstrapError::UnknownParent { host: host() }),
            (["a_b", "", "", ""], BootstrapError::HostName { host: "a_b".to_owned() }),
            (["a", "eth0", "", ""], endpoint("bind", EndpointError::Scheme)),
            (["a", "", "tcp://%h:*", ""], endpoint("connect", EndpointError::WildcardPort)),
        ] {
            assert_eq!(bootstrap(&[entry]).ranks(), Err(error));
        }
        let mut table = bootstrap(&[["a[0-1]", "", "", ""]]);
        table.curve_cert = None;
        assert_eq!(table.ranks(), Err(BootstrapError::NoCertificate { ranks: 2 }));
    }

    #[test]
    fn long_templates_are_not_copied_for_every_host() {
        let long = "x".repeat(10_000_000);
        let table = bootstrap(&[["a[0-99999]", &long, &long, ""]]);
        let source = EndpointError::TooLong;
        let host = "a0".to_owned();
        assert_eq!(table.ranks(), Err(BootstrapError::Endpoint { host, key: "bind", source }));
    }

    #[test]
    fn too_many_hosts_are_rejected_before_they_are_expanded() {
        let many = ["a[0-99999]", "", "", ""];
        for table in [bootstrap(&[["a[0-131072]", "", "", ""]]), bootstrap(&[many, many])] {
            assert_eq!(table.ranks(), Err(BootstrapError::TooManyRanks));
        }
    }
}
