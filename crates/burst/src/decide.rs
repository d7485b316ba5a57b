//! One decision about one instance.

use std::collections::BTreeSet;

use flux_operator_api::burst::BurstTarget;
use k8s_openapi::jiff::Timestamp;

use crate::answer::{Messages, Refusal, Why};
use crate::constraint::{Constraint, Constraints};
use crate::effort::Effort;
use crate::isolated::NewRun;
use crate::job_match::select;
use crate::pause::{paused_targets, unproven};
use crate::pool::shape;
use crate::request::{Demand, Requests, starts_soon};
use crate::shrink::{drain_exhausted, shrink};
use crate::stabilization::Stabilization;
use crate::supply::Supply;
use crate::time::{earlier, next_day};
use crate::{Action, Answer, Decision, Instance, Job, Memory, NthPool, PolicyState, Pool};

/// Decides about the bursts of one MiniCluster, and answers every pending job.
///
/// `policies` are those that serve the MiniCluster, oldest first; `pools` are its bursts, oldest
/// first; `jobs` are in the order of Flux's queue; `memory` is that of the last decision.
///
/// Once the actions are applied, the next decision requests nothing more for the same jobs, unless a limit
/// allows more because a Burst has become smaller. The sum of actions and what is in use is within all limits.
pub fn decide(
    instance: &Instance,
    policies: &[PolicyState],
    pools: &[Pool],
    jobs: &[Job],
    memory: &Memory,
    now: Timestamp,
) -> Decision {
    let constraints = Constraints::parse(jobs);
    let next = Memory {
        paused: paused_targets(memory, instance, pools, jobs, now),
        unproven: unproven(instance, pools),
        ..Memory::default()
    };
    let requests = Requests::new(instance, policies, pools, &next.paused, now);
    let actions = drain_exhausted(policies, &requests.budgets, pools);
    let drained: BTreeSet<&str> = (actions.iter())
        .filter_map(|action| match action {
            Action::Drain { burst, .. } => Some(burst.as_str()),
            Action::Create { .. } | Action::RunIsolated { .. } | Action::Resize { .. } => None,
        })
        .collect();
    let supply = Supply::new(instance, policies, pools, &drained);
    let largest_node = largest_node(instance, policies);
    let exhausted = requests.budgets.iter().any(|budget| budget.exhausted.is_some());
    let requeue_at = exhausted.then(|| next_day(now));
    let mut deciding = Deciding {
        instance,
        policies,
        memory,
        now,
        constraints: &constraints,
        largest_node,
        requests,
        supply,
        effort: Effort::new(instance, policies, pools),
        next,
        requeue_at,
        runs: Vec::new(),
    };
    let mut blocker = None;
    let mut outcomes = Vec::with_capacity(jobs.len());
    for (index, job) in jobs.iter().enumerate() {
        let outcome = match blocker {
            Some(blocker) if !job.is_held && !deciding.is_too_large(job) => {
                match deciding.run_of(job) {
                    Some(run) => Outcome::HasRun { run },
                    None => Outcome::of(Why::BlockedByJob { job: blocker }),
                }
            }
            _ => deciding.consider(job, index),
        };
        let waits_here = match outcome {
            Outcome::Refused { .. } => true,
            Outcome::HasRun { run } => instance.isolated[run].refusal.is_some(),
            _ => false,
        };
        let waits = waits_here && !job.is_held;
        if waits && blocker.is_none() && !instance.skips_blocked {
            blocker = Some(job.id);
        }
        outcomes.push(outcome);
    }
    deciding.conclude(jobs, outcomes, actions)
}

/// What came out for a job.
enum Outcome<'a> {
    /// It can start.
    Starts,
    /// It waits for nodes of a pool, which are requested for it if `is_request`.
    Waits { pool: usize, is_request: bool },
    /// It has a run in an instance of its own, by the position in [`Instance::isolated`].
    HasRun { run: usize },
    /// Such a run is requested, by the position in [`Deciding::runs`].
    RequestsRun { run: usize },
    /// Nothing is requested for it.
    Refused { why: Why<'a>, policy: Option<usize> },
}

impl<'a> Outcome<'a> {
    fn of(why: Why<'a>) -> Outcome<'a> {
        Outcome::Refused { why, policy: None }
    }
}

/// What was requested for a job.
enum Requested<'a> {
    /// Nodes of a pool.
    Nodes(usize),
    /// A run in an instance of its own.
    Run(NewRun<'a>),
}

/// A decision that is being made.
struct Deciding<'a> {
    instance: &'a Instance,
    policies: &'a [PolicyState],
    memory: &'a Memory,
    now: Timestamp,
    constraints: &'a Constraints,
    largest_node: (u32, u32),
    requests: Requests<'a>,
    supply: Supply<'a>,
    effort: Effort,
    /// For the next decision.
    next: Memory,
    requeue_at: Option<Timestamp>,
    /// Runs that are requested.
    runs: Vec<NewRun<'a>>,
}

