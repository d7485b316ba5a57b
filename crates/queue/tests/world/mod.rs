//! The stored objects, like those of an API server, and a scheduler that reads them.
//!
//! Every decision of the scheduler is checked against the objects at once, by plain counting.

mod operator;
pub mod reference;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flux_operator_queue::{
    Admission, Cycle, EvictionReason, InactiveReason, Millis, NamespaceQuota, NewAdmission,
    Resources, Scheduler, Setup, SetupName, Stop, Uid, WaitReason, WaitStatus, Workload,
};

/// The operator's namespace.
pub const OPERATOR_NAMESPACE: &str = "operator";

/// The stored objects, and the scheduler.
pub struct World {
    pub now: Millis,
    pub setups: BTreeMap<SetupName, Setup>,
    /// All jobs that are not deleted, including those that have finished.
    pub jobs: BTreeMap<Uid, Workload>,
    /// What a ResourceQuota of a namespace allows.
    pub quotas: BTreeMap<Arc<str>, Resources>,
    /// Decisions that are not written, with the job as it was then.
    pub decided: BTreeMap<Uid, (NewAdmission, Workload)>,
    /// Jobs whose eviction was decided.
    pub evicted: BTreeSet<Uid>,
    /// A setup was removed by force that the operator would have kept.
    pub forced: bool,
    pub scheduler: Scheduler,
}

/// Everything that a scheduler can be asked.
#[derive(Debug, PartialEq)]
pub struct Snapshot {
    why: Vec<Option<WaitStatus>>,
    usage: Vec<Option<flux_operator_queue::Usage>>,
    free: Vec<Option<Resources>>,
}

impl World {
    pub fn new() -> World {
        World {
            now: 0,
            setups: BTreeMap::new(),
            jobs: BTreeMap::new(),
            quotas: BTreeMap::new(),
            decided: BTreeMap::new(),
            evicted: BTreeSet::new(),
            forced: false,
            scheduler: Scheduler::new(OPERATOR_NAMESPACE),
        }
    }

    /// Stores a job and puts it into the scheduler.
    pub fn record(&mut self, job: Workload) {
        let namespace = job.namespace.clone();
        if job.admission.is_none() {
            self.evicted.remove(&job.uid);
        }
        self.jobs.insert(job.uid.clone(), job.clone());
        self.scheduler.put(job);
        self.put_remaining_quota(&namespace);
    }

    /// Deletes a job and removes it from the scheduler.
    pub fn delete(&mut self, uid: &Uid) {
        if let Some(job) = self.jobs.remove(uid) {
            self.decided.remove(uid);
            self.evicted.remove(uid);
            self.scheduler.remove(uid);
            self.put_remaining_quota(&job.namespace);
        }
    }

    /// Runs a cycle, and checks its decisions.
    pub fn cycle(&mut self) -> Cycle {
        let expected = reference::before_cycle(self);
        let cycle = self.scheduler.cycle(self.now);
        for admit in &cycle.admit {
            self.check_admission(admit);
            let job = self.jobs[&admit.uid].clone();
            let twice = self.decided.insert(admit.uid.clone(), (admit.clone(), job));
            assert!(twice.is_none(), "{:?} was admitted twice", admit.uid);
        }
        for evict in &cycle.evict {
            assert!(self.jobs[&evict.uid].admission.is_some(), "{evict:?} has no quota");
            assert!(self.evicted.insert(evict.uid.clone()), "{evict:?} was evicted before");
        }
        expected.check(self, &cycle);
        self.check_evictions(&cycle);
        for job in self.jobs.values() {
            let why = self.scheduler.explain(&job.uid, self.now);
            let forgotten = why.is_some_and(|waiting| waiting.reason == WaitReason::Pending);
            assert!(!forgotten, "{job:?} could be admitted, and was not");
        }
        cycle
    }

