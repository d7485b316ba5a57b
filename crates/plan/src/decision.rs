//! What a reconciliation decides, whatever the kind: first the steps, and then, once it is
//! known how far these came, what to say and when to reconcile again.
//!
//! ```text
//! queries ──► decide ──► Decision { steps, lead_work } ──► Outcome ──► Decision::conclude
//! ```

use flux_operator_wire::Drain;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::status::{News, Urgency};
use crate::step::Step;
use crate::time::after;

/// How soon something is tried again that works in a moment: Kubernetes still deletes what
/// a namesake left, or an object has changed since it was observed.
const SOON: SignedDuration = SignedDuration::from_millis(250);

/// What to do about an object. `F` is what its conclusion is drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<F> {
    /// The steps, in order. The first that fails ends them.
    pub steps: Vec<Step>,
    /// What the lead's agent should do, if that can be said.
    pub lead_work: Option<Drain>,
    pub(crate) facts: F,
}

/// Draws the conclusion of one kind's decision.
pub trait Conclude {
    /// The kind's status.
    type Status;

    /// What to say, and when to reconcile again.
    fn conclude(&self, steps: &[Step], outcome: &Outcome) -> Conclusion<Self::Status>;
}

impl<F: Conclude> Decision<F> {
    /// These steps, and what the conclusion is drawn from.
    pub fn new(steps: Vec<Step>, facts: F) -> Decision<F> {
        Decision { steps, lead_work: None, facts }
    }

    /// What to say once the steps came as far as `outcome`, and when to reconcile again.
    pub fn conclude(&self, outcome: &Outcome) -> Conclusion<F::Status> {
        self.facts.conclude(&self.steps, outcome)
    }
}

/// How far the steps came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Steps that were done.
    pub done: usize,
    /// How the next one failed, if it did.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// All steps were done.
    pub fn all(steps: &[Step]) -> Outcome {
        Outcome { done: steps.len(), failure: None }
    }
}

/// How a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// What happened, and what to do about it.
    pub message: String,
}

/// What kind of failure a step met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// It works in a moment, and is not worth reporting.
    Transient,
    /// The object has changed since it was observed.
    Conflict,
    /// An object of this name belongs to another owner.
    NotOurs,
    /// The API server does not take it now: a right or a quota is missing.
    Refused,
    /// The API server says that the object is not valid, and will say so again.
    Invalid,
    /// The API server did not answer, so the step may have been done or not.
    Unknown,
}

impl FailureKind {
    /// Whether the failure resolves itself: it is not reported, and does not count as one.
    pub fn is_transient(self) -> bool {
        matches!(self, FailureKind::Transient | FailureKind::Conflict)
    }
}

/// What to say, and when to reconcile again.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion<S> {
    /// The status to show; None where there is nothing to say yet.
    pub status: Option<S>,
    /// How soon it must be written.
    pub urgency: Urgency,
    /// Events to write once the status is.
    pub events: Vec<News>,
    /// When to reconcile again although nothing has happened.
    pub requeue_at: Option<Timestamp>,
    /// Whether the reconciliation failed, and is tried again after a while.
    pub retry: bool,
}

impl<S> Conclusion<S> {
    /// Nothing to say, and nothing to come back for.
    pub(crate) fn nothing() -> Conclusion<S> {
        Conclusion {
            status: None,
            urgency: Urgency::None,
            events: Vec::new(),
            requeue_at: None,
            retry: false,
        }
    }
}

/// The failure to report, if there is one.
pub(crate) fn reported(outcome: &Outcome) -> Option<&Failure> {
    outcome.failure.as_ref().filter(|failure| !failure.kind.is_transient())
}

/// When to reconcile again: soon after what resolves itself, else by the earliest of `times`.
pub(crate) fn requeue_at(
    outcome: &Outcome,
    now: Timestamp,
    times: impl IntoIterator<Item = Option<Timestamp>>,
) -> Option<Timestamp> {
    let transient = outcome.failure.as_ref().is_some_and(|failure| failure.kind.is_transient());
    let soon = transient.then(|| after(now, SOON));
    times.into_iter().chain([soon]).flatten().min()
}
