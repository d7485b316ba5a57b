//! The situation of a MiniCluster, from objects and from what the operator shows of its instance.

use std::collections::BTreeMap;

use flux_operator_api::view::{InstanceJob, InstanceJobs, SlotRange};
use flux_operator_api::{Burst, MiniCluster};
use flux_operator_flux::{HostList, IdSet, RankList};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::{Instance, Job, Node, Pool, PoolMember, PoolState};

/// What a decision is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// The nodes.
    pub instance: Instance,
    /// The Bursts, in the order of their creation.
    pub pools: Vec<Pool>,
    /// The pending jobs, in the order of their queue.
    pub jobs: Vec<Job>,
}

/// Since when each rank has been free. If it is lost, ranks have been free since it was made anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleRanks(BTreeMap<u32, Timestamp>);

impl IdleRanks {
    /// Notes which ranks are free now.
    fn note(&mut self, free: &IdSet, now: Timestamp) {
        self.0.retain(|rank, _| free.contains(*rank));
        for rank in free.iter() {
            self.0.entry(rank).or_insert(now);
        }
    }
}

impl Situation {
    /// The situation of a MiniCluster with these Bursts, in the order of their creation.
    pub fn of(
        cluster: &MiniCluster,
        shown: &InstanceJobs,
        bursts: &[&Burst],
        idle: &mut IdleRanks,
        now: Timestamp,
    ) -> Situation {
        let ranks = |text: Option<&String>| -> IdSet {
            text.and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        let online = ranks(shown.online.as_ref());
        let taken = ranks(shown.busy.as_ref()).union(&ranks(shown.drained.as_ref()));
        let free = online.difference(&taken);
        idle.note(&free, now);
        let members = members(cluster, bursts);
        let mut nodes = Vec::new();
        for slots in &shown.slots {
            let range = ranks(Some(&slots.ranks));
            let hosts: HostList = slots.hosts.parse().unwrap_or_default();
            for (rank, host) in
                range.iter().zip(hosts.iter()).filter(|(it, _)| online.contains(*it))
            {
                nodes.push(Node {
                    rank,
                    host,
                    property: property(slots).to_owned(),
                    cores: if slots.cores > 0 { slots.cores } else { shown.lead_cores },
                    gpus: slots.gpus.unwrap_or(shown.lead_gpus),
                    is_free: free.contains(rank),
                    idle_since: idle.0.get(&rank).copied(),
                    member: members.get(&rank).cloned(),
                });
            }
        }
        let all = shown.slots.iter().map(|slots| ranks(Some(&slots.ranks)).len()).sum::<u64>();
        let instance = Instance {
            name: cluster.name_any(),
            nodes,
            lendable: lendable(cluster, &shown.slots, bursts, &online),
            lead_cores: shown.lead_cores,
            lead_gpus: shown.lead_gpus,
            skips_blocked: !shown.stops_at_blocked,
            table_size: u32::try_from(all).unwrap_or(u32::MAX),
        };
        let pools = bursts.iter().map(|burst| pool(burst)).collect();
        let jobs = shown.items.iter().map(job).collect();
        Situation { instance, pools, jobs }
    }
}

/// The property of a range of slots, by which jobs select nodes.
fn property(slots: &SlotRange) -> &str {
    match slots.owner.as_str() {
        "Job" => "home",
        "Spare" => "spare",
        _ => &slots.pool,
    }
}

/// How many ranks could be leased now, by property: those that are neither leased nor online. Of the
/// cluster's own hosts, those above its size.
fn lendable(
    cluster: &MiniCluster,
    slots: &[SlotRange],
    bursts: &[&Burst],
    online: &IdSet,
) -> BTreeMap<String, u32> {
    let leases = cluster.status.iter().flat_map(|status| &status.leases);
    let leased: Vec<IdSet> = leases.map(|lease| lease.rank_list().to_set()).collect();
    let own = IdSet::first_n(u32::try_from(cluster.spec.size).unwrap_or_default());
    let taken = IdSet::union_all(&leased).union(online).union(&own);
    let mut free = BTreeMap::new();
    for slots in slots {
        let ranks: IdSet = slots.ranks.parse().unwrap_or_default();
        let count = u32::try_from(ranks.difference(&taken).len()).unwrap_or(u32::MAX);
        let sum: &mut u32 = free.entry(property(slots).to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }
    // Bursts that have no lease yet will get these.
    for burst in bursts.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
        let name = burst.status.as_ref().map(|status| status.object_name.as_str());
        let mut leases = cluster.status.iter().flat_map(|status| &status.leases);
        if leases.any(|lease| Some(lease.name.as_str()) == name) {
            continue;
        }
        let ranks = burst.spec.target.ranks.as_str();
        let property = if ranks.is_empty() { "spare" } else { ranks };
        if let Some(count) = free.get_mut(property) {
            let wanted = u32::try_from(burst.spec.max_nodes()).unwrap_or_default();
            *count = count.saturating_sub(wanted);
        }
    }
    free
}

/// Which rank belongs to which pod of which Burst.
fn members(cluster: &MiniCluster, bursts: &[&Burst]) -> BTreeMap<u32, PoolMember> {
    let mut members = BTreeMap::new();
    for lease in cluster.status.iter().flat_map(|status| &status.leases) {
        let is_of =
            |burst: &&&Burst| burst.status.as_ref().is_some_and(|it| it.object_name == lease.name);
        let Some(burst) = bursts.iter().find(is_of) else { continue };
        let ranks: RankList = lease.rank_list();
        for (rank, pod) in ranks.iter().zip(0..) {
            members.insert(rank, PoolMember { burst: burst.name_any(), pod });
        }
    }
    members
}

fn pool(burst: &Burst) -> Pool {
    let status = burst.status.clone().unwrap_or_default();
    let retry_at = status.retry_at.parse::<Timestamp>().ok();
    let state = match (burst.metadata.deletion_timestamp.is_some(), retry_at) {
        (true, _) => PoolState::GivingBack,
        (false, Some(until)) if status.online == 0 => PoolState::Failed { until },
        (false, _) => PoolState::Active,
    };
    Pool {
        name: burst.name_any(),
        policy: burst.policy().map(ToOwned::to_owned),
        target: burst.spec.target.clone(),
        nodes: burst.spec.nodes,
        state,
    }
}

fn job(shown: &InstanceJob) -> Job {
    let time = |seconds: u64| {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
    };
    Job {
        id: shown.id,
        nodes: shown.nodes,
        tasks: shown.tasks,
        cores: shown.cores,
        gpus: shown.gpus,
        submitted: time(shown.submitted),
        user: i64::from(shown.user),
        queue: shown.queue.clone(),
        attributes: shown.attributes.clone(),
        estimate: shown.estimate.map(time),
        is_held: shown.held,
    }
}
