//! Whether it makes sense to wait for an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{AnyReason, Reason};
use crate::condition::ConditionType;

/// A condition that does not change until the user of the object acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockingCondition<'a> {
    /// The condition.
    pub condition: &'a Condition,
    /// Its reason; none if this version does not know it.
    pub reason: Option<Reason>,
}

/// The condition that keeps a MiniCluster or a FluxJob from running until its user acts. None
/// if waiting may help, and none for an object that runs or has finished.
///
/// A reason that this version does not know requires user action in `Accepted`, where nearly
/// all reasons do, and is transient elsewhere.
pub fn blocking_condition(conditions: &[Condition]) -> Option<BlockingCondition<'_>> {
    let find = |kind: ConditionType| conditions.iter().find(|it| it.type_ == kind.as_str());
    let is_true = |kind| find(kind).is_some_and(|condition| condition.status == "True");
    if is_true(ConditionType::Running) || is_true(ConditionType::JobFinished) {
        return None;
    }
    let before_running = [
        ConditionType::Accepted,
        ConditionType::Admitted,
        ConditionType::Joined,
        ConditionType::Ready,
    ];
    before_running.into_iter().find_map(|kind| {
        let condition = find(kind).filter(|condition| condition.status == "False")?;
        let reason = AnyReason::read(&condition.reason).known();
        let is_blocked = match (kind, reason) {
            (ConditionType::Accepted, Some(reason)) => reason.needs_user(),
            (ConditionType::Accepted, None) => true,
            (_, Some(reason)) => reason.needs_job_owner(),
            (_, None) => false,
        };
        is_blocked.then_some(BlockingCondition { condition, reason })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The reason that blocks an object with these conditions: type, status, reason.
    fn blocking_reason(conditions: &[[&str; 3]]) -> Option<String> {
        let conditions = conditions.iter().map(|[kind, status, reason]| {
            json!({ "type": kind, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        });
        let conditions: Vec<Condition> =
            serde_json::from_value(Value::Array(conditions.collect())).unwrap();
        blocking_condition(&conditions).map(|blocked| blocked.condition.reason.clone())
    }

    #[test]
    fn every_reason_is_waited_for_unless_its_user_has_to_act() {
        for reason in Reason::ALL {
            let word = reason.as_str();
            let accepted = blocking_reason(&[["Accepted", "False", word]]);
            assert_eq!(accepted.is_some(), reason.needs_user(), "{reason}");
            for kind in ["Admitted", "Ready"] {
                assert_eq!(blocking_reason(&[[kind, "True", word]]), None, "{reason}");
                let blocked =
                    blocking_reason(&[["Accepted", "True", "Accepted"], [kind, "False", word]]);
                assert_eq!(blocked.is_some(), reason.needs_job_owner(), "{reason}");
            }
        }
    }

    #[test]
    fn an_object_of_another_owner_is_not_waited_for_and_a_failed_request_is() {
        assert_eq!(blocking_reason(&[["Accepted", "False", "NotOurs"]]), Some("NotOurs".into()));
        assert_eq!(blocking_reason(&[["Accepted", "False", "ApplyFailed"]]), None);
    }

    #[test]
    fn a_job_is_waited_for_while_its_queue_is_what_must_change() {
        let accepted = ["Accepted", "True", "Accepted"];
        let blocked_by = |reason| blocking_reason(&[accepted, ["Admitted", "False", reason]]);
        assert_eq!(blocked_by("UnknownQueue"), Some("UnknownQueue".into()));
        for queue in ["Stopped", "Conflict", "Invalid", "NotYetSupported", "WaitingForQuota"] {
            assert_eq!(blocked_by(queue), None, "{queue}");
        }
    }

    #[test]
    fn what_runs_or_has_finished_is_not_blocked() {
        let immutable = ["Accepted", "False", "Immutable"];
        assert_eq!(blocking_reason(&[immutable]), Some("Immutable".into()));
        assert_eq!(blocking_reason(&[immutable, ["Running", "True", "CommandStarted"]]), None);
        assert_eq!(blocking_reason(&[immutable, ["JobFinished", "True", "Completed"]]), None);
    }

    #[test]
    fn an_unknown_reason_blocks_in_accepted_and_is_waited_for_elsewhere() {
        assert_eq!(
            blocking_reason(&[["Accepted", "False", "FromTheFuture"]]),
            Some("FromTheFuture".into())
        );
        assert_eq!(blocking_reason(&[["Ready", "False", "FromTheFuture"]]), None);
    }
}
