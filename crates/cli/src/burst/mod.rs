//! `flux-operator burst`: nodes of other clusters for the Flux instance of this machine.

mod init;
mod list;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Get nodes of other Kubernetes clusters for jobs of a Flux instance that is not in Kubernetes, as
/// BurstPolicies say, and give them back.
///
/// `flux-operator burst init` writes the configuration of an instance that others can join. Ctrl-C gives
/// everything back; a second Ctrl-C leaves it, and the next call continues.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: run::RunArguments,
}

#[derive(clap::Subcommand)]
enum Command {
    Init(init::Arguments),
    List(list::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Some(Command::Init(arguments)) => init::run(arguments),
        Some(Command::List(arguments)) => list::run(arguments),
        None => run::run(&arguments.run),
    }
}

/// The folder of an instance's configuration.
#[derive(clap::Args)]
struct ConfigArguments {
    /// Folder with the instance's broker.toml: what `flux start --config-path` gets.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    config_path: PathBuf,
}

impl ConfigArguments {
    /// The broker.toml.
    fn file(&self) -> PathBuf {
        self.config_path.join(BROKER_TOML)
    }

    /// The folder with the records of Bursts.
    fn records(&self) -> PathBuf {
        self.config_path.join("bursts")
    }
}

/// The file with the configuration.
const BROKER_TOML: &str = "broker.toml";

/// The absolute path of a folder that exists.
fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("failed to find the folder {path:?}"))
}
