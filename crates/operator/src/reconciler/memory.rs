//! What the reconciler remembers about objects between reconciliations, until they are deleted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use flux_operator_plan::QueryAnswer;

use super::kind::{WriteTime, WrittenObject};
use crate::backoff::delay;
use crate::lock::lock;

/// How long to wait for the watch to deliver our own write. If it does not, another client has
/// undone the write or the watch is disconnected; then the cached state is used as it is.
const OWN_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many times a transient failure is retried at the shortest interval: for 5 s in total.
const QUICK_RETRIES: u32 = 20;

/// Entries by the uids of objects.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<String, Entry>>);

/// What is remembered about one object.
#[derive(Default)]
struct Entry {
    /// Our own writes that the watches have not delivered yet. A decision made without them would
    /// repeat them.
    expected: Vec<(WrittenObject, Instant)>,
    /// Failures in a row.
    failures: u32,
    /// Transient failures in a row.
    transient: u32,
    /// The generation for which a panic or an invalid object was already reported.
    reported: Option<Option<i64>>,
    /// Since when a status change has been deferred.
    deferred: Option<Instant>,
    /// The last answers of the API server.
    answers: Vec<QueryAnswer>,
}

impl Entry {
    fn is_empty(&self) -> bool {
        let Entry { expected, failures, transient, reported, deferred, answers } = self;
        let nothing = expected.is_empty() && answers.is_empty();
        nothing && (*failures, *transient) == (0, 0) && reported.is_none() && deferred.is_none()
    }
}

