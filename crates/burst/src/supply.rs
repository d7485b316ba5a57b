//! The nodes that jobs are placed on: those that are free, and those that bursts are about to get.

use std::collections::{BTreeMap, BTreeSet};

use flux_operator_api::burst::BurstTarget;

use crate::constraint::{Constraint, Match};
use crate::job::Need;
use crate::placement::{Class, FreeNode, Part, part, take};
use crate::pool::{shape, target_property};
use crate::{Instance, PolicyState, Pool, PoolState};

/// Nodes of an instance, and of its bursts.
pub(crate) struct Supply<'a> {
    instance: &'a Instance,
    /// Nodes that are online, followed by those that are coming up, of one pool each.
    classes: Vec<Class>,
    /// How many classes are of nodes that are online.
    online: usize,
    /// Bursts that exist, in the order given, followed by those to create.
    pub(crate) pools: Vec<PoolPlan<'a>>,
    /// Pools in the order in which jobs are placed on nodes that are coming up: those that no policy
    /// may grow, then by policy, target and age.
    pub(crate) order: Vec<usize>,
    census: Vec<Alike>,
}

/// A burst that exists or is to be created.
pub(crate) struct PoolPlan<'a> {
    /// The burst, if it exists.
    pub(crate) pool: Option<&'a Pool>,
    /// Its policy, by its position, if that serves the MiniCluster.
    pub(crate) policy: Option<usize>,
    /// Its target.
    pub(crate) target: &'a BurstTarget,
    /// The position of its target in the policy, if that still has it.
    pub(crate) target_index: Option<usize>,
    /// How many bursts of the same policy and target are older.
    pub(crate) position: usize,
    /// How many nodes it should have.
    pub(crate) nodes: i32,
    /// Whether its nodes are available to jobs, when they come up.
    pub(crate) is_coming: bool,
    /// Its nodes that are coming up.
    class: usize,
    /// How many of its first pods jobs were placed on.
    pub(crate) needed: u32,
    /// Jobs that wait for its nodes.
    pub(crate) jobs: Vec<u64>,
}

/// Nodes that are alike, free or not.
struct Alike {
    property: String,
    cores: u32,
    gpus: u32,
    policy: Option<usize>,
    count: u32,
}

