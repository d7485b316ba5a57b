//! Measures the time from the creation of a MiniCluster until it is Ready.

use std::time::Duration;

use flux_operator_api::condition::ConditionType;
use flux_operator_api::{MiniCluster, MiniClusterStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The time from creation to Ready, if `status` is the first with Ready=True. A cluster that is
/// Ready again after it was suspended is not counted again.
pub(crate) fn first_ready(
    minicluster: &MiniCluster,
    status: &MiniClusterStatus,
) -> Option<Duration> {
    let before = minicluster.status.as_ref().map(|status| status.conditions.as_slice());
    let before = before.unwrap_or_default();
    let now = ready(&status.conditions).filter(|condition| condition.status == "True")?;
    if let Some(ready) = ready(before) {
        // All conditions exist from the first status on: if this one changed since, the cluster has
        // been Ready before.
        let first = before.iter().map(|condition| &condition.last_transition_time).min();
        if ready.status == "True" || Some(&ready.last_transition_time) != first {
            return None;
        }
    }
    let created = minicluster.metadata.creation_timestamp.as_ref()?;
    now.last_transition_time.0.duration_since(created.0).try_into().ok()
}

fn ready(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == ConditionType::Ready.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(conditions: &[(&str, &str, u8)]) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, second)| {
                json!({
                    "type": kind,
                    "status": status,
                    "reason": "Because",
                    "message": "",
                    "lastTransitionTime": format!("2026-01-01T00:00:{second:02}Z"),
                })
            })
            .collect();
        json!({ "conditions": conditions })
    }

    fn measured(before: Option<Value>, now: Value) -> Option<Duration> {
        let minicluster = serde_json::from_value(json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniCluster",
            "metadata": { "name": "a", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "containers": [{ "image": "a" }] },
            "status": before,
        }))
        .unwrap();
        first_ready(&minicluster, &serde_json::from_value(now).unwrap())
    }

    #[test]
    fn only_the_first_time_counts() {
        let ready = status(&[("Accepted", "True", 1), ("Ready", "True", 4)]);
        let begun = status(&[("Accepted", "True", 1), ("Ready", "False", 1)]);
        let suspended = status(&[("Accepted", "True", 1), ("Ready", "False", 3)]);
        assert_eq!(measured(Some(begun.clone()), ready.clone()), Some(Duration::from_secs(4)));
        assert_eq!(measured(None, ready.clone()), Some(Duration::from_secs(4)));
        assert_eq!(measured(Some(begun.clone()), begun), None);
        assert_eq!(measured(Some(suspended), ready.clone()), None);
        assert_eq!(measured(Some(ready.clone()), ready), None);
    }
}
