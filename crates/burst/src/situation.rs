//! The situation of a MiniCluster, from objects and from what the operator shows of its instance.

use std::collections::{BTreeMap, HashSet};

use flux_operator_api::burst::BurstConditionType;
use flux_operator_api::reason::AnyReason;
use flux_operator_api::view::{InstanceJob, InstanceJobs, SlotRange};
use flux_operator_api::{Burst, BurstStatus, MiniCluster, Reason};
use flux_operator_flux::{HostList, IdSet, JobId, RankList};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::pause::{PAUSE_SECONDS, SHORT_PAUSE_SECONDS};
use crate::pool::{HOME, SPARE, target_property};
use crate::time::seconds_after;
use crate::{Instance, IsolatedRun, Job, Node, Pool, PoolMember, PoolState};

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

/// Since when each rank of a Burst has been free. If it is lost, the idle time of every rank starts again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleRanks(BTreeMap<u32, Timestamp>);

impl IdleRanks {
    /// Notes which of these ranks are free now. Those of Bursts are enough: only Bursts shrink, and a
    /// rank table may have more ranks than fit in memory for every MiniCluster.
    fn note(&mut self, ranks: impl Iterator<Item = u32>, free: &IdSet, now: Timestamp) {
        let before = std::mem::take(&mut self.0);
        let free = ranks.filter(|rank| free.contains(*rank));
        // A time in the future is of a clock that was wrong.
        let since = |rank| before.get(&rank).map_or(now, |since| now.min(*since));
        self.0 = free.map(|rank| (rank, since(rank))).collect();
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
        // What agents report is not believed beyond the rank table.
        let table: Vec<IdSet> = shown.slots.iter().map(|slots| ranks(Some(&slots.ranks))).collect();
        let table = IdSet::union_all(&table);
        let online = ranks(shown.online.as_ref()).intersection(&table);
        let taken = ranks(shown.busy.as_ref()).union(&ranks(shown.drained.as_ref()));
        let free = online.difference(&taken);
        let jobs: Vec<Job> = shown.items.iter().map(job).collect();
        let waiting: HashSet<u64> = jobs.iter().map(|job| job.id).collect();
        let bursts: Vec<&Burst> =
            bursts.iter().copied().filter(|burst| burst.is_for(cluster)).collect();
        // Those with an instance of their own have no ranks of this one.
        let isolated = bursts.iter().filter_map(|burst| IsolatedRun::of(burst, &waiting)).collect();
        let joining: Vec<&Burst> =
            bursts.iter().copied().filter(|burst| !burst.is_isolated()).collect();
        let bursts = joining.as_slice();
        let members = members(cluster, bursts);
        idle.note(members.keys().copied(), &free, now);
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
                    cores: shape(slots, shown).0,
                    gpus: shape(slots, shown).1,
                    is_free: free.contains(rank),
                    idle_since: idle.0.get(&rank).copied(),
                    member: members.get(&rank).cloned(),
                });
            }
        }
        let instance = Instance {
            name: cluster.name_any(),
            nodes,
            lendable: lendable(cluster, &shown.slots, bursts, &online),
            leasable: by_property(&shown.slots, &own_ranks(cluster)),
            shapes: shapes(shown),
            lead_cores: shown.lead_cores,
            lead_gpus: shown.lead_gpus,
            skips_blocked: !shown.stops_at_blocked,
            is_exposed: is_exposed(cluster),
            table_size: u32::try_from(table.len()).unwrap_or(u32::MAX),
            isolated,
        };
        let pools = bursts.iter().map(|burst| pool(burst, &waiting, now)).collect();
        Situation { instance, pools, jobs }
    }
}

/// Whether a MiniCluster can be reached from other Kubernetes clusters.
fn is_exposed(cluster: &MiniCluster) -> bool {
    let bursting = cluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    bursting.is_some_and(|it| it.expose.is_some())
}

/// The property of a range of slots, by which jobs select nodes.
fn property(slots: &SlotRange) -> &str {
    match slots.owner.as_str() {
        "Job" => HOME,
        "Spare" => SPARE,
        _ => &slots.pool,
    }
}

