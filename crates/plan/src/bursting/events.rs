//! Events of a Burst: what a user would want to hear of.

use flux_operator_api::BurstStatus;
use flux_operator_api::reason::AnyReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::status::NewEvent;

/// The conditions of a Burst that are worth an Event when they become true.
const MILESTONES: [&str; 4] = ["Prepared", "Ready", "Finished", "GivingBack"];

/// The conditions of a Burst that are worth an Event when they are not true, for a reason that is not
/// progress. Those after them repeat their reason.
const STEPS: [&str; 4] = ["TargetReady", "CredentialsAccepted", "Prepared", "Joined"];

/// The Events for a change of the status.
pub fn burst_events(before: Option<&BurstStatus>, now: &BurstStatus) -> Vec<NewEvent> {
    let find = |status: &BurstStatus, kind: &str| {
        status.conditions.iter().find(|it| it.type_ == kind).cloned()
    };
    let was = |kind: &str| before.and_then(|before| find(before, kind));
    let mut events = Vec::new();
    for kind in MILESTONES {
        let is_new = was(kind).is_none_or(|it| it.status != "True");
        if let Some(now) = find(now, kind).filter(|it| it.status == "True" && is_new) {
            events.push(event(kind, true, now));
        }
    }
    let first = STEPS.into_iter().find_map(|kind| {
        let condition = find(now, kind).filter(|it| it.status == "False")?;
        let is_progress = match AnyReason::read(&condition.reason) {
            AnyReason::Known(reason) => reason.is_progress(),
            _ => false,
        };
        (!is_progress).then_some((kind, condition))
    });
    if let Some((kind, condition)) = first
        && was(kind).is_none_or(|it| it.reason != condition.reason)
    {
        events.push(event(kind, false, condition));
    }
    events
}

fn event(condition: &'static str, is_normal: bool, now: Condition) -> NewEvent {
    NewEvent { is_normal, condition, reason: now.reason, note: now.message }
}
