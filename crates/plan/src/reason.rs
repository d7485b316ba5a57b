//! The conditions' reasons for those of other crates: the queue, which knows no conditions, and
//! the agent.

use flux_operator_api::Reason;
use flux_operator_queue as queue;
use flux_operator_queue::{EvictReason, InactiveReason, SetupMistake};
use flux_operator_wire::EndingReason;

/// Why a job waits.
pub fn of_waiting(reason: &queue::Reason) -> Reason {
    match reason {
        queue::Reason::Pending => Reason::Pending,
        queue::Reason::Suspended => Reason::Suspended,
        queue::Reason::NoQueue => Reason::NoQueue,
        queue::Reason::UnknownQueue(_) => Reason::UnknownQueue,
        queue::Reason::NotServed(_) => Reason::NotServed,
        queue::Reason::AmbiguousQueue(_) => Reason::AmbiguousQueue,
        queue::Reason::QueueInactive(inactive) => of_inactive(inactive.reason),
        queue::Reason::TooLarge { .. } => Reason::TooLarge,
        queue::Reason::ExceedsQuota { .. } => Reason::ExceedsMaxQuota,
        queue::Reason::WaitingForQuota { .. } => Reason::WaitingForQuota,
        queue::Reason::BehindOthers { .. } => Reason::BehindOthers,
        queue::Reason::NamespaceQuota { .. } => Reason::NamespaceQuota,
        queue::Reason::BackingOff { .. } => Reason::BackingOff,
    }
}

/// Why a FluxSetup admits nothing.
pub fn of_inactive(reason: InactiveReason) -> Reason {
    match reason {
        InactiveReason::Replaced => Reason::Replaced,
        InactiveReason::Conflict => Reason::Conflict,
        InactiveReason::Terminating => Reason::Terminating,
        InactiveReason::Stopped => Reason::Stopped,
        InactiveReason::Mistaken(mistake) => match mistake {
            SetupMistake::Invalid => Reason::Invalid,
            SetupMistake::NotYetSupported => Reason::NotYetSupported,
            SetupMistake::BadQuota => Reason::BadQuota,
            SetupMistake::BadSelector => Reason::BadSelector,
            SetupMistake::SelectorNotHere => Reason::SelectorNotHere,
            SetupMistake::NodesUnknown => Reason::NodesUnknown,
            SetupMistake::Unreadable => Reason::OperatorError,
        },
    }
}

/// Why a queue evicts a job.
pub(crate) fn of_eviction(reason: EvictReason) -> Reason {
    match reason {
        EvictReason::QueueStopped => Reason::QueueStopped,
        EvictReason::OverQuota => Reason::OverQuota,
    }
}

/// How an agent has exited.
pub(crate) fn of_ending(reason: EndingReason) -> Reason {
    match reason {
        EndingReason::Completed => Reason::Completed,
        EndingReason::CommandFailed => Reason::CommandFailed,
        EndingReason::HookFailed => Reason::HookFailed,
        EndingReason::FluxMissing => Reason::FluxMissing,
        EndingReason::FluxTooOld => Reason::FluxTooOld,
        EndingReason::BrokerFailed => Reason::BrokerFailed,
        EndingReason::BadCertificate => Reason::BadCertificate,
        EndingReason::BadPlan => Reason::BadPlan,
        EndingReason::RestartLimit => Reason::RestartLimit,
        EndingReason::Stopped => Reason::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::reason::Topic;

    #[test]
    fn what_makes_a_queue_inactive_is_explained_as_a_queues_own_matter() {
        let mistakes = [
            SetupMistake::Invalid,
            SetupMistake::NotYetSupported,
            SetupMistake::BadQuota,
            SetupMistake::BadSelector,
            SetupMistake::SelectorNotHere,
            SetupMistake::NodesUnknown,
            SetupMistake::Unreadable,
        ];
        let own = [
            InactiveReason::Replaced,
            InactiveReason::Conflict,
            InactiveReason::Terminating,
            InactiveReason::Stopped,
        ];
        for inactive in own.into_iter().chain(mistakes.map(InactiveReason::Mistaken)) {
            let reason = of_inactive(inactive);
            assert!(reason.topics().contains(&Topic::Queue), "{reason}");
            // Its jobs wait for the owner of the queue.
            assert!(!reason.needs_user_of_job(), "{reason}");
        }
    }

    #[test]
    fn an_agents_word_is_the_conditions() {
        for ending in [
            EndingReason::Completed,
            EndingReason::CommandFailed,
            EndingReason::HookFailed,
            EndingReason::FluxMissing,
            EndingReason::FluxTooOld,
            EndingReason::BrokerFailed,
            EndingReason::BadCertificate,
            EndingReason::BadPlan,
            EndingReason::RestartLimit,
            EndingReason::Stopped,
        ] {
            let reason = of_ending(ending);
            assert_eq!(reason.as_str(), ending.as_str());
            assert!(reason.topics().contains(&Topic::Finish), "{reason}");
        }
    }
}
