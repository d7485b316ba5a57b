//! What the configuration of an instance says to those who lend its ranks.

use std::net::IpAddr;

use flux_operator_api::minicluster::{LeadBroker, LentHosts, LentInstance, LentLead};
use flux_operator_api::view;
use flux_operator_flux::{
    BootstrapError, BrokerConfig, Certificate, HostList, HostListError, IdSet, RankList,
};
use flux_operator_wire::{BrokerFacts, Resources};
use sha2::{Digest, Sha256};

use crate::rank_table::{RankTable, SlotOwner, SlotRange};

/// The property of hosts of its own, and of those that others may lease.
pub(super) const HOME: &str = "home";
pub(super) const SPARE: &str = "spare";

/// How long a name may be that follows from a host name: host names of spare ranks and names of Bursts
/// have it as their beginning.
const NAME_LENGTH: usize = 24;

/// A Flux instance that is not in Kubernetes, and has ranks that others may lease.
#[derive(Clone, Debug)]
pub struct StandaloneInstance {
    /// A short name for it, from the host name of its lead.
    pub name: String,
    /// What identifies it: a hash of its public key and its hosts. It stays when it is started again.
    pub uid: String,
    /// Its ranks.
    pub(super) table: RankTable,
    /// Where its lead is reached.
    pub(super) address: String,
    /// The port there.
    pub(super) port: u16,
    /// Its lead.
    pub(super) lead: BrokerFacts,
}

/// Why the ranks of an instance cannot be lent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StandaloneError {
    /// It has one broker, or was not booted by configuration.
    #[error("the configuration has no [bootstrap] hosts, so that no broker can join")]
    NoHosts,
    /// `[bootstrap]` is not valid.
    #[error("the [bootstrap] table is not valid")]
    Bootstrap(#[source] BootstrapError),
    /// Its hosts are not a list.
    #[error("the hosts cannot be listed")]
    Hosts(#[source] HostListError),
    /// Brokers elsewhere cannot connect to the lead.
    #[error(
        "brokers elsewhere cannot reach the lead: the first host of [bootstrap] has connect = {0:?}, \
         and needs tcp://ADDRESS:PORT with an address of this machine"
    )]
    NotReachable(String),
    /// A broker would connect to another one than the lead.
    #[error(
        "brokers elsewhere can only connect to the lead: remove `topo` from [tbon], and `parent` from \
         [bootstrap]"
    )]
    Tree,
    /// Brokers elsewhere would be drained.
    #[error("[resource] needs noverify = true: brokers elsewhere are drained without it")]
    Verified,
    /// The nodes' resources are not known.
    #[error("[[resource.config]] does not say how many cores host {0:?} has")]
    NoCores(String),
    /// No rank can be lent.
    #[error("no host has the property \"spare\" in [[resource.config]], so that none can be lent")]
    NoSpareRanks,
    /// Ranks of its own follow spare ones.
    #[error("host {0:?} comes after spare hosts: list these last in [bootstrap]")]
    Order(String),
}

impl StandaloneInstance {
    /// The instance with this configuration and certificate. `lead` is its lead's version and user.
    pub fn of(
        config: &BrokerConfig,
        certificate: &Certificate,
        lead: BrokerFacts,
    ) -> Result<StandaloneInstance, StandaloneError> {
        let bootstrap = config.bootstrap.as_ref().ok_or(StandaloneError::NoHosts)?;
        let hosts = bootstrap.ranks().map_err(StandaloneError::Bootstrap)?;
        let first = hosts.first().filter(|_| hosts.len() > 1).ok_or(StandaloneError::NoHosts)?;
        let connect = first.connect.clone().unwrap_or_default();
        let (address, port) = reachable(&connect).ok_or(StandaloneError::NotReachable(connect))?;
        let topology = config.tbon.as_ref().and_then(|tbon| tbon.topo.as_deref());
        let is_flat = matches!(topology, None | Some("custom" | "kary:0"));
        if !is_flat || hosts.iter().any(|host| host.parent.is_some()) {
            return Err(StandaloneError::Tree);
        }
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        let table = table(config, &names)?;
        let cores = table.slots.first().and_then(|slots| slots.resources.cores);
        let lead = BrokerFacts { cores: cores.unwrap_or_default(), ..lead };
        let public_key = certificate.public_key().to_string();
        let digest = Sha256::digest(format!("{public_key}\n{}", table.hosts).as_bytes());
        Ok(StandaloneInstance {
            name: short_name(&first.name),
            uid: digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
            table,
            address,
            port,
            lead,
        })
    }

