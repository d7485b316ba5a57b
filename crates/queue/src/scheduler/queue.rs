//! One queue: its waiting jobs, its admitted jobs, and which job is admitted next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use super::backfill;
use super::job::Job;
use super::namespace::Namespace;
use super::quota_ledger::{OvertakePolicy, QuotaAccount, Reservation};
use crate::job_class::{JobClass, Shape, Shortfall};
use crate::order::{SortKey, SortedKeys};
use crate::{Millis, Resources, Setup, Strategy, Uid, WaitReason};

/// The maximum number of jobs out of patience for which quota is reserved at the same time: every
/// job behind them is checked against each. When one of them starts, the next gets a reservation.
const MAX_RESERVATIONS: usize = 16;

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) quota_account: QuotaAccount,
    /// All jobs that wait, including those that back off.
    pub(super) order: SortedKeys,
    /// Jobs that can be admitted, by their shape.
    pub(super) classes: BTreeMap<Shape, JobClass>,
    /// Jobs that are admitted.
    pub(super) admitted: HashSet<Uid>,
    /// Whether something has changed in it since the last cycle.
    pub(super) dirty: bool,
    /// Whether its usage may have changed since the last call of `take_changed`.
    pub(super) changed: bool,
}

/// Quota that was granted in a cycle.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) uid: Uid,
    pub(super) size: u32,
    pub(super) resources: Resources,
    pub(super) max_runtime: Option<Millis>,
}

/// State outside of a queue that a cycle needs.
pub(super) struct CycleContext<'a> {
    pub(super) jobs: &'a HashMap<Uid, Box<Job>>,
    pub(super) namespaces: &'a mut HashMap<Arc<str>, Namespace>,
    pub(super) now: Millis,
}

impl Queue {
    pub(super) fn new(setup: Setup) -> Queue {
        Queue {
            quota_account: QuotaAccount::new(setup),
            order: SortedKeys::default(),
            classes: BTreeMap::new(),
            admitted: HashSet::new(),
            dirty: false,
            changed: false,
        }
    }

    /// Whether the order of this queue depends on the run times of jobs.
    pub(super) fn considers_runtime(&self) -> bool {
        self.quota_account.setup.strategy == Strategy::Backfill
    }

    /// Adds a waiting job to the order, and to its class unless it backs off.
    pub(super) fn insert(&mut self, key: SortKey, shape: Option<Shape>) {
        if let Some(shape) = shape {
            self.classes.entry(shape).or_default().jobs.insert(key.clone());
        }
        self.order.insert(key);
    }

    /// Removes a waiting job from the order and from its class.
    pub(super) fn remove(&mut self, key: &SortKey, shape: &Shape) {
        self.order.remove(key);
        if let Some(class) = self.classes.get_mut(shape) {
            class.jobs.remove(key);
            if class.jobs.is_empty() {
                self.classes.remove(shape);
            }
        }
    }

    /// Admits jobs in order, and returns the admissions and the number of jobs considered. If
    /// the first job of a class does not fit, the class is done: no other job of it fits.
    pub(super) fn admit(&mut self, context: &mut CycleContext) -> (Vec<Grant>, usize) {
        let Queue { quota_account: ledger, order, classes, admitted, .. } = self;
        let now = context.now;
        ledger.reservations.clear();
        let mut lines: Vec<(&Shape, &mut JobClass)> =
            classes.iter_mut().filter(|(_, line)| !is_still_blocked(ledger, line, now)).collect();
        let mut heads: BinaryHeap<Reverse<(SortKey, usize)>> = lines
            .iter()
            .enumerate()
            .filter_map(|(number, (_, line))| Some(Reverse((line.jobs.first()?.clone(), number))))
            .collect();
        let (mut grants, mut considered) = (Vec::new(), 0);
        while let Some(Reverse((key, number))) = heads.pop() {
            let (shape, line) = &mut lines[number];
            // What was free when the cycle began may have been granted since.
            if is_still_blocked(ledger, line, now) {
                continue;
            }
            considered += 1;
            match ledger.admissible_size(shape, &key, context.namespaces, now) {
                Ok(size) => {
                    let job = &context.jobs[&key.uid].workload;
                    let resources = shape.need(size);
                    ledger.charge(shape, &resources, now);
                    if let Some(namespace) = context.namespaces.get_mut(&job.namespace) {
                        namespace.starting.add(&resources);
                    }
                    line.blocked = None;
                    line.jobs.remove(&key);
                    order.remove(&key);
                    admitted.insert(key.uid.clone());
                    grants.push(Grant {
                        uid: key.uid,
                        size,
                        resources,
                        max_runtime: job.max_runtime,
                    });
                    heads.extend(line.jobs.first().map(|next| Reverse((next.clone(), number))));
                }
                Err(WaitReason::WaitingForQuota { resource, missing }) => {
                    let free = free(ledger, &resource).unwrap_or_default();
                    let needed = free.saturating_add(missing);
                    line.blocked = Some(Shortfall { resource, needed, free });
                    let Some(policy) = reserve(ledger, shape, &key, admitted, &grants, context)
                    else {
                        continue;
                    };
                    let name = context.jobs[&key.uid].workload.name.clone();
                    ledger.reservations.push(Reservation { key, name, overtake_policy: policy });
                    if ledger.setup.strategy == Strategy::Strict {
                        break;
                    }
                }
                Err(_) => {}
            }
        }
        if !grants.is_empty() {
            self.classes.retain(|_, line| !line.jobs.is_empty());
        }
        (grants, considered)
    }
}

