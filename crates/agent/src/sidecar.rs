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
use crate::delay::Delay;
use crate::ending::{chain, say};
use crate::environment;
use crate::files::{self, WriteError};
use crate::hooks::{self, quote, silence, source, strict};
use crate::layout::Layout;
use crate::own_program;
use crate::rank::{self, RankError};
use crate::search::{self, Shell};
use crate::supervisor::{Supervisor, Waited};

/// Why a sidecar cannot start.
#[derive(Debug, thiserror::Error)]
enum SidecarError {
    #[error("failed to load the plan")]
    Plan { source: RankError },
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
pub fn run(arguments: &arguments::Sidecar) -> ExitCode {
    match stay(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn stay(arguments: &arguments::Sidecar) -> Result<(), SidecarError> {
    let mut supervisor = Supervisor::new().map_err(|source| SidecarError::Signals { source })?;
    let name = &arguments.name;
    let plan = rank::read_plan(&arguments.plan).map_err(|source| SidecarError::Plan { source })?;
    let sidecar = plan.sidecars.iter().find(|sidecar| sidecar.name == *name);
    let sidecar = sidecar.ok_or_else(|| SidecarError::Unknown { name: name.clone() })?;
    let layout = Layout::new(&arguments.root);
    let mut command = command(&plan, sidecar, &layout)?;
    let child = supervisor.spawn(&mut command).map_err(|source| SidecarError::Spawn {
        program: PathBuf::from(command.get_program()),
        source,
    })?;
    if let Waited::Ended(code) = supervisor.wait(child, &mut |_| {}) {
        if code != 0 {
            say(&format!("sidecar {name:?} exited with {code}"));
        }
        supervisor.wait_for_stop();
    }
    supervisor.stop(None, Duration::from_secs(plan.grace_seconds.into()));
    Ok(())
}

fn command(plan: &BootPlan, sidecar: &Sidecar, layout: &Layout) -> Result<Command, SidecarError> {
    let changes = environment::changes(plan, layout, None, &environment::of_process);
    let path = changes.get("PATH").cloned().or_else(|| environment::of_process("PATH"));
    let name = || sidecar.name.clone();
    let shell =
        search::shell(path.as_deref()).ok_or_else(|| SidecarError::NoShell { name: name() })?;
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
    let hook = |name| source(directory, name, silence(name, logging.quiet));
    let mut script = strict(shell, logging.strict).to_owned() + &hook("init");
    if *wait_for_socket {
        script += &format!("{wait}\n");
    }
    script += &hook("servicePre");
    let words: Vec<_> = words.iter().map(|word| quote(word)).collect();
    script += &format!("set -- {}\n", words.join(" "));
    script += &source(directory, "command", "");
    // The exit code is that of the command.
    script += "flux_operator_code=$?\nset --\n";
    script += &source(directory, "post", "");
    script += "exit $flux_operator_code\n";
    files::write(&directory.join(hooks::SCRIPT), script, 0o644)
}

/// Inner stage: waits until a broker answers at `socket`.
pub fn wait_for(socket: &Path) -> ExitCode {
    let mut delay = Delay::new(Duration::from_millis(10), Duration::from_millis(500));
    while !answers(socket) {
        thread::sleep(delay.grow());
    }
    ExitCode::SUCCESS
}

/// Whether a broker listens on the socket. A stale socket refuses connections; if the path is
/// too long to connect to, the socket only has to exist.
fn answers(socket: &Path) -> bool {
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
        let shell = search::shell(path.as_deref()).unwrap();
        write(sidecar, directory.path(), &shell, "echo wait", logging).unwrap();
        let script = directory.path().join(hooks::SCRIPT);
        let output = Command::new(&shell.program).arg(script).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    }

    #[test]
    fn texts_run_in_order_in_one_shell() {
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
    fn a_sidecar_without_texts_does_nothing() {
        let strict = Logging { strict: true, ..Logging::default() };
        assert_eq!(output(&Sidecar::default(), strict), (String::new(), Some(0)));
    }

    #[test]
    fn a_socket_answers_only_while_somebody_listens() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("local");
        assert!(!answers(&socket));
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(answers(&socket));
        drop(listener);
        assert!(!answers(&socket));
    }
}
