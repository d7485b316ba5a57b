//! The configuration of a broker: `broker.toml`.
//!
//! The tables that the operator writes are typed; all others, and all keys of them that are not
//! known here, are kept as they are, so that a configuration that a user wrote passes through.
//! `[bootstrap]`, its hosts and `[[resource.config]]` are the exception: Flux refuses a key there
//! that it does not know, and so do we. Text is made by the `toml` crate, never by pasting.
//!
//! What `[bootstrap]` means is in [`bootstrap`](crate::bootstrap).

use serde::{Deserialize, Serialize};
use toml::Table;

use crate::bootstrap::Bootstrap;
use crate::hostlist::HostList;
use crate::idset::IdSet;

/// A broker configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BrokerConfig {
    /// Who may use the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Which brokers there are, and how they reach each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// What the brokers have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The tree of brokers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tbon: Option<TreeNetwork>,
    /// The job archive. Current flux-core has none; the Go operator writes the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,
    /// Fluxion's queue.
    #[serde(default, rename = "sched-fluxion-qmanager", skip_serializing_if = "Option::is_none")]
    pub queue_manager: Option<QueueManager>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Table,
}

/// `[access]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Access {
    /// Users other than the owner may connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_guest_user: Option<bool>,
    /// Root has the rights of the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_root_owner: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Table,
}

/// `[resource]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// A file with R.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A broker is not drained when its host has other resources than are said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noverify: Option<bool>,
    /// Ranks or hosts that no job may have: an idset or a host list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<String>,
    /// What hosts have, instead of `path`. A host may be in several entries; each adds to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<ResourceEntry>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Table,
}

/// `[[resource.config]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceEntry {
    /// Whose resources these are.
    pub hosts: HostList,
    /// The cores of each host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<IdSet>,
    /// The GPUs of each host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<IdSet>,
    /// Properties of each host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<String>,
}

/// `[tbon]`, the tree-based overlay network. Times are Flux durations, such as `5s`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeNetwork {
    /// The shape of the tree, such as `kary:2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topo: Option<String>,
    /// How long one attempt to connect to the parent may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_timeout: Option<String>,
    /// How long a parent waits for data to be acknowledged before it gives a child up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_user_timeout: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Table,
}

/// `[archive]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Archive {
    /// The database file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dbpath: Option<String>,
    /// How often jobs are archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// How long to wait for a busy database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busytimeout: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Table,
}

/// `[sched-fluxion-qmanager]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct QueueManager {
    /// The order of jobs, such as `fcfs` or `easy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_policy: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Table,
}

/// A text is not a broker configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("failed to read the broker configuration")]
pub struct ParseError {
    source: toml::de::Error,
}

/// A broker configuration has no text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("failed to write the broker configuration")]
pub struct PrintError {
    source: toml::ser::Error,
}