/// Cores and GPUs of each rank of a range.
fn shape(slots: &SlotRange, shown: &InstanceJobs) -> (u32, u32) {
    let cores = if slots.cores > 0 { slots.cores } else { shown.lead_cores };
    (cores, slots.gpus.unwrap_or(shown.lead_gpus))
}

/// Cores and GPUs of ranks by property; of different ones with the same property, the least.
fn shapes(shown: &InstanceJobs) -> BTreeMap<String, (u32, u32)> {
    let mut shapes = BTreeMap::new();
    for slots in &shown.slots {
        let (cores, gpus) = shape(slots, shown);
        let least: &mut (u32, u32) =
            shapes.entry(property(slots).to_owned()).or_insert((cores, gpus));
        *least = (least.0.min(cores), least.1.min(gpus));
    }
    shapes
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
    let taken = IdSet::union_all(&leased).union(online).union(&own_ranks(cluster));
    let mut free = by_property(slots, &taken);
    // Bursts will get these that they have not leased yet.
    for burst in bursts.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
        let name = burst.status.as_ref().map(|status| status.object_name.as_str());
        let leases = cluster.status.iter().flat_map(|status| &status.leases);
        let own = leases.filter(|lease| Some(lease.name.as_str()) == name);
        let leased: u64 = own.map(|lease| lease.rank_list().to_set().len()).sum();
        if let Some(count) = free.get_mut(target_property(&burst.spec.target)) {
            let wanted = u32::try_from(burst.spec.leased_ranks()).unwrap_or_default();
            let leased = u32::try_from(leased).unwrap_or(u32::MAX);
            *count = count.saturating_sub(wanted.saturating_sub(leased));
        }
    }
    free
}

/// The ranks of the MiniCluster's own hosts up to its size, which no other gets.
fn own_ranks(cluster: &MiniCluster) -> IdSet {
    IdSet::first_n(u32::try_from(cluster.spec.size).unwrap_or_default())
}

/// How many ranks there are of each property, besides those that are taken.
fn by_property(slots: &[SlotRange], taken: &IdSet) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for slots in slots {
        let ranks: IdSet = slots.ranks.parse().unwrap_or_default();
        let count = u32::try_from(ranks.difference(taken).len()).unwrap_or(u32::MAX);
        let sum: &mut u32 = counts.entry(property(slots).to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }
    counts
}

/// Which rank belongs to which pod of which Burst. A joiner that shrinks has a second lease, of the
/// ranks that leave: they are those of its last pods.
fn members(cluster: &MiniCluster, bursts: &[&Burst]) -> BTreeMap<u32, PoolMember> {
    let mut members = BTreeMap::new();
    for burst in bursts {
        let Some(name) = burst.status.as_ref().map(|it| &it.object_name) else { continue };
        let leases = cluster.status.iter().flat_map(|status| &status.leases);
        let ranks = leases
            .filter(|lease| lease.name == *name)
            .fold(RankList::default(), |all, lease| all.followed_by(&lease.rank_list()));
        for (rank, pod) in ranks.iter().zip(0..) {
            members.insert(rank, PoolMember { burst: burst.name_any(), pod });
        }
    }
    members
}

fn pool(burst: &Burst, waiting: &HashSet<u64>, now: Timestamp) -> Pool {
    let status = burst.status.clone().unwrap_or_default();
    let retry_at = status.retry_at.parse::<Timestamp>().ok();
    let is_leaving = burst.metadata.deletion_timestamp.is_some() || burst.spec.drain;
    let state = match (is_leaving, retry_at) {
        (true, _) => PoolState::GivingBack,
        (false, Some(until)) if status.online == 0 => PoolState::Failed { until },
        (false, _) if is_stuck(burst, &status, now) => PoolState::Stuck,
        (false, _) => PoolState::Active,
    };
    Pool {
        name: burst.name_any(),
        policy: burst.owning_policy().map(ToOwned::to_owned),
        target: burst.spec.target.clone(),
        nodes: burst.spec.nodes,
        state,
        trouble: trouble(&status),
        has_joined: status.has_joined(),
        paused_until: paused_until(burst, &status, waiting),
    }
}

