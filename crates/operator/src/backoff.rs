//! Exponential backoff: the delay doubles after each failure in a row.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::lock::lock;

/// The delay after the first failure. Most failures are conflicts, and a retry succeeds at once.
const INITIAL_DELAY: Duration = Duration::from_millis(250);

/// The delay does not grow beyond this.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The delay after a failure that follows `failures` others in a row.
pub(crate) fn delay(failures: u32) -> Duration {
    INITIAL_DELAY.saturating_mul(2_u32.saturating_pow(failures)).min(MAX_DELAY)
}

/// The number of failures in a row of each object.
pub(crate) struct Backoff<T>(Mutex<HashMap<T, u32>>);

impl<T> Default for Backoff<T> {
    fn default() -> Self {
        Backoff(Mutex::default())
    }
}

impl<T: Eq + Hash> Backoff<T> {
    /// Counts a failure and returns how long to wait before the next attempt.
    pub(crate) fn next(&self, object: T) -> Duration {
        let mut failures = self.lock();
        let count = failures.entry(object).or_default();
        let delay = delay(*count);
        *count = count.saturating_add(1);
        delay
    }

    /// Forgets an object's failures.
    pub(crate) fn reset(&self, object: &T) {
        self.lock().remove(object);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<T, u32>> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_an_object_doubles_with_its_own_failures_only() {
        let backoff = Backoff::default();
        let (a, b) = ("a", "b");
        let waits: Vec<u128> = (0..10).map(|_| backoff.next(a).as_millis()).collect();
        assert_eq!(waits[..4], [250, 500, 1000, 2000]);
        assert_eq!(waits[9], 60_000);
        assert_eq!(backoff.next(b), INITIAL_DELAY);
        backoff.reset(&a);
        assert_eq!(backoff.next(a), INITIAL_DELAY);
    }
}
