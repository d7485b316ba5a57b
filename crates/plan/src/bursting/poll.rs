//! When a target is asked again. It cannot be watched: that would need one more permission there, for
//! every object of the namespace.

use flux_operator_api::BurstStatus;
use k8s_openapi::jiff::Timestamp;

use crate::time::seconds_after;

/// How soon a target is asked again while something is expected to change there, in seconds.
pub(super) const POLL_SECONDS: i64 = 1;

/// For how long that is, in seconds. Then something is wrong that takes longer.
const POLL_DURATION: i64 = 120;

/// How soon it is asked again otherwise, in seconds: while something is wrong, and while all is well.
const SLOW_POLL_SECONDS: i64 = 5;
pub(super) const SETTLED_POLL_SECONDS: i64 = 15;

/// When a target that has failed is tried again, unless that is due.
pub(super) fn next_retry(status: &BurstStatus, now: Timestamp) -> Option<Timestamp> {
    status.retry_at.parse().ok().filter(|at| *at > now)
}

/// When the target of a Burst that is not settled is asked again. `since`: since when something is
/// expected to change there.
pub(super) fn next_poll(since: Timestamp, has_step: bool, now: Timestamp) -> Timestamp {
    let is_new = now < seconds_after(since, POLL_DURATION);
    let seconds = if has_step || is_new { POLL_SECONDS } else { SLOW_POLL_SECONDS };
    seconds_after(now, seconds)
}