impl BrokerConfig {
    /// Reads a configuration.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        toml::from_str(text).map_err(|source| ParseError { source })
    }

    /// The configuration as TOML. Fails only for what TOML cannot say.
    pub fn to_toml(&self) -> Result<String, PrintError> {
        toml::to_string(self).map_err(|source| PrintError { source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::HostEntry;

    /// What the Go operator writes for `flux-sample` of four.
    const GENERATED: &str = r#"[access]
allow-guest-user = true
allow-root-owner = true

[bootstrap]
curve_cert = "/mnt/flux/config/curve/curve.cert"
default_port = 8050
default_bind = "tcp://eth0:%p"
default_connect = "tcp://%h.flux-service.default.svc.cluster.local:%p"

[[bootstrap.hosts]]
host = "flux-sample-[0-3]"

[resource]
path = "/mnt/flux/config/etc/flux/system/R"

[archive]
dbpath = "/mnt/flux/config/var/lib/flux/job-archive.sqlite"
period = "1m"
busytimeout = "50s"

[sched-fluxion-qmanager]
queue-policy = "fcfs"
"#;

    fn generated() -> BrokerConfig {
        let hosts = vec![HostEntry::new("flux-sample-[0-3]".parse().unwrap())];
        BrokerConfig {
            access: Some(Access {
                allow_guest_user: Some(true),
                allow_root_owner: Some(true),
                ..Access::default()
            }),
            bootstrap: Some(Bootstrap {
                curve_cert: Some("/mnt/flux/config/curve/curve.cert".to_owned()),
                default_port: Some(8050),
                default_bind: Some("tcp://eth0:%p".to_owned()),
                default_connect: Some(
                    "tcp://%h.flux-service.default.svc.cluster.local:%p".to_owned(),
                ),
                hosts,
                ..Bootstrap::default()
            }),
            resource: Some(Resource {
                path: Some("/mnt/flux/config/etc/flux/system/R".to_owned()),
                ..Resource::default()
            }),
            archive: Some(Archive {
                dbpath: Some("/mnt/flux/config/var/lib/flux/job-archive.sqlite".to_owned()),
                period: Some("1m".to_owned()),
                busytimeout: Some("50s".to_owned()),
                ..Archive::default()
            }),
            queue_manager: Some(QueueManager {
                queue_policy: Some("fcfs".to_owned()),
                ..QueueManager::default()
            }),
            ..BrokerConfig::default()
        }
    }

    #[test]
    fn reads_and_prints_the_file_of_the_go_operator() {
        assert_eq!(generated().to_toml().unwrap(), GENERATED);
        assert_eq!(BrokerConfig::parse(GENERATED).unwrap(), generated());
    }

    #[test]
    fn what_is_not_known_is_kept() {
        let text = r#"
            top = 1
            [exec]
            imp = "/usr/libexec/flux/flux-imp"
            [access]
            later = [1, 2]
            [tbon]
            topo = "binomial"
            zmqdebug = 1
            [resource]
            norestrict = true
            [resource.verify]
            gpu = "ignore"
            [[resource.config]]
            hosts = "fs-[0-1]"
            cores = "0-7"
            [[resource.config]]
            hosts = "fs-1"
            gpus = "0"
            properties = ["debug"]
            [policy.jobspec.defaults.system]
            duration = 1979-05-27T07:32:00Z
        "#;
        let config = BrokerConfig::parse(text).unwrap();
        let printed = config.to_toml().unwrap();
        assert_eq!(printed.parse::<Table>().unwrap(), text.parse::<Table>().unwrap());
        let resource = config.resource.unwrap();
        assert_eq!(resource.config[1].gpus, Some("0".parse().unwrap()));
    }

    #[test]
    fn hostile_text_stays_a_value() {
        let mut config = generated();
        let hostile = "x\"\n[exec]\nimp = \"/evil\"\n'''\\\u{0}\u{7f}".to_owned();
        config.archive = None;
        config.resource.as_mut().unwrap().path = Some(hostile.clone());
        let read = BrokerConfig::parse(&config.to_toml().unwrap()).unwrap();
        assert_eq!(read.resource.unwrap().path, Some(hostile));
        assert!(read.other.is_empty());
    }

    #[test]
    fn refuses_what_flux_refuses() {
        for text in [
            "[bootstrap]\nsurprise = 1",
            "[bootstrap]\nhosts = [{ host = \"a\", port = 1 }]",
            "[bootstrap]\nhosts = [{ bind = \"tcp://*:1\" }]",
            "[bootstrap]\nhosts = [{ host = \"a[\" }]",
            "[bootstrap]\ndefault_port = 65536",
            "[[resource.config]]\nhosts = \"a\"\nmemory = 1",
            "[[resource.config]]\ncores = \"0\"",
            "[[resource.config]]\nhosts = \"a\"\ncores = \"3-0\"",
            "a = ",
        ] {
            assert!(BrokerConfig::parse(text).is_err(), "{text}");
        }
        assert_eq!(BrokerConfig::parse("").unwrap(), BrokerConfig::default());
    }
}
