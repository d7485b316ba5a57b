//! Why a job loses quota that it has. The record of it is text, which is read back as a reason.

use flux_operator_api::Reason;
use flux_operator_api::reason::AnyReason;

/// What is said while quota is taken back.
pub(crate) fn is_taken_back(cause: &AnyReason) -> String {
    format!("its room is taken back because {}", because(cause))
}

/// Why quota is taken back, in words.
pub(super) fn because(cause: &AnyReason) -> &'static str {
    match cause.known() {
        Some(Reason::Suspended) => "spec.suspend is true",
        Some(Reason::QueueStopped) => "its queue was stopped and drained",
        Some(Reason::OverQuota) => "the quota of its queue was lowered",
        Some(Reason::NotReady) => "too few brokers were online within readyTimeoutSeconds",
        Some(Reason::NameTaken) => "a MiniCluster of its name belongs to somebody else",
        Some(Reason::Changed) => "the job was changed and asks for more than it was given",
        _ => "its queue wants it back",
    }
}
