//! How fast the queue may write, if it is told so: admissions first, everything else
//! with what they leave.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A limit of the queue's writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Writes per second in the long run.
    pub per_second: f64,
    /// Writes that may come at once after a pause.
    pub burst: u32,
}

/// Gives turns at a rate.
pub(crate) struct Pace(Option<Bucket>);

struct Bucket {
    interval: Duration,
    /// How far behind the next turn may be: what a pause saves up.
    slack: Duration,
    /// When the next turn is, if everybody came as fast as allowed.
    next: Mutex<Instant>,
}

impl Pace {
    /// As fast as this; as fast as can be without.
    pub(crate) fn new(rate: Option<Rate>) -> Pace {
        Pace(rate.filter(|rate| rate.per_second > 0.0).map(|rate| {
            let interval = Duration::from_secs_f64(1.0 / rate.per_second);
            let slack = interval * rate.burst.saturating_sub(1);
            let now = Instant::now();
            Bucket { interval, slack, next: Mutex::new(now.checked_sub(slack).unwrap_or(now)) }
        }))
    }

    /// Waits for the next turn.
    pub(crate) async fn turn(&self) {
        let Some(bucket) = &self.0 else { return };
        let turn = bucket.take(Instant::now());
        tokio::time::sleep_until(turn.into()).await;
    }

    /// Takes a turn if there is one that nobody waits for.
    pub(crate) fn spare(&self) -> bool {
        let Some(bucket) = &self.0 else { return true };
        bucket.take_spare(Instant::now())
    }
}

impl Bucket {
    fn take(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().expect("no holder of this lock panics");
        let turn = self.earliest(*next, now);
        *next = turn + self.interval;
        turn
    }

    fn take_spare(&self, now: Instant) -> bool {
        let mut next = self.next.lock().expect("no holder of this lock panics");
        let turn = self.earliest(*next, now);
        // Half of what is saved up stays for admissions that come in a moment.
        let is_spare = turn + self.slack / 2 <= now;
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
        let Pace(bucket) = Pace::new(Some(Rate { per_second: 10.0, burst: 5 }));
        (bucket.unwrap(), Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn after_a_pause_a_burst_comes_at_once_and_then_one_at_a_time() {
        let (bucket, now) = bucket();
        let late: Vec<bool> = (0..7).map(|_| bucket.take(now) > now).collect();
        assert_eq!(late, [false, false, false, false, false, true, true]);
        let later = now + Duration::from_millis(1000);
        assert!(bucket.take(later) <= later);
    }

    #[test]
    fn what_can_wait_gives_way_to_admissions() {
        let (bucket, now) = bucket();
        let spare: Vec<bool> = (0..5).map(|_| bucket.take_spare(now)).collect();
        assert_eq!(spare, [true, true, true, false, false]);
        assert!(bucket.take(now) <= now, "nothing was left for an admission");
        for _ in 0..5 {
            bucket.take(now);
        }
        assert!(!bucket.take_spare(now + Duration::from_millis(100)));
    }

    #[test]
    fn without_a_limit_there_is_always_a_turn() {
        let pace = Pace::new(None);
        assert!((0..1000).all(|_| pace.spare()));
    }
}
