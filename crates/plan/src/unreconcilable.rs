//! The status of an object that cannot be reconciled: it cannot be decoded, or reconciling it
//! fails. It works for any kind, with the one condition that says whether the object can be
//! reconciled at all.

use flux_operator_api::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::verdict::{self, no};

/// The status patch for an object that cannot be decoded. Its current status cannot be
/// decoded either.
pub fn unreadable(condition: &str, metadata: &ObjectMeta, error: &str, now: Timestamp) -> Value {
    let message = format!("the object cannot be decoded and is ignored: {error}");
    status(condition, Reason::Unreadable, &message, metadata, &[], now)
}

/// The status patch for an object that the operator failed to reconcile. Its other
/// conditions stay as they are.
pub fn operator_error(
    condition: &str,
    metadata: &ObjectMeta,
    error: &str,
    before: &[Condition],
    now: Timestamp,
) -> Value {
    let message = format!(
        "the operator failed to reconcile this object and will retry; please report this with \
         the operator's log: {error}"
    );
    status(condition, Reason::OperatorError, &message, metadata, before, now)
}

fn status(
    condition: &str,
    reason: Reason,
    message: &str,
    metadata: &ObjectMeta,
    before: &[Condition],
    now: Timestamp,
) -> Value {
    let reported = [(condition, no(reason, message))];
    let mut conditions = verdict::conditions(reported, metadata.generation, before, now);
    conditions.extend(before.iter().filter(|it| it.type_ != condition).cloned());
    json!({ "observedGeneration": metadata.generation, "conditions": conditions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_condition_reports_the_error_and_the_others_stay() {
        let condition = |kind: &str, status: &str| {
            let condition = json!({ "type": kind, "status": status, "reason": "Before",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
            serde_json::from_value::<Condition>(condition).unwrap()
        };
        let before = [condition("Accepted", "True"), condition("Ready", "True")];
        let metadata = ObjectMeta { generation: Some(3), ..ObjectMeta::default() };
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let status = operator_error("Accepted", &metadata, "index 7 of 3", &before, now);
        assert_eq!(status["observedGeneration"], 3);
        let [accepted, ready] = [0, 1].map(|index| &status["conditions"][index]);
        assert_eq!(
            (&accepted["status"], &accepted["reason"]),
            (&json!("False"), &json!("OperatorError"))
        );
        assert!(accepted["message"].as_str().unwrap().ends_with("index 7 of 3"));
        assert_eq!(accepted["lastTransitionTime"], "2026-01-01T00:01:00Z");
        assert_eq!(ready["reason"], "Before");
        assert_eq!(status["conditions"].as_array().unwrap().len(), 2);
    }
}
