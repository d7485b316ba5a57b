//! The instance of another Kubernetes cluster, as a joiner's manifest describes it: by an invitation,
//! or in the Go operator's way.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{
    BurstingCluster, Flux, LeadBroker, LentHosts, LentInstance, LentLead, host_and_port,
};
use flux_operator_api::validate::Problem;
use flux_operator_flux::bootstrap::MAX_RANKS;
use flux_operator_flux::{BrokerConfig, HostList, RankList};
use flux_operator_wire::{BrokerFacts, RemoteLead, Resources};
use kube::ResourceExt;

use super::own_ranks::own_ranks;
use crate::boot::BROKER_PORT;
use crate::cluster::{Cluster, Joining};
use crate::joining::invitation::bursting;
use crate::rank_table::{RankTable, SlotOwner, SlotRange};

/// The instance that a joiner's brokers join.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemoteInstance {
    /// Name of the lender.
    pub(crate) lender: String,
    /// Its rank table.
    pub(crate) table: RankTable,
    /// The table's hash, as the lender knows it.
    pub(crate) hash: String,
    /// The ranks for this joiner, in the order of its pods.
    pub(crate) ranks: RankList,
    /// Where the lead is reached.
    pub(crate) addresses: Vec<String>,
    /// The invitation's description, if there is an invitation.
    pub(crate) lent: Option<LentInstance>,
    /// The lender's configuration, if it is known.
    config: Option<BrokerConfig>,
}

/// The longest name of the Domain Name System.
const MAX_HOST_NAME: usize = 253;

const LEAD_BROKER: &str = "spec.flux.bursting.leadBroker";

impl RemoteInstance {
    /// The instance that a joiner's manifest describes; `None` if it does not join one elsewhere.
    /// Fails with the first problem of the description.
    pub(crate) fn of(joiner: &MiniCluster) -> Option<Result<RemoteInstance, Vec<Problem>>> {
        let lead = joiner.spec.remote_lead()?;
        let flux = joiner.spec.flux.as_ref()?;
        let found = addresses(lead).and_then(|addresses| match &lead.instance {
            Some(lent) => invited(lead, lent, addresses),
            None => described(joiner, lead, flux, addresses),
        });
        Some(
            found
                .and_then(|instance| match instance.problem(joiner) {
                    Some(problem) => Err(problem),
                    None => Ok(instance),
                })
                .map_err(|problem| vec![problem]),
        )
    }

    /// What is wrong with how the joiner uses the instance.
    fn problem(&self, joiner: &MiniCluster) -> Option<Problem> {
        let flux = joiner.spec.flux.as_ref();
        if flux.is_none_or(|it| it.curve_cert.is_empty() && it.curve_cert_secret.is_empty()) {
            let message = "is missing: the brokers join a cluster that has a certificate, and need the \
                same. Set curveCertSecret to a Secret with it, in its key curve.cert";
            return Some(Problem::new("spec.flux.curveCertSecret", message));
        }
        let (size, has) = (usize::try_from(joiner.spec.size).unwrap_or_default(), self.ranks.len());
        if size > has {
            let message = format!("is {size}, and there are {has} ranks for it: lower it to {has}");
            return Some(Problem::new("spec.size", message));
        }
        let set = self.ranks.to_set();
        let hosts = u64::try_from(self.table.hosts.len()).unwrap_or(u64::MAX);
        let is_outside = set.iter().any(|rank| u64::from(rank) >= hosts);
        if set.contains(0) || is_outside {
            return Some(match &self.lent {
                Some(_) => {
                    let message = format!(
                        "has rank 0 or one that is not among the {hosts} hosts: use the file of the \
                         invitation unchanged"
                    );
                    Problem::new(format!("{LEAD_BROKER}.instance.ranks"), message)
                }
                None => self.is_lead(joiner),
            });
        }
        None
    }

