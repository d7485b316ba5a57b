//! How long an evicted job stays out of the queue.

use flux_operator_api::fluxsetup::RequeuePolicy;
use k8s_openapi::jiff::SignedDuration;

/// Kueue's numbers: a minute, and at most an hour.
const BASE_SECONDS: i32 = 60;
const MAX_SECONDS: i32 = 3600;

/// The largest share of jitter, so that jobs that were evicted together do not return
/// together.
const JITTER: f64 = 0.1;

/// How long a job that was evicted `count` times before stays out of the queue. `jitter` is
/// from 0 to 1.
pub(super) fn back_off(policy: &RequeuePolicy, count: i32, jitter: f64) -> SignedDuration {
    let base = i64::from(policy.base_seconds.unwrap_or(BASE_SECONDS));
    let most = i64::from(policy.max_seconds.unwrap_or(MAX_SECONDS));
    // Twice as long each time; 2^31 times any base is beyond any maximum.
    let seconds = base.saturating_mul(1 << count.clamp(0, 31)).min(most).max(0);
    SignedDuration::from_secs(seconds).mul_f64(1.0 + JITTER * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(policy: &RequeuePolicy, count: i32, jitter: f64) -> f64 {
        back_off(policy, count, jitter).as_secs_f64()
    }

    #[test]
    fn q16_the_back_off_doubles_up_to_a_maximum() {
        let usual = RequeuePolicy::default();
        let all: Vec<f64> = (0..8).map(|count| seconds(&usual, count, 0.0)).collect();
        assert_eq!(all, [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]);
        assert_eq!(seconds(&usual, i32::MAX, 0.0), 3600.0);
        assert_eq!(seconds(&usual, 0, 0.5), 63.0, "with jitter");
    }

    #[test]
    fn q16_base_and_maximum_are_the_setups() {
        let policy = RequeuePolicy { base_seconds: Some(1), max_seconds: Some(3), limit: None };
        let all: Vec<f64> = (0..4).map(|count| seconds(&policy, count, 0.0)).collect();
        assert_eq!(all, [1.0, 2.0, 3.0, 3.0]);
    }
}
