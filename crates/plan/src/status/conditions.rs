//! The conditions: all present from the first reconciliation, each with a reason.

use flux_operator_api::Reason;
use flux_operator_api::condition::ConditionType;
use flux_operator_api::reason::AnyReason;
use flux_operator_api::validate::Problem;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use super::{ReconcileSummary, StatusInput};
use crate::queueing::{eviction_message, grant_message};
use crate::reason::of_waiting;
use crate::verdict::{self, Verdict, no, unknown, yes};

/// The message for a cluster that waits for quota.
const WAITING_MESSAGE: &str =
    "it waits for quota in its queue: `kubectl minicluster why` shows the reason";

/// How the message about trouble of a cluster that is ready begins.
pub(super) const BUT_ONLINE: &str = "enough brokers are online, but ";

/// All conditions.
pub(super) fn conditions(
    facts: &StatusInput<'_>,
    generation: Option<i64>,
    before: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let kinds = ConditionType::ALL.into_iter();
    let kinds = kinds.filter(|kind| match kind {
        ConditionType::Joined => facts.is_joiner,
        ConditionType::Exposed => facts.is_exposed,
        _ => true,
    });
    let verdicts = kinds.map(|kind| (kind.as_str(), verdict(kind, facts)));
    verdict::conditions(verdicts, generation, before, now)
}

fn verdict(kind: ConditionType, facts: &StatusInput<'_>) -> Verdict {
    match kind {
        ConditionType::Accepted => accepted(facts),
        ConditionType::Admitted => admitted(facts),
        ConditionType::Joined => joined(facts),
        ConditionType::Exposed => exposed(facts),
        ConditionType::Ready | ConditionType::JobMiniClusterReady => ready(facts),
        ConditionType::Running | ConditionType::JobRunning => running(facts),
        ConditionType::Succeeded => succeeded(facts),
        ConditionType::JobRequested => yes(Reason::Created, "the MiniCluster was created"),
        ConditionType::JobWaitingForResources => waiting_for_resources(facts),
        ConditionType::JobFinished => match &facts.completion {
            Some(finished) => yes(finished.reason.clone(), &finished.message),
            None => no(Reason::NotFinished, "the cluster has not finished"),
        },
    }
}

fn accepted(facts: &StatusInput<'_>) -> Verdict {
    let ReconcileSummary {
        refusal,
        blocker,
        failure,
        shrinking: _,
        created: _,
        leases: _,
        join: _,
        expose: _,
    } = facts.summary;
    if let Some(refusal) = refusal {
        return no(Reason::from(refusal.reason), &refusal.to_string());
    }
    if let Some(failure) = failure {
        return no(failure.reason, failure.message);
    }
    match blocker {
        Some(blocker) => no(blocker.reason(), &blocker.to_string()),
        None => yes(Reason::Accepted, &accepted_message(&facts.warnings)),
    }
}

fn accepted_message(warnings: &[Problem]) -> String {
    let warnings = warnings.iter().map(|warning| format!("; warning: {warning}"));
    std::iter::once("the manifest is valid".to_owned()).chain(warnings).collect()
}

fn admitted(facts: &StatusInput<'_>) -> Verdict {
    match facts.admission {
        _ if facts.suspended => no(Reason::Suspended, "spec.suspend is true"),
        Some(admission) if facts.waits_for_quota => {
            let cause = AnyReason::read(&admission.leaving);
            let message = eviction_message(&cause);
            no(cause, &message)
        }
        None if facts.waits_for_quota => not_admitted(facts),
        Some(admission) => yes(Reason::Admitted, &grant_message(admission)),
        None => yes(Reason::NotQueued, "the MiniCluster is not in a queue"),
    }
}

/// The reason why it waits is written only if its user has to act. Otherwise it changes with
/// every other job, and is served on request.
fn not_admitted(facts: &StatusInput<'_>) -> Verdict {
    let waiting = facts.wait_status.map(|waiting| (of_waiting(&waiting.reason), waiting));
    match waiting.filter(|(reason, _)| reason.needs_job_owner()) {
        Some((reason, waiting)) => no(reason, &waiting.reason.to_string()),
        None => no(Reason::WaitingForQueue, WAITING_MESSAGE),
    }
}

