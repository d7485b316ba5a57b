//! `flux-operator local run`: run a MiniCluster, or the jobs of a queue, to completion.

use std::process::ExitCode;

use anyhow::Result;
use flux_operator_api::MiniCluster;
use flux_operator_api::validate::{self, Validate};
use flux_operator_local::{JobBatch, Progress, RunRequest};
use jiff::Timestamp;

use crate::input;

use super::{SourceArguments, connected, home, programs};

/// Run a MiniCluster to completion. Its output and its exit code become those of this program.
///
/// MiniClusters that join another one in the same manifest run until that one's command has
/// finished.
///
/// A manifest with FluxJobs and their FluxSetup is run as a queue: each job starts when there is
/// quota for it, each line of its output is prefixed with its name, and the exit code is the
/// highest of all jobs.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,

    /// Print only the output of the command.
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let progress = Progress::start(arguments.quiet);
    let file = &arguments.source.filename;
    let documents = input::parse_without_secrets(file, &input::read_bytes(file)?)?;
    let programs = programs(arguments.source.flux_root.as_deref())?;
    let home = home()?;
    if let Some(mut request) = connected(&home, &documents)? {
        if arguments.quiet {
            request.silence();
        }
        let code = flux_operator_local::run_connected(&home, &request, &programs, &progress)?;
        return Ok(ExitCode::from(code));
    }
    let code = match documents.as_slice() {
        [document] if document.kind() == Some(MiniCluster::KIND) => {
            let mut request = RunRequest::new(validate::read_minicluster(&document.value)?)?;
            if arguments.quiet {
                request.silence();
            }
            flux_operator_local::run(&home, &request, &programs, &progress)?
        }
        documents => {
            let (setups, jobs) =
                (input::objects_of_kind(documents)?, input::objects_of_kind(documents)?);
            let batch =
                JobBatch::new(setups, jobs, input::objects_of_kind(documents)?, Timestamp::now())?;
            flux_operator_local::run_batch(&home, batch, &programs, &progress)?
        }
    };
    Ok(ExitCode::from(code))
}
