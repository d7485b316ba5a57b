//! Jobs that run in an instance of their own elsewhere: which, and at which target.

use std::collections::HashSet;

use flux_operator_api::Burst;
use flux_operator_api::burst::{BurstTarget, RunState};
use flux_operator_flux::JobId;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::answer::{Refusal, Why};
use crate::constraint::Match;
use crate::pause::PAUSE_SECONDS;
use crate::pool::{shape, target_property};
use crate::request::{Demand, Requests, nearer};
use crate::time::seconds_after;
use crate::{Action, PolicyState};

/// The isolated run of a job that is pending here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsolatedRun {
    /// The job.
    pub job: u64,
    /// The Burst's name.
    pub burst: String,
    /// The policy that has created it. `None`: a user has.
    pub policy: Option<String>,
    /// The name of its target.
    pub target: String,
    /// What it is doing, or why it waits, in one word.
    pub phase: String,
    /// Why the job cannot run elsewhere, if it cannot.
    pub refusal: Option<String>,
    /// Whether the job has started at its target.
    pub has_started: bool,
    /// Until when its target is paused: it is given back, and was not started.
    pub paused_until: Option<Timestamp>,
}

impl IsolatedRun {
    /// The run of a Burst, if it has one. One that another Burst runs, or that was given back before it
    /// has started, says nothing about the job. `waiting`: the jobs that wait.
    pub(crate) fn of(burst: &Burst, waiting: &HashSet<u64>) -> Option<IsolatedRun> {
        let job: JobId = burst.spec.isolated_job.parse().ok()?;
        let status = burst.status.clone().unwrap_or_default();
        let run = status.run.unwrap_or_default();
        match run.state {
            RunState::Yielded => return None,
            RunState::Refused if burst.metadata.deletion_timestamp.is_some() => return None,
            _ => {}
        }
        let given_back: Option<Timestamp> = status.giving_back_since.parse().ok();
        let has_started = !run.started_at.is_empty();
        // A job that does not wait any more has started at home, or was canceled: the target has not
        // failed.
        let is_useless = !has_started && waiting.contains(&job.number());
        Some(IsolatedRun {
            job: job.number(),
            burst: burst.name_any(),
            policy: burst.owning_policy().map(ToOwned::to_owned),
            target: burst.spec.target.name.clone(),
            phase: status.phase,
            refusal: (run.state == RunState::Refused).then_some(run.message),
            has_started,
            paused_until: given_back
                .filter(|_| is_useless)
                .map(|since| seconds_after(since, PAUSE_SECONDS)),
        })
    }
}

/// A run that is requested.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewRun<'a> {
    pub(crate) policy: usize,
    pub(crate) target: &'a BurstTarget,
    pub(crate) nodes: i32,
    pub(crate) job: u64,
}

impl NewRun<'_> {
    /// What to do for it.
    pub(crate) fn action(&self, policies: &[PolicyState]) -> Action {
        Action::RunIsolated {
            policy: policies[self.policy].name.clone(),
            // It has a constant size, and no ranks here.
            target: Box::new(BurstTarget {
                scaling: None,
                ranks: String::new(),
                ..self.target.clone()
            }),
            nodes: self.nodes,
            job: self.job,
        }
    }
}

impl<'a> Requests<'a> {
    /// Requests a run at the first target of a policy that can have it.
    pub(crate) fn request_run(
        &mut self,
        policy: usize,
        demand: Demand<'_>,
    ) -> Result<NewRun<'a>, Refusal<'a>> {
        let state = &self.policies[policy];
        let name = state.name.as_str();
        let mut nearest: Option<Refusal<'a>> = None;
        for (index, target) in state.spec.targets.iter().enumerate() {
            match self.check_run(policy, index, demand) {
                Ok(nodes) => {
                    self.budgets[policy].spend(index, nodes, true);
                    self.forget_refusals();
                    return Ok(NewRun { policy, target, nodes, job: demand.job.id });
                }
                Err(refusal) => nearest = Some(nearer(nearest, refusal)),
            }
        }
        Err(nearest.unwrap_or_else(|| Why::NoIsolatedTarget { policy: name }.into()))
    }

    /// How many nodes a run would have at a target, or why it cannot run there.
    fn check_run(
        &self,
        policy: usize,
        index: usize,
        demand: Demand<'_>,
    ) -> Result<i32, Refusal<'a>> {
        let state = &self.policies[policy];
        let target = &state.spec.targets[index];
        if !target.is_elsewhere() {
            return Err(Why::NoIsolatedTarget { policy: &state.name }.into());
        }
        // Its nodes get no ranks of this instance, so that only the target says what they have.
        let (cores, gpus) = shape(target, "", self.instance);
        // Of its properties only that of the ranks which its nodes would get otherwise is known.
        let is_there = demand.constraint.matches(target_property(target), None) == Match::Yes;
        if !is_there || !demand.need.accepts(cores, gpus) {
            return Err(Why::NoTargetFits { policy: &state.name }.into());
        }
        let nodes = i32::try_from(demand.need.node_count(cores, gpus)).unwrap_or(i32::MAX);
        let most = target.max_nodes.min(state.spec.limits.nodes);
        if nodes > most {
            let amount = (demand.need.node_count(cores, gpus), "nodes");
            let most = most.unsigned_abs();
            return Err(Why::TooLargeForTargets { amount, most }.into());
        }
        self.check_paused(policy, index)?;
        let budget = &self.budgets[policy];
        budget.check_day(state)?;
        budget.check_nodes(state, index, nodes)?;
        budget.check_bursts(state)?;
        Ok(nodes)
    }
}

#[cfg(test)]
mod tests;
