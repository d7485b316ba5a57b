//! Maps the reasons of the queue and of the agent, which know no conditions, to the reasons of
//! conditions.

use flux_operator_api::Reason;
use flux_operator_queue as queue;
use flux_operator_queue::{EvictionReason, InactiveReason, SetupProblem};
use flux_operator_wire::TerminationReason;

/// Why a job waits.
pub fn of_waiting(reason: &queue::WaitReason) -> Reason {
    match reason {
        queue::WaitReason::Pending => Reason::Pending,
        queue::WaitReason::Suspended => Reason::Suspended,
        queue::WaitReason::NoQueue => Reason::NoQueue,
        queue::WaitReason::UnknownQueue(_) => Reason::UnknownQueue,
        queue::WaitReason::NotServed(_) => Reason::NotServed,
        queue::WaitReason::AmbiguousQueue(_) => Reason::AmbiguousQueue,
        queue::WaitReason::QueueInactive(inactive) => of_inactive(inactive.reason),
        queue::WaitReason::TooLarge { .. } => Reason::TooLarge,
        queue::WaitReason::ExceedsQuota { .. } => Reason::ExceedsMaxQuota,
        queue::WaitReason::WaitingForQuota { .. } => Reason::WaitingForQuota,
        queue::WaitReason::BehindOthers { .. } => Reason::BehindOthers,
        queue::WaitReason::NamespaceQuota { .. } => Reason::NamespaceQuota,
        queue::WaitReason::BackingOff { .. } => Reason::BackingOff,
    }
}

/// Why a FluxSetup admits nothing.
pub fn of_inactive(reason: InactiveReason) -> Reason {
    match reason {
        InactiveReason::Replaced => Reason::Replaced,
        InactiveReason::Conflict => Reason::Conflict,
        InactiveReason::Terminating => Reason::Terminating,
        InactiveReason::Stopped => Reason::Stopped,
        InactiveReason::Unusable(mistake) => match mistake {
            SetupProblem::Invalid => Reason::Invalid,
            SetupProblem::NotYetSupported => Reason::NotYetSupported,
            SetupProblem::BadQuota => Reason::BadQuota,
            SetupProblem::BadSelector => Reason::BadSelector,
            SetupProblem::SelectorNotHere => Reason::SelectorNotHere,
            SetupProblem::NodesUnknown => Reason::NodesUnknown,
            SetupProblem::Panicked => Reason::OperatorError,
        },
    }
}

/// Why a queue evicts a job.
pub(crate) fn of_eviction(reason: EvictionReason) -> Reason {
    match reason {
        EvictionReason::QueueStopped => Reason::QueueStopped,
        EvictionReason::OverQuota => Reason::OverQuota,
    }
}

/// Why an agent exited.
pub(crate) fn of_termination(reason: TerminationReason) -> Reason {
    match reason {
        TerminationReason::Completed => Reason::Completed,
        TerminationReason::CommandFailed => Reason::CommandFailed,
        TerminationReason::StaleTable => Reason::StaleTable,
        TerminationReason::HookFailed => Reason::HookFailed,
        TerminationReason::FluxMissing => Reason::FluxMissing,
        TerminationReason::FluxTooOld => Reason::FluxTooOld,
        TerminationReason::BrokerFailed => Reason::BrokerFailed,
        TerminationReason::BadCertificate => Reason::BadCertificate,
        TerminationReason::BadPlan => Reason::BadPlan,
        TerminationReason::RestartLimit => Reason::RestartLimit,
        TerminationReason::Stopped => Reason::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::reason::Topic;

    #[test]
    fn reasons_of_an_inactive_queue_have_the_topic_queue() {
        let mistakes = [
            SetupProblem::Invalid,
            SetupProblem::NotYetSupported,
            SetupProblem::BadQuota,
            SetupProblem::BadSelector,
            SetupProblem::SelectorNotHere,
            SetupProblem::NodesUnknown,
            SetupProblem::Panicked,
        ];
        let own = [
            InactiveReason::Replaced,
            InactiveReason::Conflict,
            InactiveReason::Terminating,
            InactiveReason::Stopped,
        ];
        for inactive in own.into_iter().chain(mistakes.map(InactiveReason::Unusable)) {
            let reason = of_inactive(inactive);
            assert!(reason.topics().contains(&Topic::Queue), "{reason}");
            // Its jobs wait for the owner of the queue.
            assert!(!reason.needs_job_owner(), "{reason}");
        }
    }

    #[test]
    fn an_agents_reason_has_the_same_name_in_a_condition() {
        for termination in [
            TerminationReason::Completed,
            TerminationReason::CommandFailed,
            TerminationReason::HookFailed,
            TerminationReason::FluxMissing,
            TerminationReason::FluxTooOld,
            TerminationReason::BrokerFailed,
            TerminationReason::BadCertificate,
            TerminationReason::BadPlan,
            TerminationReason::RestartLimit,
            TerminationReason::Stopped,
        ] {
            let reason = of_termination(termination);
            assert_eq!(reason.as_str(), termination.as_str());
            assert!(reason.topics().contains(&Topic::Finish), "{reason}");
        }
    }
}
