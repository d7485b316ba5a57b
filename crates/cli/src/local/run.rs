//! `flux-operator local run`: run a MiniCluster to its end.

use std::process::ExitCode;

use anyhow::Result;
use flux_operator_local::Progress;

use crate::input;

use super::{Source, home, programs, request};

/// Run a MiniCluster to its end. Its output is this program's, and so is its
/// exit code.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,

    /// Show nothing but what the command prints.
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let progress = Progress::start(arguments.quiet);
    let file = &arguments.source.filename;
    let mut request = request(file, &input::bytes(file)?)?;
    if arguments.quiet {
        request.quieten();
    }
    let programs = programs(arguments.source.flux_root.as_deref())?;
    let code = flux_operator_local::run(&home()?, &request, &programs, &progress)?;
    Ok(ExitCode::from(code))
}
