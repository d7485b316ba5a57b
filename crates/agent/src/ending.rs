//! Decides an agent's termination message and exit code from the notices of its stages.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use flux_operator_wire::{Ending, EndingReason, REPLACE_ME, TERMINATED, exit_code_of_lead};

use crate::notice::Notice;

/// What inner stages have reported until now.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The process of the broker, while it runs.
    pub broker: Option<i32>,
    /// The program has been started.
    pub program_started: bool,
    /// The placeholder program of a cluster that stays up was signalled that the instance shuts
    /// down.
    pub released: bool,
    /// The broker exited and is not restarted: its exit code and its last output.
    pub ended: Option<(u8, String)>,
    /// The broker was killed by a signal.
    pub killed: bool,
    /// A stage failed.
    pub failed: Option<(EndingReason, String)>,
}

/// How the agent's child exited.
#[derive(Clone, Copy, Debug)]
pub struct Child<'a> {
    /// Its exit code.
    pub code: u8,
    /// The hook that was started last, if the child is the shell that runs the hooks.
    pub hook: Option<&'a str>,
    /// Whether a failed hook stops the agent.
    pub strict: bool,
}

impl Seen {
    /// Records a notice.
    pub fn take(&mut self, notice: Notice) {
        match notice {
            Notice::BrokerStarted { process } => self.broker = Some(process),
            Notice::ProgramStarted => self.program_started = true,
            Notice::Released => self.released = true,
            Notice::BrokerLost { .. } => self.broker = None,
            Notice::BrokerEnded { code, killed, tail } => {
                self.broker = None;
                self.killed = killed;
                self.ended = Some((code, tail));
            }
            Notice::Failed { reason, message } => self.failed = Some((reason, message)),
            Notice::Online | Notice::Flushed => {}
        }
    }

    /// The termination message of a lead whose child exited.
    pub fn ending_of_lead(&self, child: Child<'_>) -> Ending {
        if let Some(ending) = self.early_ending(child) {
            return ending;
        }
        let (code, tail) = self.ended.clone().unwrap_or_default();
        if self.killed {
            let message = format!("the broker was killed (code {code}): {tail}");
            return Ending { exit_code: code, reason: EndingReason::BrokerFailed, message };
        }
        if !self.program_started {
            let code = code.max(1);
            let message = format!("the broker exited with {code} before the program: {tail}");
            return Ending { exit_code: code, reason: EndingReason::BrokerFailed, message };
        }
        // A broker whose program was signalled to shut down exits with 1, whatever that
        // program's exit code was; here that was requested.
        if code != 0 && !self.released {
            return Ending {
                exit_code: code,
                reason: EndingReason::CommandFailed,
                message: format!("the program exited with {code}"),
            };
        }
        self.completed(child)
    }

    /// The termination message of a worker whose child exited. `None` if nothing failed: the
    /// worker then waits until it is stopped.
    pub fn ending_of_worker(&self, child: Child<'_>) -> Option<Ending> {
        self.early_ending(child).or_else(|| {
            let ending = self.completed(child);
            Some(ending).filter(|ending| ending.reason != EndingReason::Completed)
        })
    }

    /// The termination message if a stage failed, or if the child exited before a broker did.
    fn early_ending(&self, child: Child<'_>) -> Option<Ending> {
        if let Some((reason, message)) = &self.failed {
            return Some(Ending { exit_code: 1, reason: *reason, message: message.clone() });
        }
        if self.ended.is_some() {
            return None;
        }
        let code = child.code;
        Some(match child.hook {
            Some(hook) if code == 0 => Ending {
                exit_code: 0,
                reason: EndingReason::Completed,
                message: format!("the hook {hook:?} exited with 0 before Flux was started"),
            },
            Some(hook) => Ending {
                exit_code: code,
                reason: EndingReason::HookFailed,
                message: format!("the hook {hook:?} exited with {code}"),
            },
            None => Ending {
                exit_code: code.max(1),
                reason: EndingReason::BrokerFailed,
                message: format!("the broker stage exited with {code}"),
            },
        })
    }

    /// `Completed`, unless the hook after the broker failed in strict mode.
    fn completed(&self, child: Child<'_>) -> Ending {
        match child {
            Child { code, hook: Some(hook), strict: true } if code != 0 => Ending {
                exit_code: code,
                reason: EndingReason::HookFailed,
                message: format!("the hook {hook:?} exited with {code}"),
            },
            _ => {
                let message = String::new();
                Ending { exit_code: 0, reason: EndingReason::Completed, message }
            }
        }
    }
}

/// The termination message of an agent that was stopped.
pub fn stopped() -> Ending {
    let message = "the agent was stopped".to_owned();
    Ending { exit_code: TERMINATED, reason: EndingReason::Stopped, message }
}

/// The termination message of an agent that could not start.
pub fn failed(reason: EndingReason, error: &dyn Error) -> Ending {
    Ending { exit_code: 1, reason, message: chain(error) }
}

