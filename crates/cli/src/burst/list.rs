//! `flux-operator burst list`: list the Bursts of the instance of this machine.

use std::process::ExitCode;

use anyhow::{Context, Result};
use flux_operator_burst_controller::bursts_in;

use super::ConfigArguments;
use crate::kubectl::burst_table;
use crate::print;

/// List the Bursts of the Flux instance of this machine: what they are doing, their nodes, and what these
/// have used.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let bursts = bursts_in(&arguments.config.records()).context("failed to list Bursts")?;
    if bursts.is_empty() {
        print::message(format_args!(
            "There are no Bursts in {}.",
            arguments.config.records().display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    print::output(burst_table(&bursts))?;
    Ok(ExitCode::SUCCESS)
}
