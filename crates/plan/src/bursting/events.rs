//! Events of a Burst: what a user would want to hear of.

use flux_operator_api::burst::BurstConditionType;
use flux_operator_api::reason::AnyReason;
use flux_operator_api::{BurstStatus, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::status::NewEvent;

/// The conditions of a Burst that are worth an Event when they become true.
const MILESTONES: [BurstConditionType; 4] = [
    BurstConditionType::Prepared,
    BurstConditionType::Ready,
    BurstConditionType::Finished,
    BurstConditionType::GivingBack,
];

/// The conditions of a Burst that are worth an Event when they are not true, for a reason that is not
/// progress. Those after them repeat their reason.
const STEPS: [BurstConditionType; 4] = [
    BurstConditionType::TargetReady,
    BurstConditionType::CredentialsAccepted,
    BurstConditionType::Prepared,
    BurstConditionType::Joined,
];

/// The Events for a change of the status.
pub fn burst_events(before: Option<&BurstStatus>, now: &BurstStatus) -> Vec<NewEvent> {
    let was = |kind| before.and_then(|before| before.condition(kind));
    let mut events = Vec::new();
    for kind in MILESTONES {
        let is_new = was(kind).is_none_or(|it| it.status != "True");
        if let Some(now) = now.condition(kind).filter(|it| it.status == "True" && is_new) {
            events.push(event(kind, true, now));
        }
    }
    let first = STEPS.into_iter().find_map(|kind| {
        let condition = now.condition(kind).filter(|it| it.status == "False")?;
        let reason = AnyReason::read(&condition.reason).known();
        let is_progress = reason.is_some_and(Reason::is_progress);
        (!is_progress).then_some((kind, condition))
    });
    if let Some((kind, condition)) = first
        && was(kind).is_none_or(|it| it.reason != condition.reason)
    {
        events.push(event(kind, false, condition));
    }
    events
}

fn event(kind: BurstConditionType, is_normal: bool, now: &Condition) -> NewEvent {
    NewEvent {
        is_normal,
        condition: kind.as_str(),
        reason: now.reason.clone(),
        note: now.message.clone(),
    }
}