/// The amount of a resource that is free, if it is limited.
fn free(ledger: &QuotaAccount, resource: &crate::Resource) -> Option<i64> {
    let limit = ledger.setup.quota.get(resource)?;
    Some(limit.saturating_sub(ledger.used.amount(resource)))
}

/// Whether a class need not be considered: what its first job was missing is still missing,
/// and it does not need a reservation.
fn is_still_blocked(ledger: &QuotaAccount, class: &JobClass, now: Millis) -> bool {
    let still_missing = class.blocked.as_ref().is_some_and(|missing| {
        free(ledger, &missing.resource).is_some_and(|free| free < missing.needed)
    });
    still_missing
        && ledger.setup.strategy == Strategy::BestEffort
        && class.jobs.first().is_none_or(|head| !has_lost_patience(&ledger.setup, head, now))
}

/// Whether a job has waited so long that others may not overtake it any more. The time counts
/// from when it began to wait, which is recorded, so that a restart does not reset it.
fn has_lost_patience(setup: &Setup, key: &SortKey, now: Millis) -> bool {
    now.saturating_sub(key.since) >= setup.patience
}

/// The reservation for a job that does not fit, if it gets one.
fn reserve(
    ledger: &QuotaAccount,
    shape: &Shape,
    key: &SortKey,
    admitted: &HashSet<Uid>,
    given: &[Grant],
    around: &CycleContext,
) -> Option<OvertakePolicy> {
    let setup = &ledger.setup;
    let (least, _) = shape.sizes(setup);
    match setup.strategy {
        Strategy::Strict => Some(OvertakePolicy::Never),
        Strategy::BestEffort
            if has_lost_patience(setup, key, around.now)
                && ledger.reservations.len() < MAX_RESERVATIONS =>
        {
            // In addition to all earlier reservations.
            let taken = ledger.reservations.last().and_then(|reservation| {
                match &reservation.overtake_policy {
                    OvertakePolicy::IfFits { taken, .. } => Some(taken),
                    OvertakePolicy::Never => None,
                }
            });
            let mut taken = taken.unwrap_or(&ledger.used).clone();
            taken.add(&shape.need(least));
            Some(OvertakePolicy::IfFits { taken, finish_by: None })
        }
        // Only the first job gets a reservation: more would leave quota unused.
        Strategy::Backfill if ledger.reservations.is_empty() => {
            let ends = backfill::releases(admitted, given, around);
            Some(backfill::overtake_policy(ledger, shape, least, ends))
        }
        Strategy::BestEffort | Strategy::Backfill => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{admitted, job, nodes_of, scheduler, setup_of, wait_reason, with_quota};
    use crate::{Resource, SetupName, Workload};

    fn missing(missing: i64) -> WaitReason {
        WaitReason::WaitingForQuota { resource: Resource::Nodes, missing }
    }

    fn behind(job: &str) -> WaitReason {
        WaitReason::BehindOthers { job: job.into() }
    }

    /// A job as [`job`] creates it, waiting since a given time.
    fn job_since(name: &str, size: u32, since: Millis) -> Workload {
        Workload { waiting_since: since, ..job(name, size) }
    }

    #[test]
    fn q22_three_jobs_for_quota_of_two_are_admitted_by_priority_then_age() {
        let urgent = Workload { priority: 1, ..job_since("a/urgent", 2, 9) };
        let jobs = [job_since("a/young", 2, 2), job_since("a/old", 2, 1), urgent];
        let mut scheduler = scheduler([setup_of("a/queue", 4)], jobs);
        assert_eq!(admitted(&mut scheduler, 10), ["urgent", "old"]);
        assert_eq!(wait_reason(&scheduler, "young", 10), missing(2));
        assert_eq!(scheduler.explain(&"young".into(), 10).unwrap().position, Some(0));
    }

    #[test]
    fn q22_later_jobs_may_overtake_with_best_effort_but_not_with_strict() {
        let jobs = || [job_since("a/large", 4, 1), job_since("a/small", 1, 2)];
        let runs = || with_quota(job("a/runs", 2), "a/queue", 0);
        let mut best = scheduler([setup_of("a/queue", 4)], jobs());
        best.put(runs());
        assert_eq!(admitted(&mut best, 10), ["small"]);
        let strict = Setup { strategy: Strategy::Strict, ..setup_of("a/queue", 4) };
        let mut strict = scheduler([strict], jobs());
        strict.put(runs());
        assert_eq!(admitted(&mut strict, 10), [""; 0]);
        assert_eq!(wait_reason(&strict, "large", 10), missing(2));
        assert_eq!(wait_reason(&strict, "small", 10), behind("large"));
        strict.remove(&"runs".into());
        assert_eq!(admitted(&mut strict, 11), ["large"]);
        assert_eq!(wait_reason(&strict, "small", 11), missing(1));
    }

    #[test]
    fn a_job_that_can_never_fit_blocks_no_other() {
        let strict = Setup {
            strategy: Strategy::Strict,
            max_size: Some(3),
            patience: 0,
            ..setup_of("a/queue", 4)
        };
        let heavy = Workload { per_node: nodes_of(2), ..job_since("a/heavy", 3, 2) };
        let jobs = [job_since("a/huge", 5, 1), heavy, job_since("a/small", 1, 3)];
        let mut scheduler = scheduler([strict], jobs);
        assert_eq!(admitted(&mut scheduler, 10), ["small"]);
        assert_eq!(
            wait_reason(&scheduler, "huge", 10),
            WaitReason::TooLarge { size: 5, max_size: 3 }
        );
        let exceeds =
            WaitReason::ExceedsQuota { resource: Resource::Nodes, requested: 6, quota: 4 };
        assert_eq!(wait_reason(&scheduler, "heavy", 10), exceeds);
    }

    #[test]
    fn q23_a_job_gets_all_it_requests_or_the_most_that_fits() {
        let partial = Workload { min_size: Some(2), ..job_since("a/partial", 8, 1) };
        let mut scheduler = scheduler([setup_of("a/queue", 5)], [partial]);
        scheduler.put(with_quota(job("a/runs", 2), "a/queue", 0));
        let admission = &scheduler.cycle(10).admit[0].admission;
        assert_eq!((admission.size, &admission.resources), (3, &nodes_of(3)));
        scheduler.put(job_since("a/whole", 3, 2));
        assert_eq!(scheduler.cycle(11).admit, []);
        assert_eq!(wait_reason(&scheduler, "whole", 11), missing(3));
    }

    #[test]
    fn a_job_without_a_size_gets_what_the_setup_gives() {
        let plain = Workload { size: None, ..job("a/plain", 1) };
        let give = |size| Setup { default_size: size, ..setup_of("a/queue", 4) };
        let mut scheduler = scheduler([give(4)], [plain]);
        scheduler.put(with_quota(job("a/runs", 1), "a/queue", 0));
        assert_eq!(admitted(&mut scheduler, 1), [""; 0]);
        assert_eq!(wait_reason(&scheduler, "plain", 1), missing(1));
        scheduler.put_setup(give(3));
        assert_eq!(scheduler.cycle(2).admit[0].admission.size, 3);
    }

    #[test]
    fn a_limit_of_zero_is_a_limit() {
        let mut scheduler = scheduler([setup_of("a/queue", 0)], [job("a/job", 1)]);
        assert_eq!(admitted(&mut scheduler, 1), [""; 0]);
        let exceeds =
            WaitReason::ExceedsQuota { resource: Resource::Nodes, requested: 1, quota: 0 };
        assert_eq!(wait_reason(&scheduler, "job", 1), exceeds);
    }

    /// Small jobs arrive every second and run for two seconds; a large one waits among them.
    /// Returns when it is admitted.
    fn large_job_in_a_stream(patience: Millis) -> Option<Millis> {
        let mut scheduler = scheduler([Setup { patience, ..setup_of("a/queue", 4) }], []);
        let mut ends: Vec<(Millis, Uid)> = Vec::new();
        for second in 0..600 {
            let now = second * 1000;
            for (_, uid) in ends.extract_if(.., |(end, _)| *end <= now) {
                scheduler.remove(&uid);
            }
            scheduler.put(job_since(&format!("a/small-{second}"), 2, now));
            if second == 3 {
                scheduler.put(job_since("a/large", 4, now));
            }
            for admit in scheduler.cycle(now).admit {
                if &*admit.name == "large" {
                    return Some(now);
                }
                ends.push((now + 2000, admit.uid));
            }
        }
        None
    }

    #[test]
    fn q24_a_stream_of_small_jobs_cannot_starve_a_large_one() {
        // It arrived at 3 s. The last job to overtake it came a second before its patience ended.
        assert_eq!(large_job_in_a_stream(Millis::MAX), None, "otherwise the test proves nothing");
        assert_eq!(large_job_in_a_stream(300_000), Some(304_000));
    }

    #[test]
    fn q24_later_jobs_get_only_what_the_reservation_leaves() {
        let quota = Resources::of([(Resource::Nodes, 10), (Resource::Gpus, 4)]);
        let setup = Setup { patience: 100, quota, ..setup_of("a/queue", 0) };
        let gpus = Resources::of([(Resource::Nodes, 1), (Resource::Gpus, 1)]);
        let runs = Workload { per_node: gpus.clone(), ..job("a/runs", 2) };
        let large = Workload { per_node: gpus, ..job_since("a/large", 4, 1) };
        let mut scheduler = scheduler([setup], [large]);
        scheduler.put(with_quota(runs, "a/queue", 0));
        // Of ten nodes, two are used and four are reserved.
        scheduler.put(job_since("a/five", 5, 2));
        scheduler.put(job_since("a/four", 4, 3));
        assert_eq!(admitted(&mut scheduler, 200), ["four"]);
        assert_eq!(wait_reason(&scheduler, "five", 200), missing(1));
        scheduler.put(job_since("a/three", 3, 4));
        assert_eq!(admitted(&mut scheduler, 201), [""; 0]);
        assert_eq!(wait_reason(&scheduler, "three", 201), behind("large"));
        scheduler.remove(&"runs".into());
        assert_eq!(admitted(&mut scheduler, 202), ["large"]);
    }

    #[test]
    fn q27_when_a_job_finishes_only_classes_that_could_fit_are_considered() {
        let mut scheduler = scheduler([setup_of("a/queue", 100)], []);
        scheduler.put(with_quota(job("a/most", 96), "a/queue", 0));
        scheduler.put(with_quota(job("a/few", 4), "a/queue", 0));
        for size in 1..=50 {
            for number in 0..10 {
                scheduler.put(job_since(&format!("a/{size}-{number}"), size, i64::from(size)));
            }
        }
        // Each class is considered once, however many jobs it has.
        assert_eq!(scheduler.cycle(1).considered, 50);
        assert_eq!(scheduler.cycle(2).considered, 0, "nothing has happened");
        scheduler.remove(&"few".into());
        let cycle = scheduler.cycle(3);
        assert_eq!(cycle.admit.len(), 4, "four of one node");
        // The admitted jobs, and the next job of their class.
        assert_eq!(cycle.considered, 5);
        let position = scheduler.explain(&"2-0".into(), 3).unwrap().position;
        assert_eq!(position, Some(6));
    }

    #[test]
    fn a_lowered_quota_admits_no_job_until_usage_fits_again() {
        let mut scheduler = scheduler([setup_of("a/queue", 8)], []);
        scheduler.put(with_quota(job("a/one", 3), "a/queue", 0));
        scheduler.put(with_quota(job("a/two", 3), "a/queue", 0));
        scheduler.put(job("a/next", 1));
        scheduler.put_setup(setup_of("a/queue", 4));
        assert_eq!(scheduler.cycle(1).admit, []);
        assert_eq!(wait_reason(&scheduler, "next", 1), missing(3));
        let name = SetupName::new("a", "queue");
        assert_eq!(scheduler.free(&name), Some(nodes_of(0)));
        assert_eq!(scheduler.usage(&name).unwrap().used, nodes_of(6));
        scheduler.remove(&"one".into());
        assert_eq!(admitted(&mut scheduler, 2), ["next"]);
    }
}
