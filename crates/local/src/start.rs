//! Starts the agents of a cluster.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_plan::{RunLocation, boot_plan};
use flux_operator_wire::names::{command, file, option};
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::flux::{FluxProgram, Programs};
use crate::instance::{Instance, InstanceError, write_private};
use crate::output::OutputForwarder;
use crate::request::RunRequest;

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file could not be written.
    #[error(transparent)]
    File(InstanceError),
    /// The system's random number generator failed.
    #[error("failed to generate a key")]
    Key,
    /// An agent could not be started.
    #[error("failed to start the agent of rank {rank}")]
    Agent {
        /// Its rank.
        rank: u32,
        /// Why.
        source: io::Error,
    },
}

/// Where the output of the lead goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// To the caller's own output.
    Inherited,
    /// To its log.
    Logged,
    /// To the caller's own output, each line prefixed with this name.
    Prefixed(String),
}

/// The agents of a cluster. They exit when this is dropped, because that closes their standard
/// input.
#[derive(Debug)]
pub(crate) struct Agents {
    /// In the order of their ranks: the lead, if there is one, is the first.
    pub(crate) children: Vec<Child>,
    /// For the lead: becomes readable when enough brokers are online. For a joiner, one for each
    /// broker: becomes readable when it is online.
    pub(crate) ready: Vec<File>,
    /// The lead's output, if its lines are prefixed.
    pub(crate) forwarder: Option<OutputForwarder>,
}

/// Writes the files and starts the agents.
pub(crate) fn start(
    instance: &Instance,
    request: &RunRequest,
    programs: &Programs,
    output: Output,
) -> Result<Agents, StartError> {
    write_files(instance, request)?;
    let names = write_programs(instance, programs).map_err(StartError::File)?;
    let mut ready = Vec::new();
    let mut children = Vec::new();
    for (index, rank) in request.ranks().iter().enumerate() {
        let mut command = agent_command(instance, request, programs, &names, index, rank);
        if rank == 0 || request.lender.is_some() {
            let pipe = instance.ready_pipe(rank);
            ready.push(make_pipe(&pipe).map_err(StartError::File)?);
            command.arg(option::READY).arg(pipe);
        }
        redirect(&mut command, instance, rank, &output)?;
        children.push(command.spawn().map_err(|source| StartError::Agent { rank, source })?);
    }
    let forwarder = match output {
        Output::Prefixed(name) => Some(OutputForwarder::spawn(&mut children[0], &name)),
        Output::Inherited | Output::Logged => None,
    };
    Ok(Agents { children, ready, forwarder })
}

fn write_files(instance: &Instance, request: &RunRequest) -> Result<(), StartError> {
    write_certificate(instance, request)?;
    let lead = request.lender.as_ref().unwrap_or(instance);
    let location = RunLocation::Machine {
        socket: lead.lead_socket().display().to_string(),
        output_directory: instance.output_directory().display().to_string(),
    };
    let plan = boot_plan(&request.cluster, &location);
    let plan = serde_json::to_vec_pretty(&plan).expect("a boot plan is JSON");
    let manifest = serde_json::to_vec(&*request.minicluster).expect("a MiniCluster is JSON");
    write_private(&instance.manifest_file(), &manifest).map_err(StartError::File)?;
    write_private(&instance.boot_plan_file(), &plan).map_err(StartError::File)
}

/// Writes a new certificate, or that of the instance that the brokers join.
fn write_certificate(instance: &Instance, request: &RunRequest) -> Result<(), StartError> {
    let path = instance.keys_directory().join(file::CERTIFICATE);
    if let Some(lender) = &request.lender {
        let source = lender.keys_directory().join(file::CERTIFICATE);
        let copied = std::fs::copy(&source, &path).map(drop);
        return copied.map_err(|error| {
            StartError::File(InstanceError::File { path: source, source: error })
        });
    }
    let key = SecretKey::from_os().map_err(|_| StartError::Key)?;
    let metadata = Metadata::new("flux-operator").map_err(|_| StartError::Key)?;
    let certificate = Certificate::new(key, metadata).to_secret_text();
    write_private(&path, certificate.as_bytes()).map_err(StartError::File)
}

