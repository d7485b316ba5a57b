//! The scheduler: from setups and workloads to admissions and evictions.
//!
//! ```text
//! put ──► job ──resolve──► group ──► queue: order, classes, usage ──cycle──► admit, evict
//! ```
//!
//! Every call updates all derived state at once: a job is in its class, an admission in the
//! usage of its queue. A cycle has nothing to collect.

mod backfill;
mod decisions;
mod evict;
mod group;
mod job;
mod job_index;
mod namespace;
mod queue;
mod queues;
mod quota_ledger;
mod reassign;
mod records;
mod resolve;
mod succession;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use self::decisions::{Cycle, Eviction, EvictionReason, NewAdmission};
use self::job::Job;
use self::job_index::JobIndex;
use self::queue::{CycleContext, Grant, Queue};
use self::queues::Queues;
use crate::order::SortKey;
use crate::{
    Admission, Millis, NamespaceQuota, Resources, Setup, SetupName, Strategy, Uid, Usage,
    WaitReason, WaitStatus, Workload,
};

/// All queues. See the crate documentation.
#[derive(Debug)]
pub struct Scheduler {
    queues: Queues,
    index: JobIndex,
    /// Jobs that back off, by the end of their back-off.
    backing_off: BTreeSet<(Millis, Uid)>,
}

/// A scheduler without an operator namespace: every setup serves its own namespace only.
impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler::new("")
    }
}

impl Scheduler {
    /// An empty scheduler. Setups in `home`, the operator's namespace,
    /// are found by their name from every namespace that they serve.
    pub fn new(operator_namespace: &str) -> Scheduler {
        Scheduler {
            queues: Queues::new(operator_namespace),
            index: JobIndex::default(),
            backing_off: BTreeSet::new(),
        }
    }

    /// Adds or updates a setup.
    pub fn put_setup(&mut self, setup: Setup) {
        let name = setup.name.clone();
        let Some(queue) = self.queues.get_mut(&name) else {
            self.queues.insert(Queue::new(setup));
            self.queues.touch(&name);
            return self.reassign(&name);
        };
        let before = queue.quota_account.setup.clone();
        if before == setup {
            return;
        }
        let moves = placement(&before) != placement(&setup);
        let changes_class =
            (before.strategy == Strategy::Backfill) != (setup.strategy == Strategy::Backfill);
        // The default size may have changed, and with it what a job without a size is missing.
        queue.classes.values_mut().for_each(|class| class.blocked = None);
        let jobs: Vec<Uid> = match changes_class {
            true => queue.order.iter().map(|key| key.uid.clone()).collect(),
            false => Vec::new(),
        };
        jobs.iter().for_each(|uid| self.remove_from_queue(uid));
        if let Some(queue) = self.queues.get_mut(&name) {
            queue.quota_account.setup = setup;
        }
        jobs.iter().for_each(|uid| self.add_to_queue(uid));
        self.queues.touch(&name);
        if moves {
            self.reassign(&name);
        }
    }

    /// Removes a setup. Its waiting jobs move to another queue, if there is one for them; admitted
    /// jobs keep their quota.
    pub fn remove_setup(&mut self, name: &SetupName) {
        if self.queues.remove(name).is_some() {
            self.queues.mark_successors_changed(name);
            self.reassign(name);
        }
    }

    /// Sets what the ResourceQuotas of a namespace leave; empty if there are none.
    pub fn put_namespace_quota(&mut self, namespace: &str, quota: NamespaceQuota) {
        let namespace: Arc<str> = namespace.into();
        let known = self.index.namespaces.entry(namespace.clone()).or_default();
        if known.quota == quota {
            return self.index.forget_if_empty(&namespace);
        }
        // Jobs of a namespace with a ResourceQuota are in classes of their own.
        let changes_class = known.is_limited() == quota.remaining.is_empty();
        let jobs: Vec<Uid> = match changes_class {
            true => known.waiting.values().flat_map(|group| &group.jobs).cloned().collect(),
            false => Vec::new(),
        };
        jobs.iter().for_each(|uid| self.remove_from_queue(uid));
        if let Some(known) = self.index.namespaces.get_mut(&namespace) {
            known.quota = quota;
        }
        jobs.iter().for_each(|uid| self.add_to_queue(uid));
        self.touch_namespace(&namespace);
        self.index.forget_if_empty(&namespace);
    }

