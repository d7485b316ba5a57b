//! The conditions: every one present from the first pass, each with a reason.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::validate::Problem;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use super::{Facts, Outcome};
use crate::queueing::{given, is_taken_back};
use crate::verdict::{self, Verdict, no, unknown, yes};

/// Why a cluster is ready that nothing is wrong with.
pub(super) const QUORUM: &str = "Quorum";

/// Why a cluster is not ready whose command was started: it ends, or does not answer.
pub(super) const LEAD_NOT_READY: &str = "LeadNotReady";

/// Why a cluster does not start that its queue has no room for.
const WAITING: &str = "WaitingForQueue";
const WAITING_MESSAGE: &str =
    "it waits for room in its queue: `kubectl minicluster why` says for what";

/// All conditions.
pub(super) fn conditions(
    facts: &Facts<'_>,
    generation: Option<i64>,
    before: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let verdicts = ConditionType::ALL.map(|kind| (kind.as_str(), verdict(kind, facts)));
    verdict::conditions(verdicts, generation, before, now)
}

fn verdict(kind: ConditionType, facts: &Facts<'_>) -> Verdict {
    match kind {
        ConditionType::Accepted => accepted(facts),
        ConditionType::Admitted => admitted(facts),
        ConditionType::Ready | ConditionType::JobMiniClusterReady => ready(facts),
        ConditionType::Running | ConditionType::JobRunning => running(facts),
        ConditionType::Succeeded => succeeded(facts),
        ConditionType::JobRequested => yes("Created", "the MiniCluster was created"),
        ConditionType::JobWaitingForResources => waiting(facts),
        ConditionType::JobFinished => match &facts.ended {
            Some(ended) => yes(&ended.reason, &ended.message),
            None => no("NotFinished", "the cluster has not ended"),
        },
    }
}

fn accepted(facts: &Facts<'_>) -> Verdict {
    let Outcome { refusal, hold, failure, shrinking: _, created: _ } = facts.outcome;
    if let Some(refusal) = refusal {
        return no(refusal.reason.as_str(), &refusal.to_string());
    }
    if let Some(failure) = failure {
        return no("ApplyFailed", failure);
    }
    match hold {
        Some(hold) => no(hold.reason(), &hold.to_string()),
        None => yes("Accepted", &carried_out(&facts.warnings)),
    }
}

fn carried_out(warnings: &[Problem]) -> String {
    let warnings = warnings.iter().map(|warning| format!("; warning: {warning}"));
    std::iter::once("the manifest is valid".to_owned()).chain(warnings).collect()
}

fn admitted(facts: &Facts<'_>) -> Verdict {
    match facts.admission {
        _ if facts.suspended => no("Suspended", "spec.suspend is true"),
        Some(admission) if facts.waits => {
            no(&admission.leaving, &is_taken_back(&admission.leaving))
        }
        None if facts.waits => no(WAITING, WAITING_MESSAGE),
        Some(admission) => yes("Admitted", &given(admission)),
        None => yes("NotQueued", "the MiniCluster is not in a queue"),
    }
}

fn ready(facts: &Facts<'_>) -> Verdict {
    match (&facts.ended, &facts.trouble) {
        (Some(ended), _) => no(&ended.reason, "the cluster has ended"),
        // It goes on, and somebody should look all the same.
        (None, Some(trouble)) if facts.pods.lead_ready => {
            yes(trouble.reason, &format!("enough brokers are online, but {}", trouble.message))
        }
        (None, None) if facts.pods.lead_ready => match facts.outcome.shrinking {
            Some(shrinking) => yes(shrinking.reason(), &shrinking.to_string()),
            None => yes(QUORUM, "enough brokers are online"),
        },
        (None, _) => not_ready(facts),
    }
}

fn not_ready(facts: &Facts<'_>) -> Verdict {
    if facts.suspended {
        return no("Suspended", "spec.suspend is true");
    }
    if facts.waits {
        return no(WAITING, WAITING_MESSAGE);
    }
    if let Some(trouble) = &facts.trouble {
        return no(trouble.reason, &trouble.message);
    }
    if facts.goes_on() {
        return no(LEAD_NOT_READY, "the lead was ready: it ends now, or is slow to answer");
    }
    if !facts.last_error.is_empty() {
        return no("BrokersStarting", facts.last_error);
    }
    match (facts.created, facts.pods.started) {
        (false, _) => no("NotCreated", "the Job does not exist yet"),
        (true, 0) => no("PodsPending", "no pod has started yet"),
        (true, _) => no("BrokersStarting", "waiting for enough brokers to be online"),
    }
}

fn running(facts: &Facts<'_>) -> Verdict {
    match (&facts.ended, &facts.trouble) {
        (Some(ended), _) => no(&ended.reason, "the cluster has ended"),
        (None, _) if facts.pods.lead_ready && facts.stays => {
            yes("Interactive", "the cluster is up and takes jobs")
        }
        (None, _) if facts.pods.lead_ready || facts.goes_on() => {
            yes("CommandStarted", "the command has been started")
        }
        (None, Some(trouble)) => no(trouble.reason, &trouble.message),
        (None, None) => no("NotStarted", "the command has not been started"),
    }
}

fn succeeded(facts: &Facts<'_>) -> Verdict {
    match &facts.ended {
        Some(ended) if ended.succeeded => yes(&ended.reason, &ended.message),
        Some(ended) => no(&ended.reason, &ended.message),
        None => unknown("NotFinished", "the command has not ended"),
    }
}

fn waiting(facts: &Facts<'_>) -> Verdict {
    let waits = facts.created && facts.ended.is_none() && !facts.suspended;
    match &facts.trouble {
        _ if waits && facts.waits => yes(WAITING, WAITING_MESSAGE),
        Some(trouble) if waits && trouble.waits_for_room() => yes(trouble.reason, &trouble.message),
        None if waits && facts.pods.started == 0 => yes("PodsPending", "no pod has started yet"),
        _ => no("NotWaiting", "the cluster does not wait for room"),
    }
}