/// Whether the missing nodes of a Burst are no longer expected: its MiniCluster has to be changed first, or
/// the join deadline is over.
fn is_stuck(burst: &Burst, status: &BurstStatus, now: Timestamp) -> bool {
    let prepared = status.condition(BurstConditionType::Prepared);
    let is_blocked = prepared.is_some_and(|it| it.status == "False" && it.reason == "NotExposed");
    let is_complete = status.online >= burst.spec.nodes;
    // One that grows has not begun to wait.
    is_blocked || (!is_complete && !burst.is_changed() && now >= burst.join_deadline())
}

/// What keeps the nodes of a Burst from coming up.
fn trouble(status: &BurstStatus) -> Option<String> {
    let first = status.conditions.iter().find(|it| it.status == "False")?;
    let is_progress = AnyReason::read(&first.reason).known().is_some_and(Reason::is_progress);
    (!is_progress && first.type_ != BurstConditionType::GivingBack.as_str())
        .then(|| format!("{}: {}", first.reason, first.message))
}

/// Until when the target of a Burst is paused, if that was of no use.
fn paused_until(burst: &Burst, status: &BurstStatus, waiting: &HashSet<u64>) -> Option<Timestamp> {
    // A Burst that is deleted says so in its status a moment later.
    let deleted_at = burst.metadata.deletion_timestamp.as_ref().map(|it| it.0);
    let since = status.giving_back_since.parse().ok().or(deleted_at)?;
    if !status.has_joined() {
        return Some(seconds_after(since, PAUSE_SECONDS));
    }
    let mut jobs = burst.spec.jobs.iter().filter_map(|id| id.parse::<JobId>().ok());
    let still_wait = jobs.any(|id| waiting.contains(&id.number()));
    still_wait.then(|| seconds_after(since, SHORT_PAUSE_SECONDS))
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
        is_on_hold: shown.on_hold,
    }
}

#[cfg(test)]
mod tests {
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::at;

    fn cluster(status: Value) -> MiniCluster {
        let mut manifest = smallest_minicluster("fs");
        merge(&mut manifest, &json!({ "spec": { "size": 2 }, "status": status }));
        serde_json::from_value(manifest).unwrap()
    }

    fn lease(name: &str, ranks: &str) -> Value {
        json!({ "name": name, "ranks": ranks, "holder": name, "namespace": "", "table": "",
            "since": "", "state": "Active" })
    }

    fn burst(patch: Value) -> Burst {
        let mut burst = json!({
            "apiVersion": "flux-framework.org/v1alpha2", "kind": "Burst",
            "metadata": { "name": "b", "creationTimestamp": at(0).to_string() },
            "spec": { "cluster": "fs", "nodes": 2,
                "target": { "name": "t", "maxNodes": 4, "startupSeconds": 100, "cluster": {} } },
            "status": { "objectName": "burst-1", "online": 2 },
        });
        merge(&mut burst, &patch);
        serde_json::from_value(burst).unwrap()
    }

    /// Two own ranks, and four spare ones with fewer cores.
    fn shown() -> InstanceJobs {
        let slots = |owner: &str, ranks: &str, hosts: &str, cores| SlotRange {
            owner: owner.into(),
            ranks: ranks.into(),
            hosts: hosts.into(),
            cores,
            ..SlotRange::default()
        };
        InstanceJobs {
            listed: true,
            online: Some("0-3".into()),
            slots: vec![slots("Job", "0-1", "fs-[0-1]", 0), slots("Spare", "2-5", "fs-[2-5]", 4)],
            lead_cores: 8,
            ..InstanceJobs::default()
        }
    }

    fn situation(shown: &InstanceJobs, cluster: &MiniCluster, bursts: &[&Burst]) -> Situation {
        Situation::of(cluster, shown, bursts, &mut IdleRanks::default(), at(1000))
    }

