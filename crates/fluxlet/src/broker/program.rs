//! The initial program, which the lead runs once enough brokers are online.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::SyncSender;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use super::loop_event::LoopEvent;

/// The variables that Flux sets for a task. A nested broker is a task, but its program is not.
const TASK_VARIABLES: [&str; 9] = [
    "FLUX_JOB_ID",
    "FLUX_JOB_ID_PATH",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "FLUX_JOB_TMPDIR",
    "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_KVS_NAMESPACE",
    "FLUX_TERMINUS_SESSION",
];

/// A running program.
pub struct RunningProgram {
    pid: Option<Pid>,
    name: String,
    started: std::time::Instant,
}

/// Starts the program. As in Flux, a single argument is run by a shell, several are executed as
/// they are, and without any an interactive shell is started.
pub fn start(
    words: &[OsString],
    environment: &[(String, OsString)],
    events: SyncSender<LoopEvent>,
) -> Result<RunningProgram, (String, u8)> {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    let shell = shell.unwrap_or_else(|| OsString::from("/bin/sh"));
    let mut command = match words {
        [] if !std::io::stdin().is_terminal() => {
            return Err(("stdin is not a tty - can't run interactive shell".to_owned(), 1));
        }
        [] => Command::new(&shell),
        [line] => shell_command(&shell, line),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
    };
    let name: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let name = if name.is_empty() { shell.to_string_lossy().into_owned() } else { name.join(" ") };
    for variable in TASK_VARIABLES {
        command.env_remove(variable);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    // An interactive shell keeps the broker's terminal; anything else is stopped as a group.
    if !words.is_empty() && !std::io::stdin().is_terminal() {
        command.process_group(0);
    }
    let child = command.spawn().map_err(|error| {
        let reason = super::task::system_message(&error);
        (format!("rc2.0: {name} error launching process: {reason} (rc=127) 0.0s"), 127)
    })?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    thread::spawn(move || wait(child, &events));
    Ok(RunningProgram { pid, name, started: std::time::Instant::now() })
}

fn shell_command(shell: &OsStr, line: &OsStr) -> Command {
    let mut command = Command::new(shell);
    command.arg("-c").arg(line);
    command
}

fn wait(mut child: Child, events: &SyncSender<LoopEvent>) {
    let status = child.wait();
    let _loop_has_ended = events.send(LoopEvent::ProgramExited(status));
}

impl RunningProgram {
    pub fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        // It may or may not be the leader of a process group; one of the two calls succeeds.
        let _not_a_group = rustix::process::kill_process_group(pid, signal);
        let _already_gone = kill_process(pid, signal);
    }

    /// The line that Flux logs when a program fails, and the exit code.
    pub fn describe_exit(&self, status: ExitStatus) -> (Option<String>, u8) {
        let seconds = self.started.elapsed().as_secs_f64();
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let how = match status.signal() {
            Some(signal) => crate::signal::describe(signal),
            None => "Exited".to_owned(),
        };
        let line = format!("rc2.0: {} {how} (rc={code}) {seconds:.1}s", self.name);
        ((code != 0).then_some(line), u8::try_from(code).unwrap_or(1))
    }
}
