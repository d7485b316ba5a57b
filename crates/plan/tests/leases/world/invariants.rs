//! What must hold, always and once everything is quiet.

use std::collections::BTreeMap;
use std::fmt::Debug;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::LeaseState;
use flux_operator_flux::{IdSet, RankList};
use flux_operator_plan::invitation_holder;
use kube::ResourceExt;

use super::{LENDER, World, wanted};

impl World {
    /// The rank of every broker of a joiner, and who has it: the holder of a lease here, or a pod in
    /// another Kubernetes cluster.
    pub fn brokers(&self) -> Vec<(u32, String)> {
        let pods = self.stored.joiner_pods.values();
        let of_joiners = pods.filter_map(|pod| Some((pod.broker?, pod.holder.clone())));
        of_joiners.chain(self.remote_brokers()).collect()
    }

    pub fn assert_one_holder_for_each_rank(&self, after: &impl Debug) {
        let mut holders: BTreeMap<u32, String> = BTreeMap::new();
        // The brokers of its pods, also of those that terminate, and those that its Job will start.
        let pods: IdSet = self.stored.lender_pods.values().map(|pod| pod.index).collect();
        let own = IdSet::first_n(self.stored.jobs.get(LENDER).map_or(0, wanted)).union(&pods);
        for (rank, holder) in self.brokers() {
            assert!(
                !own.contains(rank),
                "rank {rank} is the lender's own, after {after:?}: {}",
                self.summary()
            );
            let before = holders.insert(rank, holder.clone());
            assert!(
                before.is_none_or(|before| before == holder),
                "rank {rank} has two holders after {after:?}: {}",
                self.summary()
            );
        }
    }

    /// Everything works, and nothing happens any more. One operator is left.
    pub fn settle(&mut self) {
        let (mut before, mut unchanged) = (String::new(), 0);
        for _ in 0..100 {
            self.control();
            self.stored.joiner_pods.retain(|_, pod| !pod.is_terminating);
            self.stored.lender_pods.retain(|_, pod| !pod.is_terminating);
            self.catch_up_all();
            self.ask_all(0);
            self.go_online_all();
            self.report(0, false);
            self.catch_up_all();
            self.reconcile_lender(0, 99);
            for joiner in self.joiners() {
                self.catch_up_all();
                self.reconcile_joiner(0, &joiner, 99);
            }
            self.pass_time(1);
            let now = self.summary();
            // What the lead is asked to do in one round it reports in the next, and what follows
            // from that is visible only in the one after that.
            unchanged = if now == before { unchanged + 1 } else { 0 };
            if unchanged >= 3 && !self.waits_for_gateway() {
                return;
            }
            before = now;
        }
        panic!("it never settles: {before}");
    }

    /// Whether ranks of a revoked invitation are kept until the gateway has closed its port. Nothing
    /// changes meanwhile.
    fn waits_for_gateway(&self) -> bool {
        let leases = &self.stored.miniclusters[LENDER]["status"]["leases"];
        let mut leases = leases.as_array().into_iter().flatten();
        leases.any(|it| it["state"] == "Leaving" && !it["invitation"].is_null())
    }

    /// What does not depend on time and versions.
    fn summary(&self) -> String {
        let leases = &self.stored.miniclusters[LENDER]["status"]["leases"];
        let pods = self.stored.joiner_pods.iter().map(|(name, pod)| (name, pod.broker));
        let own = self.stored.lender_pods.values().map(|pod| (pod.index, pod.is_terminating));
        let sizes = self.stored.jobs.iter().map(|(name, job)| (name, wanted(job)));
        let specs = self.stored.miniclusters.iter().map(|(name, it)| {
            format!("{name} {} {}", it["spec"]["size"], it["metadata"]["finalizers"])
        });
        let invitations = self.invitations();
        let invitations = invitations.iter().filter(|it| !self.is_expired(it)).map(|it| &it.name);
        format!(
            "{leases} {:?} {:?} {:?} {:?} {:?}",
            pods.collect::<Vec<_>>(),
            own.collect::<Vec<_>>(),
            sizes.collect::<Vec<_>>(),
            specs.collect::<Vec<_>>(),
            invitations.collect::<Vec<_>>()
        )
    }

    /// Every lease is that of a joiner that has brokers on exactly its ranks, or of an invitation, and
    /// none of them waits while there are enough ranks for it.
    pub fn assert_nothing_is_lost(&self) {
        let lender = self.read(&self.stored, LENDER).unwrap();
        let leases = lender.status.clone().unwrap_or_default().leases;
        let mut leased = IdSet::new();
        for lease in &leases {
            let ranks: RankList = lease.ranks.parse().unwrap();
            if lease.invitation.is_some() {
                assert_eq!(lease.state, LeaseState::Active, "{lease:?} in {}", self.summary());
                leased = leased.union(&ranks.to_set());
                continue;
            }
            let brokers: IdSet = self
                .brokers()
                .into_iter()
                .filter(|(_, holder)| *holder == lease.holder)
                .map(|(rank, _)| rank)
                .collect();
            assert_eq!(ranks.to_set(), brokers, "{lease:?} in {}", self.summary());
            leased = leased.union(&ranks.to_set());
        }
        // A host that the lender wants is not lent, although it cannot have it yet while one before
        // it is leased.
        let size = u32::try_from(lender.spec.size).unwrap();
        let own = self.stored.jobs.get(LENDER).map_or(0, wanted).max(size);
        let free = IdSet::first_n(6).difference(&IdSet::first_n(own)).difference(&leased);
        let mut expected: Vec<String> = Vec::new();
        for invitation in self.invitations().iter().filter(|it| !self.is_expired(it)) {
            let uid = invitation_holder(invitation);
            let has_lease = leases.iter().any(|lease| lease.holder == uid);
            let wants = u64::try_from(invitation.ranks).unwrap();
            assert!(has_lease || wants > free.len(), "{uid} waits: {}", self.summary());
            expected.push(uid);
        }
        let mut of_invitations = leases.iter().filter(|lease| lease.invitation.is_some());
        assert!(of_invitations.all(|lease| expected.contains(&lease.holder)), "{}", self.summary());
        for name in self.joiners() {
            let joiner: MiniCluster = self.read(&self.stored, &name).unwrap();
            let uid = joiner.uid().unwrap();
            let has = leases.iter().filter(|lease| lease.holder == uid);
            let has: usize = has.map(|lease| lease.ranks.parse::<RankList>().unwrap().len()).sum();
            let wants = match joiner.spec.suspend {
                true => 0,
                false => usize::try_from(joiner.spec.size).unwrap(),
            };
            let missing = wants.saturating_sub(has) as u64;
            assert!(has <= wants, "{name} has {has} of {wants}: {}", self.summary());
            assert!(
                missing == 0 || missing > free.len(),
                "{name} waits for {missing}: {}",
                self.summary()
            );
        }
    }
}
