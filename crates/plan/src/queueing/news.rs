//! What of a FluxJob's changed conditions is news, for Events.

use flux_operator_api::condition::ConditionType;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::status::{self, News};

/// Why a job waits that its turn alone does not mend: somebody has to do something.
const NEEDS_SOMEBODY: [&str; 6] =
    ["AmbiguousQueue", "ExceedsMaxQuota", "NoQueue", "NotServed", "TooLarge", "UnknownQueue"];

/// What is news between two lists of conditions. That a job has room or waits for its
/// turn is none: an Event for each would double the writes. How its brokers come up is
/// told of its MiniCluster.
pub fn news(before: &[Condition], now: &[Condition]) -> Vec<News> {
    let mut told = status::news(before, now);
    told.retain(|news| news.about != ConditionType::Ready.as_str());
    told.extend(waits(before, now));
    told
}

/// A job lost its room, or waits for a reason that does not pass by itself.
fn waits(before: &[Condition], now: &[Condition]) -> Option<News> {
    let admitted = |conditions: &[Condition]| {
        let kind = ConditionType::Admitted.as_str();
        conditions.iter().find(|condition| condition.type_ == kind).cloned()
    };
    let (before, now) = (admitted(before), admitted(now)?);
    let had_room = before.as_ref().is_some_and(|before| before.status == "True");
    let same = before.is_some_and(|before| before.reason == now.reason);
    let matters = had_room || NEEDS_SOMEBODY.contains(&now.reason.as_str()) && !same;
    (now.status == "False" && matters).then(|| News {
        good: false,
        about: ConditionType::Admitted.as_str(),
        reason: now.reason,
        note: now.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The conditions of a job that has room, or has none and is not ready therefore.
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
        news(before, now).into_iter().map(|news| news.reason).collect()
    }

    #[test]
    fn what_somebody_has_to_mend_is_told_once_and_a_turn_that_comes_is_not() {
        let too_large = admitted("False", "ExceedsMaxQuota");
        assert_eq!(reasons(&[], &too_large), ["ExceedsMaxQuota"]);
        assert_eq!(reasons(&too_large, &too_large), [""; 0]);
        let waits = admitted("False", "WaitingForQuota");
        assert_eq!(reasons(&too_large, &waits), [""; 0]);
        let has_room = admitted("True", "Admitted");
        assert_eq!(reasons(&waits, &has_room), [""; 0]);
        assert_eq!(reasons(&has_room, &admitted("False", "QueueStopped")), ["QueueStopped"]);
    }
}