    /// Whoever has a cluster's key can report any ranks.
    #[test]
    fn ranks_beyond_the_table_are_not_believed() {
        let all = Some("0-4294967295".to_owned());
        let shown = InstanceJobs { online: all.clone(), busy: Some("0".into()), ..shown() };
        let Situation { instance, .. } = situation(&shown, &cluster(json!({})), &[]);
        assert_eq!((instance.nodes.len(), instance.table_size), (6, 6));
        assert_eq!(instance.nodes.iter().filter(|node| node.is_free).count(), 5);
        let shown = InstanceJobs { drained: all, ..shown };
        let Situation { instance, .. } = situation(&shown, &cluster(json!({})), &[]);
        assert!(instance.nodes.iter().all(|node| !node.is_free), "a drained node is not free");
    }

    #[test]
    fn nodes_have_the_cores_of_the_rank_table() {
        let Situation { instance, .. } = situation(&shown(), &cluster(json!({})), &[]);
        let cores: Vec<u32> = instance.nodes.iter().map(|node| node.cores).collect();
        assert_eq!(cores, [8, 8, 4, 4]);
        assert_eq!(instance.shapes["spare"], (4, 0));
        assert_eq!(instance.lendable, [("home".into(), 0), ("spare".into(), 2)].into());
        assert_eq!(instance.leasable, [("home".into(), 0), ("spare".into(), 4)].into());
    }

    /// A rank table may have 131,072 ranks, all of which are free.
    #[test]
    fn it_is_remembered_of_ranks_of_bursts_alone_since_when_they_are_free() {
        let leases = json!({ "leases": [lease("burst-1", "2-3")] });
        let (cluster, burst) = (cluster(leases), burst(json!({})));
        let mut idle = IdleRanks::default();
        for (busy, since) in [("0-3", vec![]), ("3", vec![(2, 20)]), ("0", vec![(2, 20), (3, 30)])]
        {
            let now = at(if busy == "3" { 20 } else { 30 });
            let shown = InstanceJobs { busy: Some(busy.into()), ..shown() };
            Situation::of(&cluster, &shown, &[&burst], &mut idle, now);
            let expected = since.into_iter().map(|(rank, seconds)| (rank, at(seconds)));
            assert_eq!(idle, IdleRanks(expected.collect()), "{busy}");
        }
    }

    #[test]
    fn ranks_are_free_since_now_at_the_latest_if_the_clock_was_wrong() {
        let cluster = cluster(json!({ "leases": [lease("burst-1", "2-3")] }));
        let (burst, mut idle) = (burst(json!({})), IdleRanks::default());
        for now in [at(90_000), at(30), at(40)] {
            Situation::of(&cluster, &shown(), &[&burst], &mut idle, now);
        }
        assert_eq!(idle, IdleRanks([(2, at(30)), (3, at(30))].into()));
    }

    /// Its user has canceled it, or it has started at home: its target has not failed.
    #[test]
    fn a_run_of_a_job_that_does_not_wait_any_more_does_not_keep_its_target_from_others() {
        let patch = json!({ "spec": { "isolatedJob": "f3" },
            "status": { "givingBackSince": at(900).to_string() } });
        let burst = burst(patch);
        for (job, until) in [(2, Some(at(900 + 600))), (7, None)] {
            let item = InstanceJob { id: job, ..InstanceJob::default() };
            let shown = InstanceJobs { items: vec![item], ..shown() };
            let Situation { instance, .. } = situation(&shown, &cluster(json!({})), &[&burst]);
            assert_eq!(instance.isolated[0].paused_until, until, "{job}");
        }
    }

