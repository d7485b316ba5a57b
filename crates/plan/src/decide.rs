//! The whole decision about a MiniCluster: queries, steps and status.

use flux_operator_api::validate::Problem;
use flux_operator_api::{MiniCluster, MiniClusterStatus, Reason};
use k8s_openapi::jiff::Timestamp;

use crate::bursting::with_burst_ranks;
use crate::cluster::Cluster;
use crate::decision::{
    Conclude, Conclusion, Decision, Failure, FailureKind, Outcome, earliest_requeue,
    reportable_failure,
};
use crate::exposing::{ExposeState, is_expose_step};
use crate::joining::{self, JoinState, LeaseDecision, has_finalizer, is_note_step};
use crate::kubernetes::{Rendering, Settings};
use crate::observed::Observed;
use crate::query::next_query;
use crate::resize::Shrinking;
use crate::status::{self, ReportedFailure, kept_until, new_events, status, urgency};
use crate::step::Step;
use crate::steps::{Blocker, Plan, plan, with_booted_hosts};
use crate::valid::{Refusal, RefusalReason, Valid};

/// What the conclusion about a MiniCluster is computed from.
#[derive(Clone, Debug)]
pub struct MiniClusterFacts<'a> {
    minicluster: &'a MiniCluster,
    observed: &'a Observed,
    evaluation: Result<PlanFacts, Unplanned>,
}

/// What is reported about a MiniCluster that can be run.
#[derive(Clone, Debug)]
struct PlanFacts {
    blocker: Option<Blocker>,
    refusal: Option<Refusal>,
    shrinking: Option<Shrinking>,
    requeue_at: Option<Timestamp>,
    leases: Option<LeaseDecision>,
    join: Option<JoinState>,
    expose: Option<ExposeState>,
}

/// Why there is no plan for a MiniCluster.
#[derive(Clone, Debug)]
pub(crate) enum Unplanned {
    /// It is deleted, or being deleted: Kubernetes deletes what it owns.
    Deleted,
    /// It cannot be run.
    Refused(Refusal),
    /// Its host list is not valid.
    InvalidHosts(String),
}

/// Decides what to do about a MiniCluster: validation, rank table, rendering and steps. Same
/// arguments, same decision. The answers to [`queries`](crate::queries) are in `observed`.
pub fn decide<'a>(
    minicluster: &'a MiniCluster,
    observed: &'a Observed,
    settings: &Settings,
) -> Decision<MiniClusterFacts<'a>> {
    let (evaluation, steps, lead_work) = match evaluate(minicluster, observed, settings) {
        Ok(plan) => {
            let Plan {
                steps,
                blocker,
                refusal,
                drain,
                shrinking,
                requeue_at,
                leases,
                join,
                expose,
            } = plan;
            let facts = PlanFacts { blocker, refusal, shrinking, requeue_at, leases, join, expose };
            (Ok(facts), steps, drain)
        }
        Err(unplanned) => (Err(unplanned), Vec::new(), None),
    };
    Decision { steps, lead_work, facts: MiniClusterFacts { minicluster, observed, evaluation } }
}

fn evaluate(
    minicluster: &MiniCluster,
    observed: &Observed,
    settings: &Settings,
) -> Result<Plan, Unplanned> {
    let is_deleting = minicluster.metadata.deletion_timestamp.is_some();
    if observed.is_deleted() || (is_deleting && !has_finalizer(minicluster)) {
        return Err(Unplanned::Deleted);
    }
    // One that is being deleted may have been edited so that it names no lender any more. Its
    // finalizer must be removed all the same; its jobs are not waited for then.
    if is_deleting {
        return joining::evaluate(minicluster, observed, settings);
    }
    if let Some(message) = &observed.read_panic {
        let problem = Problem { path: "spec".into(), message: message.clone() };
        let reason = RefusalReason::OperatorError;
        return Err(Unplanned::Refused(Refusal { reason, problems: vec![problem] }));
    }
    if minicluster.spec.remote_lead().is_some() {
        return joining::evaluate_remote(minicluster, observed, settings);
    }
    if minicluster.spec.is_joiner() {
        return joining::evaluate(minicluster, observed, settings);
    }
    let valid = Valid::check(minicluster.clone()).map_err(Unplanned::Refused)?;
    let valid = with_booted_hosts(with_burst_ranks(valid, observed), observed);
    let cluster =
        Cluster::of(&valid).map_err(|error| Unplanned::InvalidHosts(error.to_string()))?;
    let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings };
    Ok(plan(minicluster, &rendering, observed))
}

