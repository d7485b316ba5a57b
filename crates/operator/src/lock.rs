//! Locks that outlive a panic of their holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. A panic in one reconciliation must not end all others, so a lock that was
/// held then is taken as if nothing had happened: every holder here leaves its value whole
/// between any two of its statements that can panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_panics_leaves_the_lock_to_others() {
        let mutex = Mutex::new(1);
        let panicked = std::panic::catch_unwind(|| {
            let _held = lock(&mutex);
            panic!("while it is held");
        });
        assert!(panicked.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 1);
    }
}