    /// The problem that, by the joiner's own list of hosts, its first host is the lead's.
    fn is_lead(&self, joiner: &MiniCluster) -> Problem {
        if joiner.name_any() == self.lender {
            let message = "is the lender's, so that its hosts would be the lender's: name it after \
                other hosts of the instance";
            return Problem::new("metadata.name", message);
        }
        let flux = joiner.spec.flux.clone().unwrap_or_default();
        let message = "this MiniCluster's host is first, and that is the lead's: list the lender's \
            hosts first";
        Problem::new(listed_in(&flux), message)
    }

    /// What the lender's lead has, if an invitation says so.
    pub(crate) fn lead_facts(&self) -> Option<BrokerFacts> {
        let LentLead { version, user, cores } = &self.lent.as_ref()?.lead;
        Some(BrokerFacts {
            version: version.clone(),
            uid: u32::try_from(*user).unwrap_or_default(),
            cores: u32::try_from(*cores).unwrap_or_default(),
        })
    }

    /// When the invitation ends.
    pub(crate) fn expires(&self) -> Option<&str> {
        self.lent.as_ref().map(|lent| lent.expires.as_str())
    }

    /// The joiner's brokers as part of this instance.
    pub(crate) fn join(&self, joiner: &MiniCluster, cluster: Cluster) -> Cluster {
        let lent = self.lent.as_ref();
        let topology = lent.map(|lent| lent.topology.clone());
        let mut lender = cluster.clone();
        lender.ranks = self.table.clone();
        // Only the lead is reached from here.
        lender.broker.topology =
            topology.unwrap_or_else(|| match lender.broker.topology.as_str() {
                "kary:256" => "kary:0".to_owned(),
                given => given.to_owned(),
            });
        lender.config = self.config.clone().unwrap_or(lender.config);
        lender.simple_scheduler = lent.is_some_and(|lent| lent.simple_scheduler);
        let namespace = joiner.namespace().unwrap_or_default();
        let address = self.addresses.first().cloned().unwrap_or_default();
        cluster.joining(
            &lender,
            Joining {
                lender: self.lender.clone(),
                cluster: lent.map(|lent| lent.cluster.clone()).unwrap_or_default(),
                job: String::new(),
                ranks: self.ranks.clone(),
                table: self.hash.clone(),
                lead: format!("tcp://{address}"),
                remote: Some(RemoteLead {
                    addresses: self.addresses.clone(),
                    invitation: lent
                        .filter(|lent| !lent.direct)
                        .map(|lent| lent.invitation.clone()),
                    joiner_name: format!("{namespace}/{}", joiner.name_any()),
                    standalone_lead: None,
                }),
            },
        )
    }
}

/// Where a lead is reached, each as `host:port`.
fn addresses(lead: &LeadBroker) -> Result<Vec<String>, Problem> {
    let port = if lead.port == 0 { i32::from(BROKER_PORT) } else { lead.port };
    let first = match lead.address.parse::<IpAddr>() {
        Ok(address) => host_and_port(&address.to_string(), port),
        Err(_) if is_host_name(&lead.address) => host_and_port(&lead.address, port),
        Err(_) => {
            let message =
                "is not a host name or an address: a port belongs in port, or in addresses";
            return Err(Problem::new(format!("{LEAD_BROKER}.address"), message));
        }
    };
    for (index, address) in lead.addresses.iter().enumerate() {
        if !is_host_and_port(address) {
            let path = format!("{LEAD_BROKER}.addresses[{index}]");
            let message = "is not of the form host:port; an IPv6 address needs brackets";
            return Err(Problem::new(path, message));
        }
    }
    Ok(std::iter::once(first).chain(lead.addresses.iter().cloned()).collect())
}

/// Whether a text is `host:port`, or `[address]:port`.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let has_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => is_host_name(host),
    };
    has_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Whether a text is a name of the Domain Name System, or an IPv4 address.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len())
            && label.chars().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= MAX_HOST_NAME && text.split('.').all(is_label)
}