    /// Adds or updates a workload. Putting the same workload again changes nothing.
    /// One without an admission that was admitted in a cycle stays admitted until
    /// [`Scheduler::undo`]: the object may be older than the decision.
    pub fn put(&mut self, workload: Workload) {
        if workload.finished {
            return self.remove(&workload.uid);
        }
        let uid = workload.uid.clone();
        let mut job = Job::new(workload);
        if let Some(before) = self.index.jobs.get(&uid) {
            if before.workload == job.workload {
                return;
            }
            if job.workload.admission.is_none() {
                job.decided = before.decided.clone();
            }
            if job.has_same_quota_as(before) {
                return self.confirm(job);
            }
            job.evicted = before.evicted && job.is_renamed(before);
            self.remove_job(&uid);
        }
        self.add_job(job);
    }

    /// Removes a workload.
    pub fn remove(&mut self, uid: &Uid) {
        self.remove_job(uid);
    }

    /// Reverts an admission that could not be written: the job waits again, at its old
    /// position. Or reverts an eviction that failed: it is decided again.
    pub fn undo(&mut self, uid: &Uid) {
        let job = self.index.jobs.get(uid);
        if !job.is_some_and(|job| job.decided.is_some() || job.evicted) {
            return;
        }
        if let Some(mut job) = self.remove_job(uid) {
            job.decided = None;
            job.evicted = false;
            self.add_job(job);
        }
    }

    /// Makes the decisions for the queues in which something has changed.
    pub fn cycle(&mut self, now: Millis) -> Cycle {
        let mut cycle = Cycle::default();
        self.end_back_offs(now);
        for name in self.queues.take_dirty() {
            let Some(queue) = self.queues.get(&name) else { continue };
            let active = self.queues.inactive(&queue.quota_account.setup).is_none();
            for (uid, reason) in queue.evictions(&self.index.jobs) {
                if let Some(job) = self.index.jobs.get_mut(&uid) {
                    job.evicted = true;
                }
                cycle.evict.push(Eviction { uid, reason });
            }
            let Some(queue) = self.queues.get_mut(&name).filter(|_| active) else { continue };
            let JobIndex { jobs, namespaces, .. } = &mut self.index;
            let (grants, considered) = queue.admit(&mut CycleContext { jobs, namespaces, now });
            cycle.considered += considered;
            if !grants.is_empty() {
                self.queues.mark_changed(&name);
            }
            cycle
                .admit
                .extend(grants.into_iter().filter_map(|given| self.assume(&name, given, now)));
        }
        cycle.wake_at = self.backing_off.first().map(|(at, _)| *at);
        cycle
    }

    /// Why a job waits; None if it is admitted, has finished, or is unknown.
    pub fn explain(&self, uid: &Uid, now: Millis) -> Option<WaitStatus> {
        let job = self.index.jobs.get(uid).filter(|job| job.admission().is_none())?;
        let suspended = job.workload.suspended.then_some(WaitReason::Suspended);
        let name = match &self.index.group(job)?.queue {
            Ok(name) => name,
            Err(reason) => {
                let reason = suspended.unwrap_or_else(|| reason.clone());
                return Some(WaitStatus { queue: None, position: None, reason });
            }
        };
        let queue = self.queues.get(name)?;
        let key = SortKey::of(&job.workload);
        let reason = if let Some(suspended) = suspended {
            suspended
        } else if let Some(inactive) = self.queues.inactive(&queue.quota_account.setup) {
            WaitReason::QueueInactive(inactive)
        } else if let Some(until) = job.workload.not_before.filter(|until| *until > now) {
            WaitReason::BackingOff { until }
        } else {
            let shape = self.index.shape(job, queue.considers_runtime());
            let offer =
                queue.quota_account.admissible_size(&shape, &key, &self.index.namespaces, now);
            offer.err().unwrap_or(WaitReason::Pending)
        };
        Some(WaitStatus { queue: Some(name.clone()), position: queue.order.position(&key), reason })
    }

