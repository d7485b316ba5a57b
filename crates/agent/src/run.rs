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
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use flux_operator_flux::broker_config::PrintError;
use flux_operator_wire::names::{path, variable};
use flux_operator_wire::{Ending, EndingReason};
use rustix::process::Pid;

use crate::arguments::{self, Run};
use crate::ending::{self, Child, Seen, chain, say};
use crate::files::{self, WriteError};
use crate::hooks::{self, Hooks};
use crate::layout::Layout;
use crate::lead_proof::LeadProof;
use crate::listener::{self, Request};
use crate::notice::{self, Notice};
use crate::rank::{self, Rank, RankError};
use crate::ready::Readiness;
use crate::secrets::{self, CertificateFileError};
use crate::supervisor::{Supervisor, Waited};
use crate::{config, cores, environment, own_program, search, user_files, view};

/// The path of the user's script, the same as with the Go operator.
const SCRIPT: &str = "/tmp/custom-entrypoint.sh";

/// Why the broker stage could not be started.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error("failed to determine the rank")]
    Rank { source: RankError },
    #[error("failed to load the certificate")]
    Certificate { source: CertificateFileError },
    #[error("the lead was lost {failures} times, and may be restarted {limit} times")]
    RestartLimit { failures: u64, limit: u32 },
    #[error("failed to generate the broker's configuration")]
    Config { source: PrintError },
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
    fn reason(&self) -> EndingReason {
        match self {
            PrepareError::Certificate { .. } => EndingReason::BadCertificate,
            PrepareError::RestartLimit { .. } => EndingReason::RestartLimit,
            PrepareError::NoShell => EndingReason::HookFailed,
            PrepareError::Program { .. } | PrepareError::Spawn { .. } => EndingReason::BrokerFailed,
            PrepareError::Rank { .. }
            | PrepareError::Config { .. }
            | PrepareError::Write { .. }
            | PrepareError::Notices { .. } => EndingReason::BadPlan,
        }
    }
}

/// How the agent exits.
struct Ended {
    ending: Ending,
    /// This is the lead, and it may be restarted.
    comes_back: bool,
}