impl Decision<MiniClusterFacts<'_>> {
    /// Why the spec is not applied as it is, although it is valid.
    pub fn blocker(&self) -> Option<&Blocker> {
        self.facts.evaluation.as_ref().ok()?.blocker.as_ref()
    }

    /// Why the MiniCluster cannot be run, as a message.
    pub fn refusal(&self) -> Option<String> {
        match &self.facts.evaluation {
            Ok(facts) => facts.refusal.as_ref().map(ToString::to_string),
            Err(Unplanned::Refused(refusal)) => Some(refusal.to_string()),
            Err(Unplanned::InvalidHosts(message)) => Some(message.clone()),
            Err(Unplanned::Deleted) => None,
        }
    }
}

impl MiniClusterFacts<'_> {
    /// How a MiniCluster is exposed after a step for that has failed; `None` if none has.
    fn unexposed(
        &self,
        steps: &[Step],
        outcome: &Outcome,
        failure: Option<&Failure>,
    ) -> Option<ExposeState> {
        let (failure, step) = (failure?, steps.get(outcome.done)?);
        let expose = self.evaluation.as_ref().ok()?.expose.as_ref()?;
        let reason = match failure.kind {
            FailureKind::NotOurs => Reason::NotOurs,
            FailureKind::Invalid
            | FailureKind::Transient
            | FailureKind::Conflict
            | FailureKind::Refused
            | FailureKind::Unknown => Reason::ApplyFailed,
        };
        is_expose_step(step, self.minicluster)
            .then(|| expose.with_failure(reason, &failure.message))
    }
}

impl Conclude for MiniClusterFacts<'_> {
    type Status = MiniClusterStatus;

    fn conclude(&self, steps: &[Step], outcome: &Outcome) -> Conclusion<MiniClusterStatus> {
        let MiniClusterFacts { minicluster, observed, evaluation } = self;
        let done = steps.iter().take(outcome.done);
        let failure = reportable_failure(outcome);
        // It is reported in `Exposed`.
        let unexposed = self.unexposed(steps, outcome, failure);
        let mut summary = status::ReconcileSummary {
            failure: failure.filter(|_| unexposed.is_none()).map(|failure| ReportedFailure {
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
        // The note is applied before the leases are written.
        let is_unnoted = steps.iter().skip(outcome.done).any(is_note_step);
        let noted_leases: Option<LeaseDecision>;
        let mut requeue_at = None;
        match evaluation {
            Err(Unplanned::Deleted) => return Conclusion::empty(),
            Err(Unplanned::Refused(refusal)) => summary.refusal = Some(refusal),
            Err(Unplanned::InvalidHosts(message)) => {
                summary.failure = Some(ReportedFailure { reason: Reason::ApplyFailed, message });
            }
            Ok(facts) => {
                let PlanFacts {
                    blocker,
                    refusal,
                    shrinking,
                    requeue_at: planned,
                    leases,
                    join,
                    expose,
                } = facts;
                summary.refusal = refusal.as_ref();
                (summary.blocker, summary.shrinking) = (blocker.as_ref(), shrinking.as_ref());
                let unnoted = leases.as_ref().filter(|_| is_unnoted);
                noted_leases = unnoted.map(|it| it.without_new_invitations(minicluster));
                (summary.leases, summary.join) =
                    (noted_leases.as_ref().or(leases.as_ref()), join.as_ref());
                summary.expose = unexposed.as_ref().or(expose.as_ref());
                requeue_at = *planned;
            }
        }
        let before = minicluster.status.as_ref();
        let status = status(minicluster, observed, &summary);
        Conclusion {
            urgency: urgency(before, &status),
            events: new_events(before, &status),
            status: Some(status),
            requeue_at: earliest_requeue(
                outcome,
                observed.now,
                [requeue_at, next_query(observed), kept_until(observed)],
            ),
            retry: failure.is_some(),
        }
    }
}
