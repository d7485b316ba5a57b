//! A sidecar: a container beside the runner that runs a command of its own.
//!
//! Its scripts run in one shell, in which `fluxsocket` is the URI of the broker of
//! the same pod. When they have finished, the container stays until it is stopped:
//! a container that exits would be restarted.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use flux_operator_wire::{BootPlan, Logging, Sidecar};

use crate::arguments::{self, text};
use crate::backoff::Backoff;
use crate::environment;
use crate::files::{self, WriteError};
use crate::hooks::{self, quote, redirection, source_lines, strict_lines};
use crate::layout::Layout;
use crate::own_program;
use crate::rank_plan::{self, RankPlanError};
use crate::search_path::{self, Shell};
use crate::supervisor::{Supervisor, WaitOutcome};
use crate::termination::{error_chain, log};

/// Why a sidecar cannot start.
#[derive(Debug, thiserror::Error)]
enum SidecarError {
    #[error("failed to load the plan")]
    Plan { source: RankPlanError },
    #[error("the plan has no sidecar {name:?}")]
    Unknown { name: String },
    #[error("neither bash nor sh is in PATH, but sidecar {name:?} needs a shell")]
    NoShell { name: String },
    #[error("failed to write the scripts of sidecar {name:?}")]
    Write { name: String, source: WriteError },
    #[error("failed to find the agent's program")]
    Program { source: std::io::Error },
    #[error("failed to start {program:?}")]
    Spawn { program: PathBuf, source: std::io::Error },
    #[error("failed to handle signals")]
    Signals { source: std::io::Error },
}