fn joined(facts: &StatusInput<'_>) -> Verdict {
    match (&facts.completion, facts.summary.join) {
        (Some(finished), _) => no(finished.reason.clone(), "the cluster has finished"),
        (None, Some(join)) if join.is_joined => yes(join.reason, &join.message),
        (None, Some(join)) => no(join.reason, &join.message),
        (None, None) => match facts.summary.refusal {
            Some(refusal) => no(Reason::from(refusal.reason), "the manifest is refused"),
            None => unknown(Reason::Joining, "nothing is known about the lender yet"),
        },
    }
}

fn exposed(facts: &StatusInput<'_>) -> Verdict {
    match (&facts.completion, facts.summary.expose) {
        (Some(finished), _) => no(finished.reason.clone(), "the cluster has finished"),
        (None, Some(state)) if state.is_exposed => yes(state.reason, &state.message),
        (None, Some(state)) => no(state.reason, &state.message),
        (None, None) => unknown(Reason::AddressPending, "its Job does not exist yet"),
    }
}

fn ready(facts: &StatusInput<'_>) -> Verdict {
    match (&facts.completion, &facts.trouble) {
        (Some(finished), _) => no(finished.reason.clone(), "the cluster has finished"),
        // It keeps running, but its user should look into it.
        (None, Some(trouble)) if facts.pods.lead_ready => {
            yes(trouble.reason, &format!("{BUT_ONLINE}{}", trouble.message))
        }
        (None, None) if facts.pods.lead_ready && facts.summary.join.is_some() => joined(facts),
        (None, None) if facts.pods.lead_ready => match facts.summary.shrinking {
            Some(shrinking) => yes(shrinking.reason(), &shrinking.to_string()),
            None => yes(Reason::Quorum, "enough brokers are online"),
        },
        (None, _) => not_ready(facts),
    }
}

fn not_ready(facts: &StatusInput<'_>) -> Verdict {
    if facts.suspended {
        return no(Reason::Suspended, "spec.suspend is true");
    }
    if facts.waits_for_quota {
        return no(Reason::WaitingForQueue, WAITING_MESSAGE);
    }
    if let Some(trouble) = &facts.trouble {
        return no(trouble.reason, &trouble.message);
    }
    if facts.summary.join.is_some() {
        return joined(facts);
    }
    if facts.may_still_run() {
        return no(Reason::LeadNotReady, "the lead was ready: it is finishing, or slow to answer");
    }
    if !facts.last_error.is_empty() {
        return no(Reason::BrokersStarting, facts.last_error);
    }
    match (facts.created, facts.pods.started) {
        (false, _) => no(Reason::NotCreated, "the Job does not exist yet"),
        (true, 0) => no(Reason::PodsPending, "no pod has started yet"),
        (true, _) => no(Reason::BrokersStarting, "waiting for enough brokers to be online"),
    }
}

fn running(facts: &StatusInput<'_>) -> Verdict {
    match (&facts.completion, &facts.trouble) {
        (Some(finished), _) => no(finished.reason.clone(), "the cluster has finished"),
        (None, _) if facts.pods.lead_ready && facts.is_interactive => {
            yes(Reason::Interactive, "the cluster is up and takes jobs")
        }
        (None, _) if facts.pods.lead_ready || facts.may_still_run() => {
            yes(Reason::CommandStarted, "the command has started")
        }
        (None, Some(trouble)) => no(trouble.reason, &trouble.message),
        (None, None) => no(Reason::NotStarted, "the command has not been started"),
    }
}

fn succeeded(facts: &StatusInput<'_>) -> Verdict {
    match &facts.completion {
        Some(finished) if finished.succeeded => yes(finished.reason.clone(), &finished.message),
        Some(finished) => no(finished.reason.clone(), &finished.message),
        None => unknown(Reason::NotFinished, "the command has not finished"),
    }
}

fn waiting_for_resources(facts: &StatusInput<'_>) -> Verdict {
    let waits = facts.created && facts.completion.is_none() && !facts.suspended;
    match &facts.trouble {
        _ if waits && facts.waits_for_quota => yes(Reason::WaitingForQueue, WAITING_MESSAGE),
        Some(trouble) if waits && trouble.reason.is_waiting_for_capacity() => {
            yes(trouble.reason, &trouble.message)
        }
        None if waits && facts.pods.started == 0 => {
            yes(Reason::PodsPending, "no pod has started yet")
        }
        _ => no(Reason::NotWaiting, "the cluster does not wait for quota or nodes"),
    }
}
