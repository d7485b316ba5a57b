//! The life of a run: what to do next.
//!
//! ```text
//! Holding: finalizer, claim, the job is held at home and its jobspec read
//!    │ cannot run elsewhere: Refused               │ started or finished at home: given back
//! Starting: Secret, ConfigMap, Service, Job at the target
//! Running ─► Finishing: output saved ─► objects deleted ─► job at home canceled ─► Completed, Failed
//! ```
//!
//! Every state is written before what it announces is done, and every step can be repeated. What has
//! become of the job at home is asked of the operator with a desired state, `home_order`.

use flux_operator_api::burst::{BurstRun, RunState};
use flux_operator_api::{Burst, BurstSpec, BurstStatus, MiniCluster};
use flux_operator_flux::{JobRun, ResourceRequest};
use flux_operator_wire::{HomeJobState, JobRefusal};
use k8s_openapi::jiff::Timestamp;

use super::home::{HomeAnswer, HomeJob, cut};
use super::rivals::{Standing, standing};
use super::state::{Facts, Problem, status};
use crate::bursting::claim::{claim, is_claimed, lifetime_end};
use crate::bursting::life::{
    BurstDecision, BurstStep, cluster_failed, has_finalizer, has_finished, needs_nodes,
    record_target, was_prepared,
};
use crate::bursting::made_cluster::is_made;
use crate::bursting::names::object_name;
use crate::bursting::observed::{BurstObserved, ObservedMiniCluster, Presence, TargetView};
use crate::bursting::poll::{POLL_SECONDS, next_poll, next_retry};
use crate::grace::has_archive;
use crate::time::seconds_after;

/// Name of the ConfigMap with the output of a run.
pub fn output_name(burst: &Burst) -> String {
    format!("{}-output", object_name(burst))
}

/// The key of the output in that ConfigMap, as text or as bytes.
pub const OUTPUT_KEY: &str = "output";

/// The key of what is left out of the output, for users. Without it, the output is complete.
pub const CUT_KEY: &str = "cut";

/// The status after the output was saved.
pub fn after_output(burst: &Burst) -> BurstStatus {
    let mut status = burst.status.clone().unwrap_or_default();
    let run = status.run.get_or_insert_default();
    run.output_settled = true;
    run.output = output_name(burst);
    status
}

/// Whether `delete` keeps the cluster that was made for a run, and deletes only what is inside: only that
/// cluster can say whether the job has started.
pub fn keeps_cluster(burst: &Burst) -> bool {
    let state = burst.run().map(|run| run.state).unwrap_or_default();
    burst.is_isolated()
        && matches!(state, RunState::Holding | RunState::Starting | RunState::Running)
}

/// Whether a target does not say what has become of the run: its cluster exists, and does not respond.
pub(super) fn is_silent(view: &TargetView) -> bool {
    let exists = match view.presence {
        Presence::ClusterComing(_) | Presence::ClusterFailed(_) => true,
        Presence::ClusterReady | Presence::Complete => true,
        Presence::Nothing | Presence::Leaving => false,
        Presence::ClusterDeletionFailed | Presence::ClusterDeleted => false,
    };
    view.run.is_none() && exists
}

/// Whether a target shows that the run has failed before its job was started.
fn has_never_started(view: &TargetView) -> bool {
    view.run.as_ref().is_some_and(|run| run.never_started)
}

/// The message of a run that was given back before it was started.
const GIVEN_BACK: &str = "it was given back before it was started";

/// What is decided, besides the status.
pub(super) struct Next {
    pub(super) run: BurstRun,
    pub(super) step: Option<BurstStep>,
    pub(super) problem: Option<Problem>,
}

/// Decides what to do about a Burst with an instance of its own.
pub(in crate::bursting) fn decide(burst: &Burst, observed: &BurstObserved<'_>) -> BurstDecision {
    let cluster = observed.cluster.readable().filter(|it| burst.is_for(it));
    let view = observed.target.as_ref().and_then(|it| it.as_ref().ok());
    let failure = observed.target.as_ref().and_then(|it| it.as_ref().err());
    let before = burst.run().cloned().unwrap_or_default();
    let life = Life {
        burst,
        cluster,
        is_unreadable: matches!(observed.cluster, ObservedMiniCluster::Unreadable),
        view,
        home: &observed.home,
        standing: standing(burst, observed.others),
        now: observed.now,
    };
    let is_deleting = burst.metadata.deletion_timestamp.is_some();
    let Next { run, step, problem } = match (is_deleting, before.state.is_over()) {
        (_, true) => life.keep_record(before),
        (true, false) => life.give_back(before),
        (false, false) => life.go_on(before),
    };
    let will_try = step.as_ref().is_some_and(BurstStep::may_be_refused);
    let facts = Facts { burst, cluster, view, failure, run, problem, will_try };
    let mut status = status(&facts, &observed.home, observed.now);
    record_target(&mut status, burst, step.as_ref(), view);
    let requeue_at = life.requeue_at(&status, step.is_some());
    BurstDecision { status, step, requeue_at }
}