/// The agent's exit code for a termination message. `comes_back`: the Job may restart the lead.
/// Only a lead that was lost is restarted: a broker that failed to start would fail again.
pub fn exit_code(ending: &Ending, comes_back: bool) -> u8 {
    match ending.reason {
        EndingReason::Completed => 0,
        EndingReason::CommandFailed | EndingReason::HookFailed => {
            exit_code_of_lead(ending.exit_code).max(1)
        }
        EndingReason::Stopped => TERMINATED,
        EndingReason::BrokerFailed if comes_back && ending.exit_code > 128 => REPLACE_ME,
        EndingReason::FluxMissing
        | EndingReason::FluxTooOld
        | EndingReason::BrokerFailed
        | EndingReason::BadCertificate
        | EndingReason::BadPlan
        | EndingReason::RestartLimit => 1,
    }
}

/// Writes the termination message to `file`, and prints to standard error what users could not
/// see otherwise.
pub fn leave(ending: &Ending, file: &Path) {
    match ending.reason {
        EndingReason::Completed | EndingReason::CommandFailed | EndingReason::Stopped => {}
        reason => say(&format!("{}: {}", reason.as_str(), ending.message)),
    }
    // Written in place, because in a pod the file is a mount point and cannot be replaced.
    let written = std::fs::write(file, ending.to_text());
    if let Err(error) = written {
        say(&format!("failed to write the termination message to {file:?}: {error}"));
    }
}

/// Prints a line to standard error. Errors are ignored.
pub fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "flux-operator-agent: {message}");
}

/// An error and its causes on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(code: u8, hook: Option<&str>, strict: bool) -> Child<'_> {
        Child { code, hook, strict }
    }

    fn after(notices: &[Notice]) -> Seen {
        let mut seen = Seen::default();
        notices.iter().cloned().for_each(|notice| seen.take(notice));
        seen
    }

    fn ended(code: u8) -> Notice {
        Notice::BrokerEnded { code, killed: false, tail: "last words".into() }
    }

    #[test]
    fn the_lead_ends_with_the_code_of_its_program() {
        for (code, reason, exit) in [
            (0, EndingReason::Completed, 0),
            (7, EndingReason::CommandFailed, 7),
            (75, EndingReason::CommandFailed, 1),
            (137, EndingReason::CommandFailed, 1),
            (143, EndingReason::CommandFailed, 1),
        ] {
            let seen = after(&[Notice::ProgramStarted, ended(code)]);
            let ending = seen.ending_of_lead(child(code, None, false));
            assert_eq!((ending.exit_code, ending.reason), (code, reason));
            assert_eq!(exit_code(&ending, false), exit);
        }
    }

    #[test]
    fn a_broker_that_ends_first_shows_its_last_words() {
        for code in [0, 1, 143] {
            let ending = after(&[ended(code)]).ending_of_lead(child(code, None, false));
            assert_eq!(ending.reason, EndingReason::BrokerFailed);
            assert!(ending.message.contains("last words"));
            assert_eq!(exit_code(&ending, false), 1);
        }
        let nothing = after(&[]).ending_of_lead(child(137, None, false));
        assert_eq!(nothing.reason, EndingReason::BrokerFailed);
    }

    #[test]
    fn a_broker_that_is_killed_is_not_a_program_that_failed() {
        let killed = Notice::BrokerEnded { code: 137, killed: true, tail: "last words".into() };
        let ending =
            after(&[Notice::ProgramStarted, killed]).ending_of_lead(child(137, None, false));
        assert_eq!((ending.exit_code, ending.reason), (137, EndingReason::BrokerFailed));
        assert_eq!((exit_code(&ending, false), exit_code(&ending, true)), (1, 75));
    }

    #[test]
    fn a_cluster_that_stayed_until_it_was_shut_down_is_complete() {
        let seen = after(&[Notice::ProgramStarted, Notice::Released, ended(1)]);
        let ending = seen.ending_of_lead(child(1, None, false));
        assert_eq!((ending.exit_code, ending.reason), (0, EndingReason::Completed));
    }

    #[test]
    fn a_hook_that_ends_the_shell_is_named() {
        let ending = after(&[]).ending_of_lead(child(75, Some("pre"), true));
        assert_eq!((ending.exit_code, ending.reason), (75, EndingReason::HookFailed));
        assert!(ending.message.contains("pre"));
        assert_eq!(exit_code(&ending, false), 1);
        assert_eq!(
            after(&[]).ending_of_worker(child(3, Some("init"), false)).unwrap().exit_code,
            3
        );
    }

    #[test]
    fn a_failing_post_counts_only_when_strict_and_never_hides_the_program() {
        let good = after(&[Notice::ProgramStarted, ended(0)]);
        let reason =
            |seen: &Seen, strict| seen.ending_of_lead(child(2, Some("post"), strict)).reason;
        assert_eq!(reason(&good, true), EndingReason::HookFailed);
        assert_eq!(reason(&good, false), EndingReason::Completed);
        let bad = after(&[Notice::ProgramStarted, ended(7)]);
        assert_eq!(reason(&bad, true), EndingReason::CommandFailed);
        assert!(after(&[ended(0)]).ending_of_worker(child(2, Some("post"), false)).is_none());
    }

    #[test]
    fn what_a_stage_could_not_do_is_the_ending() {
        let failed = Notice::Failed { reason: EndingReason::FluxMissing, message: "PATH".into() };
        let ending = after(&[failed]).ending_of_lead(child(1, Some("pre"), true));
        assert_eq!((ending.reason, ending.message.as_str()), (EndingReason::FluxMissing, "PATH"));
    }
}
