//! The scheduler: told what there is, it says who gets room.
//!
//! ```text
//! put ──► job ──find──► group ──► queue: order, lines, what is used ──cycle──► admit, evict
//! ```
//!
//! Everything known is kept where it is needed as soon as it is told: a job in its line, an
//! admission in what its queue uses. A cycle has nothing to gather.

mod backfill;
mod decision;
mod evict;
mod find;
mod group;
mod job;
mod ledger;
mod moves;
mod namespace;
mod queue;
mod queues;
mod records;
mod roll;
mod succession;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use self::decision::{Admit, Cycle, Evict, EvictReason};
use self::job::Job;
use self::queue::{Given, Queue, Surroundings};
use self::queues::Queues;
use self::roll::Roll;
use crate::order::Key;
use crate::{
    Admission, Millis, NamespaceRoom, Reason, Resources, Setup, SetupName, Strategy, Uid, Usage,
    Waiting, Workload,
};

/// All queues. See the crate's page.
#[derive(Debug)]
pub struct Scheduler {
    queues: Queues,
    roll: Roll,
    /// Those who back off, by the time at which they come back.
    resting: BTreeSet<(Millis, Uid)>,
}

/// A scheduler without a home: every setup serves its own namespace only.
impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler::new("")
    }
}

impl Scheduler {
    /// A scheduler that knows nothing yet. Setups in `home`, the operator's namespace,
    /// are found by their name from every namespace they serve.
    pub fn new(home: &str) -> Scheduler {
        Scheduler { queues: Queues::new(home), roll: Roll::default(), resting: BTreeSet::new() }
    }

    /// There is this setup, new or changed.
    pub fn put_setup(&mut self, setup: Setup) {
        let name = setup.name.clone();
        let Some(queue) = self.queues.get_mut(&name) else {
            self.queues.insert(Queue::new(setup));
            self.queues.touch(&name);
            return self.find_again(&name);
        };
        let before = queue.ledger.setup.clone();
        if before == setup {
            return;
        }
        let moves = placement(&before) != placement(&setup);
        let relines =
            (before.strategy == Strategy::Backfill) != (setup.strategy == Strategy::Backfill);
        // What a job without a size asks for may be another now, and so what it is missing.
        queue.lines.values_mut().for_each(|line| line.blocked = None);
        let jobs: Vec<Uid> = match relines {
            true => queue.order.iter().map(|key| key.uid.clone()).collect(),
            false => Vec::new(),
        };
        jobs.iter().for_each(|uid| self.leave(uid));
        if let Some(queue) = self.queues.get_mut(&name) {
            queue.ledger.setup = setup;
        }
        jobs.iter().for_each(|uid| self.enter(uid));
        self.queues.touch(&name);
        if moves {
            self.find_again(&name);
        }
    }

    /// This setup is gone. Its jobs look for another; room that they have they keep.
    pub fn remove_setup(&mut self, name: &SetupName) {
        if self.queues.remove(name).is_some() {
            self.queues.note_successors(name);
            self.find_again(name);
        }
    }

    /// A namespace's own quota, new or changed; empty when there is none.
    pub fn put_namespace_room(&mut self, namespace: &str, room: NamespaceRoom) {
        let namespace: Arc<str> = namespace.into();
        let known = self.roll.namespaces.entry(namespace.clone()).or_default();
        if known.room == room {
            return self.roll.forget_if_empty(&namespace);
        }
        // Jobs of a namespace with a quota of its own stand in lines of their own.
        let relines = known.is_limited() == room.left.is_empty();
        let jobs: Vec<Uid> = match relines {
            true => known.waiting.values().flat_map(|group| &group.jobs).cloned().collect(),
            false => Vec::new(),
        };
        jobs.iter().for_each(|uid| self.leave(uid));
        if let Some(known) = self.roll.namespaces.get_mut(&namespace) {
            known.room = room;
        }
        jobs.iter().for_each(|uid| self.enter(uid));
        self.touch_namespace(&namespace);
        self.roll.forget_if_empty(&namespace);
    }

