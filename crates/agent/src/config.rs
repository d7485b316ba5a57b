//! The broker's configuration: the plan's, completed by the agent.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;

use flux_operator_flux::broker_config::{BrokerConfigPrintError, ResourceEntry};
use flux_operator_flux::{Bootstrap, HostEntry, HostList, IdSet};
use flux_operator_wire::{BootPlan, HostGroup, Resources};

use crate::arguments::text;
use crate::rank_plan::RankPlan;

/// The text of broker.toml.
///
/// The lead's entry has the endpoint of the plan; [`with_lead`] replaces it by the resolved
/// address. Only the lead's configuration lists resources, because workers get them from the
/// lead. But every rank sets `noverify` itself: a worker that got it from the lead would
/// already have been drained.
pub fn broker_toml(
    rank: &RankPlan,
    certificate: &Path,
    cores: NonZeroU32,
) -> Result<String, BrokerConfigPrintError> {
    let plan = &rank.plan;
    if let Some(verbatim) = &plan.verbatim_config {
        return Ok(verbatim.clone());
    }
    let mut config = plan.config.clone();
    if plan.simple_scheduler {
        config.select_simple_scheduler();
    }
    config.bootstrap = Some(Bootstrap {
        curve_cert: Some(text(certificate).to_owned()),
        default_port: Some(plan.port),
        default_bind: Some(plan.bind.clone()),
        default_connect: Some(plan.connect.clone()),
        hosts: host_entries(rank),
        enable_ipv6: config.bootstrap.and_then(|bootstrap| bootstrap.enable_ipv6),
    });
    let resource = config.resource.get_or_insert_default();
    resource.noverify.get_or_insert(true);
    // The user may have configured the resources.
    if rank.is_lead() && resource.path.is_none() && resource.config.is_empty() {
        resource.config = resource_entries(plan, cores);
    }
    config.to_toml()
}

/// The resources of all hosts: those of each group, or else the lead's.
fn resource_entries(plan: &BootPlan, cores: NonZeroU32) -> Vec<ResourceEntry> {
    let leads = plan.resources;
    let entry = |hosts: &HostList, property: Option<&String>, own: Resources| ResourceEntry {
        hosts: hosts.clone(),
        cores: Some(IdSet::first_n(own.cores.or(leads.cores).unwrap_or(cores.get()))),
        gpus: own.gpus.or(leads.gpus).filter(|gpus| *gpus > 0).map(IdSet::first_n),
        properties: property.into_iter().cloned().collect(),
    };
    if plan.host_groups.is_empty() {
        return vec![entry(&plan.hosts, None, leads)];
    }
    let groups = plan.host_groups.iter().map(|HostGroup { hosts, property, cores, gpus }| {
        let own = Resources { cores: *cores, gpus: *gpus, ..leads };
        entry(hosts, Some(property), own)
    });
    groups.collect()
}

/// The same configuration with the lead at `lead`. `None` if [`broker_toml`] did not generate
/// it.
///
/// Only the affected lines are changed, because hooks may have changed others. This also avoids
/// a TOML parser, which would be a tenth of the agent's size.
pub fn with_lead(config: &str, lead: SocketAddr) -> Option<String> {
    let mut lines: Vec<String> = config.lines().map(str::to_owned).collect();
    let after = |lines: &[String], start: usize, prefix: &str| {
        let found = lines[start..].iter().position(|line| line.starts_with(prefix));
        found.map(|found| start + found)
    };
    let bootstrap = after(&lines, 0, "[bootstrap]")?;
    let entry = after(&lines, bootstrap, "[[bootstrap.hosts]]")?;
    let connect = after(&lines, entry, "connect = ")?;
    lines[connect] = format!("connect = \"tcp://{lead}\"");
    if lead.is_ipv6() && after(&lines[..entry], bootstrap, "enable_ipv6").is_none() {
        lines.insert(bootstrap + 1, "enable_ipv6 = true".to_owned());
    }
    Some(lines.join("\n") + "\n")
}

