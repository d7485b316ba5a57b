//! The resources of the ranks of an instance: from the configuration, from a file with R, from the
//! job of a nested instance, or as detected by each broker.

use flux_operator_flux::broker_config::ResourceTable;
use flux_operator_flux::{IdSet, ResourceSet};

use super::boot::Boot;
use super::{host, nested};
use crate::instance::node::Node;
use crate::instance::resolve;

/// Why the resources could not be determined.
#[derive(Debug, thiserror::Error)]
pub enum ResourcesError {
    #[error("failed to read {path}")]
    Read { path: String, source: std::io::Error },
    #[error("failed to parse {path}")]
    Parse { path: String, source: flux_operator_flux::resources::ResourceSetParseError },
    #[error("host {host} is only in R or only in the instance, but must be in both")]
    Hosts { host: String },
    #[error("exclude: {reason}")]
    Exclude { reason: String },
}

/// The nodes of the instance, and whether their resources were configured.
pub fn nodes(
    boot: &Boot,
    resource: Option<&ResourceTable>,
    now: f64,
) -> Result<(Vec<Node>, bool), ResourcesError> {
    let default = IdSet::first_n(host::core_count());
    let mut nodes: Vec<Node> = boot
        .hosts
        .iter()
        .zip(0..)
        .map(|(name, rank)| Node::new(rank, name.clone(), default.clone(), now))
        .collect();
    let mut configured = false;
    if let Some(resources) = boot.nested.as_ref().and_then(|nested| nested.resources.as_ref()) {
        apply_r(resources, &mut nodes)?;
        configured = true;
    }
    let Some(resource) = resource else { return Ok((nodes, configured)) };
    if !resource.config.is_empty() {
        configured = true;
        apply_config(resource, &mut nodes);
    } else if let Some(path) = &resource.path {
        configured = true;
        let text = std::fs::read_to_string(path)
            .map_err(|source| ResourcesError::Read { path: path.clone(), source })?;
        let resources = ResourceSet::parse(&text)
            .map_err(|source| ResourcesError::Parse { path: path.clone(), source })?;
        apply_r(&resources, &mut nodes)?;
    }
    if let Some(exclude) = &resource.exclude {
        let hosts: Vec<&str> = boot.hosts.iter().map(String::as_str).collect();
        let ranks =
            resolve(exclude, &hosts).map_err(|reason| ResourcesError::Exclude { reason })?;
        for rank in ranks.iter() {
            nodes[rank as usize].excluded = true;
        }
    }
    Ok((nodes, configured))
}

/// Applies the configuration; each entry adds to the hosts that it names.
fn apply_config(resource: &ResourceTable, nodes: &mut [Node]) {
    for node in nodes.iter_mut() {
        node.cores = IdSet::new();
    }
    for entry in &resource.config {
        let hosts: std::collections::HashSet<String> = entry.hosts.iter().collect();
        for node in nodes.iter_mut().filter(|node| hosts.contains(&node.host)) {
            node.cores = node.cores.union(entry.cores.as_ref().unwrap_or(&IdSet::new()));
            node.gpus = node.gpus.union(entry.gpus.as_ref().unwrap_or(&IdSet::new()));
            node.properties.extend(entry.properties.iter().cloned());
        }
    }
}

/// Applies R by host name; like Flux, it uses the instance's ranks instead of those in R.
fn apply_r(resources: &ResourceSet, nodes: &mut [Node]) -> Result<(), ResourcesError> {
    let shares = nested::rank_resources(resources);
    for (host, (cores, gpus)) in resources.hosts().iter().zip(shares) {
        let node = nodes.iter_mut().find(|node| node.host == host);
        let node = node.ok_or(ResourcesError::Hosts { host })?;
        node.cores = cores;
        node.gpus = gpus;
    }
    let hosts = resources.hosts();
    match nodes.iter().find(|node| hosts.find(&node.host).is_none()) {
        Some(node) => Err(ResourcesError::Hosts { host: node.host.clone() }),
        None => Ok(()),
    }
}

/// Why this host does not match its slot; `None` if it does, or if that is not verified. Flux
/// drains a broker whose host name is not that of its slot, unless its own configuration sets
/// `noverify`.
pub fn host_mismatch(resource: Option<&ResourceTable>, slot: &str, rank: u32) -> Option<String> {
    let skip = resource.is_some_and(|resource| {
        let ignores = resource.other.get("verify").and_then(|verify| verify.get("hostname"));
        resource.noverify == Some(true)
            || ignores.and_then(|value| value.as_str()) == Some("ignore")
    });
    let name = host::system_name();
    // A pod's host name may include its domain.
    let same = name == slot || name.split('.').next() == Some(slot);
    (!skip && !same).then(|| format!("rank {rank} got hostname '{name}', expected '{slot}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot() -> Boot {
        let hosts = ["fs-0", "fs-1"].map(str::to_owned).to_vec();
        Boot { method: "config", rank: 0, hosts, listen: None, lead: None, key: None, nested: None }
    }

    fn resource(text: &str) -> ResourceTable {
        flux_operator_flux::BrokerConfig::parse(text).unwrap().resource.unwrap()
    }

    #[test]
    fn entries_add_to_hosts() {
        let text = "[resource]\nexclude = \"fs-1\"\n[[resource.config]]\nhosts = \"fs-[0-1]\"\n\
                    cores = \"0-3\"\n[[resource.config]]\nhosts = \"fs-1\"\ngpus = \"0\"\n";
        let (nodes, configured) = nodes(&boot(), Some(&resource(text)), 0.0).unwrap();
        assert!(configured && nodes[1].excluded && !nodes[0].excluded);
        assert_eq!(nodes[0].cores.len(), 4);
        assert_eq!((nodes[0].gpus.len(), nodes[1].gpus.len()), (0, 1));
    }

    #[test]
    fn r_must_name_the_hosts_of_the_instance() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("R");
        let config = resource(&format!("[resource]\npath = {path:?}"));
        for (hosts, good) in [("fs-[0-1]", true), ("fs-[0-2]", false), ("fs-0", false)] {
            let hosts = hosts.parse().unwrap();
            let cores = std::num::NonZeroU32::MIN;
            let text = ResourceSet::new(&hosts, cores, 0).unwrap().to_string();
            std::fs::write(&path, text).unwrap();
            assert_eq!(nodes(&boot(), Some(&config), 0.0).is_ok(), good, "{hosts}");
        }
    }

    #[test]
    fn another_host_name_is_reported_unless_noverify_is_set() {
        let resource = resource("[resource]\nnoverify = true");
        assert_eq!(host_mismatch(Some(&resource), "no-such-host", 1), None);
        assert!(
            host_mismatch(None, "no-such-host", 1).unwrap().contains("expected 'no-such-host'")
        );
        assert_eq!(host_mismatch(None, &host::system_name(), 1), None);
    }
}
