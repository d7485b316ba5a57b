//! The end of a run: its output is saved, what exists at the target is deleted, the job at home is
//! canceled or released, and the record of the run is kept for a day.

use flux_operator_api::burst::{BurstRun, RunState};
use flux_operator_wire::HomeJobState;
use k8s_openapi::jiff::Timestamp;

use super::home::{HomeAnswer, cut};
use super::life::{Life, Next, is_silent};
use super::rivals::Standing;
use super::state::Problem;
use crate::bursting::life::{BurstStep, has_finalizer};
use crate::bursting::observed::Presence;
use crate::time::seconds_after;

/// How long a run is shown after it is over, in seconds: one day.
pub const RECORD_SECONDS: i64 = 86_400;

/// For how long reading and saving the output is retried, in seconds. The
/// output of a lost node does not come back.
const OUTPUT_SECONDS: i64 = 600;

/// For how long the operator may fail before a job is left as it is that was never to be held, or whose
/// MiniCluster is being deleted, in seconds.
const HOME_SECONDS: i64 = 3600;

impl Life<'_> {
    /// What remains to do. The output comes first; then home and the target do not wait for each other,
    /// because what exists there costs.
    pub(super) fn finish(&self, mut run: BurstRun) -> Next {
        // A time in the future is of a clock that was wrong: it would be waited for.
        if run.finished_at.parse::<Timestamp>().is_ok_and(|at| at > self.now) {
            run.finished_at = self.now.to_string();
        }
        // It would be deleted with the Burst.
        run.output_settled |= self.burst.metadata.deletion_timestamp.is_some();
        if !run.output_settled {
            return self.save_output(run);
        }
        let problem = if run.home_settled { None } else { self.settle_home(&mut run) };
        let Some(view) = self.view else { return Next { problem, ..Life::next(run) } };
        if view.has_any() {
            let is_leaving = view.presence == Presence::Leaving;
            return Next { run, step: (!is_leaving).then_some(BurstStep::DeleteObjects), problem };
        }
        if !run.home_settled {
            return Next { problem, ..Life::next(run) };
        }
        run.state = match (run.exit_code, run.may_have_run) {
            (_, false) => RunState::Refused,
            (Some(0), true) => RunState::Completed,
            (_, true) => RunState::Failed,
        };
        Life::step(run, BurstStep::Finish)
    }

    fn save_output(&self, mut run: BurstRun) -> Next {
        let is_late = run
            .finished_at
            .parse::<Timestamp>()
            .is_ok_and(|at| self.now >= seconds_after(at, OUTPUT_SECONDS));
        let why = match self.view.filter(|view| !is_silent(view)) {
            _ if is_late => "it could not be read, or saved in this namespace, in time",
            None => return Life::next(run),
            Some(view) => match view.run.as_ref().and_then(|it| it.lead_pod.as_ref()) {
                Some(pod) => return Life::step(run, BurstStep::SaveOutput(pod.clone())),
                None => "its pod was deleted",
            },
        };
        run.output_settled = true;
        add_message(&mut run, &format!("its output is lost: {why}"));
        Life::next(run)
    }

    /// Records that nothing remains to do at home, if that is so. Returns why that is not known.
    fn settle_home(&self, run: &mut BurstRun) -> Option<Problem> {
        // Earlier controllers have recorded only the urgency.
        let was_never_held = !run.may_have_run && !run.hold_ordered && run.urgency.is_none();
        let is_late = run
            .finished_at
            .parse::<Timestamp>()
            .is_ok_and(|at| self.now >= seconds_after(at, HOME_SECONDS));
        run.home_settled = match (self.home, &self.standing) {
            _ if self.is_home_lost() => true,
            (_, Standing::Behind(_)) if !run.may_have_run => true,
            (HomeAnswer::Job(job), _) => {
                let is_over = matches!(job.state, HomeJobState::Finished | HomeJobState::Missing);
                is_over || !run.may_have_run
            }
            // The lead may have held it although its answer was lost, and may be restored from an archive.
            // One whose MiniCluster is being deleted may never answer again.
            (HomeAnswer::NoAnswer(_), _) => was_never_held || self.is_minicluster_deleting(),
            (HomeAnswer::Failed(_), _) => {
                (was_never_held || self.is_minicluster_deleting()) && is_late
            }
            (HomeAnswer::NotAsked | HomeAnswer::Awaited, _) => false,
        };
        Problem::of(self.home).filter(|_| !run.home_settled)
    }

    /// The run is over before the job has finished, or it is not known whether it has.
    pub(super) fn stopped(&self, mut run: BurstRun, why: &str) -> Next {
        run.state = RunState::Finishing;
        run.finished_at = self.now.to_string();
        run.message = cut(why);
        Life::next(run)
    }

    /// The run is over, and is shown for a day.
    pub(super) fn keep_record(&self, run: BurstRun) -> Next {
        if has_finalizer(self.burst) {
            return match self.view {
                Some(view) if view.has_any() => Life::step(run, BurstStep::DeleteObjects),
                Some(_) => Life::step(run, BurstStep::Finish),
                None => Life::next(run),
            };
        }
        if self.burst.metadata.deletion_timestamp.is_some() {
            return Life::next(run);
        }
        // It has no result to show, and keeps its policy from creating one of the same name.
        if run.state == RunState::Yielded && self.burst.owning_policy().is_some() {
            return Life::delete_self(run, "another Burst runs this job");
        }
        match self.record_end(&run).is_some_and(|end| self.now >= end) {
            true => Life::delete_self(run, "its record is a day old"),
            false => Life::next(run),
        }
    }

    /// Until when the record of a run is kept.
    pub(super) fn record_end(&self, run: &BurstRun) -> Option<Timestamp> {
        Some(seconds_after(run.finished_at.parse().ok()?, RECORD_SECONDS))
    }
}

fn add_message(run: &mut BurstRun, text: &str) {
    let whole = match run.message.as_str() {
        "" => text.to_owned(),
        before => format!("{before}; {text}"),
    };
    run.message = cut(&whole);
}
