//! `run`: runs a command with a testbed.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::down::{self, DownError};
use crate::layout::{Layout, TestbedName};
use crate::state::Requirements;
use crate::up::{self, UpError};

/// Why a command failed to run, or the testbed failed to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunWithTestbedError {
    /// The testbed could not be started.
    #[error("failed to start the testbed")]
    Up(#[source] UpError),
    /// The command could not be started.
    #[error("failed to start {program:?}")]
    Start {
        /// The command's first word.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// The testbed that was started for it could not be stopped.
    #[error("failed to stop the testbed")]
    Down(#[source] DownError),
}

/// Runs a command with `KUBECONFIG` and `TESTBED_NAME` set, and returns its exit code. A testbed
/// that was started for it is stopped afterwards, also if the command is interrupted; one that was
/// already running is kept.
pub fn run_with(
    layout: &Layout,
    name: &TestbedName,
    wanted: Requirements,
    program: &Path,
    command: &[OsString],
    report: &mut dyn FnMut(&str),
) -> Result<u8, RunWithTestbedError> {
    let (first, arguments) = command.split_first().expect("the command line has a command");
    let failed = |source| RunWithTestbedError::Start { program: first.clone(), source };
    // An interrupt from the terminal also reaches the command, which exits; this process must wait
    // for that.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map_err(failed)?;
    }
    let (home, started) =
        up::up(layout, name, wanted, program, report).map_err(RunWithTestbedError::Up)?;
    let result = Command::new(first)
        .args(arguments)
        .env("KUBECONFIG", home.kubeconfig())
        .env("TESTBED_NAME", name.to_string())
        .status();
    if started {
        down::down(layout, name).map_err(RunWithTestbedError::Down)?;
    }
    result.map(exit_code).map_err(failed)
}

/// The exit code that a shell would report: 128 plus the signal's number for a killed command.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    code.try_into().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_command() {
        let status = |script| Command::new("sh").args(["-c", script]).status().unwrap();
        assert_eq!(exit_code(status("exit 0")), 0);
        assert_eq!(exit_code(status("exit 7")), 7);
        assert_eq!(exit_code(status("kill -TERM $$")), 143);
    }
}