    /// Its hosts, in the order of their ranks.
    pub fn hosts(&self) -> &HostList {
        &self.table.hosts
    }

    /// How many ranks are its own: they come first.
    pub fn own_ranks(&self) -> u32 {
        self.table.max_size()
    }

    /// How many nodes can join.
    pub fn spare_ranks(&self) -> u64 {
        self.ranks_of(SPARE).len()
    }

    /// Its ranks, with those whose brokers are online.
    pub fn slots(&self, online: &IdSet) -> Vec<view::SlotRange> {
        crate::view::slots(&self.table, Some(online))
    }

    /// The ranks that have a property.
    pub(super) fn ranks_of(&self, property: &str) -> IdSet {
        let slots = self.table.slots.iter().filter(|slots| slots.owner.property() == property);
        IdSet::union_all(&slots.map(SlotRange::ranks).collect::<Vec<_>>())
    }

    /// Cores of its lead.
    pub fn lead_cores(&self) -> u32 {
        self.lead.cores
    }

    /// The instance, as brokers with these ranks join it until `expires`.
    pub(super) fn lead_broker(&self, name: &str, ranks: &RankList, expires: String) -> LeadBroker {
        let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let hosts = self.table.host_groups().into_iter().map(|group| LentHosts {
            hosts: group.hosts.to_string(),
            property: group.property,
            cores: number(group.cores.unwrap_or_default()),
            gpus: number(group.gpus.unwrap_or_default()),
        });
        let BrokerFacts { version, uid, cores } = &self.lead;
        LeadBroker {
            address: self.address.clone(),
            name: self.name.clone(),
            size: number(self.own_ranks()),
            port: i32::from(self.port),
            addresses: Vec::new(),
            instance: Some(LentInstance {
                invitation: name.to_owned(),
                cluster: self.uid.clone(),
                expires,
                ranks: ranks.to_string(),
                table: self.table.hash(),
                hosts: hosts.collect(),
                topology: "kary:0".to_owned(),
                config: String::new(),
                simple_scheduler: false,
                lead: LentLead {
                    version: version.clone(),
                    user: i64::from(*uid),
                    cores: number(*cores),
                },
                direct: true,
            }),
        }
    }
}

/// A name for what belongs to a host: its first label, as Kubernetes accepts it.
pub(super) fn short_name(host: &str) -> String {
    let label = host.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_allowed = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
    let name: String = label.chars().filter(is_allowed).take(NAME_LENGTH).collect();
    let name = name.trim_matches('-');
    match name.starts_with(|first: char| first.is_ascii_lowercase()) {
        true => name.to_owned(),
        false => format!("host-{name}").trim_matches('-').to_owned(),
    }
}

/// Address and port of an endpoint that other machines can reach.
fn reachable(endpoint: &str) -> Option<(String, u16)> {
    let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => host == "localhost" || host.is_empty(),
    };
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!is_local).then(|| (host.to_owned(), port))
}

