//! `flux-operator burst list`: list the Bursts of the instance of this machine.

use std::process::ExitCode;

use anyhow::{Result, bail};
use flux_operator_burst_controller::bursts_in;

use super::ConfigArguments;
use super::run::of_records;
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
    let (records, file) = (arguments.config.records(), arguments.config.file());
    if !records.is_dir() && !file.is_file() {
        bail!(
            "there is neither {records:?}, which has the records of Bursts, nor {file:?}\n\
             hint: give --config-path DIRECTORY, the folder that `flux start` and `flux-operator burst` got"
        );
    }
    let bursts = bursts_in(&records).map_err(of_records)?;
    if bursts.is_empty() {
        print::message(format_args!("There are no Bursts in {}.", records.display()));
        return Ok(ExitCode::SUCCESS);
    }
    print::output(burst_table(&bursts))?;
    Ok(ExitCode::SUCCESS)
}