    /// The jobs that wait in a queue, in order, without those that are suspended.
    pub fn pending(&self, queue: &SetupName) -> Vec<&Workload> {
        let order = self.queues.get(queue).map(|queue| &queue.order);
        let keys = order.into_iter().flat_map(|order| order.iter());
        keys.map(|key| &self.index.jobs[&key.uid].workload).collect()
    }

    /// The setup in whose queue a workload is, waiting or admitted.
    pub fn queue_of(&self, uid: &Uid) -> Option<&SetupName> {
        self.index.locate(uid).map(|(_, queue)| queue)
    }

    /// The usage of a setup.
    pub fn usage(&self, queue: &SetupName) -> Option<Usage> {
        let known = self.queues.get(queue)?;
        Some(Usage {
            used: known.quota_account.used.resources(),
            pending: known.order.len(),
            admitted: known.admitted.len(),
            inactive: self.queues.inactive(&known.quota_account.setup),
            successor: self.successor(queue),
            is_needed: self.is_needed(queue),
        })
    }

    /// A workload that has not finished, as it was last put.
    pub fn workload(&self, uid: &Uid) -> Option<&Workload> {
        self.index.jobs.get(uid).map(|job| &job.workload)
    }

    /// The workloads that have not finished, in no order.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.index.jobs.values().map(|job| &job.workload)
    }

    /// The setup that has replaced another one, the last of a chain.
    pub fn successor(&self, setup: &SetupName) -> Option<SetupName> {
        let current = self.queues.succession.current(setup);
        (current != setup).then(|| current.clone())
    }

    /// Whether a setup has replaced another one, or will do so as soon as it can be used.
    pub fn is_designated_successor(&self, setup: &SetupName, other: &SetupName) -> bool {
        self.queues.succession.is_designated_successor(setup, other)
    }

    /// The setups whose usage may have changed since the last call.
    pub fn take_changed(&mut self) -> Vec<SetupName> {
        self.queues.take_changed()
    }

    /// The quota of a setup that is free; a resource without a limit is missing.
    pub fn free(&self, queue: &SetupName) -> Option<Resources> {
        let ledger = &self.queues.get(queue)?.quota_account;
        let free = ledger.setup.quota.iter().map(|(resource, limit)| {
            (resource.clone(), limit.saturating_sub(ledger.used.amount(resource)).max(0))
        });
        Some(Resources::of(free))
    }

    /// Updates a job that keeps its quota: its decided admission was written, or something
    /// else has changed.
    fn confirm(&mut self, job: Job) {
        let (uid, namespace) = (job.workload.uid.clone(), job.workload.namespace.clone());
        if self.index.update(job) {
            self.touch_namespace(&namespace);
            self.index.forget_if_empty(&namespace);
        }
        // An admission can be revoked only once it is written.
        if let Some((_, name)) = self.index.locate(&uid)
            && self.queues.get(name).is_some_and(|queue| queue.eviction_reason().is_some())
        {
            self.queues.mark_dirty(name);
        }
    }

    /// Records an admission of a cycle, which its queue and its namespace have already counted.
    fn assume(&mut self, queue: &SetupName, given: Grant, now: Millis) -> Option<NewAdmission> {
        let Grant { uid, size, resources, max_runtime: _ } = given;
        let admission = Admission { queue: queue.clone(), size, resources, at: now };
        let Workload { kind, namespace, name, .. } = self.index.admit(&uid, &admission)?;
        let (kind, namespace, name) = (*kind, namespace.clone(), name.clone());
        if let Some(job) = self.index.jobs.get(&uid) {
            self.queues.mark_links_changed(job);
        }
        Some(NewAdmission { uid, kind, namespace, name, admission })
    }

    /// Puts jobs whose back-off has ended into their classes again.
    fn end_back_offs(&mut self, now: Millis) {
        while self.backing_off.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, uid)) = self.backing_off.pop_first()
        {
            self.remove_from_queue(&uid);
            if let Some(job) = self.index.jobs.get_mut(&uid) {
                job.is_backing_off = false;
            }
            self.add_to_queue(&uid);
        }
    }

    /// Adds a job to its group and to its queue.
    fn add_job(&mut self, mut job: Job) {
        let uid = job.workload.uid.clone();
        // The time is not known here: the next cycle checks whether the back-off has ended.
        let not_before = job.workload.not_before.filter(|_| job.admission().is_none());
        job.is_backing_off = not_before.is_some();
        self.backing_off.extend(not_before.map(|until| (until, uid.clone())));
        self.index.add(job, &self.queues);
        self.add_to_queue(&uid);
    }

    /// Removes a job from everywhere.
    fn remove_job(&mut self, uid: &Uid) -> Option<Job> {
        self.remove_from_queue(uid);
        let job = self.index.remove(uid)?;
        if let Some(until) = job.workload.not_before {
            self.backing_off.remove(&(until, uid.clone()));
        }
        if job.admission().is_some() && !job.workload.pods_exist {
            self.touch_namespace(&job.workload.namespace);
        }
        self.queues.mark_links_changed(&job);
        Some(job)
    }

    /// Adds a job to the queue of its group.
    fn add_to_queue(&mut self, uid: &Uid) {
        let Some((job, name)) = self.index.locate(uid) else { return };
        let Some(queue) = self.queues.get_mut(name) else { return };
        if let Some(admission) = job.admission() {
            queue.quota_account.used.add(&admission.resources);
            queue.admitted.insert(uid.clone());
        } else if !job.workload.suspended {
            let shape =
                (!job.is_backing_off).then(|| self.index.shape(job, queue.considers_runtime()));
            queue.insert(SortKey::of(&job.workload), shape);
        }
        self.queues.touch(name);
    }

    /// Removes a job from the queue of its group.
    fn remove_from_queue(&mut self, uid: &Uid) {
        let Some((job, name)) = self.index.locate(uid) else { return };
        let Some(queue) = self.queues.get_mut(name) else { return };
        if let Some(admission) = job.admission() {
            queue.quota_account.used.subtract(&admission.resources);
            queue.admitted.remove(uid);
        } else {
            queue.remove(
                &SortKey::of(&job.workload),
                &self.index.shape(job, queue.considers_runtime()),
            );
        }
        self.queues.touch(name);
    }

    /// Marks the queues of a namespace whose remaining ResourceQuota has changed.
    fn touch_namespace(&mut self, namespace: &str) {
        let known = self.index.namespaces.get(namespace).filter(|known| known.is_limited());
        let groups = known.into_iter().flat_map(|known| known.waiting.values());
        for name in groups.filter_map(|group| group.queue.as_ref().ok()) {
            self.queues.mark_dirty(name);
        }
    }
}

