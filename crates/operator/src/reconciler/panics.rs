//! What is said of an object whose reconciliation panicked.

use flux_operator_api::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde_json::{Value, json};

use super::kind::Kind;

/// The change of the status that reports a panic: one condition, all others as they are.
pub(super) fn status<K: Kind>(object: &K::Object, message: &str, now: Timestamp) -> Value {
    let before = K::conditions(object);
    let same = before.iter().find(|it| it.type_ == K::CONDITION && it.status == "False");
    let reported = Condition {
        type_: K::CONDITION.into(),
        status: "False".into(),
        reason: Reason::OperatorError.to_string(),
        message: format!(
            "the operator failed while it reconciled this object, and tries again: {message}: \
             please report this with the operator's log"
        ),
        observed_generation: object.meta().generation,
        last_transition_time: same.map_or(Time(now), |it| it.last_transition_time.clone()),
    };
    let others = before.iter().filter(|it| it.type_ != K::CONDITION).cloned();
    let conditions: Vec<Condition> = std::iter::once(reported).chain(others).collect();
    json!({ "conditions": conditions })
}