/// The instance of an invitation.
fn invited(
    lead: &LeadBroker,
    lent: &LentInstance,
    addresses: Vec<String>,
) -> Result<RemoteInstance, Problem> {
    let wrong = |field: &str, message: String| {
        Problem::new(format!("{LEAD_BROKER}.instance.{field}"), message)
    };
    let mut table = empty_table();
    for (index, LentHosts { hosts, property, cores, gpus }) in lent.hosts.iter().enumerate() {
        let hosts: HostList = hosts.parse().map_err(|error| {
            wrong(&format!("hosts[{index}].hosts"), format!("is not a host list: {error}"))
        })?;
        let number = |number: i32| u32::try_from(number).ok().filter(|number| *number > 0);
        let resources =
            Resources { cores: number(*cores), gpus: number(*gpus), ..Resources::default() };
        add(&mut table, owner(property), &hosts, resources)?;
    }
    let ranks = lent.ranks.parse().map_err(|_| {
        wrong("ranks", "is not a list of ranks: use the file of the invitation unchanged".into())
    })?;
    let config = match lent.config.is_empty() {
        true => None,
        false => Some(BrokerConfig::parse(&lent.config).map_err(|error| {
            wrong("config", format!("is not a configuration of Flux: {error}"))
        })?),
    };
    Ok(RemoteInstance {
        lender: lead.name.clone(),
        table,
        hash: lent.table.clone(),
        ranks,
        addresses,
        lent: Some(lent.clone()),
        config,
    })
}

/// The instance as the Go operator's manifests describe it: the lender's hosts, then those of
/// `clusters`; or `hostlist`, or the hosts of `brokerConfig`. The ranks are those of the hosts with
/// the joiner's name.
fn described(
    joiner: &MiniCluster,
    lead: &LeadBroker,
    flux: &Flux,
    addresses: Vec<String>,
) -> Result<RemoteInstance, Problem> {
    let bursting = bursting(joiner).cloned().unwrap_or_default();
    let mut table = empty_table();
    if bursting.hostlist.is_empty() {
        let size = u32::try_from(lead.size).unwrap_or_default();
        add(&mut table, SlotOwner::Job, &range(&lead.name, size)?, Resources::default())?;
        for (index, pool) in bursting.clusters.iter().enumerate() {
            let (name, size) = pool_of(index, pool, joiner.spec.size);
            add(
                &mut table,
                SlotOwner::Pool(name.clone()),
                &range(&name, size)?,
                Resources::default(),
            )?;
        }
    } else {
        let hosts = named_lead(&bursting.hostlist, lead)?;
        add(&mut table, SlotOwner::Spare, &hosts, Resources::default())?;
    }
    let hosts = match flux.broker_config.is_empty() {
        true => table.hosts.clone(),
        false => configured_hosts(&flux.broker_config, &table.hosts)?,
    };
    let ranks = own_ranks(joiner, &hosts, &bursting.clusters, listed_in(flux))?;
    table.hosts = hosts;
    Ok(RemoteInstance {
        lender: lead.name.clone(),
        hash: table.hash(),
        table,
        ranks,
        addresses,
        lent: None,
        config: None,
    })
}

/// The field that has the hosts in the Go operator's way.
fn listed_in(flux: &Flux) -> &'static str {
    let has_hostlist = flux.bursting.as_ref().is_some_and(|it| !it.hostlist.is_empty());
    match (flux.broker_config.is_empty(), has_hostlist) {
        (false, _) => "spec.flux.brokerConfig",
        (true, true) => "spec.flux.bursting.hostlist",
        (true, false) => "spec.flux.bursting.clusters",
    }
}