    /// There is this workload, new or changed. Telling the same again changes nothing.
    /// One without an admission that was admitted in a cycle stays so until
    /// [`Scheduler::undo`]: what is told may be older than the decision.
    pub fn put(&mut self, workload: Workload) {
        if workload.finished {
            return self.remove(&workload.uid);
        }
        let uid = workload.uid.clone();
        let mut job = Job::new(workload);
        if let Some(before) = self.roll.jobs.get(&uid) {
            if before.workload == job.workload {
                return;
            }
            if job.workload.admission.is_none() {
                job.decided = before.decided.clone();
            }
            if job.has_room_of(before) {
                return self.confirm(job);
            }
            job.evicted = before.evicted && job.is_renamed(before);
            self.take_out(&uid);
        }
        self.take_in(job);
    }

    /// This workload is gone.
    pub fn remove(&mut self, uid: &Uid) {
        self.take_out(uid);
    }

    /// An admission could not be written down: the job waits again, at its old place. Or an
    /// eviction could not be carried out: it is decided again.
    pub fn undo(&mut self, uid: &Uid) {
        let job = self.roll.jobs.get(uid);
        if !job.is_some_and(|job| job.decided.is_some() || job.evicted) {
            return;
        }
        if let Some(mut job) = self.take_out(uid) {
            job.decided = None;
            job.evicted = false;
            self.take_in(job);
        }
    }

    /// Decides, for those queues to which something has happened.
    pub fn cycle(&mut self, now: Millis) -> Cycle {
        let mut cycle = Cycle::default();
        self.end_rests(now);
        for name in self.queues.take_dirty() {
            let Some(queue) = self.queues.get(&name) else { continue };
            let active = self.queues.inactive(&queue.ledger.setup).is_none();
            for (uid, reason) in queue.evictions(&self.roll.jobs) {
                if let Some(job) = self.roll.jobs.get_mut(&uid) {
                    job.evicted = true;
                }
                cycle.evict.push(Evict { uid, reason });
            }
            let Some(queue) = self.queues.get_mut(&name).filter(|_| active) else { continue };
            let Roll { jobs, namespaces, .. } = &mut self.roll;
            let (given, looked) = queue.admit(&mut Surroundings { jobs, namespaces, now });
            cycle.looked += looked;
            if !given.is_empty() {
                self.queues.note_change(&name);
            }
            cycle
                .admit
                .extend(given.into_iter().filter_map(|given| self.assume(&name, given, now)));
        }
        cycle.wake = self.resting.first().map(|(at, _)| *at);
        cycle
    }

    /// Why a job waits; None if it has room, has ended, or is not known.
    pub fn why(&self, uid: &Uid, now: Millis) -> Option<Waiting> {
        let job = self.roll.jobs.get(uid).filter(|job| job.admission().is_none())?;
        let suspended = job.workload.suspended.then_some(Reason::Suspended);
        let name = match &self.roll.group(job)?.queue {
            Ok(name) => name,
            Err(reason) => {
                let reason = suspended.unwrap_or_else(|| reason.clone());
                return Some(Waiting { queue: None, position: None, reason });
            }
        };
        let queue = self.queues.get(name)?;
        let key = Key::of(&job.workload);
        let reason = if let Some(suspended) = suspended {
            suspended
        } else if let Some(inactive) = self.queues.inactive(&queue.ledger.setup) {
            Reason::QueueInactive(inactive)
        } else if let Some(until) = job.workload.not_before.filter(|until| *until > now) {
            Reason::BackingOff { until }
        } else {
            let shape = self.roll.shape(job, queue.by_runtime());
            let offer = queue.ledger.offer(&shape, &key, &self.roll.namespaces, now);
            offer.err().unwrap_or(Reason::Pending)
        };
        Some(Waiting { queue: Some(name.clone()), position: queue.order.position(&key), reason })
    }

