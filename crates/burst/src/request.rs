//! Requests for nodes that are missing.
//!
//! What a job misses beyond nodes that are online comes from one burst, at the first target of its
//! policy that can have it: a burst that grows, or a new one. Jobs with the same policy and target
//! share bursts.

use std::collections::{BTreeMap, HashMap};

use flux_operator_api::burst::BurstTarget;
use k8s_openapi::jiff::Timestamp;

use crate::answer::{Refusal, Why};
use crate::constraint::{Constraint, Match};
use crate::job::Need;
use crate::limits::Budget;
use crate::pause::Paused;
use crate::pool::{SPARE, can_have_ranks, shape};
use crate::supply::Supply;
use crate::time::seconds_after;
use crate::{Instance, Job, PolicyState, Pool, PoolState};

/// How many refusals are remembered. More would take more memory than they save time: jobs of a long
/// queue are of few kinds, unless their user wants to fill the memory.
const MAX_REFUSED: usize = 10_000;

/// What a job needs.
#[derive(Clone, Copy)]
pub(crate) struct Demand<'a> {
    pub(crate) job: &'a Job,
    pub(crate) need: Need,
    /// The part of it that nodes online do not meet.
    pub(crate) rest: Need,
    pub(crate) constraint: &'a Constraint,
    /// Which of the different constraints of all jobs that is.
    pub(crate) constraint_index: Option<usize>,
}

/// Until when a target is paused, and what has failed there.
#[derive(Clone, Copy)]
struct PausedTarget<'a> {
    until: Timestamp,
    trouble: Option<&'a str>,
}

/// Requests of all policies.
pub(crate) struct Requests<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) policies: &'a [PolicyState],
    now: Timestamp,
    pub(crate) budgets: Vec<Budget>,
    /// For each policy and target: whether it is paused.
    paused: Vec<Vec<Option<PausedTarget<'a>>>>,
    /// Ranks that no burst of this decision leases, by their property.
    lendable: BTreeMap<&'a str, u32>,
    /// What was refused, by policy, need, rest and constraint. Nothing has been requested since: a long
    /// queue has many jobs that are alike.
    refused: HashMap<(usize, Need, Need, Option<usize>), Why<'a>>,
}