/// A user's list of hosts. Manifests for the Go operator may have the lead's address in place of its
/// name.
fn named_lead(hostlist: &str, lead: &LeadBroker) -> Result<HostList, Problem> {
    let path = "spec.flux.bursting.hostlist";
    let wrong = |error: &dyn std::fmt::Display| Problem::new(path, error.to_string());
    let hosts: HostList = hostlist.parse().map_err(|error| wrong(&error))?;
    if hosts.nth(0).as_deref() != Some(&lead.address) {
        return Ok(hosts);
    }
    let mut named: HostList = format!("{}-0", lead.name).parse().map_err(|error| wrong(&error))?;
    let others = hosts.slice(1, hosts.len().saturating_sub(1));
    named.append(&others).map_err(|error| wrong(&error))?;
    Ok(named)
}

/// The hosts of a user's own configuration, by Flux's rules. Every host that the lender has too must
/// have the same rank: Flux would give a broker the rank of another.
fn configured_hosts(config: &str, table: &HostList) -> Result<HostList, Problem> {
    let path = "spec.flux.brokerConfig";
    let wrong = |message: String| Problem::new(path, message);
    let config = BrokerConfig::parse(config).map_err(|error| wrong(error.to_string()))?;
    let ranks = config.bootstrap.map(|bootstrap| bootstrap.ranks()).transpose();
    let ranks = ranks.map_err(|error| wrong(error.to_string()))?.unwrap_or_default();
    if ranks.is_empty() {
        return Err(wrong("has no hosts in [bootstrap]: the brokers would join nothing".into()));
    }
    let mut known = HashMap::new();
    ranks.iter().enumerate().for_each(|(rank, host)| _ = known.entry(&host.name).or_insert(rank));
    for (rank, host) in table.iter().enumerate() {
        let found = known.get(&host).copied();
        if found != Some(rank) {
            let found = found.map_or("no rank".to_owned(), |found| format!("rank {found}"));
            return Err(wrong(format!(
                "gives host {host:?} {found}, and the lender gives it rank {rank}: list the hosts in \
                 [bootstrap] in the lender's order"
            )));
        }
    }
    let mut hosts = HostList::new();
    for host in ranks {
        let one = host.name.parse().map_err(|error| wrong(format!("{error}")))?;
        hosts.append(&one).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(hosts)
}

/// Name and size of a pool, which both have defaults.
pub(super) fn pool_of(index: usize, pool: &BurstingCluster, default: i32) -> (String, u32) {
    let name = if pool.name.is_empty() { format!("burst-{index}") } else { pool.name.clone() };
    let size = if pool.size == 0 { default } else { pool.size };
    (name, u32::try_from(size).unwrap_or_default())
}

fn owner(property: &str) -> SlotOwner {
    match property {
        "home" => SlotOwner::Job,
        "spare" => SlotOwner::Spare,
        name => SlotOwner::Pool(name.to_owned()),
    }
}

fn empty_table() -> RankTable {
    RankTable { hosts: HostList::new(), slots: Vec::new(), size: 0, quorum: 1 }
}

fn range(prefix: &str, count: u32) -> Result<HostList, Problem> {
    let text = match count.saturating_sub(1) {
        0 => format!("{prefix}-0"),
        last => format!("{prefix}-[0-{last}]"),
    };
    text.parse().map_err(|error| Problem::new(LEAD_BROKER, format!("{error}")))
}

fn add(
    table: &mut RankTable,
    owner: SlotOwner,
    hosts: &HostList,
    resources: Resources,
) -> Result<(), Problem> {
    let first_rank = u32::try_from(table.hosts.len()).unwrap_or(u32::MAX);
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let wrong = |error: &dyn std::fmt::Display| Problem::new(LEAD_BROKER, error.to_string());
    table.hosts.append(hosts).map_err(|error| wrong(&error))?;
    if table.hosts.len() > MAX_RANKS {
        let message = format!("describes an instance of more than {MAX_RANKS} ranks");
        return Err(Problem::new(LEAD_BROKER, message));
    }
    table.slots.push(SlotRange { owner, first_rank, count, resources });
    Ok(())
}
