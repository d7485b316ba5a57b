//! When to list the jobs of an instance: soon after they change, without taking much of a core.

use std::time::{Duration, Instant};

use flux_operator_wire::JobCounts;

/// The time between the starts of two lists, as a multiple of the time that the first one took:
/// listing takes at most 5 % of a core.
const COST_FACTOR: u32 = 20;

/// What a list takes at most of a core, and each of its jobs: twice what was measured. On a busy machine
/// its commands wait for their turn as well, which costs nothing.
const MAX_COST: Duration = Duration::from_millis(50);
const MAX_COST_OF_JOB: Duration = Duration::from_micros(110);

/// The minimum time between the starts of two lists.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum of that time, however long a list takes: the operator drops a list that is not
/// repeated within 75 seconds.
const MAX_INTERVAL: Duration = Duration::from_secs(30);

/// After this time the jobs are listed again although their number has not changed: order,
/// estimates and time limits may have.
const MAX_AGE: Duration = Duration::from_secs(10);

/// When the jobs were last listed.
#[derive(Debug, Default)]
pub struct ListingSchedule {
    last: Option<Listing>,
}

#[derive(Debug)]
struct Listing {
    started: Instant,
    cost: Duration,
    /// The number of jobs just before; `None` if it is not known, or not all was listed.
    counts: Option<JobCounts>,
}

impl ListingSchedule {
    /// Whether to list the jobs now. `counts` is the number of jobs; `is_reported` is whether the
    /// operator has received the last list.
    ///
    /// The number of jobs that were ever submitted only grows, and a job never becomes pending
    /// again. So if all counts are the same, then the same jobs are pending, and the same jobs run.
    pub fn is_due(&self, now: Instant, counts: Option<JobCounts>, is_reported: bool) -> bool {
        let Some(last) = &self.last else { return true };
        let age = now.saturating_duration_since(last.started);
        let interval = last.cost.saturating_mul(COST_FACTOR).clamp(MIN_INTERVAL, MAX_INTERVAL);
        let may_have_changed = counts.is_none() || counts != last.counts || age >= MAX_AGE;
        age >= interval && (may_have_changed || !is_reported)
    }

    /// Records a list of so many jobs, and how long Flux's commands took for it.
    pub fn record(
        &mut self,
        started: Instant,
        took: Duration,
        jobs: usize,
        counts: Option<JobCounts>,
    ) {
        let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
        let most = MAX_COST_OF_JOB.saturating_mul(jobs).saturating_add(MAX_COST);
        self.last = Some(Listing { started, cost: took.min(most), counts });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pending: u32, inactive: u32) -> Option<JobCounts> {
        Some(JobCounts { pending, running: 1, inactive })
    }

    /// Whether jobs are listed this long after a list of 10,000 that took `took` milliseconds.
    fn is_due_after(took: u64, seconds: f64, now: Option<JobCounts>, is_reported: bool) -> bool {
        let (start, mut schedule) = (Instant::now(), ListingSchedule::default());
        schedule.record(start, Duration::from_millis(took), 10_000, counts(3, 0));
        schedule.is_due(start + Duration::from_secs_f64(seconds), now, is_reported)
    }

    #[test]
    fn jobs_are_listed_when_their_number_changes() {
        assert!(ListingSchedule::default().is_due(Instant::now(), counts(3, 0), true));
        assert!(!is_due_after(10, 2.0, counts(3, 0), true));
        assert!(is_due_after(10, 2.0, counts(4, 0), true));
        assert!(is_due_after(10, 2.0, counts(3, 1), true), "one was replaced by another");
        assert!(is_due_after(10, 2.0, None, true), "fluxlet does not count them");
        assert!(is_due_after(10, 2.0, counts(3, 0), false), "the operator has not received them");
        assert!(is_due_after(10, 10.0, counts(3, 0), true), "their order may have changed");
    }

    #[test]
    fn listing_takes_at_most_a_twentieth_of_the_time() {
        assert!(!is_due_after(1, 0.9, counts(4, 0), true));
        assert!(is_due_after(1, 1.0, counts(4, 0), true));
        assert!(!is_due_after(650, 12.9, counts(4, 0), false));
        assert!(is_due_after(650, 13.0, counts(4, 0), true));
        assert!(is_due_after(9_000, 30.0, counts(4, 0), true), "the operator waits for it");
    }

    /// Otherwise a job that has finished meanwhile would be taken for one that needs nodes.
    #[test]
    fn a_short_list_is_renewed_soon_on_a_busy_machine_too() {
        let (start, mut schedule) = (Instant::now(), ListingSchedule::default());
        schedule.record(start, Duration::from_secs(3), 4, counts(3, 0));
        assert!(schedule.is_due(start + Duration::from_millis(1100), counts(2, 1), true));
    }
}