/// The fields that decide which jobs belong to a setup.
fn placement(setup: &Setup) -> impl PartialEq + '_ {
    let Setup { created, serves, replaces, terminating, problem, .. } = setup;
    (created, serves, replaces, terminating, problem.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{admitted, job, nodes_of, scheduler, setup_of, wait_reason, with_quota};

    #[test]
    fn q8_a_decision_counts_until_it_is_reverted() {
        let mut scheduler = scheduler([setup_of("a/queue", 2)], [job("a/one", 2), job("a/two", 2)]);
        assert_eq!(admitted(&mut scheduler, 1), ["one"]);
        // The object may be older than the decision.
        scheduler.put(Workload { priority: 1, ..job("a/one", 2) });
        assert_eq!(admitted(&mut scheduler, 2), [""; 0]);
        assert_eq!(scheduler.explain(&"one".into(), 2), None);
        scheduler.undo(&"one".into());
        assert_eq!(admitted(&mut scheduler, 3), ["one"]);
        // It was written after all, although its writer got an error, and its time is in whole
        // seconds now.
        scheduler.put(with_quota(job("a/one", 2), "a/queue", 0));
        assert_eq!(scheduler.cycle(3).considered, 0, "nothing has changed in the queue");
        scheduler.undo(&"one".into());
        assert_eq!(admitted(&mut scheduler, 4), [""; 0]);
        assert_eq!(scheduler.usage(&SetupName::new("a", "queue")).unwrap().used, nodes_of(2));
        scheduler.put(Workload { finished: true, ..with_quota(job("a/one", 2), "a/queue", 3) });
        assert_eq!(admitted(&mut scheduler, 5), ["two"]);
    }

    #[test]
    fn q14_a_changed_job_keeps_its_position() {
        let jobs = [("a/first", 1), ("a/second", 2)];
        let jobs = jobs.map(|(name, since)| Workload { waiting_since: since, ..job(name, 2) });
        let mut scheduler = scheduler([setup_of("a/queue", 0)], jobs);
        let position =
            |scheduler: &Scheduler, uid: &str| scheduler.explain(&uid.into(), 0).unwrap().position;
        scheduler.put(Workload { waiting_since: 1, ..job("a/first", 1) });
        assert_eq!(position(&scheduler, "first"), Some(0));
        assert_eq!(position(&scheduler, "second"), Some(1));
        let pending = scheduler.pending(&SetupName::new("a", "queue"));
        assert_eq!(pending.iter().map(|job| &*job.name).collect::<Vec<_>>(), ["first", "second"]);
    }

    #[test]
    fn q16_a_job_that_backs_off_comes_back_by_itself() {
        let resting = Workload { not_before: Some(100), ..job("a/resting", 2) };
        let next = Workload { waiting_since: 1, ..job("a/next", 2) };
        let mut scheduler = scheduler([setup_of("a/queue", 4)], [resting]);
        let cycle = scheduler.cycle(50);
        assert_eq!((cycle.admit.len(), cycle.wake_at), (0, Some(100)));
        assert_eq!(wait_reason(&scheduler, "resting", 50), WaitReason::BackingOff { until: 100 });
        scheduler.put(next);
        assert_eq!(admitted(&mut scheduler, 51), ["next"]);
        let cycle = scheduler.cycle(100);
        assert_eq!((cycle.admit.len(), cycle.wake_at), (1, None));
    }

    #[test]
    fn q16_a_back_off_that_becomes_longer_ends_later() {
        let resting = |until| Workload { not_before: Some(until), ..job("a/resting", 1) };
        let mut scheduler = scheduler([setup_of("a/queue", 1)], [resting(100)]);
        scheduler.put(resting(200));
        let cycle = scheduler.cycle(150);
        assert_eq!((cycle.admit.len(), cycle.wake_at), (0, Some(200)));
    }

    #[test]
    fn q16_a_suspended_job_is_not_in_the_queue() {
        let suspended = Workload { suspended: true, ..job("a/suspended", 1) };
        let mut scheduler = scheduler([setup_of("a/queue", 1)], [suspended]);
        assert_eq!(admitted(&mut scheduler, 1), [""; 0]);
        let waiting = scheduler.explain(&"suspended".into(), 1).unwrap();
        assert_eq!((waiting.reason, waiting.position), (WaitReason::Suspended, None));
        assert_eq!(scheduler.usage(&SetupName::new("a", "queue")).unwrap().pending, 0);
        scheduler.put(job("a/suspended", 1));
        assert_eq!(admitted(&mut scheduler, 2), ["suspended"]);
    }

    #[test]
    fn changed_setups_are_reported_once() {
        let mut scheduler = scheduler([setup_of("a/queue", 1), setup_of("b/queue", 1)], []);
        assert_eq!(scheduler.take_changed().len(), 2);
        assert_eq!(scheduler.take_changed(), []);
        scheduler.put(job("b/job", 1));
        assert_eq!(scheduler.take_changed(), [SetupName::new("b", "queue")]);
        scheduler.cycle(1);
        assert_eq!(scheduler.take_changed(), [SetupName::new("b", "queue")]);
        // Putting the same again changes nothing.
        scheduler.put(job("b/job", 1));
        scheduler.put_setup(setup_of("b/queue", 1));
        assert_eq!(scheduler.take_changed(), []);
    }
}
