//! When a job that does not fit could start, and which jobs may overtake it until then.
//!
//! This is EASY backfill: the first job that does not fit gets a reservation for the earliest
//! time at which enough running jobs must have finished. Others may overtake it if they finish
//! by then, or use only quota that it leaves. A job without a maximum run time is assumed to
//! run forever.

use std::collections::HashSet;

use super::queue::{CycleContext, Grant};
use super::quota_ledger::{OvertakePolicy, QuotaAccount};
use crate::job_class::Shape;
use crate::{Millis, Resources, Uid};

/// When each admitted job finishes at the latest, and what it releases then.
/// A job that is overdue may finish at any moment.
pub(super) fn releases(
    admitted: &HashSet<Uid>,
    grants: &[Grant],
    context: &CycleContext,
) -> Vec<(Millis, Resources)> {
    let before = admitted.iter().filter_map(|uid| {
        let job = &context.jobs[uid];
        let admission = job.admission()?;
        let end = admission.at.saturating_add(job.workload.max_runtime?);
        Some((end.max(context.now), admission.resources.clone()))
    });
    let now = grants.iter().filter_map(|given| {
        Some((context.now.saturating_add(given.max_runtime?), given.resources.clone()))
    });
    let mut all: Vec<(Millis, Resources)> = before.chain(now).collect();
    all.sort();
    all
}

/// Which jobs may overtake a job of this shape. If it is unknown when that job could start, no job
/// that uses a resource it is missing may overtake it.
pub(super) fn overtake_policy(
    ledger: &QuotaAccount,
    shape: &Shape,
    least: u32,
    releases: Vec<(Millis, Resources)>,
) -> OvertakePolicy {
    let need = shape.need(least);
    let mut used = ledger.used.clone();
    for (end, resources) in releases {
        used.subtract(&resources);
        if shape.largest_fit(&ledger.setup.quota, &used, (least, least)).is_ok() {
            used.add(&need);
            return OvertakePolicy::IfFits { taken: used, finish_by: Some(end) };
        }
    }
    let mut taken = ledger.used.clone();
    taken.add(&need);
    OvertakePolicy::IfFits { taken, finish_by: None }
}

#[cfg(test)]
mod tests {
    use crate::testing::{admitted, job, scheduler, setup_of, wait_reason, with_quota};
    use crate::{Millis, Scheduler, Setup, Strategy, WaitReason, Workload};

    fn with_runtime(runtime: Millis, job: Workload) -> Workload {
        Workload { max_runtime: Some(runtime), ..job }
    }

    /// Six of ten nodes are used by a job with this maximum run time; a job of eight nodes waits.
    fn waiting_large_job(running: Option<Millis>) -> Scheduler {
        let setup = Setup { strategy: Strategy::Backfill, ..setup_of("a/queue", 10) };
        let running = Workload { max_runtime: running, ..job("a/running", 6) };
        let mut scheduler = scheduler([setup], [job("a/large", 8)]);
        scheduler.put(with_quota(running, "a/queue", 0));
        scheduler
    }

    fn later(name: &str, size: u32) -> Workload {
        Workload { waiting_since: 5, ..job(name, size) }
    }

    #[test]
    fn q22_backfill_admits_a_job_that_finishes_in_time() {
        let mut scheduler = waiting_large_job(Some(1000));
        scheduler.put(with_runtime(900, later("a/short", 3)));
        scheduler.put(with_runtime(901, later("a/long", 3)));
        scheduler.put(later("a/endless", 3));
        assert_eq!(admitted(&mut scheduler, 100), ["short"]);
        assert_eq!(wait_reason(&scheduler, "large", 100).to_string(), "missing 7 nodes");
        scheduler.remove(&"short".into());
        assert_eq!(admitted(&mut scheduler, 101), [""; 0]);
        let behind = WaitReason::BehindOthers { job: "large".into() };
        assert_eq!(wait_reason(&scheduler, "long", 101), behind);
        assert_eq!(wait_reason(&scheduler, "endless", 101), behind);
        scheduler.remove(&"running".into());
        assert_eq!(admitted(&mut scheduler, 102), ["large"]);
    }

    #[test]
    fn q22_backfill_admits_a_job_beside_the_reservation() {
        let mut scheduler = waiting_large_job(Some(1000));
        // Of ten nodes, eight are reserved.
        for name in ["a/one", "a/two", "a/three"] {
            scheduler.put(later(name, 1));
        }
        assert_eq!(admitted(&mut scheduler, 100).len(), 2);
    }

    #[test]
    fn q22_the_reservation_begins_when_enough_jobs_have_finished() {
        let mut scheduler = waiting_large_job(Some(1000));
        let second = with_runtime(2000, job("a/second", 3));
        scheduler.put(with_quota(second, "a/queue", 0));
        // At 1000 seven nodes are free, which is not enough for eight.
        scheduler.put(with_runtime(1800, later("a/short", 1)));
        assert_eq!(admitted(&mut scheduler, 200), ["short"]);
    }

    #[test]
    fn q22_backfill_reserves_quota_if_run_times_are_unknown() {
        let mut scheduler = waiting_large_job(None);
        scheduler.put(with_runtime(1, later("a/short", 1)));
        assert_eq!(admitted(&mut scheduler, 100), [""; 0]);
        assert_eq!(
            wait_reason(&scheduler, "short", 100),
            WaitReason::BehindOthers { job: "large".into() }
        );
    }

    #[test]
    fn a_changed_strategy_applies_to_waiting_jobs() {
        let mut scheduler = waiting_large_job(Some(1000));
        scheduler.put(with_runtime(2000, later("a/long", 3)));
        assert_eq!(admitted(&mut scheduler, 100), [""; 0]);
        scheduler.put_setup(setup_of("a/queue", 10));
        assert_eq!(admitted(&mut scheduler, 101), ["long"]);
    }
}