/// The rank table of these hosts: those of the instance's own, then spare ones.
fn table(config: &BrokerConfig, names: &[&str]) -> Result<RankTable, StandaloneError> {
    let resource = config.resource.as_ref();
    if resource.and_then(|resource| resource.noverify) != Some(true) {
        return Err(StandaloneError::Verified);
    }
    let entries = resource.map(|resource| resource.config.as_slice()).unwrap_or_default();
    let mut table = RankTable { hosts: HostList::new(), slots: Vec::new(), size: 0, quorum: 1 };
    for (rank, name) in (0..).zip(names) {
        table.hosts.push(name).map_err(StandaloneError::Hosts)?;
        let mut of_host = entries.iter().filter(|entry| entry.hosts.find(name).is_some());
        let is_spare =
            rank > 0 && of_host.clone().any(|entry| entry.properties.iter().any(|it| it == SPARE));
        let count = |set: &IdSet| u32::try_from(set.len()).unwrap_or(u32::MAX);
        let cores = of_host.clone().find_map(|entry| entry.cores.as_ref()).map(count);
        let cores = cores.ok_or_else(|| StandaloneError::NoCores((*name).to_owned()))?;
        let gpus = of_host.find_map(|entry| entry.gpus.as_ref()).map(count);
        let owner = if is_spare { SlotOwner::Spare } else { SlotOwner::Job };
        let resources = Resources { cores: Some(cores), gpus, ..Resources::default() };
        if owner == SlotOwner::Job {
            if table.slots.iter().any(|slots| slots.owner == SlotOwner::Spare) {
                return Err(StandaloneError::Order((*name).to_owned()));
            }
            table.size = table.size.saturating_add(1);
        }
        match table.slots.last_mut() {
            Some(last) if last.owner == owner && last.resources == resources => {
                last.count = last.count.saturating_add(1);
            }
            _ => table.slots.push(SlotRange { owner, first_rank: rank, count: 1, resources }),
        }
    }
    match table.slots.iter().any(|slots| slots.owner == SlotOwner::Spare) {
        true => Ok(table),
        false => Err(StandaloneError::NoSpareRanks),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use flux_operator_flux::{Metadata, SecretKey};

    use super::super::NewInstance;
    use super::*;

    pub(crate) fn new_instance() -> NewInstance {
        NewInstance {
            host: "Laptop.example.org".into(),
            address: "192.0.2.7".into(),
            bind: Ipv4Addr::UNSPECIFIED.into(),
            port: 8050,
            certificate: "/home/me/curve.cert".into(),
            spare_ranks: 2,
            cores: 4,
            spare_cores: 8,
            spare_gpus: 1,
        }
    }

    fn certificate() -> Certificate {
        Certificate::new(SecretKey::from_bytes([7; 32]), Metadata::new("x").unwrap())
    }

    fn instance(text: &str) -> Result<StandaloneInstance, StandaloneError> {
        let config = BrokerConfig::parse(text).unwrap();
        StandaloneInstance::of(&config, &certificate(), BrokerFacts::default())
    }

    #[test]
    fn a_new_instance_can_lend_its_spare_ranks() {
        let text = new_instance().config().unwrap().to_toml().unwrap();
        let instance = instance(&text).unwrap();
        assert_eq!(instance.name, "laptop");
        assert_eq!(instance.table.hosts.to_string(), "Laptop.example.org,laptop-spare-[0-1]");
        assert_eq!((instance.own_ranks(), instance.lead_cores()), (1, 4));
        assert_eq!((instance.address.as_str(), instance.port), ("192.0.2.7", 8050));
        assert_eq!(instance.ranks_of(SPARE).to_string(), "1-2");
        let slots = instance.slots(&"0".parse().unwrap());
        let shown: Vec<_> = slots
            .iter()
            .map(|it| (it.owner.as_str(), it.ranks.as_str(), it.cores, it.gpus))
            .collect();
        assert_eq!(shown, [("Job", "0", 4, None), ("Spare", "1-2", 8, Some(1))]);
        let six = NewInstance { address: "2001:db8::1".into(), spare_ranks: 1, ..new_instance() };
        let six = six.config().unwrap();
        let lead = BrokerFacts::default();
        let six = StandaloneInstance::of(&six, &certificate(), lead).unwrap();
        assert_eq!((six.address.as_str(), six.ranks_of(SPARE).len()), ("2001:db8::1", 1));
        assert_ne!(six.uid, instance.uid);
    }

    #[test]
    fn names_that_follow_from_host_names_are_legal() {
        for (host, name) in [
            ("node-1.site.org", "node-1"),
            ("192-0-2-7", "host-192-0-2-7"),
            ("", "host"),
            ("A_b", "ab"),
            ("x-a-very-long-name-0123456789-0123", "x-a-very-long-name-01234"),
        ] {
            assert_eq!(short_name(host), name);
        }
    }

    #[test]
    fn an_instance_that_cannot_lend_ranks_says_why() {
        let good = new_instance().config().unwrap().to_toml().unwrap();
        let cases = [
            ("[access]", "no [bootstrap] hosts"),
            ("[bootstrap]\nhosts = [{ host = \"a\" }]", "no [bootstrap] hosts"),
            ("[bootstrap]\nhosts = [{ host = \"a,b\" }]", "is not valid"),
        ];
        for (text, message) in cases {
            let error = instance(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
        let changes = [
            ("tcp://192.0.2.7:8050", "ipc:///run/x", "tcp://ADDRESS:PORT"),
            ("tcp://192.0.2.7:8050", "tcp://127.0.0.1:8050", "address of this machine"),
            ("noverify = true", "noverify = false", "noverify = true"),
            ("\"spare\"", "\"other\"", "property \"spare\""),
            ("cores = \"0-7\"\n", "", "how many cores"),
        ];
        for (from, to, message) in changes {
            assert!(good.contains(from), "{from}: {good}");
            let text = good.replace(from, to);
            let error = instance(&text).unwrap_err().to_string();
            assert!(error.contains(message), "{to}: {error}");
        }
        let tree = format!("{good}\n[tbon]\ntopo = \"kary:2\"\n");
        assert_eq!(instance(&tree).unwrap_err(), StandaloneError::Tree);
    }
}