    /// The write of a decision arrives: it succeeds only if the job has not changed.
    pub fn write(&mut self, uid: &Uid) {
        let Some((admit, before)) = self.decided.remove(uid) else { return };
        match self.jobs.get(uid) {
            Some(job) if *job == before => {
                let admission = Some(admit.admission);
                self.record(Workload { admission, ..before });
            }
            _ => self.scheduler.undo(uid),
        }
    }

    /// The write of a decision fails.
    pub fn write_fails(&mut self, uid: &Uid) {
        if self.decided.remove(uid).is_some() {
            self.scheduler.undo(uid);
        }
    }

    /// The operator exits, with some decisions written and some not, and a new one starts.
    /// It reads everything, in this order.
    pub fn crash(&mut self, written: impl Fn(usize) -> bool, order: &[usize]) {
        for (number, (uid, (admit, before))) in
            std::mem::take(&mut self.decided).into_iter().enumerate()
        {
            if written(number) && self.jobs.get(&uid) == Some(&before) {
                let admission = Some(admit.admission);
                self.jobs.insert(uid, Workload { admission, ..before });
            }
        }
        self.evicted.clear();
        self.scheduler = self.rebuilt(order);
    }

    /// A scheduler that has read everything, in this order.
    pub fn rebuilt(&self, order: &[usize]) -> Scheduler {
        let jobs = self.jobs.values().cloned().map(StoredObject::Job);
        let setups = self.setups.values().cloned().map(StoredObject::Setup);
        let quotas = self.quotas.keys().cloned().map(StoredObject::Quota);
        let mut all: Vec<(usize, StoredObject)> =
            order.iter().copied().cycle().zip(jobs.chain(setups).chain(quotas)).collect();
        all.sort_by_key(|(place, _)| *place);
        let mut scheduler = Scheduler::new(OPERATOR_NAMESPACE);
        for (_, object) in all {
            match object {
                StoredObject::Job(job) => scheduler.put(job),
                StoredObject::Setup(setup) => scheduler.put_setup(setup),
                StoredObject::Quota(name) => {
                    scheduler.put_namespace_quota(&name, self.remaining_quota(&name))
                }
            }
        }
        scheduler
    }

    /// Changes or removes a ResourceQuota.
    pub fn put_quota(&mut self, namespace: &str, quota: Option<Resources>) {
        match quota {
            Some(quota) => self.quotas.insert(namespace.into(), quota),
            None => self.quotas.remove(namespace),
        };
        self.scheduler.put_namespace_quota(namespace, self.remaining_quota(namespace));
    }

    /// What a ResourceQuota leaves: it counts pods that exist.
    pub fn remaining_quota(&self, namespace: &str) -> NamespaceQuota {
        let left = self.quotas.get(namespace).map(|quota| {
            let has_pods =
                |job: &&Workload| job.pods_exist && !job.finished && *job.namespace == *namespace;
            let taken =
                sum(self.jobs.values().filter(has_pods).filter_map(|job| job.admission.as_ref()));
            let left = quota.iter().map(|(each, limit)| (each.clone(), limit - taken.amount(each)));
            ("quota".into(), Resources::of(left))
        });
        NamespaceQuota { remaining: left.into_iter().collect() }
    }

    /// Admitted jobs, whether their admission is written or only decided.
    pub fn admitted(&self) -> impl Iterator<Item = (&Workload, &Admission)> {
        self.jobs.values().filter(|job| !job.finished).filter_map(|job| {
            let decided = self.decided.get(&job.uid).map(|(admit, _)| &admit.admission);
            Some((job, job.admission.as_ref().or(decided)?))
        })
    }

    /// The usage of a setup.
    pub fn used(&self, setup: &SetupName) -> Resources {
        sum(self.admitted_at(setup).map(|(_, admission)| admission))
    }

    fn admitted_at(&self, setup: &SetupName) -> impl Iterator<Item = (&Workload, &Admission)> {
        self.admitted().filter(move |(_, admission)| self.current(&admission.queue) == *setup)
    }

