//! Which hosts of an instance are those of a joiner, if its manifest lists all hosts itself.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::BurstingCluster;
use flux_operator_api::validate::Problem;
use flux_operator_flux::{HostList, RankList};
use kube::ResourceExt;

use super::instance::pool_of;

/// The ranks of a joiner's pods: those of the hosts with its name, or of the only pool. `listed_in` is
/// the field that has the hosts.
pub(super) fn own_ranks(
    joiner: &MiniCluster,
    hosts: &HostList,
    pools: &[BurstingCluster],
    listed_in: &str,
) -> Result<RankList, Problem> {
    let (name, size) = (joiner.name_any(), joiner.spec.size);
    let only = match pools {
        [pool] => Some(pool_of(0, pool, size).0),
        _ => None,
    };
    let needed = usize::try_from(size).unwrap_or_default();
    let mut most = (0, String::new());
    for prefix in std::iter::once(name.clone()).chain(only) {
        let found = ranks_of(hosts, &prefix, needed);
        if found.len() == needed {
            return Ok(found.into_iter().collect());
        }
        if found.len() > most.0 {
            most = (found.len(), prefix);
        }
    }
    let (has, prefix) = most;
    if let Some(last) = has.checked_sub(1) {
        let named = match last {
            0 => format!("1 host for it, {prefix}-0"),
            last => format!("{has} hosts for it, {prefix}-0 to {prefix}-{last}"),
        };
        let message = format!(
            "is {size}, and {listed_in} has {named}: lower it to {has}, or add hosts, here and to the \
             lender"
        );
        return Err(Problem::new("spec.size", message));
    }
    let remedy = match listed_in {
        "spec.flux.bursting.clusters" => {
            "name it after one of the lender's flux.bursting.clusters, and list those here in the \
             same order"
        }
        _ => "name it after hosts of the lender, and list all hosts here in the same order",
    };
    let message = format!(
        "has no host {name}-0 to {name}-{} for the pods of this MiniCluster: {remedy}",
        size.saturating_sub(1)
    );
    Err(Problem::new(listed_in, message))
}

/// The ranks of hosts `prefix-0` and so on up to `count`, until one is missing. The hosts are read
/// once: there may be many.
fn ranks_of(hosts: &HostList, prefix: &str, count: usize) -> Vec<u32> {
    let mut ranks = vec![None; count];
    for (rank, host) in hosts.iter().enumerate() {
        let number = host.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
        let index = number.and_then(|number| number.parse::<usize>().ok());
        // A host such as a-01 is another one than a-1.
        let index = index.filter(|index| number == Some(&index.to_string()));
        if let Some(found) = index.and_then(|index| ranks.get_mut(index)) {
            *found = found.or(u32::try_from(rank).ok());
        }
    }
    ranks.into_iter().map_while(|rank| rank).collect()
}
