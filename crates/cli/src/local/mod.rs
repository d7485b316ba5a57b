//! `flux-operator local`: MiniClusters as processes on this machine.

mod exec;
mod hold;
mod ps;
mod run;
mod up;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use flux_operator_api::MiniCluster;
use flux_operator_api::manifest::Document;
use flux_operator_api::validate::Validate;
use flux_operator_local::{ConnectedRequest, FluxProgram, Home, Programs};

use crate::input;

/// Run MiniClusters on this machine, without Kubernetes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(run::Arguments),
    Up(up::Arguments),
    Ps(ps::Arguments),
    Exec(exec::Arguments),
    Logs(ps::LogsArguments),
    Down(ps::DownArguments),
    #[command(hide = true)]
    Hold(hold::Arguments),
}

/// The manifest to run, and the Flux to use.
#[derive(clap::Args)]
struct SourceArguments {
    /// Manifest of the MiniCluster; `-` is standard input.
    #[arg(short, long = "filename", value_name = "FILE")]
    filename: PathBuf,

    /// Prefix of an installed Flux. Default: `flux` in PATH, else the built-in fluxlet.
    #[arg(long, env = "FLUX_ROOT", value_name = "PREFIX")]
    flux_root: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Up(arguments) => up::run(&arguments),
        Command::Ps(arguments) => ps::run(&arguments),
        Command::Exec(arguments) => exec::run(&arguments),
        Command::Logs(arguments) => ps::logs(&arguments),
        Command::Down(arguments) => ps::down(&arguments),
        Command::Hold(arguments) => hold::run(&arguments),
    }
}

fn home() -> Result<Home> {
    let home = Home::find(|name| std::env::var_os(name))?;
    // This also removes what killed supervisors left behind.
    home.instances()?;
    Ok(home)
}

fn programs(flux_root: Option<&Path>) -> Result<Programs> {
    let this = std::env::current_exe().context("failed to find this program")?;
    if let Some(root) = flux_root.filter(|root| !root.join("bin/flux").is_file()) {
        bail!(
            "there is no bin/flux below {}: give the prefix of an installed Flux",
            root.display()
        );
    }
    let search_path = without_self(&this, &std::env::var_os("PATH").unwrap_or_default())?;
    let search_path = Some(search_path.as_os_str()).filter(|path| !path.is_empty());
    let flux = FluxProgram::find(flux_root, search_path, &this);
    flux.check()?;
    Ok(Programs { agent: this, flux })
}

/// A search path without the directories in which `flux` is a link to this program, as in a shell
/// of `local exec`. It is not an installed Flux, and must not hide one.
fn without_self(this: &Path, search_path: &OsStr) -> Result<OsString> {
    let is_this = |folder: &PathBuf| {
        folder.join("flux").canonicalize().is_ok_and(|flux| this.canonicalize().ok() == Some(flux))
    };
    let folders = std::env::split_paths(search_path).filter(|folder| !is_this(folder));
    std::env::join_paths(folders).context("failed to read the search path")
}

/// The MiniClusters of a manifest, if some of them join others.
fn connected(home: &Home, documents: &[Document]) -> Result<Option<ConnectedRequest>> {
    let miniclusters: Vec<MiniCluster> = input::objects_of_kind(documents)?;
    if !miniclusters.iter().any(|minicluster| minicluster.spec.is_joiner()) {
        return Ok(None);
    }
    let mut kinds = documents.iter().filter_map(Document::kind);
    if let Some(other) = kinds.find(|kind| *kind != MiniCluster::KIND) {
        bail!(
            "MiniClusters that join others cannot be in one file with a {other}\n\
             hint: put the MiniClusters in a file of their own"
        );
    }
    Ok(Some(ConnectedRequest::new(home, miniclusters)?))
}
