//! Reasons: why a condition has the status it has, what follows from it and what to do.
//!
//! Conditions are stored as text. A reason is a type everywhere else: text is parsed where an
//! object is read and printed where one is written. Operators of other versions, and Kubernetes
//! itself, have reasons of their own, so what is read is an [`AnyReason`].

mod blocked;
mod table;

use std::fmt;
use std::str::FromStr;

pub use blocked::{Blocked, blocked};
pub use table::Reason;

/// What is to be expected while a reason is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outlook {
    /// Nothing is wrong: it goes on, or stands as its user asked.
    Progress,
    /// It waits in a queue, and is admitted without anybody's help.
    WaitsForQuota,
    /// Its pods wait for nodes, or for a ResourceQuota of the namespace.
    WaitsForCapacity,
    /// It failed, and the operator or Kubernetes tries again by itself.
    Retried,
    /// Nothing changes until somebody changes an object.
    NeedsUser,
    /// It has finished, and stays so.
    Final,
}

/// What a reason is about, and so which condition shows it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Whether the manifest can be run: `Accepted`.
    Manifest,
    /// Whether a queue has granted quota: `Admitted`.
    Admission,
    /// Whether enough brokers are online: `Ready`.
    Readiness,
    /// Whether the command runs: `Running`.
    Command,
    /// How it has finished: `Succeeded`.
    Finish,
    /// Whether a FluxSetup admits jobs: `Active` there, and `Admitted` of the jobs that wait.
    Queue,
}

impl Topic {
    /// Every topic, in the order in which a job meets them.
    pub const ALL: [Topic; 6] = [
        Topic::Manifest,
        Topic::Admission,
        Topic::Readiness,
        Topic::Command,
        Topic::Finish,
        Topic::Queue,
    ];
}

impl Reason {
    /// Whether nothing is wrong: it goes on, or stands as its user asked.
    pub fn is_progress(self) -> bool {
        self.outlook() == Outlook::Progress
    }

    /// Whether a cluster is on its way up, which its next condition shows in a moment.
    pub fn is_starting(self) -> bool {
        matches!(
            self,
            Reason::NotCreated | Reason::PodsPending | Reason::Starting | Reason::BrokersStarting
        )
    }

    /// Whether it waits in a queue, and is admitted without anybody's help.
    pub fn waits_for_quota(self) -> bool {
        self.outlook() == Outlook::WaitsForQuota
    }

    /// Whether its pods wait for nodes, or for a ResourceQuota of the namespace.
    pub fn waits_for_capacity(self) -> bool {
        self.outlook() == Outlook::WaitsForCapacity
    }

    /// Whether the operator or Kubernetes tries again by itself.
    pub fn is_retried(self) -> bool {
        self.outlook() == Outlook::Retried
    }

    /// Whether nothing changes until somebody changes an object.
    pub fn needs_user(self) -> bool {
        self.outlook() == Outlook::NeedsUser
    }

    /// Whether whoever owns the job has to act: not, if it is the FluxSetup that must change.
    pub fn needs_user_of_job(self) -> bool {
        self.needs_user() && !self.topics().contains(&Topic::Queue)
    }

    /// Whether it has finished, and stays so. Other reasons may be those of an end too, which
    /// `Succeeded` says.
    pub fn is_final(self) -> bool {
        self.outlook() == Outlook::Final
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is none of our reasons.
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

/// The reason of a condition as it was read: ours, or a word of another version or program,
/// which is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AnyReason {
    /// One of ours.
    Known(Reason),
    /// Another word.
    Other(String),
}

impl AnyReason {
    /// Reads the text of a condition or of a record.
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

    /// The word, as it was read.
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
    fn a_reason_is_read_back_and_another_word_is_kept() {
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
    fn every_word_is_one_that_a_condition_may_have() {
        for reason in Reason::ALL {
            assert!(reason.as_str().chars().all(|c| c.is_ascii_alphanumeric()), "{reason}");
        }
    }

    #[test]
    fn every_reason_says_in_sentences_what_it_means_and_what_to_do() {
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
    fn a_remedy_is_nothing_only_where_nobody_has_to_act() {
        for reason in Reason::ALL {
            let nothing = reason.remedy().starts_with("Nothing");
            let acts = reason.needs_user() || reason.is_retried();
            // That a pod is evicted from a node that is drained is as it should be.
            let excused = *reason == Reason::Evicted;
            assert!(!nothing || !acts || excused, "{reason} is not nothing to do about");
            assert!(!reason.is_starting() || reason.is_progress(), "{reason}");
        }
    }
}
