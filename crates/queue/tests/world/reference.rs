//! A reference scheduler: a list that is considered from the first to the last job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flux_operator_queue::{
    Cycle, Millis, QueueName, Resources, Setup, SetupName, Strategy, Uid, Workload,
};

use super::World;

/// The decisions that the reference expects of one cycle, for queues whose order it implements.
pub struct Expected {
    /// The queues before the cycle, each with its waiting jobs and its usage.
    queues: BTreeMap<SetupName, (Vec<Workload>, Resources)>,
    /// What the ResourceQuotas of namespaces left before the cycle.
    left: BTreeMap<Arc<str>, Resources>,
}

/// Records the state before a cycle.
pub fn before_cycle(world: &World) -> Expected {
    let queues = world.setups.keys().map(|name| {
        let mut waiting: Vec<Workload> = world
            .scheduler
            .pending(name)
            .into_iter()
            .filter(|job| job.not_before.is_none_or(|time| time <= world.now))
            .cloned()
            .collect();
        waiting.sort_by_key(|job| (Reverse(job.priority), job.waiting_since, job.uid.clone()));
        (name.clone(), (waiting, world.used(name)))
    });
    let left = world.quotas.iter().map(|(name, quota)| {
        let mut taken = Resources::default();
        let here = world.admitted().filter(|(job, _)| job.namespace == *name);
        here.for_each(|(_, admission)| taken.add(&admission.resources));
        let left = quota.iter().map(|(each, limit)| (each.clone(), limit - taken.amount(each)));
        (name.clone(), Resources::of(left))
    });
    Expected { queues: queues.collect(), left: left.collect() }
}

impl Expected {
    /// Compares the decisions for each queue. In queues with reservations it only checks
    /// that what was granted was free.
    pub fn check(mut self, world: &World, cycle: &Cycle) {
        for (name, (waiting, mut used)) in std::mem::take(&mut self.queues) {
            let setup = &world.setups[&name];
            let given: Vec<(&Uid, u32)> = cycle
                .admit
                .iter()
                .filter(|admit| admit.admission.queue == name)
                .map(|admit| (&admit.uid, admit.admission.size))
                .collect();
            let has_reservations = match setup.strategy {
                Strategy::BestEffort => setup.patience != Millis::MAX,
                Strategy::Backfill => true,
                Strategy::Strict => false,
            };
            if has_reservations {
                for (uid, size) in given {
                    let job = waiting.iter().find(|job| job.uid == *uid).unwrap();
                    assert!(self.fits(job, size, setup, &used), "{job:?} took too much");
                    self.take(job, size, &mut used);
                }
                continue;
            }
            let active = world.scheduler.usage(&name).unwrap().inactive.is_none();
            let mut expected: Vec<(&Uid, u32)> = Vec::new();
            for job in waiting.iter().filter(|_| active) {
                let (least, most) = sizes(job, setup);
                let size = (least..=most).rev().find(|size| self.fits(job, *size, setup, &used));
                match size {
                    Some(size) => {
                        self.take(job, size, &mut used);
                        expected.push((&job.uid, size));
                    }
                    None if setup.strategy == Strategy::Strict && !self.is_hopeless(job, setup) => {
                        break;
                    }
                    None => {}
                }
            }
            assert_eq!(given, expected, "{setup:?}");
        }
    }

    fn fits(&self, job: &Workload, size: u32, setup: &Setup, used: &Resources) -> bool {
        let need = need(job, size);
        let left = self.left.get(&job.namespace);
        setup.max_size.is_none_or(|max_size| size <= max_size)
            && need.iter().all(|(each, amount)| {
                let fits_beside = |limits: &Resources, taken: i64| {
                    limits.get(each).is_none_or(|limit| taken + amount <= limit)
                };
                amount == 0
                    || fits_beside(&setup.quota, used.amount(each))
                        && left.is_none_or(|left| fits_beside(left, 0))
            })
    }

    fn take(&mut self, job: &Workload, size: u32, used: &mut Resources) {
        used.add(&need(job, size));
        if let Some(left) = self.left.get_mut(&job.namespace) {
            let need = need(job, size);
            let rest = left.iter().map(|(each, limit)| (each.clone(), limit - need.amount(each)));
            *left = Resources::of(rest);
        }
    }

