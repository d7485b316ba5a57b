//! Decides an agent's termination message and exit code from the notices of its stages.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use flux_operator_wire::{
    EXIT_REPLACE_POD, EXIT_SIGTERM, Termination, TerminationReason, lead_exit_code,
};

use crate::notice::Notice;

/// What inner stages have reported until now.
#[derive(Clone, Debug, Default)]
pub struct StageState {
    /// The process of the broker, while it runs.
    pub broker: Option<i32>,
    /// The program has been started.
    pub program_started: bool,
    /// The placeholder program of a cluster that stays up was signalled that the instance shuts
    /// down.
    pub shutdown_requested: bool,
    /// The broker exited and is not restarted: its exit code and its last output.
    pub broker_exit: Option<(u8, String)>,
    /// The broker was killed by a signal.
    pub broker_killed: bool,
    /// A stage failed.
    pub failed: Option<(TerminationReason, String)>,
}

/// How the agent's child exited.
#[derive(Clone, Copy, Debug)]
pub struct ChildExit<'a> {
    /// Its exit code.
    pub code: u8,
    /// The hook that was started last, if the child is the shell that runs the hooks.
    pub hook: Option<&'a str>,
    /// Whether a failed hook stops the agent.
    pub strict: bool,
}

impl StageState {
    /// Records a notice.
    pub fn record(&mut self, notice: Notice) {
        match notice {
            Notice::BrokerStarted { process } => self.broker = Some(process),
            Notice::ProgramStarted => self.program_started = true,
            Notice::ShutdownRequested => self.shutdown_requested = true,
            Notice::BrokerRestarting { .. } => self.broker = None,
            Notice::BrokerExited { code, killed, last_output: tail } => {
                self.broker = None;
                self.broker_killed = killed;
                self.broker_exit = Some((code, tail));
            }
            Notice::Failed { reason, message } => self.failed = Some((reason, message)),
            Notice::Online | Notice::Flushed => {}
        }
    }

    /// The termination message of a lead whose child exited.
    pub fn lead_termination(&self, child: ChildExit<'_>) -> Termination {
        if let Some(termination) = self.early_termination(child) {
            return termination;
        }
        let (code, tail) = self.broker_exit.clone().unwrap_or_default();
        if self.broker_killed {
            let message = format!("the broker was killed (code {code}): {tail}");
            return Termination {
                exit_code: code,
                reason: TerminationReason::BrokerFailed,
                message,
            };
        }
        if !self.program_started {
            let code = code.max(1);
            let message = format!("the broker exited with {code} before the program: {tail}");
            return Termination {
                exit_code: code,
                reason: TerminationReason::BrokerFailed,
                message,
            };
        }
        // A broker that shuts down while its program runs exits with 1, whatever the program's
        // exit code is. A shutdown that was requested is not a failure.
        if code != 0 && !self.shutdown_requested {
            return Termination {
                exit_code: code,
                reason: TerminationReason::CommandFailed,
                message: format!("the program exited with {code}"),
            };
        }
        self.completed(child)
    }

    /// The termination message of a worker whose child exited. `None` if nothing failed: the
    /// worker then waits until it is stopped.
    pub fn worker_termination(&self, child: ChildExit<'_>) -> Option<Termination> {
        self.early_termination(child).or_else(|| {
            let termination = self.completed(child);
            Some(termination)
                .filter(|termination| termination.reason != TerminationReason::Completed)
        })
    }

    /// The termination message if a stage failed, or if the child exited before a broker did.
    fn early_termination(&self, child: ChildExit<'_>) -> Option<Termination> {
        if let Some((reason, message)) = &self.failed {
            return Some(Termination { exit_code: 1, reason: *reason, message: message.clone() });
        }
        if self.broker_exit.is_some() {
            return None;
        }
        let code = child.code;
        Some(match child.hook {
            Some(hook) if code == 0 => Termination {
                exit_code: 0,
                reason: TerminationReason::Completed,
                message: format!("the hook {hook:?} exited with 0 before Flux was started"),
            },
            Some(hook) => Termination {
                exit_code: code,
                reason: TerminationReason::HookFailed,
                message: format!("the hook {hook:?} exited with {code}"),
            },
            None => Termination {
                exit_code: code.max(1),
                reason: TerminationReason::BrokerFailed,
                message: format!("the broker stage exited with {code}"),
            },
        })
    }

    /// `Completed`, unless the hook after the broker failed in strict mode.
    fn completed(&self, child: ChildExit<'_>) -> Termination {
        match child {
            ChildExit { code, hook: Some(hook), strict: true } if code != 0 => Termination {
                exit_code: code,
                reason: TerminationReason::HookFailed,
                message: format!("the hook {hook:?} exited with {code}"),
            },
            _ => {
                let message = String::new();
                Termination { exit_code: 0, reason: TerminationReason::Completed, message }
            }
        }
    }
}

/// The termination message of an agent that was stopped.
pub fn stopped() -> Termination {
    let message = "the agent was stopped".to_owned();
    Termination { exit_code: EXIT_SIGTERM, reason: TerminationReason::Stopped, message }
}

/// The termination message of an agent that could not start.
pub fn failed(reason: TerminationReason, error: &dyn Error) -> Termination {
    Termination { exit_code: 1, reason, message: error_chain(error) }
}

