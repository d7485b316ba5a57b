//! Why a job is evicted. The cause is recorded as text and read back as a reason.

use flux_operator_api::Reason;
use flux_operator_api::reason::AnyReason;

/// The message while a job is being evicted.
pub(crate) fn eviction_message(cause: &AnyReason) -> String {
    format!("its quota is being released because {}", describe_cause(cause))
}

/// Why a job is evicted, as part of a sentence.
pub(super) fn describe_cause(cause: &AnyReason) -> &'static str {
    match cause.known() {
        Some(Reason::Suspended) => "spec.suspend is true",
        Some(Reason::QueueStopped) => "its queue was stopped and drained",
        Some(Reason::OverQuota) => "the quota of its queue was lowered",
        Some(Reason::NotReady) => "too few brokers were online within readyTimeoutSeconds",
        Some(Reason::NameTaken) => "a MiniCluster of its name has another owner",
        Some(Reason::Changed) => "the job was changed and requests more than it was granted",
        _ => "its queue has evicted it",
    }
}