impl Memory {
    /// Forgets a deleted object.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Forgets all objects except these.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.lock().retain(|uid, _| exists(uid));
    }

    /// Remembers a write until a watch delivers it.
    pub(super) fn expect(&self, uid: &str, written: WrittenObject) {
        self.update(uid, |entry| {
            let is_same = |before: &WrittenObject| {
                (&before.kind, &before.name) == (&written.kind, &written.name)
            };
            entry.expected.retain(|(before, _)| !is_same(before));
            entry.expected.push((written, Instant::now()));
        });
    }

    /// How long to wait for undelivered writes, if there are any. `shown` returns the resource
    /// version that a watch has delivered for an object.
    pub(super) fn own_write_wait(
        &self,
        uid: &str,
        observed_version: impl Fn(&WrittenObject) -> Option<String>,
    ) -> Option<Duration> {
        // `shown` reads other stores, so it is not called under the lock.
        let expected: Vec<WrittenObject> = {
            let entries = self.lock();
            entries.get(uid)?.expected.iter().map(|(written, _)| written.clone()).collect()
        };
        let delivered: Vec<WrittenObject> = expected
            .into_iter()
            .filter(|it| is_delivered(observed_version(it).as_deref(), it))
            .collect();
        self.update(uid, |entry| {
            entry
                .expected
                .retain(|(it, at)| at.elapsed() < OWN_WRITE_TIMEOUT && !delivered.contains(it));
            entry
                .expected
                .iter()
                .map(|(_, at)| OWN_WRITE_TIMEOUT.saturating_sub(at.elapsed()))
                .max()
        })
    }

    /// Counts a failure and returns how long to wait.
    pub(super) fn back_off(&self, uid: &str) -> Duration {
        self.update(uid, |entry| {
            let delay = delay(entry.failures);
            entry.failures = entry.failures.saturating_add(1);
            delay
        })
    }

    /// How long to wait after a transient failure: it is retried often for some seconds, and then
    /// with backoff like any failure.
    pub(super) fn back_off_transient(&self, uid: &str) -> Duration {
        self.update(uid, |entry| {
            entry.transient = entry.transient.saturating_add(1);
            delay(entry.transient.saturating_sub(QUICK_RETRIES))
        })
    }

    /// Forgets an object's failures.
    pub(super) fn reset_failures(&self, uid: &str) {
        self.update(uid, |entry| {
            (entry.failures, entry.transient, entry.reported) = (0, 0, None);
        });
    }

    /// Whether a failure was already reported for this generation.
    pub(super) fn is_reported(&self, uid: &str, generation: Option<i64>) -> bool {
        self.lock().get(uid).is_some_and(|entry| entry.reported == Some(generation))
    }

    /// Remembers that a failure was reported for this generation.
    pub(super) fn set_reported(&self, uid: &str, generation: Option<i64>) {
        self.update(uid, |entry| entry.reported = Some(generation));
    }

    /// When a status may be written that can be combined with later changes: `patience` after it
    /// was first deferred.
    pub(super) fn defer(&self, uid: &str, patience: Duration) -> WriteTime {
        self.update(uid, |entry| {
            let since = entry.deferred.get_or_insert_with(Instant::now);
            match patience.saturating_sub(since.elapsed()) {
                Duration::ZERO => WriteTime::Now,
                left => WriteTime::After(left),
            }
        })
    }

    /// Forgets that a status change was deferred.
    pub(super) fn clear_deferred(&self, uid: &str) {
        self.update(uid, |entry| entry.deferred = None);
    }

    /// The last answers of the API server.
    pub(crate) fn answers(&self, uid: &str) -> Vec<QueryAnswer> {
        self.lock().get(uid).map(|entry| entry.answers.clone()).unwrap_or_default()
    }

    /// Remembers the answers of the API server.
    pub(crate) fn set_answers(&self, uid: &str, answers: Vec<QueryAnswer>) {
        self.update(uid, |entry| entry.answers = answers);
    }

    /// Changes an entry, and removes it if it is empty afterwards.
    fn update<T>(&self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> T {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(uid) else {
            let mut entry = Entry::default();
            let result = change(&mut entry);
            if !entry.is_empty() {
                entries.insert(uid.to_owned(), entry);
            }
            return result;
        };
        let result = change(entry);
        if entry.is_empty() {
            entries.remove(uid);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        lock(&self.0)
    }
}

/// Resource versions of one kind increase, and Kubernetes documents that they may be compared.
fn is_delivered(shown: Option<&str>, written: &WrittenObject) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    match (shown, written.version.as_deref()) {
        (None, _) => false,
        (Some(shown), Some(wanted)) => match (number(shown), number(wanted)) {
            (Some(shown), Some(wanted)) => shown >= wanted,
            _ => true,
        },
        (Some(_), None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: &str) -> WrittenObject {
        WrittenObject { kind: "Job".into(), name: "a".into(), version: Some(version.into()) }
    }

    #[test]
    fn a_write_is_waited_for_until_a_watch_delivers_it() {
        let memory = Memory::default();
        let shown = |version: Option<&str>| {
            let version = version.map(str::to_owned);
            memory.own_write_wait("u", |_| version.clone()).is_none()
        };
        assert!(shown(None), "nothing was written");
        memory.expect("u", written("9"));
        memory.expect("u", written("10"));
        assert!(!shown(None));
        assert!(!shown(Some("9")), "versions are numbers, not text");
        assert!(shown(Some("11")));
        assert!(shown(None), "it is forgotten");
    }

    #[test]
    fn the_delay_of_an_object_doubles_with_its_own_failures_only() {
        let memory = Memory::default();
        let waits: Vec<u128> = (0..4).map(|_| memory.back_off("a").as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000]);
        assert_eq!(memory.back_off("b").as_millis(), 250);
        memory.reset_failures("a");
        assert_eq!(memory.back_off("a").as_millis(), 250);
    }

    #[test]
    fn transient_failures_are_retried_often_but_not_forever() {
        let memory = Memory::default();
        let waits: Vec<u128> =
            (0..30).map(|_| memory.back_off_transient("a").as_millis()).collect();
        assert!(waits[..20].iter().all(|wait| *wait == 250), "{waits:?}");
        assert_eq!(waits[20..23], [500, 1000, 2000]);
        assert_eq!(waits[29], 60_000);
    }

    #[test]
    fn nothing_is_kept_for_settled_or_deleted_objects() {
        let memory = Memory::default();
        memory.expect("settled", written("1"));
        memory.back_off("settled");
        memory.defer("settled", Duration::from_secs(9));
        memory.own_write_wait("settled", |_| Some("1".into()));
        memory.reset_failures("settled");
        memory.clear_deferred("settled");
        memory.back_off("gone");
        memory.back_off("unlisted");
        memory.forget("gone");
        memory.retain(|uid| uid != "unlisted");
        assert!(memory.lock().is_empty());
    }

    #[test]
    fn a_status_is_deferred_no_longer_than_its_patience() {
        let memory = Memory::default();
        assert!(matches!(memory.defer("u", Duration::from_secs(9)), WriteTime::After(_)));
        assert_eq!(memory.defer("u", Duration::ZERO), WriteTime::Now);
    }
}
