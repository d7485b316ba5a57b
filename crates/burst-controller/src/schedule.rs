//! Which Bursts are reconciled next: those that have been due for the longest, a few at a time, and only
//! some of each namespace.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use flux_operator_api::Burst;
use kube::runtime::reflector::ObjectRef;
use tokio::time::Instant;

/// How many Bursts are reconciled at the same time: a target that does not respond must not keep the
/// others waiting.
const CONCURRENCY: usize = 16;

/// How many of these are of one namespace: nor must the targets of one keep other namespaces waiting.
const CONCURRENCY_OF_NAMESPACE: usize = 4;

/// The shortest time between two reconciliations of a Burst because of changes. Each asks its target.
const CHANGE_INTERVAL: Duration = Duration::from_millis(250);

/// When each Burst is due, and which are being reconciled.
#[derive(Default)]
pub(crate) struct Schedule {
    due: HashMap<ObjectRef<Burst>, Instant>,
    busy: HashSet<ObjectRef<Burst>>,
    /// When each was reconciled last.
    ended: HashMap<ObjectRef<Burst>, Instant>,
}

impl Schedule {
    /// A Burst, or what it depends on, has changed.
    pub(crate) fn change(&mut self, name: ObjectRef<Burst>, now: Instant) {
        let last = self.ended.get(&name);
        let at = last.map_or(now, |last| (*last + CHANGE_INTERVAL).max(now));
        self.add(name, at);
    }

    /// A Burst was reconciled, and is due again after a time, unless it no longer exists.
    pub(crate) fn end(&mut self, name: ObjectRef<Burst>, again: Option<Duration>, now: Instant) {
        self.busy.remove(&name);
        match again {
            Some(again) => {
                self.ended.insert(name.clone(), now);
                // What has changed meanwhile is due soon, but not at once.
                let soon = now + again.min(CHANGE_INTERVAL);
                let changed = self.due.remove(&name).map(|at| at.max(soon));
                self.add(name.clone(), now + again);
                changed.into_iter().for_each(|at| self.add(name.clone(), at));
            }
            None => drop(self.ended.remove(&name)),
        }
    }

    fn add(&mut self, name: ObjectRef<Burst>, at: Instant) {
        let earliest = self.due.get(&name).map_or(at, |earlier| at.min(*earlier));
        self.due.insert(name, earliest);
    }

    /// Starts those that are due and for which there is capacity.
    pub(crate) fn start(&mut self, now: Instant) -> Vec<ObjectRef<Burst>> {
        let waiting = self.due.iter().filter(|(name, at)| **at <= now && self.has_capacity(name));
        let mut ready: Vec<_> = waiting.map(|(name, at)| (*at, name.clone())).collect();
        ready.sort_by(|one, other| (one.0, &one.1.name).cmp(&(other.0, &other.1.name)));
        let mut started = Vec::new();
        for (_, name) in ready {
            if self.has_capacity(&name) {
                self.due.remove(&name);
                self.busy.insert(name.clone());
                started.push(name);
            }
        }
        started
    }

    /// When the next one is due for which there is capacity.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.iter().filter(|(name, _)| self.has_capacity(name)).map(|(_, at)| *at).min()
    }

    fn has_capacity(&self, name: &ObjectRef<Burst>) -> bool {
        let same = self.busy.iter().filter(|it| it.namespace == name.namespace).count();
        !self.busy.contains(name)
            && self.busy.len() < CONCURRENCY
            && same < CONCURRENCY_OF_NAMESPACE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(namespace: &str, number: usize) -> ObjectRef<Burst> {
        ObjectRef::new(&format!("b{number}")).within(namespace)
    }

    #[test]
    fn slow_targets_of_one_namespace_leave_room_for_the_others() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        (0..100).for_each(|number| schedule.change(name("many", number), now));
        schedule.change(name("few", 0), now + Duration::from_secs(1));
        let started = schedule.start(now);
        assert_eq!(started.len(), CONCURRENCY_OF_NAMESPACE);
        let later = now + Duration::from_secs(1);
        assert_eq!(schedule.next(), Some(later), "one of the other namespace is next");
        assert_eq!(schedule.start(later), [name("few", 0)]);
    }

    #[test]
    fn changes_do_not_repeat_a_reconciliation_at_once_but_a_step_does() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.change(name("a", 0), now);
        assert_eq!(schedule.start(now), [name("a", 0)]);
        // It changes while it is reconciled, which is not forgotten.
        schedule.change(name("a", 0), now);
        assert_eq!(schedule.start(now), []);
        schedule.end(name("a", 0), Some(Duration::from_secs(15)), now);
        let later = now + CHANGE_INTERVAL;
        assert_eq!(schedule.next(), Some(later));
        assert_eq!(schedule.start(later), [name("a", 0)]);
        schedule.end(name("a", 0), Some(Duration::from_millis(100)), later);
        schedule.change(name("a", 0), later);
        assert_eq!(schedule.next(), Some(later + Duration::from_millis(100)));
        schedule.end(name("a", 0), None, now);
        assert!(schedule.ended.is_empty());
    }
}
