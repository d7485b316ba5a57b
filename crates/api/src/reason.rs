//! Reasons: why a condition has its status, what to expect and what to do.
//!
//! Conditions are stored as text. A reason is a type everywhere else: text is parsed where an
//! object is read and printed where one is written. Operators of other versions, and Kubernetes
//! itself, have reasons of their own, so what is read is an [`AnyReason`].

mod blocking;
mod table;

use std::fmt;
use std::str::FromStr;

pub use blocking::{BlockingCondition, blocking_condition};
pub use table::Reason;

/// What to expect while a condition has a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outlook {
    /// Nothing is wrong: it makes progress, or is in the state its user asked for.
    Progress,
    /// It waits in a queue, and is admitted without user action.
    WaitsForQuota,
    /// Its pods wait for nodes, or for a ResourceQuota of the namespace.
    WaitsForCapacity,
    /// It failed, and the operator or Kubernetes tries again by itself.
    Retried,
    /// Nothing changes until a user changes an object.
    NeedsUser,
    /// It has finished and does not run again.
    Final,
}

/// The subject of a reason, and thereby the condition that shows it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Whether the manifest can be run: `Accepted`.
    Manifest,
    /// Whether a queue has granted quota: `Admitted`.
    Admission,
    /// Whether the brokers are part of another MiniCluster's instance: `Joined`.
    Joining,
    /// Whether brokers of other Kubernetes clusters can reach it: `Exposed`.
    Exposure,
    /// Whether enough brokers are online: `Ready`.
    Readiness,
    /// Whether the command is running: `Running`.
    Command,
    /// Whether the command succeeded: `Succeeded`.
    Finish,
    /// Whether a FluxSetup admits jobs: its `Active`, and `Admitted` of the jobs that wait.
    Queue,
    /// How far a Burst is: its `TargetReady`, `CredentialsAccepted`, `Prepared`, `Joined`, `Ready`, `Finished`
    /// and `GivingBack`. Whether a BurstPolicy is applied: its `Accepted` and `Active`.
    Bursting,
}

impl Topic {
    /// Every topic, in the order in which a job reaches them.
    pub const ALL: [Topic; 9] = [
        Topic::Manifest,
        Topic::Admission,
        Topic::Joining,
        Topic::Exposure,
        Topic::Readiness,
        Topic::Command,
        Topic::Finish,
        Topic::Queue,
        Topic::Bursting,
    ];
}

impl Reason {
    /// Whether nothing is wrong: it makes progress, or is in the state its user asked for.
    pub fn is_progress(self) -> bool {
        self.outlook() == Outlook::Progress
    }

    /// Whether a cluster is starting, which its next condition shows in a moment.
    pub fn is_starting(self) -> bool {
        matches!(
            self,
            Reason::NotCreated | Reason::PodsPending | Reason::Starting | Reason::BrokersStarting
        )
    }

    /// Whether it waits in a queue, and is admitted without user action.
    pub fn is_waiting_for_quota(self) -> bool {
        self.outlook() == Outlook::WaitsForQuota
    }

    /// Whether its pods wait for nodes, or for a ResourceQuota of the namespace.
    pub fn is_waiting_for_capacity(self) -> bool {
        self.outlook() == Outlook::WaitsForCapacity
    }

    /// Whether the operator or Kubernetes tries again by itself.
    pub fn is_retried(self) -> bool {
        self.outlook() == Outlook::Retried
    }

    /// Whether nothing changes until a user changes an object.
    pub fn needs_user(self) -> bool {
        self.outlook() == Outlook::NeedsUser
    }

    /// Whether the owner of the job has to act. False if the FluxSetup has to change instead.
    pub fn needs_job_owner(self) -> bool {
        self.needs_user() && !self.topics().contains(&Topic::Queue)
    }

    /// Whether it has finished and does not run again. A finished job may have other reasons
    /// too: whether it has finished is the status of `Succeeded`.
    pub fn is_final(self) -> bool {
        self.outlook() == Outlook::Final
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is not one of our reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a reason of this version")]
pub struct UnknownReason;

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Reason, UnknownReason> {
        let known = Reason::ALL.iter().find(|reason| reason.as_str() == text);
        known.copied().ok_or(UnknownReason)
    }
}

/// The reason of a condition as it was read: ours, or that of another version or program,
/// which is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AnyReason {
    /// One of ours.
    Known(Reason),
    /// Another text.
    Other(String),
}

impl AnyReason {
    /// Parses the reason of a condition or of a record.
    pub fn read(text: &str) -> AnyReason {
        text.parse()
            .map_or_else(|UnknownReason| AnyReason::Other(text.to_owned()), AnyReason::Known)
    }

    /// The reason, if it is one of ours.
    pub fn known(&self) -> Option<Reason> {
        match self {
            AnyReason::Known(reason) => Some(*reason),
            AnyReason::Other(_) => None,
        }
    }

    /// The text, as it was read.
    pub fn as_str(&self) -> &str {
        match self {
            AnyReason::Known(reason) => reason.as_str(),
            AnyReason::Other(text) => text,
        }
    }
}

impl From<Reason> for AnyReason {
    fn from(reason: Reason) -> AnyReason {
        AnyReason::Known(reason)
    }
}

impl PartialEq<Reason> for AnyReason {
    fn eq(&self, reason: &Reason) -> bool {
        self.known() == Some(*reason)
    }
}

impl fmt::Display for AnyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn reasons_round_trip_and_unknown_ones_are_kept() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(*reason));
            assert_eq!(AnyReason::read(reason.as_str()), *reason);
        }
        for other in ["", "quorum", "Quorum ", "FromTheFuture"] {
            assert_eq!(other.parse::<Reason>(), Err(UnknownReason));
            assert_eq!(AnyReason::read(other).as_str(), other);
        }
    }

    /// What the API server demands of a reason: `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`.
    #[test]
    fn every_reason_is_valid_in_a_condition() {
        for reason in Reason::ALL {
            assert!(reason.as_str().chars().all(|c| c.is_ascii_alphanumeric()), "{reason}");
        }
    }

    #[test]
    fn every_reason_has_a_meaning_and_a_remedy() {
        let is_sentence = |text: &str| {
            let begins = text.starts_with(|c: char| c.is_ascii_uppercase() || c == '`');
            begins && text.ends_with('.') && !text.contains(['|', '\n'])
        };
        let mut meanings = HashSet::new();
        for reason in Reason::ALL {
            assert!(is_sentence(reason.meaning()), "{reason}: {}", reason.meaning());
            assert!(is_sentence(reason.remedy()), "{reason}: {}", reason.remedy());
            assert!(meanings.insert(reason.meaning()), "{reason} means what another does");
        }
    }

    #[test]
    fn a_remedy_is_nothing_only_if_no_user_has_to_act() {
        for reason in Reason::ALL {
            let nothing = reason.remedy().starts_with("Nothing");
            let acts = reason.needs_user() || reason.is_retried();
            // A pod that is evicted from a drained node is expected.
            let excused = *reason == Reason::Evicted;
            assert!(!nothing || !acts || excused, "{reason} requires an action");
            assert!(!reason.is_starting() || reason.is_progress(), "{reason}");
        }
    }
}