/// The agent's exit code for a termination message. `can_restart`: the Job may restart the lead.
/// Only a lead that was lost is restarted: a broker that failed to start would fail again.
pub fn exit_code(termination: &Termination, can_restart: bool) -> u8 {
    match termination.reason {
        TerminationReason::Completed => 0,
        TerminationReason::CommandFailed | TerminationReason::HookFailed => {
            lead_exit_code(termination.exit_code).max(1)
        }
        TerminationReason::Stopped => EXIT_SIGTERM,
        TerminationReason::StaleTable => EXIT_REPLACE_POD,
        TerminationReason::BrokerFailed if can_restart && termination.exit_code > 128 => {
            EXIT_REPLACE_POD
        }
        TerminationReason::FluxMissing
        | TerminationReason::FluxTooOld
        | TerminationReason::BrokerFailed
        | TerminationReason::BadCertificate
        | TerminationReason::BadPlan
        | TerminationReason::RestartLimit => 1,
    }
}

/// Writes the termination message to `file`, and prints to standard error what users could not
/// see otherwise.
pub fn write(termination: &Termination, file: &Path) {
    match termination.reason {
        TerminationReason::Completed
        | TerminationReason::CommandFailed
        | TerminationReason::Stopped => {}
        reason => log(&format!("{}: {}", reason.as_str(), termination.message)),
    }
    // Written in place, because in a pod the file is a mount point and cannot be replaced.
    let written = std::fs::write(file, termination.to_text());
    if let Err(error) = written {
        log(&format!("failed to write the termination message to {file:?}: {error}"));
    }
}

/// Prints a line to standard error. Errors are ignored.
pub fn log(message: &str) {
    let _ = writeln!(std::io::stderr(), "flux-operator-agent: {message}");
}

/// An error and its causes on one line.
pub fn error_chain(error: &dyn Error) -> String {
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

    fn child(code: u8, hook: Option<&str>, strict: bool) -> ChildExit<'_> {
        ChildExit { code, hook, strict }
    }

    fn state_after(notices: &[Notice]) -> StageState {
        let mut state = StageState::default();
        notices.iter().cloned().for_each(|notice| state.record(notice));
        state
    }

    fn broker_exited(code: u8) -> Notice {
        Notice::BrokerExited { code, killed: false, last_output: "last words".into() }
    }

    #[test]
    fn the_lead_exits_with_the_code_of_its_program() {
        for (code, reason, exit) in [
            (0, TerminationReason::Completed, 0),
            (7, TerminationReason::CommandFailed, 7),
            (75, TerminationReason::CommandFailed, 1),
            (137, TerminationReason::CommandFailed, 1),
            (143, TerminationReason::CommandFailed, 1),
        ] {
            let seen = state_after(&[Notice::ProgramStarted, broker_exited(code)]);
            let termination = seen.lead_termination(child(code, None, false));
            assert_eq!((termination.exit_code, termination.reason), (code, reason));
            assert_eq!(exit_code(&termination, false), exit);
        }
    }

    #[test]
    fn a_broker_that_exits_before_the_program_reports_its_last_output() {
        for code in [0, 1, 143] {
            let termination =
                state_after(&[broker_exited(code)]).lead_termination(child(code, None, false));
            assert_eq!(termination.reason, TerminationReason::BrokerFailed);
            assert!(termination.message.contains("last words"));
            assert_eq!(exit_code(&termination, false), 1);
        }
        let nothing = state_after(&[]).lead_termination(child(137, None, false));
        assert_eq!(nothing.reason, TerminationReason::BrokerFailed);
    }

    #[test]
    fn a_broker_that_is_killed_is_not_a_program_that_failed() {
        let killed =
            Notice::BrokerExited { code: 137, killed: true, last_output: "last words".into() };
        let termination = state_after(&[Notice::ProgramStarted, killed])
            .lead_termination(child(137, None, false));
        assert_eq!(
            (termination.exit_code, termination.reason),
            (137, TerminationReason::BrokerFailed)
        );
        assert_eq!((exit_code(&termination, false), exit_code(&termination, true)), (1, 75));
    }

    #[test]
    fn a_cluster_that_stayed_up_until_it_was_shut_down_has_completed() {
        let seen =
            state_after(&[Notice::ProgramStarted, Notice::ShutdownRequested, broker_exited(1)]);
        let termination = seen.lead_termination(child(1, None, false));
        assert_eq!((termination.exit_code, termination.reason), (0, TerminationReason::Completed));
    }

    #[test]
    fn a_hook_that_exits_the_shell_is_named() {
        let termination = state_after(&[]).lead_termination(child(75, Some("pre"), true));
        assert_eq!(
            (termination.exit_code, termination.reason),
            (75, TerminationReason::HookFailed)
        );
        assert!(termination.message.contains("pre"));
        assert_eq!(exit_code(&termination, false), 1);
        assert_eq!(
            state_after(&[]).worker_termination(child(3, Some("init"), false)).unwrap().exit_code,
            3
        );
    }

    #[test]
    fn a_failing_post_hook_matters_only_when_strict_and_never_hides_the_program() {
        let good = state_after(&[Notice::ProgramStarted, broker_exited(0)]);
        let reason = |seen: &StageState, strict| {
            seen.lead_termination(child(2, Some("post"), strict)).reason
        };
        assert_eq!(reason(&good, true), TerminationReason::HookFailed);
        assert_eq!(reason(&good, false), TerminationReason::Completed);
        let bad = state_after(&[Notice::ProgramStarted, broker_exited(7)]);
        assert_eq!(reason(&bad, true), TerminationReason::CommandFailed);
        assert!(
            state_after(&[broker_exited(0)])
                .worker_termination(child(2, Some("post"), false))
                .is_none()
        );
    }

    #[test]
    fn a_failed_stage_determines_the_termination() {
        let failed =
            Notice::Failed { reason: TerminationReason::FluxMissing, message: "PATH".into() };
        let termination = state_after(&[failed]).lead_termination(child(1, Some("pre"), true));
        assert_eq!(
            (termination.reason, termination.message.as_str()),
            (TerminationReason::FluxMissing, "PATH")
        );
    }
}