/// Paths of the programs. Some are links to one program, which selects what to do by the name it is
/// called by.
struct ProgramPaths {
    agent: PathBuf,
    flux: PathBuf,
}

fn write_programs(instance: &Instance, programs: &Programs) -> Result<ProgramPaths, InstanceError> {
    let link = |target: &Path, name: &str| {
        let path = instance.programs_directory().join(name);
        symlink(target, &path)
            .map_err(|source| InstanceError::File { path: path.clone(), source })?;
        Ok(path)
    };
    let agent = link(&programs.agent, "flux-operator-agent")?;
    if let FluxProgram::BuiltIn(program) = &programs.flux {
        link(program, "flux")?;
    }
    Ok(ProgramPaths { agent, flux: flux_path(instance, programs) })
}

/// The path at which the program `flux` of an instance is called.
pub(crate) fn flux_path(instance: &Instance, programs: &Programs) -> PathBuf {
    match &programs.flux {
        FluxProgram::Installed(program) => program.clone(),
        FluxProgram::BuiltIn(_) => instance.programs_directory().join("flux"),
    }
}

fn agent_command(
    instance: &Instance,
    request: &RunRequest,
    programs: &Programs,
    paths: &ProgramPaths,
    index: usize,
    rank: u32,
) -> Command {
    let mut agent = Command::new(&paths.agent);
    agent
        .arg(command::RUN)
        .arg(option::PLAN)
        .arg(instance.boot_plan_file())
        .arg(option::SECRETS)
        .arg(instance.keys_directory())
        .arg(option::ROOT)
        .arg(instance.rank_directory(rank))
        .arg(option::INDEX)
        .arg(index.to_string())
        .arg(option::FLUX)
        .arg(&paths.flux)
        .arg(option::TERMINATION)
        .arg(instance.termination_file(rank))
        .arg(option::STOP_ON_EOF);
    agent.envs(&request.runner.environment);
    agent.env("PATH", search_path(instance, programs));
    let directory = Path::new(&request.runner.working_dir);
    if directory.is_dir() {
        agent.current_dir(directory);
    }
    // A process group of its own: ^C reaches only the supervisor, which then stops the cluster.
    agent.process_group(0);
    agent
}

/// `PATH` with the Flux of this cluster first, so that the command finds the same `flux`.
fn search_path(instance: &Instance, programs: &Programs) -> std::ffi::OsString {
    let first = match &programs.flux {
        FluxProgram::Installed(program) => program.parent().map(Path::to_owned).unwrap_or_default(),
        FluxProgram::BuiltIn(_) => instance.programs_directory(),
    };
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let rest = std::env::split_paths(&rest).collect::<Vec<_>>();
    std::env::join_paths(std::iter::once(first).chain(rest)).unwrap_or_default()
}

fn redirect(
    command: &mut Command,
    instance: &Instance,
    rank: u32,
    output: &Output,
) -> Result<(), StartError> {
    command.stdin(Stdio::piped());
    match output {
        Output::Inherited if rank == 0 => return Ok(()),
        Output::Prefixed(_) if rank == 0 => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            return Ok(());
        }
        _ => {}
    }
    let path = instance.log_file(rank);
    let failed = |source| StartError::File(InstanceError::File { path: path.clone(), source });
    let log = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
    command.stdout(log.try_clone().map_err(failed)?).stderr(log);
    Ok(())
}

/// A named pipe, opened for reading and writing so that reading never returns end of file.
fn make_pipe(path: &Path) -> Result<File, InstanceError> {
    let failed = |source| InstanceError::File { path: path.to_owned(), source };
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).map_err(|error| failed(error.into()))?;
    OpenOptions::new().read(true).write(true).open(path).map_err(failed)
}
