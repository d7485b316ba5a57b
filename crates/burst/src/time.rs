//! Arithmetic of times that cannot overflow.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

const SECONDS_PER_DAY: i64 = 86_400;

/// The time so many seconds after `time`, saturated at the largest `Timestamp`.
pub(crate) fn seconds_after(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// The next midnight in UTC, when limits of a day start anew.
pub(crate) fn next_day(now: Timestamp) -> Timestamp {
    let day = now.as_second().div_euclid(SECONDS_PER_DAY) + 1;
    Timestamp::from_second(day.saturating_mul(SECONDS_PER_DAY)).unwrap_or(Timestamp::MAX)
}

/// The earlier of a time, if there is one, and another.
pub(crate) fn earlier(time: Option<Timestamp>, other: Timestamp) -> Option<Timestamp> {
    Some(time.map_or(other, |time| time.min(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_day_ends_at_midnight_in_utc() {
        let midnight = at("2026-05-05T00:00:00Z");
        assert_eq!(next_day(at("2026-05-04T23:59:59.9Z")), midnight);
        assert_eq!(next_day(at("2026-05-04T00:00:00Z")), midnight);
        assert_eq!(next_day(Timestamp::MAX), Timestamp::MAX);
    }
}
