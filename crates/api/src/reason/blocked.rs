//! Whether it makes sense to wait for an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{AnyReason, Reason};
use crate::condition::ConditionType;

/// A condition that does not change until the user of the object acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blocked<'a> {
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
pub fn blocked(conditions: &[Condition]) -> Option<Blocked<'_>> {
    let find = |kind: ConditionType| conditions.iter().find(|it| it.type_ == kind.as_str());
    let is_true = |kind| find(kind).is_some_and(|condition| condition.status == "True");
    if is_true(ConditionType::Running) || is_true(ConditionType::JobFinished) {
        return None;
    }
    let on_the_way = [ConditionType::Accepted, ConditionType::Admitted, ConditionType::Ready];
    on_the_way.into_iter().find_map(|kind| {
        let condition = find(kind).filter(|condition| condition.status == "False")?;
        let reason = AnyReason::read(&condition.reason).known();
        let is_blocked = match (kind, reason) {
            (ConditionType::Accepted, Some(reason)) => reason.needs_user(),
            (ConditionType::Accepted, None) => true,
            (_, Some(reason)) => reason.needs_user_of_job(),
            (_, None) => false,
        };
        is_blocked.then_some(Blocked { condition, reason })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The reason that blocks an object with these conditions: type, status, reason.
    fn blocks(conditions: &[[&str; 3]]) -> Option<String> {
        let conditions = conditions.iter().map(|[kind, status, reason]| {
            json!({ "type": kind, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        });
        let conditions: Vec<Condition> =
            serde_json::from_value(Value::Array(conditions.collect())).unwrap();
        blocked(&conditions).map(|blocked| blocked.condition.reason.clone())
    }

    #[test]
    fn every_reason_is_waited_for_unless_its_user_has_to_act() {
        for reason in Reason::ALL {
            let word = reason.as_str();
            let accepted = blocks(&[["Accepted", "False", word]]);
            assert_eq!(accepted.is_some(), reason.needs_user(), "{reason}");
            for kind in ["Admitted", "Ready"] {
                assert_eq!(blocks(&[[kind, "True", word]]), None, "{reason}");
                let waits = blocks(&[["Accepted", "True", "Accepted"], [kind, "False", word]]);
                assert_eq!(waits.is_some(), reason.needs_user_of_job(), "{reason}");
            }
        }
    }

    #[test]
    fn somebody_elses_object_is_not_waited_for_and_a_failed_request_is() {
        assert_eq!(blocks(&[["Accepted", "False", "NotOurs"]]), Some("NotOurs".into()));
        assert_eq!(blocks(&[["Accepted", "False", "ApplyFailed"]]), None);
    }

    #[test]
    fn a_job_is_waited_for_while_its_queue_is_what_must_change() {
        let accepted = ["Accepted", "True", "Accepted"];
        let waits = |reason| blocks(&[accepted, ["Admitted", "False", reason]]);
        assert_eq!(waits("UnknownQueue"), Some("UnknownQueue".into()));
        for queue in ["Stopped", "Conflict", "Invalid", "NotYetSupported", "WaitingForQuota"] {
            assert_eq!(waits(queue), None, "{queue}");
        }
    }

    #[test]
    fn what_runs_or_has_finished_is_not_blocked() {
        let immutable = ["Accepted", "False", "Immutable"];
        assert_eq!(blocks(&[immutable]), Some("Immutable".into()));
        assert_eq!(blocks(&[immutable, ["Running", "True", "CommandStarted"]]), None);
        assert_eq!(blocks(&[immutable, ["JobFinished", "True", "Completed"]]), None);
    }

    #[test]
    fn an_unknown_word_refuses_a_manifest_and_is_waited_for_elsewhere() {
        assert_eq!(blocks(&[["Accepted", "False", "FromTheFuture"]]), Some("FromTheFuture".into()));
        assert_eq!(blocks(&[["Ready", "False", "FromTheFuture"]]), None);
    }
}
