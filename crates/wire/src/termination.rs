//! An agent's exit code and termination message.
//!
//! A Job decides by exit codes whether a pod is replaced, and a few codes have
//! a special meaning there. So the lead's exit code is not always the
//! program's: the program's is in the [`Termination`], which the agent writes as
//! the container's termination message.

use serde::{Deserialize, Serialize};

/// The exit code of an agent whose pod should be replaced (EX_TEMPFAIL).
pub const EXIT_REPLACE_POD: u8 = 75;

/// The exit code of a process terminated by SIGTERM: 128 + 15.
pub const EXIT_SIGTERM: u8 = 143;

/// The exit code of a process killed by SIGKILL: 128 + 9.
const EXIT_SIGKILL: u8 = 137;

/// The exit codes with which a pod is replaced, by the Job's pod failure policy.
pub const REPLACED_EXIT_CODES: [u8; 3] = [EXIT_REPLACE_POD, EXIT_SIGKILL, EXIT_SIGTERM];

/// The exit code of the lead's container for a program that exited with `program`: a program
/// that happens to exit with a code of [`REPLACED_EXIT_CODES`] must not be run again.
pub fn lead_exit_code(program: u8) -> u8 {
    if REPLACED_EXIT_CODES.contains(&program) { 1 } else { program }
}

/// What an agent writes as its container's termination message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Termination {
    /// Exit code of the program, or of the step that failed before it.
    pub exit_code: u8,
    /// What happened, as one CamelCase word.
    pub reason: TerminationReason,
    /// What happened, for humans. Never contains a secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Why an agent exited, as one CamelCase word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TerminationReason {
    /// The program exited with 0.
    Completed,
    /// The program exited with another code.
    CommandFailed,
    /// A hook failed under strict logging, or could not be run at all.
    HookFailed,
    /// `flux` was not found.
    FluxMissing,
    /// This release of `flux` is older than the oldest supported one.
    FluxTooOld,
    /// The broker exited by itself, before or while the program ran.
    BrokerFailed,
    /// The certificate cannot be read, or is not valid.
    BadCertificate,
    /// The boot plan cannot be read, or is not valid for this agent.
    BadPlan,
    /// The lead was lost more often than it may be restarted.
    RestartLimit,
    /// The pod was created for a rank or a rank table that has changed.
    StaleTable,
    /// The agent was stopped.
    Stopped,
}

impl TerminationReason {
    /// The reason, spelled as in a condition.
    pub fn as_str(self) -> &'static str {
        match self {
            TerminationReason::Completed => "Completed",
            TerminationReason::CommandFailed => "CommandFailed",
            TerminationReason::HookFailed => "HookFailed",
            TerminationReason::FluxMissing => "FluxMissing",
            TerminationReason::FluxTooOld => "FluxTooOld",
            TerminationReason::BrokerFailed => "BrokerFailed",
            TerminationReason::BadCertificate => "BadCertificate",
            TerminationReason::BadPlan => "BadPlan",
            TerminationReason::RestartLimit => "RestartLimit",
            TerminationReason::StaleTable => "StaleTable",
            TerminationReason::Stopped => "Stopped",
        }
    }
}

impl Termination {
    /// Kubernetes keeps at most this much of a termination message.
    const MAX_BYTES: usize = 4096;

    /// The text of a termination message; a message that is too long is truncated.
    pub fn to_text(&self) -> String {
        let whole = serde_json::to_string(self).expect("text and numbers are JSON");
        if whole.len() <= Self::MAX_BYTES {
            return whole;
        }
        // Escapes make text up to six times longer, so truncate to a sixth of the limit.
        let mut end = (Self::MAX_BYTES / 6 - 64).min(self.message.len());
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        let cut = Termination { message: format!("{}…", &self.message[..end]), ..self.clone() };
        serde_json::to_string(&cut).expect("text and numbers are JSON")
    }

    /// Parses a termination message; `None` if no agent wrote it.
    pub fn parse(text: &str) -> Option<Termination> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_that_would_replace_the_pod_are_hidden() {
        for (program, lead) in [(0, 0), (1, 1), (7, 7), (75, 1), (137, 1), (143, 1), (255, 255)] {
            assert_eq!(lead_exit_code(program), lead);
        }
    }

    #[test]
    fn a_termination_fits_the_size_limit_and_is_parsed_back() {
        for message in ["", "short", &"\u{1}".repeat(5000), &"ƒ".repeat(5000)] {
            let termination = Termination {
                exit_code: 7,
                reason: TerminationReason::CommandFailed,
                message: message.to_owned(),
            };
            let text = termination.to_text();
            assert!(text.len() <= Termination::MAX_BYTES, "{}", text.len());
            let read = Termination::parse(&text).unwrap();
            assert_eq!((read.exit_code, read.reason), (7, TerminationReason::CommandFailed));
        }
        assert_eq!(Termination::parse("Error: something else"), None);
    }
}