impl<'a> Requests<'a> {
    /// No request so far.
    pub(crate) fn new(
        instance: &'a Instance,
        policies: &'a [PolicyState],
        pools: &'a [Pool],
        paused: &Paused,
        now: Timestamp,
    ) -> Requests<'a> {
        let remembered = paused.iter().map(|((policy, target), until)| {
            let paused = PausedTarget { until: *until, trouble: None };
            ((policy.as_str(), target.as_str()), paused)
        });
        let mut by_name: BTreeMap<(&str, &str), PausedTarget<'a>> = remembered.collect();
        for pool in pools {
            if let (Some(policy), PoolState::Failed { until }) = (&pool.policy, pool.state) {
                let failed = PausedTarget { until, trouble: pool.trouble.as_deref() };
                let known = by_name.entry((policy, &pool.target.name)).or_insert(failed);
                if known.until <= until {
                    *known = failed;
                }
            }
        }
        let paused = |policy: &PolicyState| {
            let of = |target: &BurstTarget| {
                by_name.get(&(policy.name.as_str(), target.name.as_str())).copied()
            };
            policy.spec.targets.iter().map(of).collect()
        };
        Requests {
            instance,
            policies,
            now,
            budgets: policies.iter().map(Budget::new).collect(),
            paused: policies.iter().map(paused).collect(),
            lendable: instance.lendable.iter().map(|(name, n)| (name.as_str(), *n)).collect(),
            refused: HashMap::new(),
        }
    }

    /// Requests what is missing for a job from the first target of a policy that can have it.
    /// Returns the pool that has nodes for the job then.
    pub(crate) fn request(
        &mut self,
        supply: &mut Supply<'a>,
        policy: usize,
        demand: Demand<'_>,
    ) -> Result<usize, Refusal<'a>> {
        let policies = self.policies;
        let Demand { job, need, rest, constraint_index, .. } = demand;
        let key = (policy, need, rest, constraint_index);
        // An estimate is a job's own.
        let is_general = job.estimate.is_none();
        if let Some(why) = self.refused.get(&key).filter(|_| is_general) {
            return Err(why.clone().into());
        }
        let mut nearest: Option<Refusal<'a>> = None;
        for target in 0..policies[policy].spec.targets.len() {
            let result = self
                .check_target(policy, target, demand)
                .and_then(|()| Ok(self.request_at(supply, policy, target, demand)?));
            match result {
                Ok(pool) => {
                    self.refused.clear();
                    return Ok(pool);
                }
                Err(refusal) => nearest = Some(nearer(nearest, refusal)),
            }
        }
        let policy = policies[policy].name.as_str();
        let nearest = nearest.unwrap_or_else(|| Why::NoTargetFits { policy }.into());
        if is_general && nearest.until.is_none() && self.refused.len() < MAX_REFUSED {
            self.refused.insert(key, nearest.why.clone());
        }
        Err(nearest)
    }

    /// Nodes were given to a job, so that what was refused may be possible now, or is refused for another
    /// reason.
    pub(crate) fn forget_refusals(&mut self) {
        self.refused.clear();
    }

    /// Whether a target's nodes are of use for a job, whatever limits leave of them.
    fn check_target(
        &self,
        policy: usize,
        target: usize,
        demand: Demand<'_>,
    ) -> Result<(), Refusal<'a>> {
        let now = self.now;
        let state = &self.policies[policy];
        let to = &state.spec.targets[target];
        if to.is_elsewhere() && !self.instance.is_exposed {
            return Err(Why::NotExposed.into());
        }
        if properties(self.instance, to, demand).next().is_none() {
            return Err(Why::NoTargetFits { policy: &state.name }.into());
        }
        self.check_paused(policy, target)?;
        if let Some(until) = starts_soon(state, to, demand.job, now) {
            let why = Why::StartsSoon { target: &to.name, at: demand.job.estimate.unwrap_or(now) };
            return Err(Refusal { why, until: Some(until) });
        }
        Ok(self.budgets[policy].check_day(state)?)
    }

    /// Whether a target is paused, and until when.
    pub(crate) fn check_paused(&self, policy: usize, target: usize) -> Result<(), Refusal<'a>> {
        let to = &self.policies[policy].spec.targets[target];
        let Some(PausedTarget { until, trouble }) = self.paused[policy][target] else {
            return Ok(());
        };
        let why = Why::TargetFailed { target: &to.name, until, trouble };
        // If the attempt is due, its result arrives as a change of the Burst: no time is needed.
        Err(Refusal { why, until: Some(until).filter(|until| *until > self.now) })
    }

    /// Why a job can never have what it needs, even with the largest burst to a target.
    fn check_size(
        &self,
        supply: &Supply<'_>,
        policy: usize,
        target: &'a BurstTarget,
        demand: Demand<'_>,
    ) -> Result<(), Why<'a>> {
        let limit = target.max_nodes.min(self.policies[policy].spec.limits.nodes);
        let per_node = properties(self.instance, target, demand)
            .map(|property| {
                let (cores, gpus) = shape(target, property, self.instance);
                demand.need.amount_per_node(cores, gpus)
            })
            .max()
            .unwrap_or_default();
        let amount = demand.need.amount();
        let sum = |amount: u32, nodes: i32| {
            let nodes = u32::try_from(nodes).unwrap_or_default();
            amount.saturating_add(nodes.saturating_mul(per_node))
        };
        // Nodes need not be counted for a job that the burst alone is large enough for.
        if amount.0 <= sum(0, largest(target).min(limit)) {
            return Ok(());
        }
        let (all, others) = supply.count(&demand.need, demand.constraint, policy);
        let most = sum(others, limit).min(sum(all, largest(target).min(limit)));
        if amount.0 > most { Err(Why::TooLargeForTargets { amount, most }) } else { Ok(()) }
    }

    /// Grows a burst at a target, or creates one.
    fn request_at(
        &mut self,
        supply: &mut Supply<'a>,
        policy: usize,
        target: usize,
        demand: Demand<'_>,
    ) -> Result<usize, Why<'a>> {
        let state = &self.policies[policy];
        // What is coming up is not enough, so at least one more node is needed. Most jobs of a long
        // queue are refused here.
        let is_possible = self.budgets[policy].check_nodes(state, target, 1).is_ok();
        let grown = is_possible.then(|| self.grow(supply, policy, target, demand)).flatten();
        if let Some(pool) = grown {
            return Ok(pool);
        }
        self.create(supply, policy, target, demand).map_err(|why| {
            // Only a job that is refused can be too large for good.
            let to = &state.spec.targets[target];
            self.check_size(supply, policy, to, demand).err().unwrap_or(why)
        })
    }

    /// Grows the first burst at a target that has what a job needs then.
    fn grow(
        &mut self,
        supply: &mut Supply<'a>,
        policy: usize,
        target: usize,
        demand: Demand<'_>,
    ) -> Option<usize> {
        let state = &self.policies[policy];
        for index in 0..supply.pools.len() {
            let plan = &supply.pools[index];
            let is_of = plan.policy == Some(policy) && plan.target_index == Some(target);
            if !is_of || !plan.is_coming {
                continue;
            }
            let Some(missing) = supply.missing(index, demand.rest, demand.constraint) else {
                continue;
            };
            let leased = plan.target.leases_largest_size()
                && (plan.pool.is_some() || plan.target.scaling.is_some());
            let most = match (plan.pool, &plan.target.scaling) {
                (Some(pool), None) => pool.nodes,
                _ => largest(plan.target),
            };
            let property = supply.property(index);
            let has_ranks = leased || self.left(property) >= missing.unsigned_abs();
            let is_allowed = self.budgets[policy].check_nodes(state, target, missing).is_ok();
            if missing <= most.saturating_sub(plan.nodes) && has_ranks && is_allowed {
                if !leased {
                    self.lease(property, missing.unsigned_abs());
                }
                self.budgets[policy].spend(target, missing, false);
                supply.grow(index, missing);
                return Some(index);
            }
        }
        None
    }

    fn create(
        &mut self,
        supply: &mut Supply<'a>,
        policy: usize,
        target: usize,
        demand: Demand<'_>,
    ) -> Result<usize, Why<'a>> {
        let to = &self.policies[policy].spec.targets[target];
        let mut nearest: Option<Refusal<'a>> = None;
        for property in properties(self.instance, to, demand) {
            let (cores, gpus) = shape(to, property, self.instance);
            let missing = i32::try_from(demand.rest.node_count(cores, gpus)).unwrap_or(i32::MAX);
            let nodes = missing.max(to.scaling.as_ref().map_or(1, |scaling| scaling.min_nodes));
            match self.check_new(policy, target, property, nodes) {
                Ok(ranks) => {
                    self.lease(property, ranks);
                    self.budgets[policy].spend(target, nodes, true);
                    let pool = supply.add_new(self.policies, policy, to, property);
                    supply.grow(pool, nodes);
                    return Ok(pool);
                }
                Err(why) => nearest = Some(nearer(nearest, why.into())),
            }
        }
        let policy = self.policies[policy].name.as_str();
        Err(nearest.map_or(Why::NoTargetFits { policy }, |refusal| refusal.why))
    }

    /// How many ranks a new burst of so many nodes would lease, or why it cannot be created.
    fn check_new(
        &self,
        policy: usize,
        target: usize,
        property: &str,
        nodes: i32,
    ) -> Result<u32, Why<'a>> {
        let state = &self.policies[policy];
        let to = &state.spec.targets[target];
        self.budgets[policy].check_nodes(state, target, nodes)?;
        if nodes > largest(to) {
            return Err(Why::BurstTooSmall { target: &to.name, missing: nodes, most: largest(to) });
        }
        self.budgets[policy].check_bursts(state)?;
        let largest_size = to.scaling.as_ref().filter(|_| to.leases_largest_size());
        let ranks = largest_size.map_or(nodes, |scaling| scaling.max_nodes).unsigned_abs();
        let left = self.left(property);
        let most = self.instance.leasable.get(property).copied().unwrap_or_default();
        match left >= ranks {
            true => Ok(ranks),
            false if most == 0 && !to.ranks.is_empty() => {
                Err(Why::UnknownRanks { target: to, leasable: &self.instance.leasable })
            }
            false => Err(Why::NoRanks { target: &to.name, missing: ranks, left, most }),
        }
    }

    fn left(&self, property: &str) -> u32 {
        self.lendable.get(property).copied().unwrap_or_default()
    }

    fn lease(&mut self, property: &str, ranks: u32) {
        if let Some(left) = self.lendable.get_mut(property) {
            *left -= ranks;
        }
    }
}