/// First the lead with its address, then all hosts in rank order. Flux takes a host's address
/// from the first entry that names it.
fn host_entries(rank: &RankPlan) -> Vec<HostEntry> {
    let plan = &rank.plan;
    let lead = plan.hosts.nth(0).and_then(|name| name.parse().ok());
    let lead =
        lead.map(|host| HostEntry { connect: Some(plan.lead.clone()), ..HostEntry::new(host) });
    lead.into_iter().chain([HostEntry::new(plan.hosts.clone())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_plan::tests::{plan, rank};
    use flux_operator_flux::BrokerConfig;

    fn config(rank: &RankPlan) -> BrokerConfig {
        let cores = NonZeroU32::new(3).unwrap();
        let text = broker_toml(rank, Path::new("/r/curve.cert"), cores).unwrap();
        BrokerConfig::parse(&text).unwrap()
    }

    #[test]
    fn ranks_follow_the_plan_and_the_lead_has_its_own_address() {
        let mut plan = plan();
        plan.lead = "ipc:///elsewhere".into();
        let hosts = config(&rank(plan, 2)).bootstrap.unwrap().ranks().unwrap();
        let connect: Vec<_> = hosts.iter().map(|host| host.connect.as_deref().unwrap()).collect();
        assert_eq!(
            connect,
            ["ipc:///elsewhere", "ipc:///s/fs-1", "ipc:///s/fs-2", "ipc:///s/fs-3"]
        );
    }

    #[test]
    fn the_simple_scheduler_is_selected_if_the_plan_says_so() {
        let mut plan = plan();
        assert!(!config(&rank(plan.clone(), 0)).other.contains_key("modules"));
        plan.simple_scheduler = true;
        assert!(config(&rank(plan, 0)).other.contains_key("modules"));
    }

    #[test]
    fn only_the_lead_configures_resources() {
        let mut plan = plan();
        let lead = config(&rank(plan.clone(), 0)).resource.unwrap();
        assert_eq!(lead.noverify, Some(true));
        assert_eq!(lead.config[0].cores, Some("0-2".parse().unwrap()));
        assert_eq!(lead.config[0].gpus, None);
        let worker = config(&rank(plan.clone(), 1)).resource.unwrap();
        assert_eq!((worker.noverify, worker.config.len()), (Some(true), 0));
        plan.resources.cores = Some(8);
        plan.resources.gpus = Some(1);
        let lead = config(&rank(plan, 0)).resource.unwrap();
        assert_eq!(lead.config[0].cores, Some("0-7".parse().unwrap()));
        assert_eq!(lead.config[0].gpus, Some("0".parse().unwrap()));
    }

    #[test]
    fn b6_every_host_has_the_property_and_the_resources_of_its_group() {
        let group = |hosts: &str, property: &str, cores, gpus| HostGroup {
            hosts: hosts.parse().unwrap(),
            property: property.into(),
            cores,
            gpus,
        };
        let mut plan = plan();
        plan.host_groups =
            vec![group("fs-[0-1]", "home", None, None), group("fs-[2-3]", "gke", Some(8), Some(2))];
        let entries = config(&rank(plan, 0)).resource.unwrap().config;
        let shown: Vec<_> = entries
            .iter()
            .map(|it| {
                (it.hosts.to_string(), it.properties.concat(), it.cores.clone().unwrap().len())
            })
            .collect();
        let expected = [("fs-[0-1]", "home", 3), ("fs-[2-3]", "gke", 8)];
        assert_eq!(shown, expected.map(|(hosts, name, cores)| (hosts.into(), name.into(), cores)));
        assert_eq!(entries[1].gpus, Some("0-1".parse().unwrap()));
    }

    #[test]
    fn a_users_own_broker_toml_is_used_unchanged() {
        let mut plan = plan();
        plan.verbatim_config = Some("# mine\n[exec]\n".into());
        let text = broker_toml(&rank(plan, 0), Path::new("/c"), NonZeroU32::MIN).unwrap();
        assert_eq!(text, "# mine\n[exec]\n");
        assert_eq!(with_lead(&text, SocketAddr::from(([1, 2, 3, 4], 1))), None);
    }

    #[test]
    fn the_lead_gets_the_address_its_name_resolves_to() {
        let mut plan = plan();
        plan.lead = "tcp://fs-0.fs:8050".into();
        let text = broker_toml(&rank(plan, 1), Path::new("/c"), NonZeroU32::MIN).unwrap();
        for (address, ipv6) in [("10.0.0.7:8050", None), ("[fd00::7]:8050", Some(true))] {
            let changed = with_lead(&text, address.parse().unwrap()).unwrap();
            let bootstrap = BrokerConfig::parse(&changed).unwrap().bootstrap.unwrap();
            assert_eq!(bootstrap.hosts[0].connect, Some(format!("tcp://{address}")));
            assert_eq!(bootstrap.enable_ipv6, ipv6);
            assert_eq!(bootstrap.hosts[1].connect, None);
            assert_eq!(with_lead(&changed, address.parse().unwrap()), Some(changed));
        }
    }

    #[test]
    fn changes_by_hooks_are_kept() {
        let text = broker_toml(&rank(plan(), 1), Path::new("/c"), NonZeroU32::MIN).unwrap();
        let edited = format!("# mine\n{text}[exec] # more\nimp = 1\n");
        let changed = with_lead(&edited, SocketAddr::from(([10, 0, 0, 7], 1))).unwrap();
        let expected = edited.replacen("ipc:///s/fs-0", "tcp://10.0.0.7:1", 1);
        assert_eq!(changed, expected);
    }
}