    /// The setup that has replaced this one, or itself.
    fn current(&self, setup: &SetupName) -> SetupName {
        reference::current(&self.setups, setup)
    }

    /// The answers of a scheduler about all objects.
    pub fn snapshot(&self, scheduler: &Scheduler) -> Snapshot {
        Snapshot {
            why: self.jobs.keys().map(|uid| scheduler.explain(uid, self.now)).collect(),
            usage: self.setups.keys().map(|name| scheduler.usage(name)).collect(),
            free: self.setups.keys().map(|name| scheduler.free(name)).collect(),
        }
    }

    /// Checks that no job is lost, and that everything is counted.
    pub fn check(&self) {
        let admitted: BTreeSet<&Uid> = self.admitted().map(|(job, _)| &job.uid).collect();
        for (uid, job) in &self.jobs {
            let waits = !job.finished && !admitted.contains(uid);
            let why = self.scheduler.explain(uid, self.now);
            assert_eq!(why.is_some(), waits, "{job:?} waits for a reason, or has quota");
            if let Some(WaitStatus { queue: Some(queue), position, .. }) = why {
                let pending = self.scheduler.pending(&queue);
                let place = pending.iter().position(|other| other.uid == *uid);
                assert_eq!(position, place);
                assert_eq!(place.is_none(), job.suspended);
            }
        }
        for (job, admission) in self.admitted() {
            let counts_at = self.scheduler.queue_of(&job.uid);
            assert!(self.forced || counts_at.is_some(), "the quota of {job:?} is not counted");
            let current = self.current(&admission.queue);
            let is_outdated = job.admission.is_some()
                && current != admission.queue
                && self.setups.contains_key(&current);
            let rewritten = self.scheduler.outdated_records().find(|(uid, _)| **uid == job.uid);
            assert_eq!(rewritten, is_outdated.then_some((&job.uid, &current)));
        }
        for name in self.setups.keys() {
            let usage = self.scheduler.usage(name).unwrap();
            assert_eq!(usage.is_needed, reference::is_needed(self, name), "{name} is needed");
            let successor = Some(self.current(name)).filter(|current| current != name);
            assert_eq!(usage.successor, successor, "what has replaced {name}");
            assert_eq!(usage.used, self.used(name), "what {name} has granted");
            assert_eq!(usage.admitted, self.admitted_at(name).count());
            let pending = self.scheduler.pending(name);
            assert_eq!(usage.pending, pending.len());
            let ordered = pending.is_sorted_by_key(|job| {
                (std::cmp::Reverse(job.priority), job.waiting_since, &job.uid)
            });
            assert!(ordered, "{name} is out of order");
        }
    }

    /// Runs all jobs that can be admitted, until nothing changes any more.
    pub fn run_to_completion(&mut self) {
        for setup in self.setups.clone().into_values() {
            self.put_setup(Setup { stop: Stop::No, terminating: false, problem: None, ..setup });
        }
        for job in self.jobs.clone().into_values() {
            self.record(Workload { suspended: false, ..job });
        }
        // Each round finishes a job, or waits for a back-off after which one finishes.
        for _ in 0..4 * self.jobs.len() + 4 {
            let cycle = self.cycle();
            let decided: Vec<Uid> = self.decided.keys().cloned().collect();
            decided.iter().for_each(|uid| self.write(uid));
            let running: Vec<Workload> = self.admitted().map(|(job, _)| job.clone()).collect();
            // A decision that came too late was reverted, and is made again.
            if running.is_empty() && decided.is_empty() {
                match cycle.wake_at {
                    Some(wake) => self.now = wake,
                    None => break,
                }
            }
            for job in running {
                self.record(Workload { finished: true, ..job });
            }
            self.now += 1;
        }
        for job in self.jobs.values().filter(|job| !job.finished) {
            let why = self.scheduler.explain(&job.uid, self.now).unwrap();
            assert!(self.can_never_fit(job, &why), "{job:?} never finishes: {why:?}");
        }
        if self.jobs.values().all(|job| job.finished) {
            // First all of them, then those that the scheduler reports as changed.
            self.scheduler.take_changed();
            let mut changed: Vec<SetupName> = self.setups.keys().cloned().collect();
            while !changed.is_empty() {
                self.reconcile_setups(changed);
                changed = self.scheduler.take_changed();
            }
            let is_replaced = |name: &&SetupName| self.current(name) != **name;
            let left: Vec<&SetupName> = self.setups.keys().filter(is_replaced).collect();
            assert!(left.is_empty(), "{left:?} are replaced and idle");
        }
    }

