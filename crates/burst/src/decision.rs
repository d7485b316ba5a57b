//! What was decided.

use std::collections::BTreeMap;

use flux_operator_api::burst::BurstTarget;
use k8s_openapi::jiff::Timestamp;

use crate::answer::Why;
use crate::{Answer, AnswerReason};

/// What was decided about one instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What to do.
    pub actions: Vec<Action>,
    /// An answer for every pending job, in their order.
    pub answers: Vec<Answer>,
    /// What the next decision has to know.
    pub memory: Memory,
    /// When to decide again if nothing else changes: time alone may change the decision then.
    pub requeue_at: Option<Timestamp>,
}

impl Decision {
    /// What is left of it after what it requests for a policy was refused: no nodes are coming for those jobs.
    pub fn record_refusal(&mut self, policy: &str, message: &str) {
        let of_policy = |answer: &&mut Answer| answer.policy.as_deref() == Some(policy);
        let requested = self.answers.iter_mut().filter(of_policy);
        for answer in requested.filter(|it| it.reason == AnswerReason::Requested) {
            answer.reason = AnswerReason::CannotRequest;
            answer.message = Why::CannotRequest { policy, message }.to_string();
        }
    }
}

/// A change of the instance's bursts.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create a Burst.
    Create {
        /// The policy that it belongs to.
        policy: String,
        /// Its target, with the property of the ranks to lease in `ranks`.
        target: Box<BurstTarget>,
        /// How many nodes to request.
        nodes: i32,
        /// The jobs that wait for it, in the order of the queue.
        jobs: Vec<u64>,
    },
    /// Create a Burst that runs a job in an instance of its own.
    RunIsolated {
        /// The policy that it belongs to.
        policy: String,
        /// Its target, in another Kubernetes cluster.
        target: Box<BurstTarget>,
        /// How many nodes the job needs there.
        nodes: i32,
        /// The job.
        job: u64,
    },
    /// Change how many nodes a Burst requests.
    Resize {
        /// The Burst's name.
        burst: String,
        /// How many nodes to request.
        nodes: i32,
    },
    /// Drain a Burst, although its idle time is not over: no more jobs start on its nodes, and it is given
    /// back when those that run there have finished.
    Drain {
        /// The Burst's name.
        burst: String,
        /// Why.
        why: DrainReason,
    },
}

/// Why a burst is drained before its idle time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainReason {
    /// Its policy has used its node-hours of the day.
    LimitNodeHours,
    /// Its policy has reached its cost of the day.
    LimitCost,
}

/// What one decision passes to the next. If it is lost, the stabilization time starts again, jobs may be
/// placed on other Bursts than before, and no target is paused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Since when each policy has had nodes to request, by its name.
    pub missing_since: BTreeMap<String, Timestamp>,
    /// The burst for which each job waits. A job that has one does not get nodes that were requested
    /// for another.
    pub waits_for: BTreeMap<u64, NthPool>,
    /// Until when targets are paused whose last burst was of no use, by policy and target.
    pub paused: BTreeMap<(String, String), Timestamp>,
    /// Bursts of policies that have not been of use yet, by name. The target of one that is missing in
    /// the next decision is paused: a Burst may be deleted before it says that it is.
    pub unproven: BTreeMap<String, Unproven>,
}

/// A Burst of a policy of which no broker has joined, or that has not started its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unproven {
    /// The policy.
    pub policy: String,
    /// The target's name.
    pub target: String,
    /// The job that it was to run in an instance of its own, if there is one.
    pub job: Option<u64>,
}

/// One of the bursts of a policy at a target, by its position in their order of creation: a burst
/// that is about to be created has no name yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NthPool {
    /// The policy.
    pub policy: String,
    /// The target's name.
    pub target: String,
    /// How many of these bursts are older.
    pub position: usize,
}