impl<'a> Deciding<'a> {
    /// The run of a job in an instance of its own, by its position.
    fn run_of(&self, job: &Job) -> Option<usize> {
        self.instance.isolated.iter().position(|run| run.job == job.id)
    }

    /// The least number of nodes that a job needs, whatever nodes it gets.
    fn least_nodes(&self, job: &Job) -> u32 {
        job.need().node_count(self.largest_node.0, self.largest_node.1)
    }

    fn is_too_large(&self, job: &Job) -> bool {
        self.least_nodes(job) > self.instance.table_size
    }

    fn consider(&mut self, job: &'a Job, index: usize) -> Outcome<'a> {
        if let Some(run) = self.run_of(job) {
            // One that cannot run elsewhere starts here as soon as it can.
            let is_here = self.instance.isolated[run].refusal.is_some() && !job.is_held;
            return match is_here && self.starts(job, index) {
                true => Outcome::Starts,
                false => Outcome::HasRun { run },
            };
        }
        // A job beyond the rank table may be held by its user: the simple scheduler refuses it otherwise.
        let is_too_large = self.is_too_large(job);
        if job.is_held && !(is_too_large && job.is_on_hold) {
            return Outcome::of(Why::Held);
        }
        let constraint = match self.constraints.of(index) {
            Ok(constraint) => constraint,
            Err(error) => return Outcome::of(Why::UnknownConstraint { error }),
        };
        if !self.effort.spend(constraint) {
            return Outcome::of(Why::NotConsidered);
        }
        if is_too_large {
            return self.consider_beyond_table(job, constraint);
        }
        let need = job.need();
        let (parts, rest) = self.supply.online(need, constraint);
        if rest.is_met() {
            self.supply.take(parts);
            self.requests.forget_refusals();
            return Outcome::Starts;
        }
        let constraint_index = self.constraints.index_of(index);
        let demand = Demand { job, need, rest, constraint, constraint_index };
        let nodes = job.node_count(self.instance.lead_cores);
        let refusals: Vec<Option<Refusal<'a>>> = (self.policies.iter())
            .map(|policy| select(policy, job, nodes, self.now).err())
            .collect();
        let is_selected = |policy: usize| refusals[policy].is_none();
        if let Some(pool) = self.coming(demand, is_selected) {
            self.supply.take(parts);
            self.supply.take_coming(pool, job.id, rest, constraint);
            self.requests.forget_refusals();
            // Nodes left over in a Burst that this decision creates count as requested for this job too.
            let is_request = self.supply.pools[pool].pool.is_none();
            return Outcome::Waits { pool, is_request };
        }
        match self.request(demand, refusals) {
            Ok(Requested::Nodes(pool)) => {
                self.supply.take(parts);
                self.supply.take_coming(pool, job.id, rest, constraint);
                Outcome::Waits { pool, is_request: true }
            }
            Ok(Requested::Run(run)) => {
                self.runs.push(run);
                Outcome::RequestsRun { run: self.runs.len() - 1 }
            }
            Err(outcome) => outcome,
        }
    }

    /// Whether nodes that are online are enough for a job, which it takes then.
    fn starts(&mut self, job: &Job, index: usize) -> bool {
        let Ok(constraint) = self.constraints.of(index) else { return false };
        if self.is_too_large(job) || !self.effort.spend(constraint) {
            return false;
        }
        let (parts, rest) = self.supply.online(job.need(), constraint);
        if rest.is_met() {
            self.supply.take(parts);
            self.requests.forget_refusals();
        }
        rest.is_met()
    }

    /// The pool whose nodes, when they come up, are enough for a job: the one it waited for before,
    /// otherwise the first.
    fn coming(&self, demand: Demand<'a>, is_selected: impl Fn(usize) -> bool) -> Option<usize> {
        let has_nodes = |&pool: &usize| {
            let plan = &self.supply.pools[pool];
            if !plan.is_coming || !self.supply.has_coming(pool) {
                return false;
            }
            // Nodes that a policy has requested are for jobs that it selects. Another job may start
            // on them all the same once they are online.
            let is_for = plan.policy.is_none_or(|policy| {
                is_selected(policy)
                    && starts_soon(&self.policies[policy], plan.target, demand.job, self.now)
                        .is_none()
            });
            is_for && self.supply.missing(pool, demand.rest, demand.constraint) == Some(0)
        };
        let same = self.memory.waits_for.get(&demand.job.id).and_then(|nth| self.find(nth));
        let mut others = self.supply.order.iter().copied();
        same.filter(has_nodes).or_else(|| others.find(has_nodes))
    }

    fn find(&self, nth: &NthPool) -> Option<usize> {
        self.supply.pools.iter().position(|plan| {
            plan.position == nth.position
                && plan.target.name == nth.target
                && plan.policy.is_some_and(|policy| self.policies[policy].name == nth.policy)
        })
    }

    /// Requests nodes for a job by the first policy that selects it and can have them.
    fn request(
        &mut self,
        demand: Demand<'a>,
        refusals: Vec<Option<Refusal<'a>>>,
    ) -> Result<Requested<'a>, Outcome<'a>> {
        let mut nearest: Option<(Refusal<'a>, usize)> = None;
        for (index, unselected) in refusals.into_iter().enumerate() {
            let policy = &self.policies[index];
            let refusal = if let Some(message) = &policy.rejected {
                Why::PolicyRejected { policy: &policy.name, message }.into()
            } else if let Some(unselected) = unselected {
                unselected
            } else if let Some(why) = stopped(policy) {
                why.into()
            } else if policy.spec.isolated == Some(true) {
                match self.requests.request_run(index, demand) {
                    Ok(run) => return Ok(Requested::Run(run)),
                    Err(refusal) => refusal,
                }
            } else {
                match self.requests.request(&mut self.supply, index, demand) {
                    Ok(pool) => return Ok(Requested::Nodes(pool)),
                    Err(refusal) => refusal,
                }
            };
            self.keep_nearer(&mut nearest, refusal, index);
        }
        Err(match nearest {
            None => Outcome::of(Why::NoPolicy),
            Some((refusal, policy)) => Outcome::Refused { why: refusal.why, policy: Some(policy) },
        })
    }

    /// Keeps the refusal that came nearest to nodes, with its policy, and when to decide again.
    fn keep_nearer(
        &mut self,
        nearest: &mut Option<(Refusal<'a>, usize)>,
        refusal: Refusal<'a>,
        policy: usize,
    ) {
        if let Some(until) = refusal.until {
            self.requeue_at = earlier(self.requeue_at, until);
        }
        if nearest.as_ref().is_none_or(|(nearest, _)| refusal.is_nearer_than(nearest)) {
            *nearest = Some((refusal, policy));
        }
    }

    /// A job that needs more nodes than the rank table has can only run in an instance of its own.
    fn consider_beyond_table(&mut self, job: &'a Job, constraint: &'a Constraint) -> Outcome<'a> {
        let (needed, table_size) = (self.least_nodes(job), self.instance.table_size);
        let too_large = Why::TooLargeForTable { nodes: needed, table_size };
        let need = job.need();
        let demand = Demand { job, need, rest: need, constraint, constraint_index: None };
        let nodes = job.node_count(self.instance.lead_cores);
        let mut nearest: Option<(Refusal<'a>, usize)> = None;
        for (index, policy) in self.policies.iter().enumerate() {
            // Without `isolated`, a policy serves such jobs only if it has a target elsewhere.
            let has_target = policy.spec.targets.iter().any(BurstTarget::is_elsewhere);
            let is_for = policy.spec.isolated.unwrap_or(has_target);
            if !is_for || policy.rejected.is_some() {
                continue;
            }
            let refusal = match select(policy, job, nodes, self.now).map(|()| stopped(policy)) {
                // A policy that does not select the job does not say more than "too large".
                Err(refusal) if !refusal.why.reason().is_selected() => continue,
                Err(refusal) => refusal,
                Ok(Some(why)) => why.into(),
                Ok(None) => match self.requests.request_run(index, demand) {
                    Ok(run) => {
                        self.runs.push(run);
                        return Outcome::RequestsRun { run: self.runs.len() - 1 };
                    }
                    Err(refusal) => refusal,
                },
            };
            self.keep_nearer(&mut nearest, refusal, index);
        }
        match nearest {
            None if job.is_held => Outcome::of(Why::Held),
            None => Outcome::of(too_large),
            Some((refusal, policy)) => Outcome::Refused { why: refusal.why, policy: Some(policy) },
        }
    }

    fn conclude(
        mut self,
        jobs: &[Job],
        outcomes: Vec<Outcome<'a>>,
        mut actions: Vec<Action>,
    ) -> Decision {
        let mut stabilization = Stabilization::new(self.policies, self.memory, self.now);
        for (number, plan) in self.supply.pools.iter().enumerate() {
            let grown = plan.nodes != plan.pool.map_or(0, |pool| pool.nodes);
            let Some(index) = plan.policy.filter(|_| grown) else { continue };
            if !stabilization.is_over(index) {
                continue;
            }
            actions.push(match plan.pool {
                Some(pool) => Action::Resize { burst: pool.name.clone(), nodes: plan.nodes },
                None => Action::Create {
                    policy: self.policies[index].name.clone(),
                    target: Box::new(BurstTarget {
                        ranks: self.supply.property(number).into(),
                        ..plan.target.clone()
                    }),
                    nodes: plan.nodes,
                    jobs: plan.jobs.clone(),
                },
            });
        }
        for run in &self.runs {
            if stabilization.is_over(run.policy) {
                actions.push(run.action(self.policies));
            }
        }
        let Stabilization { missing_since, until: stable_at, .. } = stabilization;
        self.requeue_at =
            stable_at.iter().flatten().fold(self.requeue_at, |at, it| earlier(at, *it));
        let mut memory = Memory { missing_since, ..std::mem::take(&mut self.next) };
        let (smaller, next) = shrink(self.instance, self.policies, &self.supply.pools, self.now);
        actions.extend(smaller);
        if let Some(next) = next {
            self.requeue_at = earlier(self.requeue_at, next);
        }
        let mut answers = Vec::with_capacity(jobs.len());
        let mut messages = Messages::default();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            answers.push(self.answer(job, outcome, &stable_at, &mut memory, &mut messages));
        }
        Decision { actions, answers, memory, requeue_at: self.requeue_at }
    }

    fn answer<'s>(
        &'s self,
        job: &Job,
        outcome: Outcome<'s>,
        stable_at: &[Option<Timestamp>],
        memory: &mut Memory,
        messages: &mut Messages<'s>,
    ) -> Answer {
        let (why, policy, burst) = match outcome {
            Outcome::Starts => (Why::StartsHere, None, None),
            Outcome::Refused { why, policy } => (why, policy, None),
            Outcome::HasRun { run } => {
                let run = &self.instance.isolated[run];
                let burst = run.burst.as_str();
                let named = |policy: &PolicyState| Some(&policy.name) == run.policy.as_ref();
                let why = match &run.refusal {
                    Some(message) => Why::NotPortable { burst, message },
                    None => Why::RunsIsolated { burst, target: &run.target, phase: &run.phase },
                };
                (why, self.policies.iter().position(named), Some(burst))
            }
            Outcome::RequestsRun { run } => {
                let run = &self.runs[run];
                let why = match stable_at[run.policy] {
                    Some(until) => Why::Stabilizing { until },
                    None => Why::Requested { target: &run.target.name },
                };
                (why, Some(run.policy), None)
            }
            Outcome::Waits { pool, is_request } => {
                let plan = &self.supply.pools[pool];
                let burst = plan.pool.map(|pool| pool.name.as_str());
                if let Some(policy) = plan.policy {
                    let policy = self.policies[policy].name.clone();
                    let target = plan.target.name.clone();
                    let nth = NthPool { policy, target, position: plan.position };
                    memory.waits_for.insert(job.id, nth);
                }
                let until = plan.policy.and_then(|policy| stable_at[policy]);
                let why = match (until, burst) {
                    (Some(until), _) if is_request => Why::Stabilizing { until },
                    (_, Some(burst)) if !is_request => {
                        let trouble = plan.pool.and_then(|pool| pool.trouble.as_deref());
                        Why::WaitsForBurst { burst, trouble }
                    }
                    _ => Why::Requested { target: &plan.target.name },
                };
                (why, plan.policy, burst)
            }
        };
        Answer {
            job: job.id,
            reason: why.reason(),
            message: messages.text(why),
            policy: policy.map(|policy| self.policies[policy].name.clone()),
            burst: burst.map(str::to_owned),
        }
    }
}

/// Why a policy requests nothing for any job, if it does not.
fn stopped(policy: &PolicyState) -> Option<Why<'_>> {
    let name = policy.name.as_str();
    let blocked = policy.blocked.as_ref();
    match policy.spec.suspend {
        true => Some(Why::Suspended { policy: name }),
        false => blocked.map(|message| Why::CannotRequest { policy: name, message }),
    }
}

/// The most cores and GPUs of any node, also of ranks that are not online, for the least number of nodes
/// that a job needs.
fn largest_node(instance: &Instance, policies: &[PolicyState]) -> (u32, u32) {
    let online = instance.nodes.iter().map(|node| (node.cores, node.gpus));
    let ranks = instance.shapes.values().copied();
    let targets = policies.iter().flat_map(|policy| &policy.spec.targets);
    let all = online.chain(ranks).chain(targets.map(|target| shape(target, "", instance)));
    all.fold((1, 1), |largest, node| (largest.0.max(node.0), largest.1.max(node.1)))
}

#[cfg(test)]
mod tests;
