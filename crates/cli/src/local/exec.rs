//! `flux-operator local exec`: run a command in a running MiniCluster.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use super::home;

/// Run a command as a client of a MiniCluster, such as `flux submit`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the MiniCluster.
    name: String,

    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<std::ffi::OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let instance = home()?.instance(&arguments.name);
    let record = instance.record()?;
    let flux_directory = record.flux.parent().map(PathBuf::from).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [instance.programs_directory(), flux_directory]
        .into_iter()
        .chain(std::env::split_paths(&path).collect::<Vec<_>>());
    // Replaces this process, so that exit code and signals are the command's own.
    let error = Command::new(&arguments.command[0])
        .args(&arguments.command[1..])
        .env("FLUX_URI", instance.uri(record.first_rank()))
        .env("PATH", std::env::join_paths(path)?)
        .exec();
    Err(error).with_context(|| format!("failed to run {:?}", arguments.command[0]))
}