/// Properties of ranks that a target's brokers may get and that are of use for a job: of one lease all
/// ranks have the same.
fn properties<'a>(
    instance: &'a Instance,
    target: &'a BurstTarget,
    demand: Demand<'_>,
) -> impl Iterator<Item = &'a str> {
    let named = Some(target.ranks.as_str()).filter(|name| !name.is_empty());
    let others = instance.lendable.keys().map(String::as_str).filter(|name| *name != SPARE);
    let any = named.is_none().then(|| std::iter::once(SPARE).chain(others));
    named.into_iter().chain(any.into_iter().flatten()).filter(move |name| {
        let (cores, gpus) = shape(target, name, instance);
        can_have_ranks(target, name, instance)
            && demand.need.accepts(cores, gpus)
            && demand.constraint.matches(name, None) == Match::Yes
    })
}

/// Until when a job is expected to start before nodes of a target would be up, if it is. An estimate
/// that has been over for as long as the nodes take is no longer believed.
pub(crate) fn starts_soon(
    policy: &PolicyState,
    target: &BurstTarget,
    job: &Job,
    now: Timestamp,
) -> Option<Timestamp> {
    let estimate = job.estimate.filter(|_| !policy.spec.when.ignore_estimate)?;
    let startup = target.startup_seconds();
    // A moment later it is over.
    let until = seconds_after(estimate, startup.saturating_add(1));
    (estimate <= seconds_after(now, startup) && now < until).then_some(until)
}

/// The refusal that is nearer to nodes; the first of equal ones.
pub(crate) fn nearer<'a>(nearest: Option<Refusal<'a>>, other: Refusal<'a>) -> Refusal<'a> {
    match nearest {
        Some(nearest) if !other.is_nearer_than(&nearest) => nearest,
        _ => other,
    }
}

/// The largest size of a burst to a target.
fn largest(target: &BurstTarget) -> i32 {
    target.scaling.as_ref().map_or(target.max_nodes, |scaling| scaling.max_nodes)
}

#[cfg(test)]
mod tests;
