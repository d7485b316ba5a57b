//! Arithmetic of times that cannot overflow.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

const SECONDS_PER_DAY: i64 = 86_400;

/// The time so many seconds after `time`, saturated at the largest `Timestamp`.
pub(crate) fn seconds_after(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// Whole seconds from `now` until `time`, rounded up; 0 if it has passed.
pub(crate) fn seconds_until(now: Timestamp, time: Timestamp) -> i64 {
    let duration = time.duration_since(now);
    (duration.as_secs() + i64::from(duration.subsec_nanos() > 0)).max(0)
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
    fn a_part_of_a_second_counts_as_one() {
        let now = at("2026-05-04T10:00:00Z");
        let cases = [
            ("2026-05-04T10:00:02Z", 2),
            ("2026-05-04T10:00:01.2Z", 2),
            ("2026-05-04T09:59:00Z", 0),
            ("2026-05-04T09:59:59.5Z", 0),
        ];
        for (time, seconds) in cases {
            assert_eq!(seconds_until(now, at(time)), seconds, "{time}");
        }
    }

    #[test]
    fn a_day_ends_at_midnight_in_utc() {
        let midnight = at("2026-05-05T00:00:00Z");
        assert_eq!(next_day(at("2026-05-04T23:59:59.9Z")), midnight);
        assert_eq!(next_day(at("2026-05-04T00:00:00Z")), midnight);
        assert_eq!(next_day(Timestamp::MAX), Timestamp::MAX);
    }
}
