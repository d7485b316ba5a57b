//! The configuration of an instance whose spare ranks can be lent.

use std::net::IpAddr;

use flux_operator_flux::broker_config::{QueueManager, ResourceEntry, ResourceTable};
use flux_operator_flux::{Bootstrap, BrokerConfig, HostEntry, HostList, HostListError, IdSet};

use super::instance::{HOME, SPARE, short_name};

/// An instance to be started, with one broker of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInstance {
    /// The host name of its machine.
    pub host: String,
    /// Where brokers elsewhere reach that.
    pub address: String,
    /// Where it listens.
    pub bind: IpAddr,
    /// The port of both.
    pub port: u16,
    /// The file with its certificate.
    pub certificate: String,
    /// How many ranks others may lease.
    pub spare_ranks: u32,
    /// Cores of its own machine.
    pub cores: u32,
    /// Cores of each spare rank.
    pub spare_cores: u32,
    /// GPUs of each spare rank.
    pub spare_gpus: u32,
}

impl NewInstance {
    /// Its broker configuration.
    pub fn config(&self) -> Result<BrokerConfig, HostListError> {
        let last = self.spare_ranks.saturating_sub(1);
        let name = short_name(&self.host);
        let spare: HostList = match last {
            0 => format!("{name}-spare-0").parse()?,
            last => format!("{name}-spare-[0-{last}]").parse()?,
        };
        let mut own = HostList::new();
        own.push(&self.host)?;
        let lead = HostEntry {
            bind: Some(format!("tcp://{}", endpoint(&self.bind.to_string(), self.port))),
            connect: Some(format!("tcp://{}", endpoint(&self.address, self.port))),
            ..HostEntry::new(own.clone())
        };
        let entry = |hosts: &HostList, cores: u32, gpus: u32, property: &str| ResourceEntry {
            hosts: hosts.clone(),
            cores: Some(IdSet::first_n(cores)),
            gpus: (gpus > 0).then(|| IdSet::first_n(gpus)),
            properties: vec![property.to_owned()],
        };
        let is_ipv6 =
            self.bind.is_ipv6() || self.address.parse().is_ok_and(|it: IpAddr| it.is_ipv6());
        Ok(BrokerConfig {
            bootstrap: Some(Bootstrap {
                curve_cert: Some(self.certificate.clone()),
                hosts: vec![lead, HostEntry::new(spare.clone())],
                enable_ipv6: is_ipv6.then_some(true),
                ..Bootstrap::default()
            }),
            resource: Some(ResourceTable {
                // Nodes elsewhere have other names and other hardware.
                noverify: Some(true),
                config: vec![
                    entry(&own, self.cores, 0, HOME),
                    entry(&spare, self.spare_cores, self.spare_gpus, SPARE),
                ],
                ..ResourceTable::default()
            }),
            // With Fluxion's default a job that is larger than what is online fails at once.
            queue_manager: Some(QueueManager {
                queue_policy: Some("easy".into()),
                ..QueueManager::default()
            }),
            ..BrokerConfig::default()
        })
    }
}

/// `host:port`, with brackets around an IPv6 address.
fn endpoint(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
