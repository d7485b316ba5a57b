//! Why a job loses room that it has: a word for the record, and words for people.

use flux_operator_queue::EvictReason;

/// Its user has suspended it.
pub(super) const SUSPENDED: &str = "Suspended";
/// Its brokers did not reach their quorum in time.
pub(super) const NOT_READY: &str = "NotReady";
/// It asks for more than it did when it was admitted.
pub(super) const CHANGED: &str = "Changed";

/// The word for what a queue wants.
pub(super) fn word(reason: EvictReason) -> &'static str {
    match reason {
        EvictReason::QueueStopped => "QueueStopped",
        EvictReason::OverQuota => "OverQuota",
    }
}

/// What is told while room is taken back.
pub(crate) fn is_taken_back(cause: &str) -> String {
    format!("its room is taken back because {}", because(cause))
}

/// Why room is taken back, in words.
pub(super) fn because(cause: &str) -> &'static str {
    match cause {
        SUSPENDED => "spec.suspend is true",
        "QueueStopped" => "its queue was stopped and drained",
        "OverQuota" => "the quota of its queue was lowered",
        NOT_READY => "too few brokers were online within readyTimeoutSeconds",
        "NameTaken" => "a MiniCluster of its name belongs to somebody else",
        CHANGED => "the job was changed and asks for more than it was given",
        _ => "its queue wants it back",
    }
}
