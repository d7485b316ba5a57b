//! An agent's exit code and termination message.
//!
//! A Job decides by exit codes whether a pod is replaced, and a few codes have
//! a special meaning there. So the lead's exit code is not always the
//! program's: the program's is in the [`Ending`], which the agent writes as
//! the container's termination message.

use serde::{Deserialize, Serialize};

/// The exit code of an agent whose pod should be replaced (EX_TEMPFAIL).
pub const REPLACE_ME: u8 = 75;

/// The exit code of a process terminated by SIGTERM: 128 + 15.
pub const TERMINATED: u8 = 143;

/// The exit code of a process killed by SIGKILL: 128 + 9.
const KILLED: u8 = 137;

/// The exit codes with which a pod is replaced, by the Job's pod failure policy.
pub const REPLACED: [u8; 3] = [REPLACE_ME, KILLED, TERMINATED];

/// The exit code of the lead's container for a program that exited with `program`: a program
/// that happens to exit with a code of [`REPLACED`] must not be run again.
pub fn exit_code_of_lead(program: u8) -> u8 {
    if REPLACED.contains(&program) { 1 } else { program }
}

/// What an agent writes as its container's termination message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// Exit code of the program, or of the step that failed before it.
    pub exit_code: u8,
    /// What happened, as one CamelCase word.
    pub reason: EndingReason,
    /// What happened, for humans. Never contains a secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Why an agent exited, as one CamelCase word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndingReason {
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
    /// The agent was stopped.
    Stopped,
}

impl EndingReason {
    /// The reason, spelled as in a condition.
    pub fn as_str(self) -> &'static str {
        match self {
            EndingReason::Completed => "Completed",
            EndingReason::CommandFailed => "CommandFailed",
            EndingReason::HookFailed => "HookFailed",
            EndingReason::FluxMissing => "FluxMissing",
            EndingReason::FluxTooOld => "FluxTooOld",
            EndingReason::BrokerFailed => "BrokerFailed",
            EndingReason::BadCertificate => "BadCertificate",
            EndingReason::BadPlan => "BadPlan",
            EndingReason::RestartLimit => "RestartLimit",
            EndingReason::Stopped => "Stopped",
        }
    }
}

impl Ending {
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
        let cut = Ending { message: format!("{}…", &self.message[..end]), ..self.clone() };
        serde_json::to_string(&cut).expect("text and numbers are JSON")
    }

    /// Parses a termination message; `None` if no agent wrote it.
    pub fn parse(text: &str) -> Option<Ending> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_a_job_takes_as_replace_me_are_hidden() {
        for (program, lead) in [(0, 0), (1, 1), (7, 7), (75, 1), (137, 1), (143, 1), (255, 255)] {
            assert_eq!(exit_code_of_lead(program), lead);
        }
    }

    #[test]
    fn an_ending_fits_a_termination_message_and_is_read_back() {
        for message in ["", "short", &"\u{1}".repeat(5000), &"ƒ".repeat(5000)] {
            let ending = Ending {
                exit_code: 7,
                reason: EndingReason::CommandFailed,
                message: message.to_owned(),
            };
            let text = ending.to_text();
            assert!(text.len() <= Ending::MAX_BYTES, "{}", text.len());
            let read = Ending::parse(&text).unwrap();
            assert_eq!((read.exit_code, read.reason), (7, EndingReason::CommandFailed));
        }
        assert_eq!(Ending::parse("Error: something else"), None);
    }
}
