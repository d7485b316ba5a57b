//! The agent: configures one broker, runs it with the user's hooks, and reports
//! how it exited.
//!
//! The broker is started by an inner stage of the same program, so that it can
//! be a child of the hooks' shell (see [`hooks`](crate::hooks)):
//!
//! ```text
//! agent run ─► [shell with hooks ─►] agent broker ─► flux broker ─► agent program ─► the program
//! ```

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use flux_operator_flux::broker_config::BrokerConfigPrintError;
use flux_operator_wire::names::{path, variable};
use flux_operator_wire::{Termination, TerminationReason};
use rustix::fs::OFlags;
use rustix::process::Pid;

use crate::arguments::{self, RunArguments};
use crate::files::{self, WriteError};
use crate::hooks::{self, Hooks};
use crate::layout::Layout;
use crate::lead_proof::LeadProof;
use crate::listener::{self, Request};
use crate::notice::{self, Notice};
use crate::rank_plan::{self, RankPlan, RankPlanError};
use crate::ready::Readiness;
use crate::secrets::{self, CertificateFileError};
use crate::supervisor::{Supervisor, WaitOutcome};
use crate::termination::{self, ChildExit, StageState, error_chain, log};
use crate::{config, cores, environment, own_program, search_path, user_files, view};

/// The path of the user's script, the same as with the Go operator.
const SCRIPT: &str = "/tmp/custom-entrypoint.sh";

/// Why the broker stage could not be started.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error("failed to determine the rank")]
    Rank { source: RankPlanError },
    #[error("failed to load the certificate")]
    Certificate { source: CertificateFileError },
    #[error("the lead was lost {failures} times, and may be restarted {limit} times")]
    RestartLimit { failures: u64, limit: u32 },
    #[error("failed to generate the broker's configuration")]
    Config { source: BrokerConfigPrintError },
    #[error("failed to prepare the agent's directory")]
    Write { source: WriteError },
    #[error("failed to create the pipe {path:?}")]
    Notices { path: PathBuf, source: std::io::Error },
    #[error("there are hooks, but neither bash nor sh is in PATH")]
    NoShell,
    #[error("failed to find the agent's program")]
    Program { source: std::io::Error },
    #[error("failed to start {program:?}")]
    Spawn { program: PathBuf, source: std::io::Error },
}

impl PrepareError {
    fn reason(&self) -> TerminationReason {
        match self {
            PrepareError::Certificate { .. } => TerminationReason::BadCertificate,
            PrepareError::RestartLimit { .. } => TerminationReason::RestartLimit,
            PrepareError::NoShell => TerminationReason::HookFailed,
            PrepareError::Program { .. } | PrepareError::Spawn { .. } => {
                TerminationReason::BrokerFailed
            }
            PrepareError::Rank { source } => source.reason(),
            PrepareError::Config { .. }
            | PrepareError::Write { .. }
            | PrepareError::Notices { .. } => TerminationReason::BadPlan,
        }
    }
}

/// How the agent exits.
struct AgentExit {
    termination: Termination,
    /// This is the lead, and it may be restarted.
    can_restart: bool,
}