    /// The record of a run is kept for a day, and ids of jobs begin anew with each instance.
    #[test]
    fn bursts_of_a_deleted_minicluster_are_not_of_one_that_has_its_name() {
        let mut cluster = cluster(json!({}));
        cluster.metadata.uid = Some("new".into());
        let item = InstanceJob { id: 2, ..InstanceJob::default() };
        let shown = InstanceJobs { items: vec![item], ..shown() };
        for (uid, is_its_own) in [("", true), ("new", true), ("old", false)] {
            let of = |spec: Value| {
                burst(json!({ "spec": spec, "status": { "clusterUid": uid, "online": 0,
                    "run": { "state": "Completed" } } }))
            };
            let (run, joining) = (of(json!({ "isolatedJob": "f3" })), of(json!({})));
            let Situation { instance, pools, .. } = situation(&shown, &cluster, &[&run, &joining]);
            let expected = usize::from(is_its_own);
            assert_eq!((instance.isolated.len(), pools.len()), (expected, expected), "{uid}");
        }
    }

    /// The ranks that leave are those of the last pods.
    #[test]
    fn a_joiner_that_shrinks_has_two_leases() {
        let leases = json!({ "leases": [lease("burst-1", "2"), lease("burst-1", "3")] });
        let burst = burst(json!({}));
        let Situation { instance, .. } = situation(&shown(), &cluster(leases), &[&burst]);
        let pods: Vec<_> =
            instance.nodes.iter().map(|it| it.member.as_ref().map(|it| it.pod)).collect();
        assert_eq!(pods, [None, None, Some(0), Some(1)]);
    }

    #[test]
    fn nodes_that_are_late_are_not_waited_for() {
        let joined = |status: &str, seconds| {
            json!([{ "type": "Joined", "status": status, "reason": "OutOfCapacity", "message": "m",
                "lastTransitionTime": at(seconds).to_string() }])
        };
        let blocked = json!([{ "type": "Prepared", "status": "False", "reason": "NotExposed",
            "message": "m", "lastTransitionTime": at(999).to_string() }]);
        let cases = [
            (json!({ "online": 2 }), PoolState::Active),
            // It grows: the status is of the former size.
            (json!({ "online": 1, "conditions": joined("True", 0) }), PoolState::Active),
            (json!({ "online": 1, "observedGeneration": 7 }), PoolState::Active),
            // 3 x 100 s + 300 s after the last time when all had joined.
            (json!({ "online": 1, "conditions": joined("False", 500) }), PoolState::Active),
            (json!({ "online": 1, "conditions": joined("False", 300) }), PoolState::Stuck),
            (json!({ "online": 0, "conditions": blocked }), PoolState::Stuck),
            (
                json!({ "online": 0, "retryAt": at(1060).to_string() }),
                PoolState::Failed { until: at(1060) },
            ),
        ];
        for (status, state) in cases {
            let burst = burst(json!({ "status": status }));
            let Situation { pools, .. } = situation(&shown(), &cluster(json!({})), &[&burst]);
            assert_eq!(pools[0].state, state, "{status}");
        }
        let burst = burst(json!({ "status": { "conditions": joined("False", 500) } }));
        let Situation { pools, .. } = situation(&shown(), &cluster(json!({})), &[&burst]);
        assert_eq!(pools[0].trouble.as_deref(), Some("OutOfCapacity: m"));
    }

    #[test]
    fn a_burst_that_was_of_no_use_is_not_followed_by_another() {
        let since = at(900).to_string();
        let cases = [
            (json!({ "online": 0 }), "f1", Some(at(900 + PAUSE_SECONDS))),
            (json!({ "online": 0, "joinedAt": since }), "f1", None),
            (json!({ "online": 0, "joinedAt": since }), "f3", Some(at(900 + SHORT_PAUSE_SECONDS))),
        ];
        for (mut status, job, until) in cases {
            let waiting = HashSet::from([2]);
            let deleted = json!({ "metadata": { "deletionTimestamp": since },
                "status": status, "spec": { "jobs": [job] } });
            status["givingBackSince"] = since.clone().into();
            let recorded = json!({ "status": status, "spec": { "jobs": [job] } });
            // Its status says so a moment after it was deleted.
            for patch in [recorded, deleted] {
                let pool = pool(&burst(patch.clone()), &waiting, at(1000));
                assert_eq!(pool.paused_until, until, "{patch}");
            }
        }
    }
}
