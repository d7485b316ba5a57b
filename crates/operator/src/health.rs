//! The running work: reconciliations, scheduler cycles, writes.
//!
//! Two readers: `/healthz`, which fails when work hangs, and the [hand-over](crate::hand_over),
//! which waits until all work has finished.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::lock::lock;

/// Longer than any work takes unless it hangs. Every request to the API server has a timeout, so a
/// reconciliation whose requests all time out finishes within about 70 s.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// The name under which writes to the API server are tracked.
pub(crate) const WRITE: &str = "write";

/// The running work. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Health(Arc<HealthState>);

#[derive(Default)]
struct HealthState {
    table: Mutex<WorkTable>,
    finished: Notify,
}

/// Entries are reused, so tracking work does not allocate once there are enough.
#[derive(Default)]
struct WorkTable {
    all: Vec<Option<WorkItem>>,
    free: Vec<usize>,
}

#[derive(Clone, Copy)]
struct WorkItem {
    name: &'static str,
    since: Instant,
}

/// Marks work as running until it is dropped.
#[must_use = "the work is considered finished when this is dropped"]
pub(crate) struct WorkGuard {
    health: Health,
    entry: usize,
}

impl Health {
    /// Marks the start of work with this name.
    pub(crate) fn begin(&self, name: &'static str) -> WorkGuard {
        self.begin_at(name, Instant::now())
    }

    /// Marks work that has been running for too long.
    #[cfg(test)]
    pub(crate) fn begin_long_ago(&self, name: &'static str) -> WorkGuard {
        let since =
            Instant::now().checked_sub(STUCK_AFTER * 2).expect("the machine has been up longer");
        self.begin_at(name, since)
    }

    fn begin_at(&self, name: &'static str, since: Instant) -> WorkGuard {
        let work = Some(WorkItem { name, since });
        let mut slots = self.lock();
        let slot = match slots.free.pop() {
            Some(slot) => {
                slots.all[slot] = work;
                slot
            }
            None => {
                slots.all.push(work);
                slots.all.len() - 1
            }
        };
        WorkGuard { health: self.clone(), entry: slot }
    }

    /// Describes the oldest work that hangs, if there is any.
    pub(crate) fn describe_stuck_work(&self) -> Option<String> {
        self.describe_stuck_work_at(Instant::now())
    }

    fn describe_stuck_work_at(&self, now: Instant) -> Option<String> {
        let oldest = self.lock().all.iter().flatten().min_by_key(|work| work.since).copied()?;
        let age = now.saturating_duration_since(oldest.since);
        (age > STUCK_AFTER).then(|| {
            format!(
                "{:?} has been running for {} s, longer than the {} s that any work may take: \
                 the operator must be restarted",
                oldest.name,
                age.as_secs(),
                STUCK_AFTER.as_secs()
            )
        })
    }

    /// Waits until none of the running work matches `counts`, which is called with its name.
    pub(crate) async fn wait_until_none(&self, is_counted: impl Fn(&str) -> bool) {
        loop {
            // Subscribed before the check, so that no notification is missed.
            let finished = self.0.finished.notified();
            if !self.lock().all.iter().flatten().any(|work| is_counted(work.name)) {
                return;
            }
            finished.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, WorkTable> {
        lock(&self.0.table)
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let mut slots = self.health.lock();
        slots.all[self.entry] = None;
        slots.free.push(self.entry);
        drop(slots);
        self.health.0.finished.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn the_oldest_stuck_work_is_named() {
        let health = Health::default();
        assert_eq!(health.describe_stuck_work(), None);
        let hung = health.begin("FluxJob");
        let begun = Instant::now();
        let _younger = health.begin("MiniCluster");
        assert_eq!(
            health.describe_stuck_work_at(begun + STUCK_AFTER / 2),
            None,
            "it may still finish"
        );
        let text = health.describe_stuck_work_at(begun + STUCK_AFTER * 2).unwrap();
        assert!(text.contains("\"FluxJob\" has been running for 240 s"), "{text}");
        drop(hung);
        let said = health.describe_stuck_work_at(begun + STUCK_AFTER * 2).unwrap();
        assert!(said.contains("MiniCluster"), "{said}");
    }

    #[test]
    fn finished_work_frees_its_entry_for_reuse() {
        let health = Health::default();
        for _ in 0..1000 {
            drop((health.begin("a"), health.begin("b")));
        }
        assert_eq!(health.lock().all.len(), 2);
    }

    #[test]
    fn work_that_panics_counts_as_finished() {
        let health = Health::default();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _work = health.begin("MiniCluster");
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert!(health.wait_until_none(|_| true).now_or_never().is_some());
    }

    #[tokio::test]
    async fn all_work_with_a_name_is_waited_for() {
        let health = Health::default();
        let (one, other, _read) = (health.begin(WRITE), health.begin(WRITE), health.begin("read"));
        let mut waiting = std::pin::pin!(health.wait_until_none(|name| name == WRITE));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(one);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(other);
        waiting.await;
    }
}
