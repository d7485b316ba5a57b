//! Conditions of any object: a verdict for each, and the time of its last change.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::reason::AnyReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The status of a condition, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) status: &'static str,
    pub(crate) reason: AnyReason,
    pub(crate) message: String,
}

/// The condition is true.
pub(crate) fn yes(reason: impl Into<AnyReason>, message: &str) -> Verdict {
    Verdict { status: "True", reason: reason.into(), message: message.into() }
}

/// The condition is false.
pub(crate) fn no(reason: impl Into<AnyReason>, message: &str) -> Verdict {
    Verdict { status: "False", reason: reason.into(), message: message.into() }
}

/// The status is not known yet.
pub(crate) fn unknown(reason: impl Into<AnyReason>, message: &str) -> Verdict {
    Verdict { status: "Unknown", reason: reason.into(), message: message.into() }
}

/// The verdict of another object's condition.
pub(crate) fn copied_from(condition: &Condition) -> Verdict {
    let reported = match condition.status.as_str() {
        "True" => yes,
        "False" => no,
        _ => unknown,
    };
    reported(AnyReason::read(&condition.reason), &condition.message)
}

/// Builds the conditions from verdicts. The time of one changes only when its status does.
pub(crate) fn conditions<'a>(
    verdicts: impl IntoIterator<Item = (&'a str, Verdict)>,
    generation: Option<i64>,
    before: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let condition = |(kind, verdict): (&str, Verdict)| {
        let Verdict { status, reason, message } = verdict;
        let same = before.iter().find(|c| c.type_ == kind && c.status == status);
        Condition {
            type_: kind.into(),
            status: status.into(),
            reason: reason.to_string(),
            message,
            observed_generation: generation,
            last_transition_time: same.map_or(Time(now), |c| c.last_transition_time.clone()),
        }
    };
    verdicts.into_iter().map(condition).collect()
}

/// The condition of a type.
pub(crate) fn find(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == kind.as_str())
}
