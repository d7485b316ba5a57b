//! The rank table: every host that an instance may ever have, in rank order.
//!
//! It is fixed at boot, because a Flux instance never grows beyond the hosts it was started
//! with; brokers may only join later at ranks that are listed. So it has `maxSize` hosts of
//! the cluster itself, then those of pools, and spare ones for any other cluster. Host list,
//! broker configuration and resources are always computed from it.

use flux_operator_api::MiniClusterSpec;
use flux_operator_flux::{HostList, HostListError, IdSet};
use flux_operator_wire::{HostGroup, Resources};
use sha2::{Digest, Sha256};

/// Every host that an instance may ever have, its owner, and how many are requested now.
#[derive(Clone, Debug, PartialEq)]
pub struct RankTable {
    /// The hosts in rank order.
    pub hosts: HostList,
    /// The owners of the ranks, in rank order, without a gap.
    pub slots: Vec<SlotRange>,
    /// The requested number of hosts of the Job's own.
    pub size: u32,
    /// The number of brokers that must be online before the program starts.
    pub quorum: u32,
}

/// Consecutive ranks with one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// Whose brokers they are for.
    pub owner: SlotOwner,
    /// The first of the ranks.
    pub first_rank: u32,
    /// How many there are.
    pub count: u32,
    /// What each node has.
    pub resources: Resources,
}

/// The owner of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOwner {
    /// The cluster's own Job.
    Job,
    /// The pool with this name, outside of the cluster.
    Pool(String),
    /// None: any other cluster may lease them.
    Spare,
}

impl SlotOwner {
    /// The property of the hosts, by which jobs and joiners select them.
    pub fn property(&self) -> &str {
        match self {
            SlotOwner::Job => "home",
            SlotOwner::Pool(name) => name,
            SlotOwner::Spare => "spare",
        }
    }
}

/// Why there is no rank table.
#[derive(Debug, thiserror::Error)]
pub enum RankTableError {
    /// A host name is not valid, or there are too many.
    #[error("the cluster's hosts are not a valid host list")]
    Hosts(#[source] HostListError),
}

impl SlotRange {
    /// The ranks.
    pub fn ranks(&self) -> IdSet {
        let end = self.first_rank.saturating_add(self.count);
        IdSet::first_n(end).difference(&IdSet::first_n(self.first_rank))
    }
}

impl RankTable {
    /// The table of a cluster with this name, whose nodes have these resources.
    pub fn of(
        name: &str,
        spec: &MiniClusterSpec,
        resources: Resources,
    ) -> Result<RankTable, RankTableError> {
        let size = count(spec.size);
        let most = spec.max_size.map(count).unwrap_or_default().max(size);
        let quorum = match spec.min_size.map(count) {
            None | Some(0) => size,
            Some(least) => least,
        };
        let mut table = RankTable { hosts: HostList::new(), slots: Vec::new(), size, quorum };
        let bursting = spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
        let given = bursting.map(|bursting| bursting.hostlist.as_str()).unwrap_or_default();
        if !given.is_empty() {
            // The user's own list begins with the cluster's hosts.
            table.hosts = given.parse().map_err(RankTableError::Hosts)?;
            let all = u32::try_from(table.hosts.len()).unwrap_or(u32::MAX);
            let own = most.min(all);
            table.slots.push(SlotRange {
                owner: SlotOwner::Job,
                first_rank: 0,
                count: own,
                resources,
            });
            if all > own {
                let count = all.saturating_sub(own);
                let owner = SlotOwner::Spare;
                table.slots.push(SlotRange { owner, first_rank: own, count, resources });
            }
            return Ok(table);
        }
        table.add(SlotOwner::Job, name, most, resources)?;
        let pools = bursting.map(|bursting| bursting.clusters.as_slice()).unwrap_or_default();
        for (index, pool) in pools.iter().enumerate() {
            let name =
                if pool.name.is_empty() { format!("burst-{index}") } else { pool.name.clone() };
            let size = if pool.size == 0 { spec.size } else { pool.size };
            let number = |number: i32| Some(count(number)).filter(|number| *number > 0);
            let resources = Resources {
                cores: number(pool.cores).or(resources.cores),
                gpus: pool.gpus.map(count).or(resources.gpus),
                ..resources
            };
            table.add(SlotOwner::Pool(name.clone()), &name, count(size), resources)?;
        }
        match count(spec.spare_ranks()) {
            0 => {}
            spare => table.add(SlotOwner::Spare, &format!("{name}-spare"), spare, resources)?,
        }
        Ok(table)
    }

    /// Adds `count` ranks at the end, for hosts `prefix-0` and so on.
    fn add(
        &mut self,
        owner: SlotOwner,
        prefix: &str,
        count: u32,
        resources: Resources,
    ) -> Result<(), RankTableError> {
        let hosts = range(prefix, count).parse().map_err(RankTableError::Hosts)?;
        let first_rank = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        self.hosts.append(&hosts).map_err(RankTableError::Hosts)?;
        let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        self.slots.push(SlotRange { owner, first_rank, count, resources });
        Ok(())
    }

    /// The hosts with their properties and resources, for the boot plan.
    pub fn host_groups(&self) -> Vec<HostGroup> {
        let group = |slots: &SlotRange| HostGroup {
            hosts: self.hosts.slice(slots.first_rank as usize, slots.count as usize),
            property: slots.owner.property().to_owned(),
            cores: slots.resources.cores,
            gpus: slots.resources.gpus,
        };
        self.slots.iter().map(group).collect()
    }

