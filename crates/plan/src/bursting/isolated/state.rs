//! The status of a Burst with an instance of its own.

use flux_operator_api::burst::{BurstConditionType, BurstRun, RunState};
use flux_operator_api::{Burst, BurstStatus, MiniCluster, Reason};
use k8s_openapi::jiff::Timestamp;

use super::home::HomeAnswer;
use crate::bursting::life::record_start;
use crate::bursting::observed::{Presence, TargetFailure, TargetView};
use crate::bursting::state::{
    Verdicts, cluster_verdict, no_cluster, record_failure, record_giving_back, record_verdicts,
    target_verdicts,
};
use crate::bursting::usage::{count, used_nodes};
use crate::verdict::{self, Verdict, no, unknown, yes};

/// What the status is computed from.
pub(super) struct Facts<'a> {
    pub(super) burst: &'a Burst,
    pub(super) cluster: Option<&'a MiniCluster>,
    pub(super) view: Option<&'a TargetView>,
    pub(super) failure: Option<&'a TargetFailure>,
    /// The run, as it is from now on.
    pub(super) run: BurstRun,
    pub(super) problem: Option<Problem>,
    /// A step at the target follows, which may fail.
    pub(super) will_try: bool,
}

/// What keeps a run from going on, besides the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// There is no MiniCluster of this name.
    NoCluster,
    /// The operator, or the lead, does not answer.
    Home(String),
    /// The job's jobspec cannot be run elsewhere.
    NotPortable,
}

impl Problem {
    /// The problem if the operator, or the lead, does not answer.
    pub(super) fn of(home: &HomeAnswer) -> Option<Problem> {
        match home {
            HomeAnswer::NoAnswer(why) | HomeAnswer::Failed(why) => Some(Problem::Home(why.clone())),
            HomeAnswer::NotAsked | HomeAnswer::Awaited | HomeAnswer::Job(_) => None,
        }
    }
}

/// The status.
pub(super) fn status(facts: &Facts<'_>, home: &HomeAnswer, now: Timestamp) -> BurstStatus {
    let burst = facts.burst;
    let before = burst.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let is_deleting = burst.metadata.deletion_timestamp.is_some();
    if let Some(cluster) = facts.cluster.filter(|_| !is_deleting) {
        record_start(&mut status, burst, cluster);
    }
    if is_deleting {
        record_giving_back(&mut status, now);
    }
    status.run = Some(facts.run.clone());
    let keeps_failure = facts.will_try || facts.run.state == RunState::Finishing;
    record_failure(&mut status, facts.failure, facts.view.is_some(), keeps_failure, now);
    if let Some(view) = facts.view {
        count(&mut status, used_nodes(burst, view), burst.spec.target.price(), now);
    }
    // Those of a cluster without a Job wait for one, or are deleted.
    let pods = facts.view.map(|view| if view.has_pods() { view.present } else { Some(0) });
    if let Some(pods) = pods.unwrap_or(status.ready.is_empty().then_some(0)) {
        let nodes = burst.spec.nodes;
        status.ready = format!("{}/{nodes}", pods.min(nodes).max(0));
    }
    status.jobs = (facts.run.state == RunState::Running).into();
    let verdicts = verdicts(facts, &before, home);
    status.phase = phase(facts, &verdicts);
    record_verdicts(&mut status, burst, verdicts, now);
    status
}

fn verdicts(facts: &Facts<'_>, before: &BurstStatus, home: &HomeAnswer) -> Verdicts {
    let (target, credentials) = target_verdicts(facts.failure, facts.view.is_some(), before);
    let prepared = prepared(facts, before, home);
    let finished = finished(facts);
    let is_deleting = facts.burst.metadata.deletion_timestamp.is_some();
    let giving_back = match (facts.run.state, home_failure(facts)) {
        (RunState::Finishing, Some(why)) => yes(Reason::LenderNotReady, why),
        (RunState::Finishing, None) => {
            let before = before.condition(BurstConditionType::GivingBack);
            // Between two attempts nothing is asked.
            let kept = before.filter(|it| facts.view.is_none() && it.status == "True");
            let leaves = || yes(Reason::GivingBack, "what is left at the target is deleted");
            kept.map_or_else(leaves, verdict::copied_from)
        }
        (state, _) if state.is_over() => no(Reason::InUse, "nothing is left at the target"),
        _ if is_deleting => yes(Reason::GivingBack, "what is left at the target is deleted"),
        _ => no(Reason::InUse, "it is not being given back"),
    };
    vec![
        (BurstConditionType::TargetReady, target),
        (BurstConditionType::CredentialsAccepted, credentials),
        (BurstConditionType::Prepared, prepared),
        (BurstConditionType::Finished, finished),
        (BurstConditionType::GivingBack, giving_back),
    ]
}