/// A Burst, and what its next step depends on.
pub(super) struct Life<'a> {
    pub(super) burst: &'a Burst,
    cluster: Option<&'a MiniCluster>,
    is_unreadable: bool,
    pub(super) view: Option<&'a TargetView>,
    pub(super) home: &'a HomeAnswer,
    pub(super) standing: Standing,
    pub(super) now: Timestamp,
}

impl Life<'_> {
    pub(super) fn next(run: BurstRun) -> Next {
        Next { run, step: None, problem: None }
    }

    pub(super) fn step(run: BurstRun, step: BurstStep) -> Next {
        Next { step: Some(step), ..Life::next(run) }
    }

    pub(super) fn delete_self(run: BurstRun, why: &str) -> Next {
        Life::step(run, BurstStep::DeleteSelf(why.to_owned()))
    }

    /// Whether the MiniCluster has an instance in which the job waits.
    fn has_home(&self) -> bool {
        let is_alive = |it: &MiniCluster| it.metadata.deletion_timestamp.is_none();
        self.cluster.is_some_and(|cluster| is_alive(cluster) && needs_nodes(cluster))
    }

    /// Whether the job at home can never start again: it is not in an archive either.
    pub(super) fn is_home_lost(&self) -> bool {
        let Some(cluster) = self.cluster else { return !self.is_unreadable };
        let is_over = has_finished(cluster) || self.is_minicluster_deleting();
        is_over && !has_archive(&cluster.spec)
    }

    /// Whether the MiniCluster is being deleted. It waits for this Burst.
    pub(super) fn is_minicluster_deleting(&self) -> bool {
        self.cluster.is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some())
    }

    /// The run is over before the job has started.
    fn not_started(&self, mut run: BurstRun, why: &str) -> Next {
        run.state = RunState::Finishing;
        run.may_have_run = false;
        run.output_settled = true;
        run.finished_at = self.now.to_string();
        run.message = cut(why);
        Life::next(run)
    }

    /// Another Burst runs the job, and decides what becomes of it at home.
    fn yield_to(&self, mut run: BurstRun, other: &str) -> Next {
        run.state = RunState::Yielded;
        (run.home_settled, run.output_settled) = (true, true);
        run.finished_at = self.now.to_string();
        run.message = cut(&format!("Burst {other} runs this job"));
        Life::next(run)
    }

    fn go_on(&self, run: BurstRun) -> Next {
        if let (RunState::Holding, Standing::Behind(other)) = (run.state, &self.standing) {
            return self.yield_to(run, other);
        }
        let is_over = self.now >= lifetime_end(self.burst);
        if is_over && run.state != RunState::Finishing {
            let why = "its lifetime is over";
            return match run.started_at.is_empty() {
                true => Life::delete_self(run, why),
                // Its record has what the job has written so far.
                false => self.stopped(run, why),
            };
        }
        let was_started = self.burst.status.as_ref().is_some_and(|it| !it.cluster_uid.is_empty());
        // One that cannot be read exists.
        if run.state != RunState::Finishing && !self.is_unreadable && !self.has_home() {
            if self.cluster.is_none() && !was_started {
                return Next { problem: Some(Problem::NoCluster), ..Life::next(run) };
            }
            return Life::delete_self(
                run,
                "its MiniCluster was deleted, has finished or is suspended",
            );
        }
        let is_late = self.now >= self.burst.join_deadline();
        // Once its Job may exist, only the target can say that it has not started.
        let is_waiting = |view: &TargetView| !is_silent(view) && self.started(view).is_none();
        if matches!(run.state, RunState::Holding | RunState::Starting)
            && is_late
            && run.started_at.is_empty()
            && self.burst.owning_policy().is_some()
            && (!run.may_have_run || self.view.is_some_and(is_waiting))
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

    fn hold(&self, mut run: BurstRun) -> Next {
        let (Some(view), Some(cluster)) = (self.view, self.cluster) else {
            return Life::next(run);
        };
        if !has_finalizer(self.burst) {
            return Life::step(run, BurstStep::AddFinalizer);
        }
        if self.burst.spec.drain {
            return Life::delete_self(run, "it was to be drained");
        }
        run.hold_ordered = true;
        if !is_claimed(self.burst, cluster, None) {
            return Life::step(run, BurstStep::ClaimCluster(claim(cluster, None)));
        }
        match self.home {
            HomeAnswer::Job(job) => self.take(run, job, view),
            home => Next { problem: Problem::of(home), ..Life::next(run) },
        }
    }

    /// The job at home has been asked for.
    fn take(&self, mut run: BurstRun, job: &HomeJob, view: &TargetView) -> Next {
        let refused = |run: BurstRun, why: &str| match run.may_have_run {
            // Its jobspec was changed since its Job may have been created. Only the target can say that
            // it has not started.
            true => Life::delete_self(run, why),
            false => Next { problem: Some(Problem::NotPortable), ..self.not_started(run, why) },
        };
        run.urgency = run.urgency.or(job.urgency.and_then(|it| i32::try_from(it).ok()));
        match (job.state, job.refusal) {
            // The others record first that they do not run it.
            (HomeJobState::Held, _) if self.standing != Standing::Alone => Life::next(run),
            (HomeJobState::Held | HomeJobState::Pending, Some(refusal)) => {
                refused(run, refusal_message(refusal))
            }
            (HomeJobState::Held, None) if job.is_too_large => refused(
                run,
                "its jobspec is larger than 512 KiB: submit it without embedded files, and have it \
                 read them from a file system",
            ),
            (HomeJobState::Held, None) => match JobRun::parse(job.jobspec.as_secret_str()) {
                Err(error) => refused(run, &chain(&error)),
                Ok(job) => match self.too_small_for(&job.resources) {
                    Some(why) => refused(run, &why),
                    None => {
                        run.state = RunState::Starting;
                        self.create(run, view)
                    }
                },
            },
            (HomeJobState::Pending, None) => Life::next(run),
            (HomeJobState::Started | HomeJobState::Finished | HomeJobState::Missing, _) => {
                self.not_waiting(run)
            }
        }
    }

    /// Why the nodes of the Burst are not enough for a job, if that is known: there it would be refused for
    /// good.
    fn too_small_for(&self, job: &ResourceRequest) -> Option<String> {
        let BurstSpec { nodes, target, .. } = &self.burst.spec;
        let nodes = u64::try_from(*nodes).unwrap_or_default();
        let cores = u64::try_from(target.cores).ok().filter(|cores| *cores > 0);
        let gpus = target.gpus.and_then(|gpus| u64::try_from(gpus).ok());
        // A slot is on one node.
        let fits = |of_node: Option<u64>, of_slot: u32| {
            of_node.and_then(|of_node| of_node.checked_div(of_slot.into())).unwrap_or(u64::MAX)
        };
        let slots_of_node = fits(cores, job.cores.get()).min(fits(gpus, job.gpus));
        let slots = u64::from(job.slots.get());
        let needed = match job.nodes {
            Some(nodes) if slots <= slots_of_node => u64::from(nodes.get()),
            None if slots_of_node > 0 => slots.div_ceil(slots_of_node),
            _ => {
                let together = if job.nodes.is_some() { slots } else { 1 };
                let of_job = |each: u32| together.saturating_mul(each.into());
                let known = |of_node: Option<u64>| {
                    of_node.map_or_else(|| "enough".to_owned(), |count| count.to_string())
                };
                return Some(format!(
                    "it needs {} cores and {} GPUs on one node, and a node of target {:?} has {} and {}: \
                     request a Burst at another target, or correct cores and gpus of this one",
                    of_job(job.cores.get()),
                    of_job(job.gpus),
                    target.name,
                    known(cores),
                    known(gpus),
                ));
            }
        };
        (needed > nodes).then(|| {
            format!(
                "it needs {needed} nodes, and its Burst has {nodes}: request a Burst with {needed} nodes"
            )
        })
    }

    /// Gives the Burst back if the job does not wait at home any more.
    fn not_waiting(&self, run: BurstRun) -> Next {
        let state = match self.home {
            HomeAnswer::Job(job) => job.state,
            _ => return Life::next(run),
        };
        match state {
            HomeJobState::Pending | HomeJobState::Held => Life::next(run),
            HomeJobState::Started => Life::delete_self(run, "the job has started at home"),
            HomeJobState::Finished => Life::delete_self(run, "the job has finished at home"),
            HomeJobState::Missing => Life::delete_self(run, "there is no such job at home"),
        }
    }

    fn create(&self, mut run: BurstRun, view: &TargetView) -> Next {
        match view.presence {
            Presence::Nothing | Presence::ClusterReady => {
                // Recorded before its Job is created, which is when there is a cluster.
                let has_cluster = view.presence == Presence::ClusterReady || !is_made(self.burst);
                run.may_have_run |= has_cluster;
                Life::step(run, BurstStep::Create)
            }
            // For another run, a policy creates another Burst.
            Presence::ClusterFailed(ref why) if self.burst.owning_policy().is_some() => {
                Life::delete_self(run, &cluster_failed(why))
            }
            Presence::ClusterComing(_)
            | Presence::ClusterFailed(_)
            | Presence::ClusterDeletionFailed
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
            HomeAnswer::Job(job) => self.take(run, job, view),
            home => Next { problem: Problem::of(home), ..Life::next(run) },
        }
    }

    /// The Job exists at the target, or has existed.
    fn watch(&self, mut run: BurstRun) -> Next {
        run.may_have_run = true;
        let Some(view) = self.view.filter(|view| !is_silent(view)) else { return Life::next(run) };
        if has_never_started(view) && run.started_at.is_empty() {
            return Life::delete_self(run, "its lead was lost before the job was started");
        }
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
            // Flux may have been about to start it when it was held.
            None if run.started_at.is_empty() => return self.not_waiting(run),
            None => return Life::next(run),
        }
        run.state = RunState::Finishing;
        run.finished_at = self.now.to_string();
        Life::next(run)
    }

    /// The Burst is deleted before its run is over. One that may have run is never run again.
    fn give_back(&self, mut run: BurstRun) -> Next {
        if !has_finalizer(self.burst) {
            return Life::next(run);
        }
        match (run.state, &self.standing) {
            (RunState::Finishing, _) => return self.finish(run),
            (RunState::Holding, Standing::Behind(other)) => return self.yield_to(run, other),
            _ if !run.may_have_run => return self.not_started(run, GIVEN_BACK),
            _ => {}
        }
        let Some(view) = self.view else { return Life::next(run) };
        if let Some(started) = self.started(view).filter(|_| run.started_at.is_empty()) {
            run.started_at = started.to_string();
        }
        let has_finished = view.run.as_ref().is_some_and(|it| it.end.is_some());
        if has_finished && !has_never_started(view) {
            return self.watch(run);
        }
        if !run.started_at.is_empty() {
            return self.stopped(run, "it was given back before it had finished");
        }
        // Its cluster may respond again.
        if is_silent(view) && !self.is_grace_over() {
            return Life::next(run);
        }
        match view.presence {
            _ if view.run.is_none() => {
                let why = "it was given back, and its target does not say whether it had started";
                self.stopped(run, why)
            }
            Presence::Nothing | Presence::ClusterReady => self.not_started(run, GIVEN_BACK),
            // It may start until nothing is left of it.
            Presence::Leaving => Life::next(run),
            _ => Life::step(run, BurstStep::DeleteObjects),
        }
    }

    /// Whether a Burst that is being deleted has waited for long enough.
    fn is_grace_over(&self) -> bool {
        let status = self.burst.status.as_ref();
        let since = status.and_then(|it| it.giving_back_since.parse::<Timestamp>().ok());
        let grace = self.burst.spec.grace_seconds();
        since.is_some_and(|since| self.now >= seconds_after(since, grace))
    }

    fn requeue_at(&self, status: &BurstStatus, has_step: bool) -> Option<Timestamp> {
        if let Some(retry_at) = next_retry(status, self.now) {
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
        let poll = next_poll(since, has_step, self.now);
        let end = Some(lifetime_end(self.burst)).filter(|at| *at > self.now);
        end.into_iter().chain([poll]).min()
    }
}

/// Why a job cannot be handed over, and what its user can do.
fn refusal_message(refusal: JobRefusal) -> &'static str {
    match refusal {
        JobRefusal::OtherUser => {
            "it was submitted by another user than the owner of the instance, and would run at the \
             target as that owner: submit it as the owner"
        }
        JobRefusal::NotUpdatable => {
            "its jobspec was changed, as flux update does, in a way that cannot be repeated at the \
             target: submit it as it should be"
        }
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