    /// The jobs that wait at a setup, in order. Those that are suspended are not there.
    pub fn pending(&self, queue: &SetupName) -> Vec<&Workload> {
        let order = self.queues.get(queue).map(|queue| &queue.order);
        let keys = order.into_iter().flat_map(|order| order.iter());
        keys.map(|key| &self.roll.jobs[&key.uid].workload).collect()
    }

    /// The setup whose queue a workload is in, waiting or admitted.
    pub fn queue_of(&self, uid: &Uid) -> Option<&SetupName> {
        self.roll.place(uid).map(|(_, queue)| queue)
    }

    /// What is true of a setup.
    pub fn usage(&self, queue: &SetupName) -> Option<Usage> {
        let known = self.queues.get(queue)?;
        Some(Usage {
            used: known.ledger.used.resources(),
            pending: known.order.len(),
            admitted: known.admitted.len(),
            inactive: self.queues.inactive(&known.ledger.setup),
            successor: self.successor(queue),
            is_needed: self.is_needed(queue),
        })
    }

    /// A workload that has not finished, as it was last put.
    pub fn workload(&self, uid: &Uid) -> Option<&Workload> {
        self.roll.jobs.get(uid).map(|job| &job.workload)
    }

    /// The workloads that have not finished, in no order.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.roll.jobs.values().map(|job| &job.workload)
    }

    /// The setup that has taken the place of another, the last of a chain.
    pub fn successor(&self, setup: &SetupName) -> Option<SetupName> {
        let current = self.queues.succession.current(setup);
        (current != setup).then(|| current.clone())
    }

    /// Whether a setup has the place of another, or will have it as soon as it can be used.
    pub fn is_to_succeed(&self, setup: &SetupName, other: &SetupName) -> bool {
        self.queues.succession.is_to_succeed(setup, other)
    }

    /// The setups whose usage may have changed since this was last asked.
    pub fn take_changed(&mut self) -> Vec<SetupName> {
        self.queues.take_changed()
    }

    /// How much of a setup's room is free; a resource without a limit is missing.
    pub fn free(&self, queue: &SetupName) -> Option<Resources> {
        let ledger = &self.queues.get(queue)?.ledger;
        let free = ledger.setup.room.iter().map(|(resource, limit)| {
            (resource.clone(), limit.saturating_sub(ledger.used.amount(resource)).max(0))
        });
        Some(Resources::of(free))
    }

    /// An admission is known of that was decided, or something has changed of a job that
    /// keeps its room.
    fn confirm(&mut self, job: Job) {
        let (uid, namespace) = (job.workload.uid.clone(), job.workload.namespace.clone());
        if self.roll.update(job) {
            self.touch_namespace(&namespace);
            self.roll.forget_if_empty(&namespace);
        }
        // Room can be taken back only once it is written down.
        if let Some((_, name)) = self.roll.place(&uid)
            && self.queues.get(name).is_some_and(|queue| queue.takes_back().is_some())
        {
            self.queues.wake(name);
        }
    }

    /// Counts room that a cycle has given; its queue and its namespace have done so already.
    fn assume(&mut self, queue: &SetupName, given: Given, now: Millis) -> Option<Admit> {
        let Given { uid, size, resources, max_runtime: _ } = given;
        let admission = Admission { queue: queue.clone(), size, resources, at: now };
        let Workload { kind, namespace, name, .. } = self.roll.admit(&uid, &admission)?;
        let (kind, namespace, name) = (*kind, namespace.clone(), name.clone());
        if let Some(job) = self.roll.jobs.get(&uid) {
            self.queues.note_links(job);
        }
        Some(Admit { uid, kind, namespace, name, admission })
    }

    /// Those whose back-off has ended stand in line again.
    fn end_rests(&mut self, now: Millis) {
        while self.resting.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, uid)) = self.resting.pop_first()
        {
            self.leave(&uid);
            if let Some(job) = self.roll.jobs.get_mut(&uid) {
                job.rests = false;
            }
            self.enter(&uid);
        }
    }

    /// Remembers a job, in its group and in its queue.
    fn take_in(&mut self, mut job: Job) {
        let uid = job.workload.uid.clone();
        // Nobody has told the time: whether the back-off is over is seen in the next cycle.
        let rest = job.workload.not_before.filter(|_| job.admission().is_none());
        job.rests = rest.is_some();
        self.resting.extend(rest.map(|until| (until, uid.clone())));
        self.roll.add(job, &self.queues);
        self.enter(&uid);
    }

    /// Forgets a job everywhere.
    fn take_out(&mut self, uid: &Uid) -> Option<Job> {
        self.leave(uid);
        let job = self.roll.remove(uid)?;
        if let Some(until) = job.workload.not_before {
            self.resting.remove(&(until, uid.clone()));
        }
        if job.admission().is_some() && !job.workload.started {
            self.touch_namespace(&job.workload.namespace);
        }
        self.queues.note_links(&job);
        Some(job)
    }

    /// Takes a job into the queue of its group.
    fn enter(&mut self, uid: &Uid) {
        let Some((job, name)) = self.roll.place(uid) else { return };
        let Some(queue) = self.queues.get_mut(name) else { return };
        if let Some(admission) = job.admission() {
            queue.ledger.used.add(&admission.resources);
            queue.admitted.insert(uid.clone());
        } else if !job.workload.suspended {
            let shape = (!job.rests).then(|| self.roll.shape(job, queue.by_runtime()));
            queue.insert(Key::of(&job.workload), shape);
        }
        self.queues.touch(name);
    }

    /// Takes a job out of the queue of its group.
    fn leave(&mut self, uid: &Uid) {
        let Some((job, name)) = self.roll.place(uid) else { return };
        let Some(queue) = self.queues.get_mut(name) else { return };
        if let Some(admission) = job.admission() {
            queue.ledger.used.subtract(&admission.resources);
            queue.admitted.remove(uid);
        } else {
            queue.remove(&Key::of(&job.workload), &self.roll.shape(job, queue.by_runtime()));
        }
        self.queues.touch(name);
    }

    /// Something has happened to what a namespace's own quota leaves.
    fn touch_namespace(&mut self, namespace: &str) {
        let known = self.roll.namespaces.get(namespace).filter(|known| known.is_limited());
        let groups = known.into_iter().flat_map(|known| known.waiting.values());
        for name in groups.filter_map(|group| group.queue.as_ref().ok()) {
            self.queues.wake(name);
        }
    }
}

