//! Limits the rate of the queue's writes, if configured. Admissions come first; other writes get
//! the rest.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// The maximum rate of the queue's writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteRate {
    /// Writes per second on average.
    pub per_second: f64,
    /// Writes that may be made at once after a pause.
    pub burst: u32,
}

/// The rate of status writes that no other write depends on. Users who need the status at once use
/// the HTTP endpoint or the command line; writing it for thousands of jobs would cost the API
/// server more than admitting them.
const LOW_PRIORITY_RATE: WriteRate = WriteRate { per_second: 10.0, burst: 100 };

/// A status write that no other write depends on.
#[derive(Clone, Copy)]
pub(crate) enum LowPriorityWrite {
    /// Why a job waits.
    WaitingJob,
    /// The status of a setup.
    Setup,
}

/// A rate limiter that prefers admissions over low-priority writes.
pub(crate) struct RateLimiter {
    writes: Option<Bucket>,
    waiting: Bucket,
    setups: Bucket,
}

struct Bucket {
    interval: Duration,
    /// How much unused time is saved up for a burst.
    slack: Duration,
    /// When the next write is due if all writes come at the maximum rate.
    next: Mutex<Instant>,
}

impl RateLimiter {
    /// Limits writes to this rate; unlimited if None.
    pub(crate) fn new(rate: Option<WriteRate>) -> RateLimiter {
        let writes = rate.filter(|rate| rate.per_second > 0.0).map(Bucket::new);
        RateLimiter {
            writes,
            waiting: Bucket::new(LOW_PRIORITY_RATE),
            setups: Bucket::new(LOW_PRIORITY_RATE),
        }
    }

    /// Waits until the next write is allowed.
    pub(crate) async fn acquire(&self) {
        let Some(bucket) = &self.writes else { return };
        let turn = bucket.take(Instant::now());
        tokio::time::sleep_until(turn.into()).await;
    }

    /// Waits until a low-priority write is allowed.
    pub(crate) async fn acquire_low_priority(&self, write: LowPriorityWrite) {
        while !self.try_acquire_low_priority(write) {
            tokio::time::sleep(self.bucket_of(write).interval).await;
        }
    }

    /// Whether a low-priority write is allowed now without delaying an admission; if so, counts it.
    pub(crate) fn try_acquire_low_priority(&self, events: LowPriorityWrite) -> bool {
        let now = Instant::now();
        // Half of the saved burst is kept for admissions that arrive soon.
        let spare = |writes: &Bucket| writes.try_take_keeping(now, writes.slack / 2);
        self.bucket_of(events).try_take_keeping(now, Duration::ZERO)
            && self.writes.as_ref().is_none_or(spare)
    }

    fn bucket_of(&self, events: LowPriorityWrite) -> &Bucket {
        match events {
            LowPriorityWrite::WaitingJob => &self.waiting,
            LowPriorityWrite::Setup => &self.setups,
        }
    }
}

/// The maximum time between two writes. A very low rate would overflow the clock.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

impl Bucket {
    fn new(rate: WriteRate) -> Bucket {
        let interval = Duration::try_from_secs_f64(1.0 / rate.per_second).unwrap_or(MAX_INTERVAL);
        let interval = interval.min(MAX_INTERVAL);
        let slack = interval.saturating_mul(rate.burst.saturating_sub(1));
        let now = Instant::now();
        Bucket { interval, slack, next: Mutex::new(now.checked_sub(slack).unwrap_or(now)) }
    }

    fn take(&self, now: Instant) -> Instant {
        let mut next = lock(&self.next);
        let turn = self.earliest(*next, now);
        *next = turn + self.interval;
        turn
    }

    /// Takes a token unless less than `kept` of the saved time would be left.
    fn try_take_keeping(&self, now: Instant, kept: Duration) -> bool {
        let mut next = lock(&self.next);
        let turn = self.earliest(*next, now);
        let is_spare = turn + kept <= now;
        if is_spare {
            *next = turn + self.interval;
        }
        is_spare
    }

    fn earliest(&self, next: Instant, now: Instant) -> Instant {
        now.checked_sub(self.slack).map_or(next, |saved| next.max(saved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket() -> (Bucket, Instant) {
        let bucket = Bucket::new(WriteRate { per_second: 10.0, burst: 5 });
        (bucket, Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn after_a_pause_a_burst_is_allowed_and_then_one_at_a_time() {
        let (bucket, now) = bucket();
        let late: Vec<bool> = (0..7).map(|_| bucket.take(now) > now).collect();
        assert_eq!(late, [false, false, false, false, false, true, true]);
        let later = now + Duration::from_millis(1000);
        assert!(bucket.take(later) <= later);
    }

    #[test]
    fn a_tiny_rate_is_slow_whatever_its_burst() {
        for per_second in [f64::MIN_POSITIVE, 1e-9] {
            let bucket = Bucket::new(WriteRate { per_second, burst: 1 });
            let now = Instant::now();
            assert!(bucket.take(now) <= now);
            assert_eq!(bucket.take(now).duration_since(now), MAX_INTERVAL);
            let bucket = Bucket::new(WriteRate { per_second, burst: u32::MAX });
            assert!(bucket.try_take_keeping(now, Duration::ZERO));
        }
    }

    #[test]
    fn low_priority_writes_leave_tokens_for_admissions() {
        let (bucket, now) = bucket();
        let kept = bucket.slack / 2;
        let spare: Vec<bool> = (0..5).map(|_| bucket.try_take_keeping(now, kept)).collect();
        assert_eq!(spare, [true, true, true, false, false]);
        assert!(bucket.take(now) <= now, "no token was left for an admission");
        for _ in 0..5 {
            bucket.take(now);
        }
        assert!(!bucket.try_take_keeping(now + Duration::from_millis(100), kept));
    }

    #[test]
    fn low_priority_writes_are_limited_even_without_a_configured_rate() {
        let pace = RateLimiter::new(None);
        let allowed = (0..1000)
            .filter(|_| pace.try_acquire_low_priority(LowPriorityWrite::WaitingJob))
            .count();
        assert!((100..1000).contains(&allowed), "{allowed}");
        assert!(
            pace.try_acquire_low_priority(LowPriorityWrite::Setup),
            "each kind has its own bucket"
        );
    }
}
