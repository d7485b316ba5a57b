//! What a reconciliation decides, for any kind: first the steps, and then, once their outcome
//! is known, the status and when to reconcile again.
//!
//! ```text
//! queries ──► decide ──► Decision { steps, lead_work } ──► Outcome ──► Decision::conclude
//! ```

use flux_operator_wire::Drain;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::status::{NewEvent, Urgency};
use crate::step::Step;
use crate::time::after;

/// How soon to retry what should succeed in a moment: Kubernetes is still deleting the objects
/// of a former object with the same name, or an object has changed since it was observed.
const TRANSIENT_RETRY: SignedDuration = SignedDuration::from_millis(250);

/// What to do about an object. `F` is what its conclusion is computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<F> {
    /// The steps, in order. They stop at the first that fails.
    pub steps: Vec<Step>,
    /// What the lead's agent should do, if that is known.
    pub lead_work: Option<Drain>,
    pub(crate) facts: F,
}

/// Computes the conclusion of the decision about one kind.
pub trait Conclude {
    /// The kind's status.
    type Status;

    /// The status, and when to reconcile again.
    fn conclude(&self, steps: &[Step], outcome: &Outcome) -> Conclusion<Self::Status>;
}

impl<F: Conclude> Decision<F> {
    /// A decision with these steps, and what its conclusion is computed from.
    pub fn new(steps: Vec<Step>, facts: F) -> Decision<F> {
        Decision { steps, lead_work: None, facts }
    }

    /// The status after the steps had this `outcome`, and when to reconcile again.
    pub fn conclude(&self, outcome: &Outcome) -> Conclusion<F::Status> {
        self.facts.conclude(&self.steps, outcome)
    }
}

/// How many steps were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of steps that were applied.
    pub done: usize,
    /// How the next step failed, if it did.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// All steps were applied.
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

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// It should succeed in a moment, and is not worth reporting.
    Transient,
    /// The object has changed since it was observed.
    Conflict,
    /// An object of this name belongs to another owner.
    NotOurs,
    /// The API server does not accept it now: a permission or quota is missing.
    Refused,
    /// The API server says that the object is not valid, and will say so again.
    Invalid,
    /// The API server did not answer, so the step may or may not have been applied.
    Unknown,
}

impl FailureKind {
    /// Whether the failure resolves itself. It is then not reported.
    pub fn is_transient(self) -> bool {
        matches!(self, FailureKind::Transient | FailureKind::Conflict)
    }
}

/// The status to write, and when to reconcile again.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion<S> {
    /// The status; None if there is nothing to report yet.
    pub status: Option<S>,
    /// How soon it must be written.
    pub urgency: Urgency,
    /// Events to write once the status is.
    pub events: Vec<NewEvent>,
    /// When to reconcile again if nothing changes.
    pub requeue_at: Option<Timestamp>,
    /// Whether the reconciliation failed, and is retried with a back-off.
    pub retry: bool,
}

impl<S> Conclusion<S> {
    /// No status, and no requeue.
    pub(crate) fn empty() -> Conclusion<S> {
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
pub(crate) fn reportable_failure(outcome: &Outcome) -> Option<&Failure> {
    outcome.failure.as_ref().filter(|failure| !failure.kind.is_transient())
}

/// When to reconcile again: soon after a transient failure, otherwise at the earliest of `times`.
pub(crate) fn earliest_requeue(
    outcome: &Outcome,
    now: Timestamp,
    times: impl IntoIterator<Item = Option<Timestamp>>,
) -> Option<Timestamp> {
    let transient = outcome.failure.as_ref().is_some_and(|failure| failure.kind.is_transient());
    let soon = transient.then(|| after(now, TRANSIENT_RETRY));
    times.into_iter().chain([soon]).flatten().min()
}