/// Boots one broker and supervises it.
pub fn run(arguments: &Run) -> ExitCode {
    let mut supervisor = match Supervisor::new() {
        Ok(supervisor) => supervisor,
        Err(error) => {
            say(&format!("failed to handle signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    if arguments.stop_on_eof {
        supervisor.stop_on_eof();
    }
    let ended = boot(arguments, &mut supervisor).unwrap_or_else(|error| Ended {
        ending: ending::failed(error.reason(), &error),
        comes_back: false,
    });
    supervisor.kill_rest();
    ending::leave(&ended.ending, &arguments.ending);
    ExitCode::from(ending::exit_code(&ended.ending, ended.comes_back))
}

fn boot(arguments: &Run, supervisor: &mut Supervisor) -> Result<Ended, PrepareError> {
    let rank = Rank::read(&arguments.place).map_err(|source| PrepareError::Rank { source })?;
    let layout = Layout::new(&arguments.place.root);
    let grace = Duration::from_secs(rank.plan.grace_seconds.into());
    let readiness = Readiness::default();
    let proof = LeadProof::read(&arguments.place, &rank.plan, rank.leads());
    serve(rank.plan.ready_port, readiness.clone(), proof.clone());
    let failures = check_restarts(&rank)?;
    // Without a Job nothing is restarted.
    let comes_back =
        rank.leads() && !arguments.stop_on_eof && failures < u64::from(rank.plan.restart_limit);
    let ended = |ending| Ok(Ended { ending, comes_back });
    configure(&rank, &layout, arguments)?;
    let pipe = layout.notices();
    let opened = notice::listen(&pipe);
    match opened {
        Ok(file) => supervisor.listen(pipe, file),
        Err(source) => return Err(PrepareError::Notices { path: pipe, source }),
    }
    let mut command = command(&rank, &layout, arguments)?;
    let child = supervisor.spawn(&mut command).map_err(|source| PrepareError::Spawn {
        program: PathBuf::from(command.get_program()),
        source,
    })?;
    let mut seen = Seen::default();
    let waited = supervisor.wait(child, &mut |notice| {
        readiness.take(&notice, rank.leads());
        if let (Notice::ProgramStarted, Some(ready)) = (&notice, &arguments.ready) {
            tell_ready(ready);
        }
        seen.take(notice);
    });
    let Waited::Ended(code) = waited else {
        // Workers that start now belong to the next lead.
        proof.iter().for_each(LeadProof::resign);
        // A lead that will be restarted must not shut down the instance: its workers would
        // take that as final and not reconnect.
        let comes_back =
            rank.leads() && !arguments.stop_on_eof && failures < u64::from(rank.plan.restart_limit);
        let lost = seen.broker.filter(|_| comes_back).and_then(Pid::from_raw);
        supervisor.stop(lost, grace);
        return ended(ending::stopped());
    };
    complete(&layout);
    let hook = Hooks::of(&rank).and_then(|_| hooks::current(&layout.hooks()));
    let child = Child { code, hook: hook.as_deref(), strict: rank.plan.logging.strict };
    if rank.leads() {
        return ended(seen.ending_of_lead(child));
    }
    if let Some(ending) = seen.ending_of_worker(child) {
        return ended(ending);
    }
    if arguments.stop_on_eof {
        // Without a Job a worker may complete, so there is nothing to wait for.
        return ended(worker_without_job(&seen));
    }
    // An index that exits with 0 is never restarted, so a lead that is restarted would wait
    // for it forever.
    supervisor.wait_for_stop();
    supervisor.stop(None, grace);
    ended(ending::stopped())
}

/// Writes a line to the file of a process that waits until the cluster is ready.
fn tell_ready(file: &Path) {
    let opened = std::fs::OpenOptions::new().append(true).open(file);
    let written = opened.and_then(|mut file| file.write_all(b"ready\n"));
    if let Err(error) = written {
        say(&format!("failed to report that the cluster is ready: {error}"));
    }
}

fn worker_without_job(seen: &Seen) -> Ending {
    match &seen.ended {
        Some((code, tail)) if *code != 0 => Ending {
            exit_code: *code,
            reason: EndingReason::BrokerFailed,
            message: format!("the broker exited with {code}: {tail}"),
        },
        _ => Ending { exit_code: 0, reason: EndingReason::Completed, message: String::new() },
    }
}

/// Answers other agents at [`path::LEAD`], and the kubelet at every other path.
fn serve(port: u16, readiness: Readiness, proof: Option<LeadProof>) {
    let answer = move |request: &Request<'_>| match &proof {
        Some(proof) if request.path == path::LEAD => proof.response(request.query),
        _ => readiness.response(),
    };
    if port != 0
        && let Err(error) = listener::serve(port, answer)
    {
        // The cluster can run without a readiness probe.
        say(&format!("failed to listen on port {port}: {error}"));
    }
}

/// How often the lead was lost. Fails if that exceeds the limit.
fn check_restarts(rank: &Rank) -> Result<u64, PrepareError> {
    if !rank.leads() {
        return Ok(0);
    }
    let counts =
        [variable::INDEX_FAILURES, variable::IGNORED_FAILURES].map(|name| std::env::var(name).ok());
    let failures = rank::failures([counts[0].as_deref(), counts[1].as_deref()]);
    let limit = rank.plan.restart_limit;
    if failures > u64::from(limit) {
        return Err(PrepareError::RestartLimit { failures, limit });
    }
    Ok(failures)
}

/// Writes all files that the broker, hooks and users' tools read.
fn configure(rank: &Rank, layout: &Layout, arguments: &Run) -> Result<(), PrepareError> {
    let write = |source| PrepareError::Write { source };
    layout.create(&rank.plan.hosts, arguments.private.as_deref()).map_err(write)?;
    let certificate = layout.certificate();
    secrets::copy_certificate(&arguments.place.secrets, &certificate)
        .map_err(|source| PrepareError::Certificate { source })?;
    let limit = std::env::var(variable::CPU_LIMIT).ok();
    let toml = config::broker_toml(rank, &certificate, cores::count(limit.as_deref()))
        .map_err(|source| PrepareError::Config { source })?;
    files::write(&layout.broker_config(), toml, 0o644).map_err(write)?;
    let output = PathBuf::from(&rank.plan.output_directory);
    if let Err(error) = files::create_directory(&output) {
        // Only some programs write there, and they will report the error.
        say(&chain(&error));
    }
    if !rank.plan.hooks.script.is_empty() {
        files::write(SCRIPT.as_ref(), &rank.plan.hooks.script, 0o755).map_err(write)?;
    }
    let changes = changes(rank, layout, arguments);
    let lookup = |name: &str| changes.get(name).cloned().or_else(|| environment::of_process(name));
    user_files::write(&rank.plan, layout, &lookup).map_err(write)?;
    if let Err(error) = view::link(&rank.plan, layout) {
        // Flux itself does not need the link.
        say(&format!("failed to link the view: {error}"));
    }
    user_files::mark(layout, "flux-operator-done.txt").map_err(write)
}

/// The command that the agent starts: the inner stage, or a shell that runs the hooks around it.
fn command(rank: &Rank, layout: &Layout, arguments: &Run) -> Result<Command, PrepareError> {
    let program = own_program::path().map_err(|source| PrepareError::Program { source })?;
    let mut stage = vec![program.to_string_lossy().into_owned(), "broker".to_owned()];
    stage.extend([arguments::AGENT.to_owned(), std::process::id().to_string()]);
    stage.extend(arguments.place.to_words());
    let changes = changes(rank, layout, arguments);
    let mut command = match Hooks::of(rank) {
        None => {
            let mut command = Command::new(&stage[0]);
            command.args(&stage[1..]);
            command
        }
        Some(hooks) => {
            let path = changes.get("PATH").cloned().or_else(|| environment::of_process("PATH"));
            let shell = search::shell(path.as_deref()).ok_or(PrepareError::NoShell)?;
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

fn changes(rank: &Rank, layout: &Layout, arguments: &Run) -> environment::Changes {
    let arguments::Place { flux, .. } = &arguments.place;
    environment::changes(&rank.plan, layout, flux.as_deref(), &environment::of_process)
}

fn complete(layout: &Layout) {
    if let Err(error) = user_files::mark(layout, "flux-operator-complete.txt") {
        say(&chain(&error));
    }
}
