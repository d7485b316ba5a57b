//! The life of a run: what to do next.
//!
//! ```text
//! Holding: finalizer, claim, the job is held at home and its jobspec read
//!    │ cannot run elsewhere: Refused               │ started or finished at home: given back
//! Starting: Secret, ConfigMap, Service, Job at the target
//! Running ─► Finishing: output saved, job at home canceled, objects deleted ─► Completed, Failed
//! ```
//!
//! Every state is written before what it announces is done, and every step can be repeated. What has
//! become of the job at home is asked of the operator with a desired state, [`home_order`].

use flux_operator_api::burst::{BurstRun, RunState};
use flux_operator_api::{Burst, BurstStatus, MiniCluster};
use flux_operator_flux::JobRun;
use flux_operator_wire::{HomeJobState, JobGoal, JobspecText};
use k8s_openapi::jiff::Timestamp;

use super::state::{Facts, Problem, status};
use crate::bursting::claim::{claim, is_claimed, lifetime_end};
use crate::bursting::life::{BurstDecision, BurstStep, has_finalizer, is_of, needs_nodes};
use crate::bursting::names::object_name;
use crate::bursting::observed::{BurstObserved, Presence, TargetView};
use crate::time::seconds_after;

/// How long a run is shown after it is over, in seconds: one day.
pub const RECORD_SECONDS: i64 = 86_400;

/// For how long it is tried to read the output, in seconds: a node that is gone has it no more.
const OUTPUT_SECONDS: i64 = 600;

/// How soon the target and home are asked again, in seconds: at first, and later.
const POLL_SECONDS: i64 = 1;
const SLOW_POLL_SECONDS: i64 = 5;

/// For how long the former, in seconds after the Burst was created or began to finish.
const POLL_DURATION: i64 = 120;

/// The longest message of a canceled job and of a status.
const MAX_MESSAGE: usize = 400;

/// What has become of the job at home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeJob {
    /// What it is.
    pub state: HomeJobState,
    /// Its urgency before it was held for this run; `None` if it was held already.
    pub urgency: Option<u32>,
    /// Its jobspec, of a job that is held.
    pub jobspec: JobspecText,
    /// The jobspec is larger than what can be handed over.
    pub is_too_large: bool,
}

/// What the operator says about the job at home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HomeTurn {
    /// It was not asked.
    #[default]
    NotAsked,
    /// It has been asked, and the lead has not answered yet.
    Awaited,
    /// What has become of the job.
    Job(HomeJob),
    /// Why it does not answer.
    Failed(String),
}

/// What the job at home should become now; `None` if it does not matter. It follows from what is
/// recorded, so that it is never canceled for a result that could be lost.
pub fn home_order(burst: &Burst) -> Option<JobGoal> {
    let default = BurstRun::default();
    let run = burst.run().unwrap_or(&default);
    let is_deleting = burst.metadata.deletion_timestamp.is_some();
    match run.state {
        RunState::Holding if is_deleting || !has_finalizer(burst) => None,
        RunState::Starting if is_deleting || was_prepared(burst) => None,
        RunState::Holding | RunState::Starting => Some(JobGoal::Held),
        RunState::Finishing if run.home_settled || !run.output_settled => None,
        RunState::Finishing if run.started_at.is_empty() => {
            let urgency = run.urgency.and_then(|urgency| u32::try_from(urgency).ok());
            Some(JobGoal::Released(urgency))
        }
        RunState::Finishing => Some(JobGoal::Canceled(cancel_message(burst, run))),
        RunState::Running | RunState::Completed | RunState::Failed | RunState::Refused => None,
    }
}

/// Whether its objects have existed at the target.
fn was_prepared(burst: &Burst) -> bool {
    let mut conditions = burst.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|it| it.type_ == "Prepared" && it.status == "True")
}

