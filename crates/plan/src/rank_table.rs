//! The rank table: every host an instance may ever have, in rank order.
//!
//! It is fixed at boot, because an instance of Flux never grows past the hosts
//! it was started with (rule F1 of Flux: late brokers may fill ranks that are
//! listed but down). So it holds `maxSize` hosts of the cluster itself, then
//! those of clusters that may join later. It is the only source of host list,
//! broker configuration and resources, on every side.

use flux_operator_api::MiniClusterSpec;
use flux_operator_flux::{HostList, HostListError};

/// Every host an instance may ever have, and how many are asked for now.
#[derive(Clone, Debug, PartialEq)]
pub struct RankTable {
    /// The hosts in rank order.
    pub hosts: HostList,
    /// How many of the cluster's own are asked for.
    pub size: u32,
    /// How many of the cluster's own there may be.
    pub max_size: u32,
    /// How many must be online before the program starts.
    pub quorum: u32,
}

/// Why there is no rank table.
#[derive(Debug, thiserror::Error)]
pub enum RankTableError {
    /// A host name is none, or there are too many.
    #[error("the cluster's hosts make no host list")]
    Hosts(#[source] HostListError),
}

impl RankTable {
    /// The table of a cluster with this name.
    pub fn of(name: &str, spec: &MiniClusterSpec) -> Result<RankTable, RankTableError> {
        let size = count(spec.size);
        let max_size = spec.max_size.map(count).unwrap_or_default().max(size);
        let quorum = match spec.min_size.map(count) {
            None | Some(0) => size,
            Some(least) => least,
        };
        let hosts = hosts(name, max_size, spec).parse().map_err(RankTableError::Hosts)?;
        Ok(RankTable { hosts, size, max_size, quorum })
    }
}

/// The host list as text: the user's own, or the cluster's hosts and then those
/// of each cluster that may join.
fn hosts(name: &str, max_size: u32, spec: &MiniClusterSpec) -> String {
    let bursting = spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    if let Some(given) = bursting.map(|bursting| &bursting.hostlist).filter(|list| !list.is_empty())
    {
        return given.clone();
    }
    let clusters = bursting.map(|bursting| bursting.clusters.as_slice()).unwrap_or_default();
    let joining = clusters.iter().enumerate().map(|(index, cluster)| {
        let name =
            if cluster.name.is_empty() { format!("burst-{index}") } else { cluster.name.clone() };
        let size = if cluster.size == 0 { spec.size } else { cluster.size };
        range(&name, count(size))
    });
    std::iter::once(range(name, max_size)).chain(joining).collect::<Vec<_>>().join(",")
}

fn range(prefix: &str, count: u32) -> String {
    match count.saturating_sub(1) {
        0 => format!("{prefix}-0"),
        last => format!("{prefix}-[0-{last}]"),
    }
}

/// The schema lets no negative count through.
fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table(spec: serde_json::Value) -> RankTable {
        let mut spec = spec;
        spec["containers"] = json!([{}]);
        RankTable::of("fs", &serde_json::from_value(spec).unwrap()).unwrap()
    }

    #[test]
    fn spare_hosts_up_to_max_size_are_registered() {
        let table = table(json!({ "size": 2, "maxSize": 4 }));
        assert_eq!(table.hosts.to_string(), "fs-[0-3]");
        assert_eq!((table.size, table.max_size, table.quorum), (2, 4, 2));
    }

    #[test]
    fn one_host_is_a_plain_name_and_zero_means_unset() {
        let table = table(json!({ "maxSize": 0, "minSize": 0 }));
        assert_eq!(table.hosts.to_string(), "fs-0");
        assert_eq!((table.size, table.max_size, table.quorum), (1, 1, 1));
    }

    #[test]
    fn min_size_is_the_quorum() {
        assert_eq!(table(json!({ "size": 4, "minSize": 2 })).quorum, 2);
    }

    #[test]
    fn clusters_that_may_join_follow_with_their_defaults() {
        let clusters = json!([{}, { "name": "gke", "size": 1 }]);
        let table = table(json!({ "size": 2, "flux": { "bursting": { "clusters": clusters } } }));
        assert_eq!(table.hosts.to_string(), "fs-[0-1],burst-0-[0-1],gke-0");
    }

    #[test]
    fn a_host_list_of_the_user_is_taken_as_it_is() {
        let hostlist = "fs-[0-3],gffw-compute-a-[001-003]";
        let table = table(json!({ "size": 4, "flux": { "bursting": { "hostlist": hostlist } } }));
        assert_eq!(table.hosts.to_string(), hostlist);
        assert_eq!(table.hosts.find("gffw-compute-a-001"), Some(4));
    }
}