    /// The slot range that contains `rank`, if there is one.
    pub fn slot(&self, rank: u32) -> Option<&SlotRange> {
        self.slots.iter().find(|slots| slots.ranks().contains(rank))
    }

    /// A hash of the table: brokers with different ones cannot be in one instance.
    pub fn hash(&self) -> String {
        let digest = Sha256::digest(self.hosts.to_string().as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The Job's own ranks.
    pub fn own_ranks(&self) -> IdSet {
        IdSet::union_all(&self.slots_of_job().map(SlotRange::ranks).collect::<Vec<_>>())
    }

    /// The largest number of hosts that the Job can have.
    pub fn max_size(&self) -> u32 {
        self.slots_of_job().fold(0, |sum, slots| sum.saturating_add(slots.count))
    }

    /// The rank of the pod with index 0.
    pub fn first_rank(&self) -> u32 {
        self.slots_of_job().next().map_or(0, |slots| slots.first_rank)
    }

    fn slots_of_job(&self) -> impl Iterator<Item = &SlotRange> {
        self.slots.iter().filter(|slots| slots.owner == SlotOwner::Job)
    }
}

fn range(prefix: &str, count: u32) -> String {
    match count.saturating_sub(1) {
        0 => format!("{prefix}-0"),
        last => format!("{prefix}-[0-{last}]"),
    }
}

/// The schema allows no negative count.
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
        RankTable::of("fs", &serde_json::from_value(spec).unwrap(), Resources::default()).unwrap()
    }

    #[test]
    fn spare_hosts_up_to_max_size_are_registered() {
        let table = table(json!({ "size": 2, "maxSize": 4 }));
        assert_eq!(table.hosts.to_string(), "fs-[0-3]");
        assert_eq!((table.size, table.max_size(), table.quorum), (2, 4, 2));
    }

    #[test]
    fn one_host_is_a_plain_name_and_zero_means_unset() {
        let table = table(json!({ "maxSize": 0, "minSize": 0 }));
        assert_eq!(table.hosts.to_string(), "fs-0");
        assert_eq!((table.size, table.max_size(), table.quorum), (1, 1, 1));
    }

    #[test]
    fn min_size_is_the_quorum() {
        assert_eq!(table(json!({ "size": 4, "minSize": 2 })).quorum, 2);
    }

    #[test]
    fn b7_pools_follow_with_their_defaults() {
        let clusters = json!([{}, { "name": "gke", "size": 1 }]);
        let table = table(json!({ "size": 2, "flux": { "bursting": { "clusters": clusters } } }));
        assert_eq!(table.hosts.to_string(), "fs-[0-1],burst-0-[0-1],gke-0");
        let owners: Vec<_> =
            table.slots.iter().map(|slots| (&slots.owner, slots.ranks().to_string())).collect();
        let pool = |name: &str| SlotOwner::Pool(name.into());
        assert_eq!(
            owners,
            [
                (&SlotOwner::Job, "0-1".into()),
                (&pool("burst-0"), "2-3".into()),
                (&pool("gke"), "4".into())
            ]
        );
        assert_eq!((table.own_ranks().to_string().as_str(), table.first_rank()), ("0-1", 0));
    }

    #[test]
    fn spare_ranks_follow_and_every_host_has_a_property() {
        let pool = json!({ "name": "gke", "size": 2, "cores": 16, "gpus": 1 });
        let flux = json!({ "bursting": { "clusters": [pool], "spareRanks": 3 } });
        let table = table(json!({ "size": 2, "flux": flux }));
        assert_eq!(table.hosts.to_string(), "fs-[0-1],gke-[0-1],fs-spare-[0-2]");
        let groups: Vec<_> = table
            .host_groups()
            .into_iter()
            .map(|it| (it.hosts.to_string(), it.property, it.cores, it.gpus))
            .collect();
        let group = |hosts: &str, property: &str, cores, gpus| {
            (hosts.to_owned(), property.to_owned(), cores, gpus)
        };
        assert_eq!(
            groups,
            [
                group("fs-[0-1]", "home", None, None),
                group("gke-[0-1]", "gke", Some(16), Some(1)),
                group("fs-spare-[0-2]", "spare", None, None)
            ]
        );
    }

    #[test]
    fn clusters_that_share_a_network_have_eight_spare_ranks() {
        let hosts = |spec| table(spec).hosts.to_string();
        assert_eq!(hosts(json!({ "jobSelector": "a" })), "fs-0,fs-spare-[0-7]");
        let none = json!({ "bursting": { "spareRanks": 0 } });
        assert_eq!(hosts(json!({ "jobSelector": "a", "flux": none })), "fs-0");
        let joins = json!({ "join": { "name": "other" } });
        assert_eq!(hosts(json!({ "jobSelector": "a", "flux": joins })), "fs-0");
    }

    #[test]
    fn b7_a_host_list_of_the_user_is_taken_as_it_is() {
        let hostlist = "fs-[0-3],gffw-compute-a-[001-003]";
        let table = table(json!({ "size": 4, "flux": { "bursting": { "hostlist": hostlist } } }));
        assert_eq!(table.hosts.to_string(), hostlist);
        assert_eq!(table.hosts.find("gffw-compute-a-001"), Some(4));
        let [own, others] = table.slots.as_slice() else { panic!("{:?}", table.slots) };
        assert_eq!((&own.owner, own.ranks().to_string().as_str()), (&SlotOwner::Job, "0-3"));
        assert_eq!(
            (&others.owner, others.ranks().to_string().as_str()),
            (&SlotOwner::Spare, "4-6")
        );
    }
}