impl<'a> Supply<'a> {
    /// Everything that is free or coming up. Pools in `given_back` are not available.
    pub(crate) fn new(
        instance: &'a Instance,
        policies: &'a [PolicyState],
        pools: &'a [Pool],
        given_back: &BTreeSet<&str>,
    ) -> Supply<'a> {
        let mut supply = Supply {
            instance,
            classes: Vec::new(),
            online: 0,
            pools: Vec::new(),
            order: Vec::new(),
            census: Vec::new(),
        };
        let present = supply.add_online(policies, pools, given_back);
        for (pool, present) in pools.iter().zip(present) {
            let named = |policy: &PolicyState| Some(&policy.name) == pool.policy.as_ref();
            let is_coming = pool.is_coming() && !given_back.contains(pool.name.as_str());
            let index = supply.add_pool(
                PoolPlan {
                    pool: Some(pool),
                    policy: policies.iter().position(named),
                    target: &pool.target,
                    target_index: None,
                    position: 0,
                    nodes: pool.nodes,
                    is_coming,
                    class: 0,
                    needed: 0,
                    jobs: Vec::new(),
                },
                target_property(&pool.target),
            );
            let size = u32::try_from(pool.nodes).unwrap_or_default();
            if is_coming {
                supply.add_pods(index, (0..size).filter(|pod| !present.contains(pod)));
            }
        }
        supply.sort(policies);
        supply
    }

    /// Adds nodes that are online; returns the pods that each pool has of them.
    fn add_online(
        &mut self,
        policies: &[PolicyState],
        pools: &[Pool],
        given_back: &BTreeSet<&str>,
    ) -> Vec<BTreeSet<u32>> {
        let by_name: BTreeMap<&str, usize> =
            pools.iter().enumerate().map(|(index, pool)| (pool.name.as_str(), index)).collect();
        let mut present = vec![BTreeSet::new(); pools.len()];
        let mut free: BTreeMap<(Option<usize>, &str, u32, u32), Vec<FreeNode>> = BTreeMap::new();
        let mut alike: BTreeMap<(Option<usize>, &str, u32, u32), u32> = BTreeMap::new();
        for (index, node) in self.instance.nodes.iter().enumerate() {
            let member = node.member.as_ref();
            let pool = member.and_then(|member| by_name.get(member.burst.as_str()).copied());
            let pod = member.map_or(0, |member| member.pod);
            let policy = pool.and_then(|pool| {
                policies.iter().position(|policy| Some(&policy.name) == pools[pool].policy.as_ref())
            });
            *alike.entry((policy, &node.property, node.cores, node.gpus)).or_default() += 1;
            let stays = pool.is_none_or(|index| {
                let pool = &pools[index];
                present[index].insert(pod);
                i64::from(pod) < i64::from(pool.nodes)
                    && pool.state != PoolState::GivingBack
                    && !given_back.contains(pool.name.as_str())
            });
            if node.is_free && stays {
                let key = (pool, node.property.as_str(), node.cores, node.gpus);
                free.entry(key).or_default().push(FreeNode { node: Some(index), pod });
            }
        }
        for ((pool, property, cores, gpus), mut nodes) in free {
            if pool.is_some() {
                // A burst shrinks from its last pod, so its first ones are used first.
                nodes.sort_by_key(|free| free.pod);
            }
            let property = property.into();
            let free = nodes.into();
            self.classes.push(Class { property, cores, gpus, pool, free, ..Class::default() });
        }
        self.online = self.classes.len();
        for ((policy, property, cores, gpus), count) in alike {
            self.census.push(Alike { property: property.into(), cores, gpus, policy, count });
        }
        present
    }

    /// Adds a pool, without nodes, after those of the same policy and target.
    fn add_pool(&mut self, mut plan: PoolPlan<'a>, property: &str) -> usize {
        let is_same = |other: &&PoolPlan<'_>| {
            other.policy == plan.policy && other.target.name == plan.target.name
        };
        plan.position = self.pools.iter().filter(is_same).count();
        plan.class = self.classes.len();
        let (cores, gpus) = shape(plan.target, property, self.instance);
        let (property, pool) = (property.into(), Some(self.pools.len()));
        self.classes.push(Class { property, cores, gpus, pool, ..Class::default() });
        self.pools.push(plan);
        self.pools.len() - 1
    }

    /// Adds a pool that is to be created, without nodes.
    pub(crate) fn add_new(
        &mut self,
        policies: &'a [PolicyState],
        policy: usize,
        target: &'a BurstTarget,
        property: &str,
    ) -> usize {
        let index = self.add_pool(
            PoolPlan {
                pool: None,
                policy: Some(policy),
                target,
                target_index: None,
                position: 0,
                nodes: 0,
                is_coming: true,
                class: 0,
                needed: 0,
                jobs: Vec::new(),
            },
            property,
        );
        self.sort(policies);
        index
    }

    /// Adds nodes to a pool.
    pub(crate) fn grow(&mut self, pool: usize, nodes: i32) {
        let first = u32::try_from(self.pools[pool].nodes).unwrap_or_default();
        self.pools[pool].nodes += nodes;
        self.add_pods(pool, first..first + u32::try_from(nodes).unwrap_or_default());
    }

    fn add_pods(&mut self, pool: usize, pods: impl Iterator<Item = u32>) {
        let class = self.pools[pool].class;
        self.classes[class].free.extend(pods.map(|pod| FreeNode { node: None, pod }));
    }

    fn sort(&mut self, policies: &[PolicyState]) {
        for plan in &mut self.pools {
            plan.target_index = plan.policy.and_then(|policy| {
                policies[policy].spec.targets.iter().position(|it| it.name == plan.target.name)
            });
        }
        let pools = &self.pools;
        let key = |&index: &usize| (pools[index].policy, pools[index].target_index, index);
        self.order = (0..pools.len()).collect();
        self.order.sort_by_key(key);
    }

    /// The property of a pool's ranks.
    pub(crate) fn property(&self, pool: usize) -> &str {
        &self.classes[self.pools[pool].class].property
    }

    /// What a job would get of the nodes that are online, and what it needs beyond that.
    pub(crate) fn online(&self, mut need: Need, constraint: &Constraint) -> (Vec<Part>, Need) {
        let mut parts = Vec::new();
        for class in 0..self.online {
            if need.is_met() {
                break;
            }
            if let Some((part, rest)) = part(self.instance, &self.classes, class, need, constraint)
            {
                parts.push(part);
                need = rest;
            }
        }
        (parts, need)
    }

    /// Whether a pool has nodes coming up that jobs have not got.
    pub(crate) fn has_coming(&self, pool: usize) -> bool {
        let class = &self.classes[self.pools[pool].class];
        !class.free.is_empty() || class.left != (0, 0)
    }

    /// How many more nodes a pool must have to meet a need; `None` if its nodes are of no use.
    pub(crate) fn missing(&self, pool: usize, need: Need, constraint: &Constraint) -> Option<i32> {
        let class = &self.classes[self.pools[pool].class];
        let is_usable = class.matches(&need, constraint) == Match::Yes;
        is_usable.then(|| i32::try_from(class.missing(need)).unwrap_or(i32::MAX))
    }

    /// Gives a job nodes that are online.
    pub(crate) fn take(&mut self, parts: Vec<Part>) {
        for part in parts {
            let pool = self.classes[part.class].pool;
            let highest = take(&mut self.classes, part);
            if let (Some(pool), Some(pod)) = (pool, highest) {
                self.pools[pool].needed = self.pools[pool].needed.max(pod + 1);
            }
        }
    }

    /// Gives a job what it needs from a pool's nodes that are coming up, which must have it.
    pub(crate) fn take_coming(&mut self, pool: usize, job: u64, need: Need, of: &Constraint) {
        let class = self.pools[pool].class;
        if let Some((part, _)) = part(self.instance, &self.classes, class, need, of) {
            self.take(vec![part]);
        }
        self.pools[pool].jobs.push(job);
    }

    /// For how much of a need, in the unit in which that is counted, there are nodes, online or coming
    /// up: all of them, and those that are not of this policy.
    pub(crate) fn count(&self, need: &Need, of: &Constraint, policy: usize) -> (u32, u32) {
        let mut counts = (0_u32, 0_u32);
        let mut add = |owner, nodes: u32, (cores, gpus)| {
            let amount = nodes.saturating_mul(need.amount_per_node(cores, gpus));
            counts.0 = counts.0.saturating_add(amount);
            if owner != Some(policy) {
                counts.1 = counts.1.saturating_add(amount);
            }
        };
        for alike in &self.census {
            let is_usable = need.accepts(alike.cores, alike.gpus)
                && of.matches(&alike.property, None) != Match::No;
            if is_usable {
                add(alike.policy, alike.count, (alike.cores, alike.gpus));
            }
        }
        for plan in &self.pools {
            let class = &self.classes[plan.class];
            if plan.pool.is_some() && class.matches(need, of) == Match::Yes {
                let nodes = u32::try_from(class.free.len()).unwrap_or(u32::MAX);
                add(plan.policy, nodes, (class.cores, class.gpus));
            }
        }
        counts
    }
}
