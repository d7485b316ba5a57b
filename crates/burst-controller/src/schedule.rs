//! What is reconciled next: what has been due for the longest, a few at a time, and only some of each
//! namespace. So one namespace does not keep the others waiting, whatever its users create.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::Burst;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How soon what has panicked is reconciled again.
const AFTER_PANIC: Duration = Duration::from_secs(10);

/// How many changes are received at once.
const MAX_RECEIVED: usize = 10_000;

/// How much is reconciled at the same time, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many reconciliations run at the same time: a target that does not respond must not keep the
    /// others waiting.
    pub(crate) in_total: usize,
    /// How many of these are of one namespace. While half of all run, it has only one.
    pub(crate) of_namespace: usize,
    /// The delay after a change, so that several changes cause one reconciliation.
    pub(crate) delay: Duration,
    /// The shortest time between two reconciliations because of changes.
    pub(crate) interval: Duration,
}

/// What is reconciled.
pub(crate) trait Scheduled: Clone + Eq + Hash + Send + 'static {
    /// The namespace whose turn it takes.
    fn namespace(&self) -> &str;
}

impl Scheduled for ObjectRef<Burst> {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

/// A whole namespace.
impl Scheduled for Arc<str> {
    fn namespace(&self) -> &str {
        self
    }
}

/// Reconciles what has changed or is due, and nothing twice at the same time, until there can be no
/// more changes. `reconcile` returns when to do it again at the latest; `None` if there is nothing left.
pub(crate) async fn reconcile_all<K, F>(
    limits: Limits,
    mut changed: mpsc::UnboundedReceiver<K>,
    reconcile: impl Fn(K) -> F,
) where
    K: Scheduled,
    F: Future<Output = Option<Duration>> + Send + 'static,
{
    let mut schedule = Schedule::<K>::new(limits);
    // In tasks of their own: what takes long, or panics, does not stop the others.
    let mut running = JoinSet::new();
    let mut names = HashMap::new();
    let mut received = Vec::new();
    loop {
        for name in schedule.start(Instant::now()) {
            let id = running.spawn(reconcile(name.clone())).id();
            names.insert(id, name);
        }
        let pause = async {
            match schedule.next() {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = running.join_next_with_id() => {
                let (id, again) = match ended {
                    Ok(ended) => ended,
                    Err(error) => {
                        tracing::error!(%error, "a reconciliation has failed");
                        (error.id(), Some(AFTER_PANIC))
                    }
                };
                if let Some(name) = names.remove(&id) {
                    schedule.end(name, again, Instant::now());
                }
            }
            // All at once: there may be as many as there are objects.
            count = changed.recv_many(&mut received, MAX_RECEIVED) => {
                if count == 0 {
                    return;
                }
                received.drain(..).for_each(|name| schedule.change(name, Instant::now()));
            }
            () = pause => {}
        }
    }
}

/// When each is due, and which are being reconciled.
struct Schedule<K> {
    limits: Limits,
    due: HashMap<K, Instant>,
    busy: HashSet<K>,
    /// How many of these are of each namespace.
    busy_of: HashMap<String, usize>,
    /// When each was reconciled last.
    ended: HashMap<K, Instant>,
}

impl<K: Scheduled> Schedule<K> {
    fn new(limits: Limits) -> Schedule<K> {
        Schedule {
            limits,
            due: HashMap::new(),
            busy: HashSet::new(),
            busy_of: HashMap::new(),
            ended: HashMap::new(),
        }
    }

    /// One, or what it depends on, has changed.
    fn change(&mut self, name: K, now: Instant) {
        let soon = now + self.limits.delay;
        let last = self.ended.get(&name);
        let at = last.map_or(soon, |last| (*last + self.limits.interval).max(soon));
        self.add(name, at);
    }

    /// One was reconciled, and is due again after a time, unless there is nothing left.
    fn end(&mut self, name: K, again: Option<Duration>, now: Instant) {
        self.busy.remove(&name);
        if let Some(count) = self.busy_of.get_mut(name.namespace()) {
            *count = count.saturating_sub(1);
        }
        self.busy_of.retain(|_, count| *count > 0);
        match again {
            Some(again) => {
                self.ended.insert(name.clone(), now);
                // What has changed meanwhile is due soon, but not at once.
                let soon = now + again.min(self.limits.interval);
                let changed = self.due.remove(&name).map(|at| at.max(soon));
                self.add(name.clone(), now + again);
                changed.into_iter().for_each(|at| self.add(name.clone(), at));
            }
            None => drop(self.ended.remove(&name)),
        }
    }

    fn add(&mut self, name: K, at: Instant) {
        let earliest = self.due.get(&name).map_or(at, |earlier| at.min(*earlier));
        self.due.insert(name, earliest);
    }

    /// Starts those that are due and for which there is capacity.
    fn start(&mut self, now: Instant) -> Vec<K> {
        let waiting = self.due.iter().filter(|(name, at)| **at <= now && self.has_capacity(name));
        let mut ready: Vec<_> = waiting.map(|(name, at)| (*at, name.clone())).collect();
        ready.sort_by_key(|(at, _)| *at);
        let mut started = Vec::new();
        for (_, name) in ready {
            if self.has_capacity(&name) {
                self.due.remove(&name);
                self.busy.insert(name.clone());
                let count = self.busy_of.entry(name.namespace().to_owned()).or_default();
                *count = count.saturating_add(1);
                started.push(name);
            }
        }
        started
    }

    /// When the next one is due for which there is capacity.
    fn next(&self) -> Option<Instant> {
        self.due.iter().filter(|(name, _)| self.has_capacity(name)).map(|(_, at)| *at).min()
    }

    fn has_capacity(&self, name: &K) -> bool {
        let Limits { in_total, of_namespace, .. } = self.limits;
        let busy = self.busy.len();
        let most = if busy < in_total / 2 { of_namespace } else { 1 };
        busy < in_total
            && !self.busy.contains(name)
            && self.busy_of.get(name.namespace()).is_none_or(|count| *count < most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        in_total: 16,
        of_namespace: 4,
        delay: Duration::ZERO,
        interval: Duration::from_millis(250),
    };

    fn name(namespace: &str, number: usize) -> ObjectRef<Burst> {
        ObjectRef::new(&format!("b{number}")).within(namespace)
    }

    #[test]
    fn slow_targets_of_one_namespace_leave_room_for_the_others() {
        let (mut schedule, now) = (Schedule::new(LIMITS), Instant::now());
        (0..100).for_each(|number| schedule.change(name("many", number), now));
        schedule.change(name("few", 0), now + Duration::from_secs(1));
        let started = schedule.start(now);
        assert_eq!(started.len(), LIMITS.of_namespace);
        let later = now + Duration::from_secs(1);
        assert_eq!(schedule.next(), Some(later), "one of the other namespace is next");
        assert_eq!(schedule.start(later), [name("few", 0)]);
    }

    #[test]
    fn slow_targets_of_a_few_namespaces_leave_room_for_the_others() {
        let (mut schedule, now) = (Schedule::new(LIMITS), Instant::now());
        let namespaces: Vec<String> = (0..4).map(|number| format!("slow{number}")).collect();
        for namespace in &namespaces {
            (0..100).for_each(|number| schedule.change(name(namespace, number), now));
        }
        schedule.start(now);
        let later = now + Duration::from_secs(1);
        schedule.change(name("other", 0), later);
        assert_eq!(schedule.start(later), [name("other", 0)]);
    }

    #[test]
    fn changes_do_not_repeat_a_reconciliation_at_once_but_a_step_does() {
        let (mut schedule, now) = (Schedule::new(LIMITS), Instant::now());
        schedule.change(name("a", 0), now);
        assert_eq!(schedule.start(now), [name("a", 0)]);
        // It changes while it is reconciled, which is not forgotten.
        schedule.change(name("a", 0), now);
        assert_eq!(schedule.start(now), []);
        schedule.end(name("a", 0), Some(Duration::from_secs(15)), now);
        let later = now + LIMITS.interval;
        assert_eq!(schedule.next(), Some(later));
        assert_eq!(schedule.start(later), [name("a", 0)]);
        schedule.end(name("a", 0), Some(Duration::from_millis(100)), later);
        schedule.change(name("a", 0), later);
        assert_eq!(schedule.next(), Some(later + Duration::from_millis(100)));
        schedule.end(name("a", 0), None, now);
        assert!(schedule.ended.is_empty());
    }

    #[tokio::test]
    async fn one_that_takes_long_or_panics_does_not_stop_the_others() {
        let limits = Limits { of_namespace: 1, ..LIMITS };
        let (changes, changed) = mpsc::unbounded_channel();
        let (ended, mut endings) = mpsc::unbounded_channel();
        let all = tokio::spawn(reconcile_all(limits, changed, move |name: Arc<str>| {
            let ended = ended.clone();
            async move {
                match &*name {
                    "hangs" => std::future::pending().await,
                    "panics" => panic!("for a test"),
                    _ => ended.send(name).unwrap(),
                }
                None
            }
        }));
        for name in ["hangs", "panics", "other"] {
            changes.send(Arc::from(name)).unwrap();
        }
        assert_eq!(endings.recv().await.as_deref(), Some("other"));
        changes.send(Arc::from("other")).unwrap();
        assert_eq!(endings.recv().await.as_deref(), Some("other"), "it is reconciled again");
        drop(changes);
        all.await.unwrap();
    }
}