/// The fields that decide which jobs belong to a setup.
fn placement(setup: &Setup) -> impl PartialEq + '_ {
    let Setup { created, serves, replaces, going, mistake, .. } = setup;
    (created, serves, replaces, going, mistake.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{admitted, job, nodes_of, scheduler, setup_of, why, with_room};

    #[test]
    fn q8_what_is_decided_counts_until_it_is_taken_back() {
        let mut scheduler = scheduler([setup_of("a/queue", 2)], [job("a/one", 2), job("a/two", 2)]);
        assert_eq!(admitted(&mut scheduler, 1), ["one"]);
        // What is told may be older than the decision.
        scheduler.put(Workload { priority: 1, ..job("a/one", 2) });
        assert_eq!(admitted(&mut scheduler, 2), [""; 0]);
        assert_eq!(scheduler.why(&"one".into(), 2), None);
        scheduler.undo(&"one".into());
        assert_eq!(admitted(&mut scheduler, 3), ["one"]);
        // Written down after all, though the writer was told otherwise, and with a time in
        // whole seconds.
        scheduler.put(with_room(job("a/one", 2), "a/queue", 0));
        assert_eq!(scheduler.cycle(3).looked, 0, "no news for the queue");
        scheduler.undo(&"one".into());
        assert_eq!(admitted(&mut scheduler, 4), [""; 0]);
        assert_eq!(scheduler.usage(&SetupName::new("a", "queue")).unwrap().used, nodes_of(2));
        scheduler.put(Workload { finished: true, ..with_room(job("a/one", 2), "a/queue", 3) });
        assert_eq!(admitted(&mut scheduler, 5), ["two"]);
    }

    #[test]
    fn q14_a_job_that_changes_keeps_its_place() {
        let jobs = [("a/first", 1), ("a/second", 2)];
        let jobs = jobs.map(|(name, since)| Workload { since, ..job(name, 2) });
        let mut scheduler = scheduler([setup_of("a/queue", 0)], jobs);
        let position =
            |scheduler: &Scheduler, uid: &str| scheduler.why(&uid.into(), 0).unwrap().position;
        scheduler.put(Workload { since: 1, ..job("a/first", 1) });
        assert_eq!(position(&scheduler, "first"), Some(0));
        assert_eq!(position(&scheduler, "second"), Some(1));
        let pending = scheduler.pending(&SetupName::new("a", "queue"));
        assert_eq!(pending.iter().map(|job| &*job.name).collect::<Vec<_>>(), ["first", "second"]);
    }

    #[test]
    fn q16_a_job_that_backs_off_comes_back_by_itself() {
        let resting = Workload { not_before: Some(100), ..job("a/resting", 2) };
        let next = Workload { since: 1, ..job("a/next", 2) };
        let mut scheduler = scheduler([setup_of("a/queue", 4)], [resting]);
        let cycle = scheduler.cycle(50);
        assert_eq!((cycle.admit.len(), cycle.wake), (0, Some(100)));
        assert_eq!(why(&scheduler, "resting", 50), Reason::BackingOff { until: 100 });
        scheduler.put(next);
        assert_eq!(admitted(&mut scheduler, 51), ["next"]);
        let cycle = scheduler.cycle(100);
        assert_eq!((cycle.admit.len(), cycle.wake), (1, None));
    }

    #[test]
    fn q16_a_back_off_that_becomes_longer_ends_later() {
        let resting = |until| Workload { not_before: Some(until), ..job("a/resting", 1) };
        let mut scheduler = scheduler([setup_of("a/queue", 1)], [resting(100)]);
        scheduler.put(resting(200));
        let cycle = scheduler.cycle(150);
        assert_eq!((cycle.admit.len(), cycle.wake), (0, Some(200)));
    }

    #[test]
    fn q16_a_suspended_job_is_not_in_the_queue() {
        let suspended = Workload { suspended: true, ..job("a/suspended", 1) };
        let mut scheduler = scheduler([setup_of("a/queue", 1)], [suspended]);
        assert_eq!(admitted(&mut scheduler, 1), [""; 0]);
        let waiting = scheduler.why(&"suspended".into(), 1).unwrap();
        assert_eq!((waiting.reason, waiting.position), (Reason::Suspended, None));
        assert_eq!(scheduler.usage(&SetupName::new("a", "queue")).unwrap().pending, 0);
        scheduler.put(job("a/suspended", 1));
        assert_eq!(admitted(&mut scheduler, 2), ["suspended"]);
    }

    #[test]
    fn setups_that_may_have_changed_are_told_once() {
        let mut scheduler = scheduler([setup_of("a/queue", 1), setup_of("b/queue", 1)], []);
        assert_eq!(scheduler.take_changed().len(), 2);
        assert_eq!(scheduler.take_changed(), []);
        scheduler.put(job("b/job", 1));
        assert_eq!(scheduler.take_changed(), [SetupName::new("b", "queue")]);
        scheduler.cycle(1);
        assert_eq!(scheduler.take_changed(), [SetupName::new("b", "queue")]);
        // Telling the same again changes nothing.
        scheduler.put(job("b/job", 1));
        scheduler.put_setup(setup_of("b/queue", 1));
        assert_eq!(scheduler.take_changed(), []);
    }
}
