//! Which changes of a FluxJob's conditions are reported as Events.

use flux_operator_api::Reason;
use flux_operator_api::condition::ConditionType;
use flux_operator_api::reason::AnyReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::status::{self, NewEvent};
use crate::verdict::find;

/// The Events for a change of the conditions. That a job is admitted or waits for its
/// turn is not an Event: that would double the number of writes. How its brokers start is
/// reported for its MiniCluster.
pub(super) fn new_events(before: &[Condition], now: &[Condition]) -> Vec<NewEvent> {
    let mut reported = status::condition_events(before, now);
    reported.retain(|events| events.condition != ConditionType::Ready.as_str());
    reported.extend(admission_event(before, now));
    reported
}

/// An Event for a job that lost its quota, or waits for its user to act.
fn admission_event(before: &[Condition], now: &[Condition]) -> Option<NewEvent> {
    let before = find(before, ConditionType::Admitted);
    let admitted = find(now, ConditionType::Admitted)?;
    let had_quota = before.is_some_and(|before| before.status == "True");
    let same = before.is_some_and(|before| before.reason == admitted.reason);
    let matters = had_quota || needs_user(admitted, now) && !same;
    (admitted.status == "False" && matters).then(|| NewEvent {
        is_normal: false,
        condition: ConditionType::Admitted.as_str(),
        reason: admitted.reason.clone(),
        note: admitted.message.clone(),
    })
}

/// Whether a job waits for its user, and no other Event says so: problems of the
/// manifest have an Event of their own, and a job that has finished does not wait.
fn needs_user(admitted: &Condition, all: &[Condition]) -> bool {
    let is = |kind, status: &str| find(all, kind).is_some_and(|it| it.status == status);
    let reason = AnyReason::read(&admitted.reason).known();
    reason.is_some_and(Reason::needs_job_owner)
        && !is(ConditionType::Accepted, "False")
        && !is(ConditionType::JobFinished, "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::reason::Topic;
    use serde_json::json;

    /// The conditions of a job that is admitted, or is not and therefore is not ready.
    fn admitted(status: &str, reason: &str) -> Vec<Condition> {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({ "type": kind, "status": status, "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        serde_json::from_value(json!([
            condition("Admitted", status, reason),
            condition("Ready", "False", reason),
            condition("Succeeded", "Unknown", "NotFinished"),
        ]))
        .unwrap()
    }

    fn reasons(before: &[Condition], now: &[Condition]) -> Vec<String> {
        new_events(before, now).into_iter().map(|events| events.reason).collect()
    }

    /// Why a job waits is an Event only if its user has to act: there are too many
    /// waiting jobs, and a FluxSetup reports its own problems.
    #[test]
    fn a_reason_to_wait_is_an_event_only_if_the_jobs_user_has_to_act() {
        let shown = Reason::ALL.iter().filter(|reason| {
            let topics = reason.topics();
            topics.contains(&Topic::Admission) || topics.contains(&Topic::Queue)
        });
        let mut reported: Vec<String> =
            shown.flat_map(|it| reasons(&[], &admitted("False", it.as_str()))).collect();
        reported.sort();
        let waits = [
            "AmbiguousQueue",
            "ExceedsMaxQuota",
            "NoQueue",
            "NotServed",
            "TooLarge",
            "UnknownQueue",
        ];
        // These two never occur alone: the first is also a problem of the manifest, and with
        // the second the job has finished.
        let others = ["NameTaken", "NoRoom"];
        let mut expected: Vec<&str> = waits.into_iter().chain(others).collect();
        expected.sort_unstable();
        assert_eq!(reported, expected);
        let refused = |kind: &str, status: &str, reason: &str| {
            let mut all = admitted("False", reason);
            all.push(Condition { type_: kind.into(), status: status.into(), ..all[0].clone() });
            let mut reported = new_events(&[], &all);
            reported.retain(|events| events.condition == "Admitted");
            reported
        };
        assert_eq!(refused("Accepted", "False", "NameTaken"), []);
        assert_eq!(refused("JobFinished", "True", "NoRoom"), []);
    }

    #[test]
    fn a_required_user_action_is_one_event_and_an_admission_is_none() {
        let too_large = admitted("False", "ExceedsMaxQuota");
        assert_eq!(reasons(&[], &too_large), ["ExceedsMaxQuota"]);
        assert_eq!(reasons(&too_large, &too_large), [""; 0]);
        let waits = admitted("False", "WaitingForQuota");
        assert_eq!(reasons(&too_large, &waits), [""; 0]);
        let has_quota = admitted("True", "Admitted");
        assert_eq!(reasons(&waits, &has_quota), [""; 0]);
        assert_eq!(reasons(&has_quota, &admitted("False", "QueueStopped")), ["QueueStopped"]);
    }
}