/// Runs the scripts of a sidecar, and then waits until it is stopped.
pub fn run(arguments: &arguments::SidecarArguments) -> ExitCode {
    match supervise(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn supervise(arguments: &arguments::SidecarArguments) -> Result<(), SidecarError> {
    let mut supervisor = Supervisor::new().map_err(|source| SidecarError::Signals { source })?;
    let name = &arguments.name;
    let plan =
        rank_plan::read_plan(&arguments.plan).map_err(|source| SidecarError::Plan { source })?;
    let sidecar = plan.sidecars.iter().find(|sidecar| sidecar.name == *name);
    let sidecar = sidecar.ok_or_else(|| SidecarError::Unknown { name: name.clone() })?;
    let layout = Layout::new(&arguments.root);
    let mut command = command(&plan, sidecar, &layout)?;
    let child = supervisor.spawn(&mut command).map_err(|source| SidecarError::Spawn {
        program: PathBuf::from(command.get_program()),
        source,
    })?;
    if let WaitOutcome::Exited(code) = supervisor.wait(child, &mut |_| {}) {
        if code != 0 {
            log(&format!("sidecar {name:?} exited with {code}"));
        }
        supervisor.wait_for_stop();
    }
    supervisor.stop(None, Duration::from_secs(plan.grace_seconds.into()));
    Ok(())
}

fn command(plan: &BootPlan, sidecar: &Sidecar, layout: &Layout) -> Result<Command, SidecarError> {
    let changes = environment::changes(plan, layout, None, &environment::process_variable);
    let path = changes.get("PATH").cloned().or_else(|| environment::process_variable("PATH"));
    let name = || sidecar.name.clone();
    let shell = search_path::find_shell(path.as_deref())
        .ok_or_else(|| SidecarError::NoShell { name: name() })?;
    let program = own_program::path().map_err(|source| SidecarError::Program { source })?;
    let directory = layout.sidecar(&sidecar.name);
    let socket = layout.socket();
    let wait = [&program.to_string_lossy(), "await", text(&socket)].map(quote).join(" ");
    write(sidecar, &directory, &shell, &wait, plan.logging)
        .map_err(|source| SidecarError::Write { name: name(), source })?;
    let mut command = Command::new(&shell.program);
    command.arg(directory.join(hooks::SCRIPT)).envs(changes);
    Ok(command)
}

/// Writes the scripts, and the one that runs them. `wait` is the command that waits for the
/// socket.
fn write(
    sidecar: &Sidecar,
    directory: &Path,
    shell: &Shell,
    wait: &str,
    logging: Logging,
) -> Result<(), WriteError> {
    files::create_directory(directory)?;
    let Sidecar { name: _, init, service_pre, command, words, post, wait_for_socket } = sidecar;
    for (name, content) in
        [("init", init), ("servicePre", service_pre), ("command", command), ("post", post)]
    {
        files::write(&directory.join(name), format!("{content}\n"), 0o644)?;
    }
    let hook = |name| source_lines(directory, name, redirection(name, logging.quiet));
    let mut script = strict_lines(shell, logging.strict).to_owned() + &hook("init");
    if *wait_for_socket {
        script += &format!("{wait}\n");
    }
    script += &hook("servicePre");
    let words: Vec<_> = words.iter().map(|word| quote(word)).collect();
    script += &format!("set -- {}\n", words.join(" "));
    script += &source_lines(directory, "command", "");
    // The exit code is that of the command.
    script += "flux_operator_code=$?\nset --\n";
    script += &source_lines(directory, "post", "");
    script += "exit $flux_operator_code\n";
    files::write(&directory.join(hooks::SCRIPT), script, 0o644)
}

/// Inner stage: waits until a broker answers at `socket`.
pub fn await_socket(socket: &Path) -> ExitCode {
    let mut delay = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
    while !is_listening(socket) {
        thread::sleep(delay.next_delay());
    }
    ExitCode::SUCCESS
}

/// Whether a broker listens on the socket. A stale socket refuses connections; if the path is
/// too long to connect to, the socket only has to exist.
fn is_listening(socket: &Path) -> bool {
    match std::os::unix::net::UnixStream::connect(socket) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::InvalidInput && socket.exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn output(sidecar: &Sidecar, logging: Logging) -> (String, Option<i32>) {
        let directory = tempfile::tempdir().unwrap();
        let path = std::env::var_os("PATH");
        let shell = search_path::find_shell(path.as_deref()).unwrap();
        write(sidecar, directory.path(), &shell, "echo wait", logging).unwrap();
        let script = directory.path().join(hooks::SCRIPT);
        let output = Command::new(&shell.program).arg(script).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    }

    #[test]
    fn scripts_run_in_order_in_one_shell() {
        let sidecar = Sidecar {
            name: "web".into(),
            init: "A=1; echo init".into(),
            service_pre: "A=$A$A; echo before".into(),
            command: "printf '<%s>' $A \"$@\"; (exit 3)".into(),
            words: vec!["a b".into(), "".into(), "$A'".into()],
            post: "echo post $#".into(),
            wait_for_socket: true,
        };
        let (text, code) = output(&sidecar, Logging::default());
        assert_eq!(text, "init\nwait\nbefore\n<11><a b><><$A'>post 0\n");
        assert_eq!(code, Some(3));
        let quiet = Logging { quiet: true, ..Logging::default() };
        let (text, _) = output(&Sidecar { wait_for_socket: false, ..sidecar }, quiet);
        assert_eq!(text, "<11><a b><><$A'>post 0\n");
    }

    #[test]
    fn a_sidecar_without_scripts_does_nothing() {
        let strict = Logging { strict: true, ..Logging::default() };
        assert_eq!(output(&Sidecar::default(), strict), (String::new(), Some(0)));
    }

    #[test]
    fn a_socket_is_detected_only_while_a_process_listens() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("local");
        assert!(!is_listening(&socket));
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(is_listening(&socket));
        drop(listener);
        // A process that another test is starting has a copy of it until it runs its program.
        let start = std::time::Instant::now();
        while is_listening(&socket) {
            assert!(start.elapsed() < std::time::Duration::from_secs(30));
            std::thread::yield_now();
        }
    }
}