    /// Whether the reason why a job waits can never change.
    fn can_never_fit(&self, job: &Workload, why: &WaitStatus) -> bool {
        let setup = why.queue.as_ref().map(|name| &self.setups[name]);
        match (&why.reason, setup) {
            (
                WaitReason::NoQueue
                | WaitReason::UnknownQueue(_)
                | WaitReason::NotServed(_)
                | WaitReason::AmbiguousQueue(_),
                None,
            ) => true,
            (WaitReason::QueueInactive(inactive), Some(_)) => {
                inactive.reason == InactiveReason::Conflict
            }
            (
                WaitReason::TooLarge { .. }
                | WaitReason::ExceedsQuota { .. }
                | WaitReason::NamespaceQuota { .. },
                Some(setup),
            ) => {
                let quota = self.quotas.get(&job.namespace).cloned().unwrap_or_default();
                reference::never_fits(job, setup, &quota)
            }
            _ => false,
        }
    }

    /// Stores a setup and puts it into the scheduler.
    pub fn put_setup(&mut self, setup: Setup) {
        self.setups.insert(setup.name.clone(), setup.clone());
        self.scheduler.put_setup(setup);
    }

    fn put_remaining_quota(&mut self, namespace: &str) {
        if self.quotas.contains_key(namespace) {
            self.scheduler.put_namespace_quota(namespace, self.remaining_quota(namespace));
        }
    }

    /// Checks that a job may be admitted, and is not admitted yet.
    fn check_admission(&self, admit: &NewAdmission) {
        let job = &self.jobs[&admit.uid];
        let Workload { finished, suspended, not_before, ref admission, .. } = *job;
        assert!(!finished && !suspended && admission.is_none(), "{job:?} was admitted");
        assert!(not_before.is_none_or(|time| time <= self.now), "{job:?} backs off");
        let setup = &self.setups[&admit.admission.queue];
        let Setup { name, stop, terminating, problem, .. } = setup;
        assert!(*stop == Stop::No && !terminating && problem.is_none(), "{setup:?} is not active");
        assert!(!reference::has_conflict(&self.setups, setup), "{setup:?} has a conflict");
        assert_eq!(self.current(name), *name, "{setup:?} is replaced");
    }

    fn check_evictions(&self, cycle: &Cycle) {
        for evict in &cycle.evict {
            let job = &self.jobs[&evict.uid];
            let setup = &self.setups[&self.current(&job.admission.as_ref().unwrap().queue)];
            match evict.reason {
                EvictionReason::QueueStopped => assert_eq!(setup.stop, Stop::HoldAndDrain),
                EvictionReason::OverQuota => {
                    assert!(!self.used(&setup.name).fits(&setup.quota), "{evict:?}");
                }
            }
        }
    }
}

/// An object to put into a scheduler.
enum StoredObject {
    Job(Workload),
    Setup(Setup),
    Quota(Arc<str>),
}

fn sum<'a>(admissions: impl Iterator<Item = &'a Admission>) -> Resources {
    let mut sum = Resources::default();
    admissions.for_each(|admission| sum.add(&admission.resources));
    sum
}
