//! Inner stage: the initial program of the instance, which Flux starts on the
//! lead once enough brokers are online.
//!
//! It notifies the agent, and then executes the plan's program. The arguments are
//! read from the plan and passed to `exec` unchanged; neither Flux nor a shell of
//! ours processes them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use flux_operator_wire::Program;

use crate::arguments::StageArguments;
use crate::batch;
use crate::broker_arguments::HOSTNAME_VARIABLE;
use crate::files::WriteError;
use crate::layout::Layout;
use crate::notice::{self, Notice};
use crate::processes;
use crate::rank_plan::RankPlan;
use crate::search_path::{self, Shell};
use crate::signals;
use crate::termination::{error_chain, log};

/// A shell's exit codes if a program does not exist, or cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Executes the program.
pub fn run(stage: &StageArguments) -> ExitCode {
    let layout = Layout::new(&stage.common.root);
    let rank = match RankPlan::read(&stage.common) {
        Ok(rank) => rank,
        Err(error) => {
            log(&error_chain(&error));
            return ExitCode::FAILURE;
        }
    };
    // For readers that do not receive notices.
    if let Err(error) = std::fs::write(layout.program_started(), "") {
        log(&format!("failed to mark the program as started: {error}"));
    }
    notice::send(&layout.notices(), &Notice::ProgramStarted);
    let shell = search_path::find_shell(std::env::var_os("PATH").as_deref());
    match command_line(&rank.plan.program, shell.as_ref(), &layout.batch()) {
        Ok(None) => wait_for_shutdown(&layout),
        Ok(Some(words)) => execute(&words, rank.plan.logging.timed),
        Err(error) => {
            log(&error_chain(&error));
            ExitCode::from(NOT_EXECUTABLE)
        }
    }
}

/// Why there is no command line to execute.
#[derive(Debug, thiserror::Error)]
enum CommandLineError {
    #[error("the command {line:?} needs a shell, and the image has none")]
    Line { line: String },
    #[error("a batch needs a shell, and the image has none")]
    Batch,
    #[error("failed to write the batch script")]
    Write { source: WriteError },
}

/// The command line to execute; `None` for a cluster that stays up. A batch script is written to
/// `script`.
fn command_line(
    program: &Program,
    shell: Option<&Shell>,
    script: &Path,
) -> Result<Option<Vec<String>>, CommandLineError> {
    match (program, shell) {
        (Program::Stay, _) => Ok(None),
        (Program::Words(words), _) => Ok(Some(words.clone())),
        (Program::Line { line, words }, Some(shell)) => {
            let shell = shell.program.to_string_lossy().into_owned();
            let own = [shell, "-c".to_owned(), line.clone(), "sh".to_owned()];
            Ok(Some(own.into_iter().chain(words.iter().cloned()).collect()))
        }
        (Program::Line { line, words }, None) => match shlex::split(line) {
            Some(split) => Ok(Some(split.into_iter().chain(words.iter().cloned()).collect())),
            None => Err(CommandLineError::Line { line: line.clone() }),
        },
        (Program::Batch(batch), Some(shell)) => {
            batch::write(batch, shell, script)
                .map_err(|source| CommandLineError::Write { source })?;
            Ok(Some(batch::submit_command(batch, shell, script)))
        }
        (Program::Batch(_), None) => Err(CommandLineError::Batch),
    }
}

/// Executes the command, or, if `timed`, runs it as a child to measure how long it takes.
fn execute(words: &[String], timed: bool) -> ExitCode {
    let Some((name, arguments)) = words.split_first() else {
        log("the command is empty");
        return ExitCode::from(NOT_FOUND);
    };
    let mut command = Command::new(name);
    command.args(arguments).env_remove(HOSTNAME_VARIABLE);
    let error = if timed {
        match run_timed(&mut command) {
            Ok(code) => return ExitCode::from(code),
            Err(error) => error,
        }
    } else {
        command.exec()
    };
    log(&format!("failed to run {:?}: {error}", OsStr::new(name)));
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    })
}

fn run_timed(command: &mut Command) -> io::Result<u8> {
    // Flux signals the whole process group; this process must survive to print the time.
    let _ignored = signals::ignore_stop()?;
    let start = Instant::now();
    let status = command.spawn()?.wait()?;
    print_wall_time("fluxsubmit", start.elapsed());
    Ok(processes::exit_code(status))
}

/// Prints a time as `/usr/bin/time -f "FLUXTIME NAME wall time %E"` does, for compatibility with
/// the Go operator.
pub fn print_wall_time(name: &str, elapsed: Duration) {
    eprintln!("FLUXTIME {name} wall time {}", wall_time(elapsed));
}

fn wall_time(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}.{:02}", seconds / 60, seconds % 60, elapsed.subsec_millis() / 10),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// Waits until the instance shuts down: Flux then sends SIGHUP.
fn wait_for_shutdown(layout: &Layout) -> ExitCode {
    match signals::wait_for_stop() {
        Ok(()) => {
            // While it shuts down, the broker treats any exit of its program as a failure. This
            // notice tells the agent that it is not one.
            notice::send(&layout.notices(), &Notice::ShutdownRequested);
            ExitCode::SUCCESS
        }
        Err(error) => {
            log(&format!("failed to wait for signals: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_wire::Batch;

    fn words(
        program: &Program,
        shell: Option<&Shell>,
    ) -> Result<Option<Vec<String>>, CommandLineError> {
        super::command_line(program, shell, Path::new("/nowhere"))
    }

    fn line(line: &str, words: &[&str]) -> Program {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Program::Line { line: line.to_owned(), words }
    }

    #[test]
    fn arguments_are_executed_unchanged() {
        let given: Vec<_> = ["echo", "", "$HOME", "a\nb"].map(str::to_owned).into();
        assert_eq!(words(&Program::Words(given.clone()), None).unwrap(), Some(given));
        assert_eq!(words(&Program::Stay, None).unwrap(), None);
    }

    #[test]
    fn a_line_is_run_by_a_shell_if_there_is_one() {
        let shell = Shell { program: "/bin/sh".into(), bash: false };
        let run = words(&line("echo \"$@\" *", &["x y", ""]), Some(&shell)).unwrap().unwrap();
        assert_eq!(run, ["/bin/sh", "-c", "echo \"$@\" *", "sh", "x y", ""]);
    }

    #[test]
    fn without_a_shell_a_line_is_split() {
        let run = words(&line("flux submit 'a b' \"c\"", &["*"]), None).unwrap().unwrap();
        assert_eq!(run, ["flux", "submit", "a b", "c", "*"]);
        assert!(words(&line("echo 'unterminated", &[]), None).is_err());
        let batch = Batch { prefix: String::new(), options: "-N1".into(), script: String::new() };
        assert!(matches!(words(&Program::Batch(batch), None), Err(CommandLineError::Batch)));
    }

    #[test]
    fn times_are_formatted_like_those_of_time() {
        for (milliseconds, text) in
            [(3_829, "0:03.82"), (61_000, "1:01.00"), (3_661_500, "1:01:01"), (0, "0:00.00")]
        {
            assert_eq!(wall_time(Duration::from_millis(milliseconds)), text);
        }
    }
}