/// Boots one broker and supervises it.
pub fn run(arguments: &RunArguments) -> ExitCode {
    let mut supervisor = match Supervisor::new() {
        Ok(supervisor) => supervisor,
        Err(error) => {
            log(&format!("failed to handle signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    if arguments.stop_on_eof {
        supervisor.stop_on_eof();
    }
    let exit = boot(arguments, &mut supervisor).unwrap_or_else(|error| AgentExit {
        termination: termination::failed(error.reason(), &error),
        can_restart: false,
    });
    supervisor.kill_remaining();
    termination::write(&exit.termination, &arguments.termination);
    ExitCode::from(termination::exit_code(&exit.termination, exit.can_restart))
}

fn boot(arguments: &RunArguments, supervisor: &mut Supervisor) -> Result<AgentExit, PrepareError> {
    let rank = RankPlan::read(&arguments.common).map_err(|source| PrepareError::Rank { source })?;
    let layout = Layout::new(&arguments.common.root);
    let grace = Duration::from_secs(rank.plan.grace_seconds.into());
    let readiness = Readiness::default();
    let proof = LeadProof::read(&arguments.common, &rank.plan, rank.is_lead());
    serve_probes(rank.plan.ready_port, readiness.clone(), proof.clone());
    let failures = check_restarts(&rank)?;
    // Without a Job nothing is restarted.
    let can_restart =
        rank.is_lead() && !arguments.stop_on_eof && failures < u64::from(rank.plan.restart_limit);
    let exit_with = |termination| Ok(AgentExit { termination, can_restart });
    configure(&rank, &layout, arguments)?;
    let pipe = layout.notices();
    let opened = notice::listen(&pipe);
    match opened {
        Ok(file) => supervisor.listen(pipe, file),
        Err(source) => return Err(PrepareError::Notices { path: pipe, source }),
    }
    let mut command = stage_command(&rank, &layout, arguments)?;
    let child = supervisor.spawn(&mut command).map_err(|source| PrepareError::Spawn {
        program: PathBuf::from(command.get_program()),
        source,
    })?;
    let mut state = StageState::default();
    let waited = supervisor.wait(child, &mut |notice| {
        readiness.record(&notice, rank.is_lead());
        // Only the lead sends the first, and only workers the second.
        let is_ready = matches!(notice, Notice::ProgramStarted | Notice::Online);
        if let Some(ready) = arguments.ready.as_ref().filter(|_| is_ready) {
            report_ready(ready);
        }
        state.record(notice);
    });
    let WaitOutcome::Exited(code) = waited else {
        // Workers that start now belong to the next lead.
        proof.iter().for_each(LeadProof::resign);
        // A lead that will be restarted must not shut down the instance: its workers would
        // take that as final and not reconnect.
        let lost = state.broker.filter(|_| can_restart).and_then(Pid::from_raw);
        supervisor.stop(lost, grace);
        return exit_with(termination::stopped());
    };
    mark_complete(&layout);
    let hook = Hooks::for_rank(&rank).and_then(|_| hooks::current_hook(&layout.hooks()));
    let child = ChildExit { code, hook: hook.as_deref(), strict: rank.plan.logging.strict };
    if rank.is_lead() {
        return exit_with(state.lead_termination(child));
    }
    if let Some(termination) = state.worker_termination(child) {
        return exit_with(termination);
    }
    if arguments.stop_on_eof {
        // Without a Job a worker may complete, so there is nothing to wait for.
        return exit_with(worker_termination_without_job(&state));
    }
    // An index that exits with 0 is never restarted, so a lead that is restarted would wait
    // for it forever.
    supervisor.wait_for_stop();
    supervisor.stop(None, grace);
    exit_with(termination::stopped())
}

/// Writes a line to the file of a process that waits until the cluster, or this broker, is ready.
fn report_ready(file: &Path) {
    let opened = std::fs::OpenOptions::new()
        .append(true)
        // The process may have been killed. Without a reader a pipe would never be opened, and
        // this agent would not stop.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(file);
    let written = opened.and_then(|mut file| file.write_all(b"ready\n"));
    if let Err(error) = written {
        log(&format!("failed to report that the cluster is ready: {error}"));
    }
}

fn worker_termination_without_job(seen: &StageState) -> Termination {
    match &seen.broker_exit {
        Some((code, tail)) if *code != 0 => Termination {
            exit_code: *code,
            reason: TerminationReason::BrokerFailed,
            message: format!("the broker exited with {code}: {tail}"),
        },
        _ => Termination {
            exit_code: 0,
            reason: TerminationReason::Completed,
            message: String::new(),
        },
    }
}

/// Answers other agents at [`path::LEAD`], and the kubelet at every other path.
fn serve_probes(port: u16, readiness: Readiness, proof: Option<LeadProof>) {
    let answer = move |request: &Request<'_>| match &proof {
        Some(proof) if request.path == path::LEAD => proof.response(request.query),
        _ => readiness.response(),
    };
    if port != 0
        && let Err(error) = listener::serve(port, answer)
    {
        // The cluster can run without a readiness probe.
        log(&format!("failed to listen on port {port}: {error}"));
    }
}

/// How often the lead was lost. Fails if that exceeds the limit.
fn check_restarts(rank: &RankPlan) -> Result<u64, PrepareError> {
    if !rank.is_lead() {
        return Ok(0);
    }
    let counts =
        [variable::INDEX_FAILURES, variable::IGNORED_FAILURES].map(|name| std::env::var(name).ok());
    let failures = rank_plan::total_failures([counts[0].as_deref(), counts[1].as_deref()]);
    let limit = rank.plan.restart_limit;
    if failures > u64::from(limit) {
        return Err(PrepareError::RestartLimit { failures, limit });
    }
    Ok(failures)
}

/// Where the broker's socket is on machines with a Flux system instance. Users know this path.
const SYSTEM_SOCKET: &str = "/run/flux/local";

/// Makes the broker's socket available at another path too, unless the image has a file there or its
/// user may not write there.
fn link_socket(socket: &Path, at: &Path) {
    let linked = at.parent().map(files::create_directory);
    if linked.is_some_and(|result| result.is_ok()) && !at.exists() {
        // It is a convenience: `fluxsocket` always has the path.
        let _ = files::link(socket, at);
    }
}

/// Writes all files that the broker, hooks and users' tools read.
fn configure(
    rank: &RankPlan,
    layout: &Layout,
    arguments: &RunArguments,
) -> Result<(), PrepareError> {
    let write = |source| PrepareError::Write { source };
    layout.create(&rank.plan.hosts, arguments.private.as_deref()).map_err(write)?;
    if arguments.private.is_some() {
        // Only pods have this directory. Outside of pods, several clusters share the machine.
        link_socket(&layout.socket(), Path::new(SYSTEM_SOCKET));
    }
    let certificate = layout.certificate();
    secrets::copy_certificate(&arguments.common.secrets, &certificate)
        .map_err(|source| PrepareError::Certificate { source })?;
    let limit = std::env::var(variable::CPU_LIMIT).ok();
    let toml = config::broker_toml(rank, &certificate, cores::count(limit.as_deref()))
        .map_err(|source| PrepareError::Config { source })?;
    files::write(&layout.broker_config(), toml, 0o644).map_err(write)?;
    let output = PathBuf::from(&rank.plan.output_directory);
    if let Err(error) = files::create_directory(&output) {
        // Only some programs write there, and they will report the error.
        log(&error_chain(&error));
    }
    if !rank.plan.hooks.script.is_empty() {
        files::write(SCRIPT.as_ref(), &rank.plan.hooks.script, 0o755).map_err(write)?;
    }
    let changes = environment_changes(rank, layout, arguments);
    let lookup =
        |name: &str| changes.get(name).cloned().or_else(|| environment::process_variable(name));
    user_files::write(&rank.plan, layout, &lookup).map_err(write)?;
    if let Err(error) = view::link(&rank.plan, layout) {
        // Flux itself does not need the link.
        log(&format!("failed to link the view: {error}"));
    }
    user_files::create_marker(layout, "flux-operator-done.txt").map_err(write)
}

/// The command that the agent starts: the inner stage, or a shell that runs the hooks around it.
fn stage_command(
    rank: &RankPlan,
    layout: &Layout,
    arguments: &RunArguments,
) -> Result<Command, PrepareError> {
    let program = own_program::path().map_err(|source| PrepareError::Program { source })?;
    let mut stage = vec![program.to_string_lossy().into_owned(), "broker".to_owned()];
    stage.extend([arguments::AGENT.to_owned(), std::process::id().to_string()]);
    stage.extend(arguments.common.to_arguments());
    let changes = environment_changes(rank, layout, arguments);
    let mut command = match Hooks::for_rank(rank) {
        None => {
            let mut command = Command::new(&stage[0]);
            command.args(&stage[1..]);
            command
        }
        Some(hooks) => {
            let path =
                changes.get("PATH").cloned().or_else(|| environment::process_variable("PATH"));
            let shell = search_path::find_shell(path.as_deref()).ok_or(PrepareError::NoShell)?;
            let directory = layout.hooks();
            hooks
                .write(&directory, &shell, &stage, rank.plan.logging)
                .map_err(|source| PrepareError::Write { source })?;
            let mut command = Command::new(&shell.program);
            command.arg(directory.join(hooks::SCRIPT));
            command
        }
    };
    if arguments.stop_on_eof {
        // Only the agent reads standard input, because it has to detect the end of it.
        command.stdin(Stdio::null());
    }
    command.envs(changes);
    Ok(command)
}

fn environment_changes(
    rank: &RankPlan,
    layout: &Layout,
    arguments: &RunArguments,
) -> environment::Changes {
    let arguments::CommonArguments { flux, .. } = &arguments.common;
    environment::changes(&rank.plan, layout, flux.as_deref(), &environment::process_variable)
}

fn mark_complete(layout: &Layout) {
    if let Err(error) = user_files::create_marker(layout, "flux-operator-complete.txt") {
        log(&error_chain(&error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};

    #[test]
    fn the_socket_is_linked_unless_there_is_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let (socket, link) =
            (directory.path().join("local"), directory.path().join("run/flux/local"));
        std::fs::write(&socket, "ours").unwrap();
        for _ in 0..2 {
            link_socket(&socket, &link);
            assert_eq!(std::fs::read_to_string(&link).unwrap(), "ours");
        }
        let theirs = directory.path().join("theirs");
        std::fs::write(&theirs, "theirs").unwrap();
        link_socket(&socket, &theirs);
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
        // A user who may not write there still has a broker.
        link_socket(&socket, &theirs.join("run/local"));
    }

    #[test]
    fn a_pipe_that_no_process_reads_does_not_block_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("ready");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        report_ready(&pipe);
    }
}