/// Why the job at home is canceled.
fn cancel_message(burst: &Burst, run: &BurstRun) -> String {
    let name = burst.metadata.name.as_deref().unwrap_or_default();
    let target = &burst.spec.target.name;
    let end = match run.exit_code {
        Some(code) => format!("exit code {code}"),
        None => run.message.clone(),
    };
    cut(&format!("ran as Burst {name} at target {target}: {end}"))
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}

/// Name of the ConfigMap with the output of a run.
pub fn output_name(burst: &Burst) -> String {
    format!("{}-output", object_name(burst))
}

/// The status after the output was saved, or could not be.
pub fn after_output(burst: &Burst, saved: Result<String, String>) -> BurstStatus {
    let mut status = burst.status.clone().unwrap_or_default();
    let run = status.run.get_or_insert_default();
    run.output_settled = true;
    match saved {
        Ok(name) => run.output = name,
        Err(why) => add_message(run, &format!("its output is lost: {why}")),
    }
    status
}

fn add_message(run: &mut BurstRun, text: &str) {
    let whole = match run.message.as_str() {
        "" => text.to_owned(),
        before => format!("{before}; {text}"),
    };
    run.message = cut(&whole);
}

/// What is decided, besides the status.
struct Next {
    run: BurstRun,
    step: Option<BurstStep>,
    problem: Option<Problem>,
}

/// Decides what to do about a Burst with an instance of its own.
pub(in crate::bursting) fn decide(burst: &Burst, observed: &BurstObserved<'_>) -> BurstDecision {
    let cluster = observed.cluster.filter(|it| is_of(burst, it));
    let view = observed.target.as_ref().and_then(|it| it.as_ref().ok());
    let failure = observed.target.as_ref().and_then(|it| it.as_ref().err());
    let before = burst.run().cloned().unwrap_or_default();
    let life = Life { burst, cluster, view, home: &observed.home, now: observed.now };
    let is_deleting = burst.metadata.deletion_timestamp.is_some();
    let Next { run, step, problem } = match (is_deleting, before.state.is_over()) {
        (_, true) => life.keep_record(before),
        (true, false) => life.give_back(before),
        (false, false) => life.go_on(before),
    };
    let will_try = step.as_ref().is_some_and(BurstStep::may_be_refused);
    let facts = Facts { burst, cluster, view, failure, run, problem, will_try };
    let mut status = status(&facts, &observed.home, observed.now);
    if step == Some(BurstStep::Create) && burst.spec.target.is_made_by_program() {
        status.cluster_made = true;
    }
    if view.is_some_and(|view| view.presence == Presence::ClusterDeleted) {
        status.cluster_made = false;
    }
    let is_there = |view: &&TargetView| view.has_any() || step == Some(BurstStep::Create);
    if let Some(view) = view.filter(is_there).filter(|_| status.place.is_empty()) {
        status.place.clone_from(&view.place);
    }
    let requeue_at = life.requeue_at(&status, step.is_some());
    BurstDecision { status, step, requeue_at }
}

struct Life<'a> {
    burst: &'a Burst,
    cluster: Option<&'a MiniCluster>,
    view: Option<&'a TargetView>,
    home: &'a HomeTurn,
    now: Timestamp,
}

