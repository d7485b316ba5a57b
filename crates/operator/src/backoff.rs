//! How long to wait after a failed pass: longer after each, for each object.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;

use crate::stores::Guarded;

/// After the first failure: most are conflicts that are over at once.
const FIRST: Duration = Duration::from_millis(250);

/// After many.
const LONGEST: Duration = Duration::from_secs(60);

/// Failures in a row, by object.
#[derive(Default)]
pub(crate) struct Backoff(Mutex<HashMap<ObjectRef<Guarded>, u32>>);

impl Backoff {
    /// Counts a failure, and returns how long to wait.
    pub(crate) fn next(&self, object: ObjectRef<Guarded>) -> Duration {
        let mut failures = self.lock();
        let count = failures.entry(object).or_default();
        let delay = FIRST.saturating_mul(2_u32.saturating_pow(*count)).min(LONGEST);
        *count += 1;
        delay
    }

    /// Forgets the failures of an object.
    pub(crate) fn reset(&self, object: &ObjectRef<Guarded>) {
        self.lock().remove(object);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<Guarded>, u32>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_waits_longer_after_each_of_its_own_failures() {
        let backoff = Backoff::default();
        let (a, b) = (ObjectRef::new("a"), ObjectRef::new("b"));
        let waits: Vec<u128> = (0..10).map(|_| backoff.next(a.clone()).as_millis()).collect();
        assert_eq!(waits[..4], [250, 500, 1000, 2000]);
        assert_eq!(waits[9], 60_000);
        assert_eq!(backoff.next(b), FIRST);
        backoff.reset(&a);
        assert_eq!(backoff.next(a), FIRST);
    }
}
