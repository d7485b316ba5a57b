//! Arithmetic on times.
//!
//! A time in an annotation, a spec or a status is whatever a user has written there, up to
//! the largest `Timestamp`. `Timestamp + SignedDuration` panics beyond it, and would do so
//! again in every reconciliation. The functions here saturate instead.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The time `duration` after `time`, saturated at the largest `Timestamp`.
pub(crate) fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    // Adding fails only for spans of days and more, which a duration is not.
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// The time so many seconds after `time`, saturated at the largest `Timestamp`.
pub(crate) fn seconds_after(time: Timestamp, seconds: impl Into<i64>) -> Timestamp {
    after(time, SignedDuration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_saturate_at_both_limits() {
        for seconds in [1, i64::from(i32::MAX), i64::MAX] {
            assert_eq!(seconds_after(Timestamp::MAX, seconds), Timestamp::MAX);
            assert!(seconds_after(Timestamp::MAX, -seconds) < Timestamp::MAX);
            assert_eq!(seconds_after(Timestamp::MIN, -seconds), Timestamp::MIN);
        }
        assert_eq!(seconds_after(Timestamp::UNIX_EPOCH, 1).as_second(), 1);
        assert_eq!(after(Timestamp::MIN, SignedDuration::MIN), Timestamp::MIN);
    }
}
