//! The whole decision about a MiniCluster: queries, steps and status.

use flux_operator_api::validate::Problem;
use flux_operator_api::{MiniCluster, MiniClusterStatus, Reason};
use k8s_openapi::jiff::Timestamp;

use crate::cluster::Cluster;
use crate::decision::{
    Conclude, Conclusion, Decision, FailureKind, Outcome, earliest_requeue, reportable_failure,
};
use crate::kubernetes::{Rendering, Settings};
use crate::observed::Observed;
use crate::query::next_query;
use crate::resize::Shrinking;
use crate::status::{self, ReportedFailure, new_events, status, urgency};
use crate::step::Step;
use crate::steps::{Blocker, Plan, plan, with_booted_hosts};
use crate::valid::{Refusal, RefusalReason, Valid};

/// What the conclusion about a MiniCluster is computed from.
#[derive(Clone, Debug)]
pub struct MiniClusterFacts<'a> {
    minicluster: &'a MiniCluster,
    observed: &'a Observed,
    evaluation: Evaluation,
}

/// The result of evaluating a MiniCluster.
#[derive(Clone, Debug)]
enum Evaluation {
    /// It is deleted, or being deleted: Kubernetes deletes what it owns.
    Deleted,
    /// It cannot be run.
    Refused(Refusal),
    /// Its host list is not valid.
    InvalidHosts(String),
    /// It can be run.
    Planned {
        blocker: Option<Blocker>,
        shrinking: Option<Shrinking>,
        requeue_at: Option<Timestamp>,
    },
}

/// Decides what to do about a MiniCluster: validation, rank table, rendering and steps. Same
/// arguments, same decision. The answers to [`queries`](crate::queries) are in `observed`.
pub fn decide<'a>(
    minicluster: &'a MiniCluster,
    observed: &'a Observed,
    settings: &Settings,
) -> Decision<MiniClusterFacts<'a>> {
    let (evaluation, steps, lead_work) = match evaluate(minicluster, observed, settings) {
        Ok(Plan { steps, blocker, drain, shrinking, requeue_at }) => {
            (Evaluation::Planned { blocker, shrinking, requeue_at }, steps, drain)
        }
        Err(verdict) => (verdict, Vec::new(), None),
    };
    Decision { steps, lead_work, facts: MiniClusterFacts { minicluster, observed, evaluation } }
}

fn evaluate(
    minicluster: &MiniCluster,
    observed: &Observed,
    settings: &Settings,
) -> Result<Plan, Evaluation> {
    if minicluster.metadata.deletion_timestamp.is_some() || observed.is_deleted() {
        return Err(Evaluation::Deleted);
    }
    if let Some(message) = &observed.read_panic {
        let problem = Problem { path: "spec".into(), message: message.clone() };
        let reason = RefusalReason::OperatorError;
        return Err(Evaluation::Refused(Refusal { reason, problems: vec![problem] }));
    }
    let valid = Valid::check(minicluster.clone()).map_err(Evaluation::Refused)?;
    let valid = with_booted_hosts(valid, observed);
    let cluster =
        Cluster::of(&valid).map_err(|error| Evaluation::InvalidHosts(error.to_string()))?;
    let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings };
    Ok(plan(minicluster, &rendering, observed))
}

impl Decision<MiniClusterFacts<'_>> {
    /// Why the spec is not applied as it is, although it is valid.
    pub fn blocker(&self) -> Option<&Blocker> {
        match &self.facts.evaluation {
            Evaluation::Planned { blocker, .. } => blocker.as_ref(),
            Evaluation::Deleted | Evaluation::Refused(_) | Evaluation::InvalidHosts(_) => None,
        }
    }

    /// Why the MiniCluster cannot be run, as a message.
    pub fn refusal(&self) -> Option<String> {
        match &self.facts.evaluation {
            Evaluation::Refused(refusal) => Some(refusal.to_string()),
            Evaluation::InvalidHosts(message) => Some(message.clone()),
            Evaluation::Deleted | Evaluation::Planned { .. } => None,
        }
    }
}

impl Conclude for MiniClusterFacts<'_> {
    type Status = MiniClusterStatus;

    fn conclude(&self, steps: &[Step], outcome: &Outcome) -> Conclusion<MiniClusterStatus> {
        let MiniClusterFacts { minicluster, observed, evaluation } = self;
        let done = steps.iter().take(outcome.done);
        let failure = reportable_failure(outcome);
        let mut summary = status::ReconcileSummary {
            failure: failure.map(|failure| ReportedFailure {
                reason: match failure.kind {
                    FailureKind::NotOurs => Reason::NotOurs,
                    FailureKind::Invalid => Reason::Invalid,
                    FailureKind::Transient
                    | FailureKind::Conflict
                    | FailureKind::Refused
                    | FailureKind::Unknown => Reason::ApplyFailed,
                },
                message: &failure.message,
            }),
            created: done.into_iter().any(Step::creates_job),
            ..status::ReconcileSummary::default()
        };
        let mut requeue_at = None;
        match evaluation {
            Evaluation::Deleted => return Conclusion::empty(),
            Evaluation::Refused(refusal) => summary.refusal = Some(refusal),
            Evaluation::InvalidHosts(message) => {
                summary.failure = Some(ReportedFailure { reason: Reason::ApplyFailed, message });
            }
            Evaluation::Planned { blocker, shrinking, requeue_at: planned } => {
                (summary.blocker, summary.shrinking) = (blocker.as_ref(), shrinking.as_ref());
                requeue_at = *planned;
            }
        }
        let before = minicluster.status.as_ref();
        let status = status(minicluster, observed, &summary);
        Conclusion {
            urgency: urgency(before, &status),
            events: new_events(before.map_or(&[], |before| &before.conditions), &status.conditions),
            status: Some(status),
            requeue_at: earliest_requeue(outcome, observed.now, [requeue_at, next_query(observed)]),
            retry: failure.is_some(),
        }
    }
}