impl Life<'_> {
    fn next(run: BurstRun) -> Next {
        Next { run, step: None, problem: None }
    }

    fn step(run: BurstRun, step: BurstStep) -> Next {
        Next { step: Some(step), ..Life::next(run) }
    }

    fn delete_self(run: BurstRun, why: &str) -> Next {
        Life::step(run, BurstStep::DeleteSelf(why.to_owned()))
    }

    /// Whether the job can still be asked about at home.
    fn has_home(&self) -> bool {
        let is_alive = |it: &MiniCluster| it.metadata.deletion_timestamp.is_none();
        self.cluster.is_some_and(|cluster| is_alive(cluster) && needs_nodes(cluster))
    }

    fn go_on(&self, run: BurstRun) -> Next {
        let is_over = self.now >= lifetime_end(self.burst);
        if is_over && run.state != RunState::Finishing {
            return Life::delete_self(run, "its lifetime is over");
        }
        let was_started = self.burst.status.as_ref().is_some_and(|it| !it.cluster_uid.is_empty());
        if run.state != RunState::Finishing && !self.has_home() {
            if self.cluster.is_none() && !was_started {
                return Next { problem: Some(Problem::NoCluster), ..Life::next(run) };
            }
            return Life::delete_self(
                run,
                "its MiniCluster was deleted, has finished or is suspended",
            );
        }
        let is_late = self.now >= self.burst.join_deadline();
        if matches!(run.state, RunState::Holding | RunState::Starting)
            && is_late
            && run.started_at.is_empty()
            && self.burst.owning_policy().is_some()
            && self.view.is_none_or(|view| self.started(view).is_none())
        {
            return Life::delete_self(run, "it could not be started in time");
        }
        match run.state {
            RunState::Holding => self.hold(run),
            RunState::Starting => self.start(run),
            RunState::Running => self.watch(run),
            _ => self.finish(run),
        }
    }

    fn started(&self, view: &TargetView) -> Option<Timestamp> {
        view.run.as_ref().and_then(|run| run.started)
    }

    fn hold(&self, run: BurstRun) -> Next {
        let (Some(view), Some(cluster)) = (self.view, self.cluster) else {
            return Life::next(run);
        };
        if !has_finalizer(self.burst) {
            return Life::step(run, BurstStep::AddFinalizer);
        }
        if self.burst.spec.drain {
            return Life::delete_self(run, "it was to be drained");
        }
        if !is_claimed(self.burst, cluster, None) {
            return Life::step(run, BurstStep::ClaimCluster(claim(cluster, None)));
        }
        match self.home {
            HomeTurn::Job(job) => self.take(run, job, view),
            HomeTurn::Failed(why) => {
                Next { problem: Some(Problem::Home(why.clone())), ..Life::next(run) }
            }
            HomeTurn::NotAsked | HomeTurn::Awaited => Life::next(run),
        }
    }

    /// The job at home has been asked for.
    fn take(&self, mut run: BurstRun, job: &HomeJob, view: &TargetView) -> Next {
        let refused = |mut run: BurstRun, why: &str| {
            run.state = RunState::Finishing;
            run.output_settled = true;
            run.message = cut(why);
            Life::next(run)
        };
        run.urgency = run.urgency.or(job.urgency.and_then(|it| i32::try_from(it).ok()));
        match job.state {
            HomeJobState::Held if job.is_too_large => refused(
                run,
                "its jobspec is larger than 512 KiB: read large files from a file system",
            ),
            HomeJobState::Held => match JobRun::parse(job.jobspec.as_secret_str()) {
                Err(error) => refused(run, &chain(&error)),
                Ok(_) => {
                    run.state = RunState::Starting;
                    self.create(run, view)
                }
            },
            HomeJobState::Pending => Life::next(run),
            HomeJobState::Started => Life::delete_self(run, "the job has started at home"),
            HomeJobState::Finished => Life::delete_self(run, "the job has finished at home"),
            HomeJobState::Missing => Life::delete_self(run, "there is no such job at home"),
        }
    }

    fn create(&self, run: BurstRun, view: &TargetView) -> Next {
        match view.presence {
            Presence::Nothing | Presence::ClusterReady => Life::step(run, BurstStep::Create),
            // For another run, a policy creates another Burst.
            Presence::ClusterComing(_)
                if view.job_failure.is_some() && self.burst.owning_policy().is_some() =>
            {
                Life::delete_self(run, "its cluster could not be made")
            }
            Presence::ClusterComing(_)
            | Presence::ClusterDown
            | Presence::ClusterDeleted
            | Presence::Leaving
            | Presence::Complete => Life::next(run),
        }
    }

    fn start(&self, run: BurstRun) -> Next {
        let Some(view) = self.view else { return Life::next(run) };
        let is_there = view.presence == Presence::Complete || self.started(view).is_some();
        if is_there || was_prepared(self.burst) {
            return self.watch(run);
        }
        match self.home {
            HomeTurn::Job(job) => self.take(run, job, view),
            HomeTurn::Failed(why) => {
                Next { problem: Some(Problem::Home(why.clone())), ..Life::next(run) }
            }
            HomeTurn::NotAsked | HomeTurn::Awaited => Life::next(run),
        }
    }

    /// The Job exists at the target, or has existed.
    fn watch(&self, mut run: BurstRun) -> Next {
        let Some(view) = self.view else { return Life::next(run) };
        if let Some(started) = self.started(view).filter(|_| run.started_at.is_empty()) {
            run.started_at = started.to_string();
            run.state = RunState::Running;
        }
        let end = view.run.as_ref().and_then(|it| it.end.as_ref());
        let was_there = run.state == RunState::Running || was_prepared(self.burst);
        let is_lost = was_there && view.presence != Presence::Complete;
        match end {
            Some(end) => {
                run.exit_code = end.exit_code;
                if end.exit_code.is_none() {
                    run.message = cut(&end.message);
                }
            }
            None if is_lost => {
                run.message = "it was lost: its Job at the target was deleted".into()
            }
            None => return Life::next(run),
        }
        // Who cannot say that it never ran must not have it run again.
        if run.started_at.is_empty() {
            run.started_at = self.now.to_string();
        }
        run.state = RunState::Finishing;
        run.finished_at = self.now.to_string();
        Life::next(run)
    }

    /// What remains to do, one after the other.
    fn finish(&self, mut run: BurstRun) -> Next {
        let is_late = run
            .finished_at
            .parse::<Timestamp>()
            .is_ok_and(|at| self.now >= seconds_after(at, OUTPUT_SECONDS));
        if !run.output_settled && is_late {
            run.output_settled = true;
            add_message(&mut run, "its output is lost: it could not be read in time");
            return Life::next(run);
        }
        if !run.output_settled {
            let Some(view) = self.view else { return Life::next(run) };
            match view.run.as_ref().and_then(|it| it.lead_pod.as_ref()) {
                Some(pod) => return Life::step(run, BurstStep::SaveOutput(pod.clone())),
                None => {
                    run.output_settled = true;
                    add_message(&mut run, "its output is lost: its pod was deleted");
                    return Life::next(run);
                }
            }
        }
        if !run.home_settled {
            return self.settle_home(run);
        }
        let Some(view) = self.view else { return Life::next(run) };
        if view.has_any() {
            let is_leaving = view.presence == Presence::Leaving;
            return Next {
                step: (!is_leaving).then_some(BurstStep::DeleteObjects),
                ..Life::next(run)
            };
        }
        run.state = match (run.exit_code, run.started_at.is_empty()) {
            (_, true) => RunState::Refused,
            (Some(0), false) => RunState::Completed,
            (_, false) => RunState::Failed,
        };
        if run.finished_at.is_empty() {
            run.finished_at = self.now.to_string();
        }
        Life::step(run, BurstStep::Finish)
    }

    fn settle_home(&self, mut run: BurstRun) -> Next {
        if !self.has_home() {
            run.home_settled = true;
            return Life::next(run);
        }
        match self.home {
            HomeTurn::Job(job) => {
                let is_over = matches!(job.state, HomeJobState::Finished | HomeJobState::Missing);
                run.home_settled = is_over || run.started_at.is_empty();
                Life::next(run)
            }
            // A lead that does not answer has not held it either.
            HomeTurn::Failed(_) if run.started_at.is_empty() && run.urgency.is_none() => {
                run.home_settled = true;
                Life::next(run)
            }
            HomeTurn::Failed(why) => {
                Next { problem: Some(Problem::Home(why.clone())), ..Life::next(run) }
            }
            HomeTurn::NotAsked | HomeTurn::Awaited => Life::next(run),
        }
    }

    /// Whether the job may have run at a target that does not say: a cluster that was made for it, and
    /// does not respond any more.
    fn may_have_run(&self, run: &BurstRun, view: &TargetView) -> bool {
        let is_ready = run.state == RunState::Starting && view.presence == Presence::ClusterReady;
        view.run.is_none() && (is_ready || was_prepared(self.burst))
    }

    /// The Burst is deleted before its run is over. One that may have run is never run again.
    fn give_back(&self, mut run: BurstRun) -> Next {
        if !has_finalizer(self.burst) {
            return Life::next(run);
        }
        if run.state == RunState::Finishing {
            return self.finish(run);
        }
        let Some(view) = self.view else { return Life::next(run) };
        if let Some(started) = self.started(view).filter(|_| run.started_at.is_empty()) {
            run.started_at = started.to_string();
        }
        let end = view.run.as_ref().and_then(|it| it.end.as_ref());
        match (end, run.started_at.is_empty()) {
            (Some(_), _) => self.watch(run),
            (None, false) => {
                run.state = RunState::Finishing;
                run.finished_at = self.now.to_string();
                run.output_settled = true;
                run.message = "it was given back before it had finished".into();
                Life::next(run)
            }
            (None, true) if self.may_have_run(&run, view) => {
                run.state = RunState::Finishing;
                run.started_at = self.now.to_string();
                run.finished_at = self.now.to_string();
                run.output_settled = true;
                run.message = "it was given back, and its target does not say whether it had \
                               started"
                    .into();
                Life::next(run)
            }
            // It may start until nothing is left of it.
            (None, true) if view.has_any() => {
                let is_leaving = view.presence == Presence::Leaving;
                Next { step: (!is_leaving).then_some(BurstStep::DeleteObjects), ..Life::next(run) }
            }
            (None, true) => {
                run.state = RunState::Finishing;
                run.output_settled = true;
                run.message = "it was given back before it was started".into();
                Life::next(run)
            }
        }
    }

    /// The run is over, and is shown for a day.
    fn keep_record(&self, run: BurstRun) -> Next {
        if has_finalizer(self.burst) {
            return match self.view {
                Some(view) if view.has_any() => Life::step(run, BurstStep::DeleteObjects),
                Some(_) => Life::step(run, BurstStep::Finish),
                None => Life::next(run),
            };
        }
        let is_deleting = self.burst.metadata.deletion_timestamp.is_some();
        match self.record_end(&run).is_some_and(|end| self.now >= end) && !is_deleting {
            true => Life::delete_self(run, "its record is a day old"),
            false => Life::next(run),
        }
    }

    fn record_end(&self, run: &BurstRun) -> Option<Timestamp> {
        Some(seconds_after(run.finished_at.parse().ok()?, RECORD_SECONDS))
    }

    fn requeue_at(&self, status: &BurstStatus, has_step: bool) -> Option<Timestamp> {
        let retry_at = status.retry_at.parse::<Timestamp>().ok();
        if let Some(retry_at) = retry_at.filter(|at| *at > self.now) {
            return Some(retry_at);
        }
        let default = BurstRun::default();
        let run = status.run.as_ref().unwrap_or(&default);
        if run.state.is_over() && !has_finalizer(self.burst) {
            return self.record_end(run).map(|end| end.max(seconds_after(self.now, POLL_SECONDS)));
        }
        let since = [&run.finished_at, &status.giving_back_since].into_iter();
        let since = since.filter_map(|it| it.parse::<Timestamp>().ok()).max();
        let since = since.unwrap_or(self.burst.created());
        let is_new = self.now < seconds_after(since, POLL_DURATION);
        let is_quick = has_step || is_new;
        let seconds = if is_quick { POLL_SECONDS } else { SLOW_POLL_SECONDS };
        let poll = seconds_after(self.now, seconds);
        let end = Some(lifetime_end(self.burst)).filter(|at| *at > self.now);
        end.into_iter().chain([poll]).min()
    }
}

/// An error with its causes. Those of jobspecs have no values.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
