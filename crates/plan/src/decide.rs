//! The whole decision about a MiniCluster: queries, steps and status.

use flux_operator_api::validate::Problem;
use flux_operator_api::{MiniCluster, MiniClusterStatus, Reason};
use k8s_openapi::jiff::Timestamp;

use crate::cluster::Cluster;
use crate::decision::{Conclude, Conclusion, Decision, FailureKind, Outcome, reported, requeue_at};
use crate::kubernetes::{Rendering, Settings};
use crate::query::next_query;
use crate::resize::Shrinking;
use crate::seen::Seen;
use crate::status::{self, Reported, news, status, urgency};
use crate::step::Step;
use crate::steps::{Hold, Plan, as_booted, plan};
use crate::valid::{Refusal, RefusalReason, Valid};

/// What the conclusion about a MiniCluster is computed from.
#[derive(Clone, Debug)]
pub struct MiniClusterFacts<'a> {
    minicluster: &'a MiniCluster,
    seen: &'a Seen,
    verdict: Verdict,
}

/// The result of evaluating a MiniCluster.
#[derive(Clone, Debug)]
enum Verdict {
    /// It is deleted, or being deleted: Kubernetes deletes what it owns.
    Gone,
    /// It cannot be run.
    Refused(Refusal),
    /// Its host list is not valid.
    NoHosts(String),
    /// It can be run.
    Planned { hold: Option<Hold>, shrinking: Option<Shrinking>, look_again: Option<Timestamp> },
}

/// Decides what to do about a MiniCluster: validation, rank table, rendering and steps. Same
/// arguments, same decision. The answers to [`queries`](crate::queries) are in `observed`.
pub fn decide<'a>(
    minicluster: &'a MiniCluster,
    seen: &'a Seen,
    settings: &Settings,
) -> Decision<MiniClusterFacts<'a>> {
    let (verdict, steps, lead_work) = match planned(minicluster, seen, settings) {
        Ok(Plan { steps, hold, drain, shrinking, look_again }) => {
            (Verdict::Planned { hold, shrinking, look_again }, steps, drain)
        }
        Err(verdict) => (verdict, Vec::new(), None),
    };
    Decision { steps, lead_work, facts: MiniClusterFacts { minicluster, seen, verdict } }
}

fn planned(minicluster: &MiniCluster, seen: &Seen, settings: &Settings) -> Result<Plan, Verdict> {
    if minicluster.metadata.deletion_timestamp.is_some() || seen.is_gone() {
        return Err(Verdict::Gone);
    }
    if let Some(message) = &seen.unreadable {
        let problem = Problem { path: "spec".into(), message: message.clone() };
        let reason = RefusalReason::Unreadable;
        return Err(Verdict::Refused(Refusal { reason, problems: vec![problem] }));
    }
    let valid = Valid::check(minicluster.clone()).map_err(Verdict::Refused)?;
    let valid = as_booted(valid, seen);
    let cluster = Cluster::of(&valid).map_err(|error| Verdict::NoHosts(error.to_string()))?;
    let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings };
    Ok(plan(minicluster, &rendering, seen))
}

impl Decision<MiniClusterFacts<'_>> {
    /// Why the spec is not applied as it is, although it is valid.
    pub fn hold(&self) -> Option<&Hold> {
        match &self.facts.verdict {
            Verdict::Planned { hold, .. } => hold.as_ref(),
            Verdict::Gone | Verdict::Refused(_) | Verdict::NoHosts(_) => None,
        }
    }

    /// Why the MiniCluster cannot be run, as a message.
    pub fn refusal(&self) -> Option<String> {
        match &self.facts.verdict {
            Verdict::Refused(refusal) => Some(refusal.to_string()),
            Verdict::NoHosts(message) => Some(message.clone()),
            Verdict::Gone | Verdict::Planned { .. } => None,
        }
    }
}

impl Conclude for MiniClusterFacts<'_> {
    type Status = MiniClusterStatus;

    fn conclude(&self, steps: &[Step], outcome: &Outcome) -> Conclusion<MiniClusterStatus> {
        let MiniClusterFacts { minicluster, seen, verdict } = self;
        let done = steps.iter().take(outcome.done);
        let failure = reported(outcome);
        let mut told = status::Outcome {
            failure: failure.map(|failure| Reported {
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
            ..status::Outcome::default()
        };
        let mut look_again = None;
        match verdict {
            Verdict::Gone => return Conclusion::nothing(),
            Verdict::Refused(refusal) => told.refusal = Some(refusal),
            Verdict::NoHosts(message) => {
                told.failure = Some(Reported { reason: Reason::ApplyFailed, message });
            }
            Verdict::Planned { hold, shrinking, look_again: planned } => {
                (told.hold, told.shrinking) = (hold.as_ref(), shrinking.as_ref());
                look_again = *planned;
            }
        }
        let before = minicluster.status.as_ref();
        let status = status(minicluster, seen, &told);
        Conclusion {
            urgency: urgency(before, &status),
            events: news(before.map_or(&[], |before| &before.conditions), &status.conditions),
            status: Some(status),
            requeue_at: requeue_at(outcome, seen.now, [look_again, next_query(seen)]),
            retry: failure.is_some(),
        }
    }
}