/// Why home, rather than the target, keeps the run from going on.
fn home_failure<'a>(facts: &'a Facts<'_>) -> Option<&'a str> {
    match &facts.problem {
        Some(Problem::Home(why)) => Some(why),
        _ => {
            let failure = facts.failure.filter(|it| it.reason == Reason::LenderNotReady);
            failure.map(|failure| failure.message.as_str())
        }
    }
}

/// Whether the instance of the job exists at the target, or has existed.
fn prepared(facts: &Facts<'_>, before: &BurstStatus, home: &HomeAnswer) -> Verdict {
    let run = &facts.run;
    let kept = || before.condition(BurstConditionType::Prepared).map(verdict::copied_from);
    let was = kept().filter(|it| it.status == "True");
    let has_not_run = matches!(run.state, RunState::Refused | RunState::Yielded);
    if has_not_run || (run.state == RunState::Finishing && was.is_none()) {
        return match run.may_have_run {
            false => no(not_run_reason(facts), &run.message),
            true => yes(Reason::Prepared, "its instance has existed at the target"),
        };
    }
    if let Some(was) = was {
        return was;
    }
    if let Some(failure) = facts.failure {
        return no(failure.reason, &failure.message);
    }
    let presence = facts.view.map(|view| &view.presence);
    match (&facts.problem, presence) {
        (Some(Problem::NoCluster), _) => no_cluster(),
        (Some(Problem::Home(why)), _) => no(Reason::LenderNotReady, why),
        (Some(Problem::NotPortable), _) => no(Reason::NotPortable, &run.message),
        (None, Some(Presence::Complete)) => {
            yes(Reason::Prepared, "its instance exists at the target")
        }
        (None, Some(presence)) => cluster_verdict(presence).unwrap_or_else(|| {
            let how_far = match (run.state, home) {
                (RunState::Starting, _) => "its objects are created at the target",
                (_, HomeAnswer::Awaited) => "the lead is asked to hold the job",
                _ => "the job is held at home, and its jobspec is read",
            };
            no(Reason::Preparing, how_far)
        }),
        (None, None) => {
            kept().unwrap_or_else(|| unknown(Reason::NotAsked, "the target has not been asked yet"))
        }
    }
}

/// Why the job has not run: the Burst was given back, or another one runs the job. Otherwise its jobspec
/// was refused, which a user has to change.
fn not_run_reason(facts: &Facts<'_>) -> Reason {
    let is_deleting = facts.burst.metadata.deletion_timestamp.is_some();
    match is_deleting || facts.run.state == RunState::Yielded {
        true => Reason::GivingBack,
        false => Reason::NotPortable,
    }
}

/// Whether the job has finished.
fn finished(facts: &Facts<'_>) -> Verdict {
    let run = &facts.run;
    let trouble = facts.view.and_then(|view| view.trouble.as_ref());
    match (run.state, run.exit_code) {
        (RunState::Holding | RunState::Starting, _) => match trouble {
            Some((reason, message)) => no(*reason, message),
            None => no(Reason::Preparing, "it is not running yet"),
        },
        (RunState::Running, _) => match trouble {
            Some((reason, message)) => no(*reason, message),
            None => no(Reason::InUse, "the job runs"),
        },
        (_, _) if !run.may_have_run => no(not_run_reason(facts), &run.message),
        (_, Some(0)) => yes(Reason::Completed, "the job finished with exit code 0"),
        (_, Some(code)) => {
            yes(Reason::CommandFailed, &format!("the job finished with exit code {code}"))
        }
        (_, None) => yes(Reason::JobFailed, &run.message),
    }
}

/// What it is doing, in one word: the state of the run, or what keeps it from going on.
fn phase(facts: &Facts<'_>, verdicts: &Verdicts) -> String {
    let run = facts.run.state;
    match facts.problem {
        Some(Problem::NoCluster) => return Reason::LenderMissing.to_string(),
        Some(Problem::Home(_)) => return Reason::LenderNotReady.to_string(),
        Some(Problem::NotPortable) | None => {}
    }
    let is_waiting = !run.is_over() && facts.failure.is_some();
    let first = verdicts.iter().find(|(_, verdict)| verdict.status == "False");
    match first.filter(|_| is_waiting) {
        Some((_, verdict)) => verdict.reason.to_string(),
        None => run.as_str().to_owned(),
    }
}
