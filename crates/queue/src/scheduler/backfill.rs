//! When a job that does not fit could start, and which jobs may overtake it until then.
//!
//! This is EASY backfill: the first job that does not fit gets a reservation for the earliest
//! time at which enough running jobs must have finished. Others may overtake it if they finish
//! by then, or use only quota that it leaves. A job without a maximum run time is assumed to
//! run forever.

use std::collections::HashSet;

use super::ledger::{Ledger, LetsPass};
use super::queue::{Given, Surroundings};
use crate::line::Shape;
use crate::{Millis, Resources, Uid};

/// When each admitted job finishes at the latest, and what it releases then.
/// A job that is overdue may finish at any moment.
pub(super) fn ends(
    admitted: &HashSet<Uid>,
    given: &[Given],
    around: &Surroundings,
) -> Vec<(Millis, Resources)> {
    let before = admitted.iter().filter_map(|uid| {
        let job = &around.jobs[uid];
        let admission = job.admission()?;
        let end = admission.at.saturating_add(job.workload.max_runtime?);
        Some((end.max(around.now), admission.resources.clone()))
    });
    let now = given.iter().filter_map(|given| {
        Some((around.now.saturating_add(given.max_runtime?), given.resources.clone()))
    });
    let mut all: Vec<(Millis, Resources)> = before.chain(now).collect();
    all.sort();
    all
}

/// Which jobs may overtake a job of this shape. If it is unknown when it could start, none may
/// that uses what it is missing.
pub(super) fn lets_pass(
    ledger: &Ledger,
    shape: &Shape,
    least: u32,
    ends: Vec<(Millis, Resources)>,
) -> LetsPass {
    let need = shape.need(least);
    let mut used = ledger.used.clone();
    for (end, resources) in ends {
        used.subtract(&resources);
        if shape.largest(&ledger.setup.room, &used, (least, least)).is_ok() {
            used.add(&need);
            return LetsPass::Beside { taken: used, ends_by: Some(end) };
        }
    }
    let mut taken = ledger.used.clone();
    taken.add(&need);
    LetsPass::Beside { taken, ends_by: None }
}

#[cfg(test)]
mod tests {
    use crate::testing::{admitted, job, scheduler, setup_of, why, with_room};
    use crate::{Millis, Reason, Scheduler, Setup, Strategy, Workload};

    fn runs_for(runtime: Millis, job: Workload) -> Workload {
        Workload { max_runtime: Some(runtime), ..job }
    }

    /// Six of ten nodes are used until 1000; a job of eight waits.
    fn large_job_waits(running: Option<Millis>) -> Scheduler {
        let setup = Setup { strategy: Strategy::Backfill, ..setup_of("a/queue", 10) };
        let running = Workload { max_runtime: running, ..job("a/running", 6) };
        let mut scheduler = scheduler([setup], [job("a/large", 8)]);
        scheduler.put(with_room(running, "a/queue", 0));
        scheduler
    }

    fn later(name: &str, size: u32) -> Workload {
        Workload { since: 5, ..job(name, size) }
    }

    #[test]
    fn q22_backfill_lets_pass_who_ends_in_time() {
        let mut scheduler = large_job_waits(Some(1000));
        scheduler.put(runs_for(900, later("a/short", 3)));
        scheduler.put(runs_for(901, later("a/long", 3)));
        scheduler.put(later("a/endless", 3));
        assert_eq!(admitted(&mut scheduler, 100), ["short"]);
        assert_eq!(why(&scheduler, "large", 100).to_string(), "missing 7 nodes");
        scheduler.remove(&"short".into());
        assert_eq!(admitted(&mut scheduler, 101), [""; 0]);
        let behind = Reason::BehindOthers { job: "large".into() };
        assert_eq!(why(&scheduler, "long", 101), behind);
        assert_eq!(why(&scheduler, "endless", 101), behind);
        scheduler.remove(&"running".into());
        assert_eq!(admitted(&mut scheduler, 102), ["large"]);
    }

    #[test]
    fn q22_backfill_lets_pass_who_takes_what_the_first_leaves() {
        let mut scheduler = large_job_waits(Some(1000));
        // Of ten nodes, eight are reserved.
        for name in ["a/one", "a/two", "a/three"] {
            scheduler.put(later(name, 1));
        }
        assert_eq!(admitted(&mut scheduler, 100).len(), 2);
    }

    #[test]
    fn q22_the_first_is_promised_the_time_at_which_enough_have_ended() {
        let mut scheduler = large_job_waits(Some(1000));
        let second = runs_for(2000, job("a/second", 3));
        scheduler.put(with_room(second, "a/queue", 0));
        // At 1000 seven nodes are free, which is not enough for eight.
        scheduler.put(runs_for(1800, later("a/short", 1)));
        assert_eq!(admitted(&mut scheduler, 200), ["short"]);
    }

    #[test]
    fn q22_backfill_keeps_room_where_no_end_is_known() {
        let mut scheduler = large_job_waits(None);
        scheduler.put(runs_for(1, later("a/short", 1)));
        assert_eq!(admitted(&mut scheduler, 100), [""; 0]);
        assert_eq!(why(&scheduler, "short", 100), Reason::BehindOthers { job: "large".into() });
    }

    #[test]
    fn a_strategy_that_changes_applies_to_those_who_wait() {
        let mut scheduler = large_job_waits(Some(1000));
        scheduler.put(runs_for(2000, later("a/long", 3)));
        assert_eq!(admitted(&mut scheduler, 100), [""; 0]);
        scheduler.put_setup(setup_of("a/queue", 10));
        assert_eq!(admitted(&mut scheduler, 101), ["long"]);
    }
}