    /// Whether the job fits into no amount of free quota, so that it blocks no other job.
    fn is_hopeless(&self, job: &Workload, setup: &Setup) -> bool {
        let nothing = Resources::default();
        let (least, _) = sizes(job, setup);
        !self.fits(job, least, setup, &nothing)
    }
}

/// The setup that has replaced another one, or itself: each step searches all setups.
pub fn current(setups: &BTreeMap<SetupName, Setup>, name: &SetupName) -> SetupName {
    successors(setups, name).pop().unwrap_or_else(|| name.clone())
}

/// The setups that have replaced a setup, one after the other.
fn successors(setups: &BTreeMap<SetupName, Setup>, name: &SetupName) -> Vec<SetupName> {
    let next = |name: &SetupName| {
        let mut successors = setups.values().filter(|setup| has_replaced(setups, setup, name));
        successors.next().map(|setup| setup.name.clone())
    };
    std::iter::successors(next(name), next).collect()
}

/// Whether a setup must be kept: an admission names it, or an admission, a waiting job or
/// another setup gets to its successor through it.
pub fn is_needed(world: &World, name: &SetupName) -> bool {
    let setups = &world.setups;
    let recorded: Vec<SetupName> =
        world.admitted().map(|(_, admission)| admission.queue.clone()).collect();
    if recorded.contains(name) {
        return true;
    }
    let waiting = world.jobs.values().filter(|job| !job.finished);
    let waiting = waiting.filter(|job| !world.admitted().any(|(other, _)| other.uid == job.uid));
    let asked = waiting.flat_map(|job| match &job.queue {
        QueueName::Unspecified => Vec::new(),
        QueueName::Named(name) => {
            vec![
                SetupName::new(&job.namespace, name),
                SetupName::new(super::OPERATOR_NAMESPACE, name),
            ]
        }
        QueueName::Qualified(name) => vec![name.clone()],
    });
    let mut starts = asked.chain(recorded).chain(setups.keys().cloned());
    let is_replaced = current(setups, name) != *name;
    is_replaced && starts.any(|start| successors(setups, &start).contains(name))
}

fn has_replaced(setups: &BTreeMap<SetupName, Setup>, setup: &Setup, replaced: &SetupName) -> bool {
    let can_be_used = setup.problem.is_none() && !setup.terminating;
    setup.replaces.contains(replaced)
        && !has_conflict(setups, setup)
        && (can_be_used || !setups.contains_key(replaced))
}

/// Whether a setup cannot replace what it names: its `replaces` is circular, or an
/// older setup names the same.
pub fn has_conflict(setups: &BTreeMap<SetupName, Setup>, setup: &Setup) -> bool {
    let mut reached = reachable(setups, &setup.name);
    reached.insert(setup.name.clone());
    let is_older = |other: &&Setup| (other.created, &other.name) < (setup.created, &setup.name);
    let mut older = setups.values().filter(is_older);
    reached.iter().any(|name| reachable(setups, name).contains(name))
        || older.any(|older| older.replaces.iter().any(|name| setup.replaces.contains(name)))
}

/// All setups that can be reached by following `replaces`.
fn reachable(setups: &BTreeMap<SetupName, Setup>, name: &SetupName) -> BTreeSet<SetupName> {
    let mut found = BTreeSet::new();
    let mut to_follow = vec![name.clone()];
    while let Some(next) = to_follow.pop() {
        let replaces = setups.get(&next).map(|setup| setup.replaces.as_slice());
        for replaced in replaces.unwrap_or_default() {
            if found.insert(replaced.clone()) {
                to_follow.push(replaced.clone());
            }
        }
    }
    found
}

/// Whether a job is too large for its setup or for the quota of its namespace.
pub fn never_fits(job: &Workload, setup: &Setup, quota: &Resources) -> bool {
    let (least, _) = sizes(job, setup);
    let need = need(job, least);
    setup.max_size.is_some_and(|max_size| least > max_size)
        || !need.fits(&setup.quota)
        || !need.fits(quota)
}

fn sizes(job: &Workload, setup: &Setup) -> (u32, u32) {
    let most = job.size.unwrap_or(setup.default_size);
    (job.min_size.unwrap_or(most).min(most), most)
}

fn need(job: &Workload, size: u32) -> Resources {
    let mut need = job.per_job.clone();
    (0..size).for_each(|_| need.add(&job.per_node));
    need
}
