//! `flux-operator local hold`: the supervisor process of a cluster that stays up. Started by `up`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use crate::input;

use super::{SourceArguments, home, parse_request, programs};

/// Supervise a MiniCluster that stays up; prints `ready` once it is.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let file = &arguments.source.filename;
    let request = parse_request(file, &input::read_bytes(file)?)?;
    let programs = programs(arguments.source.flux_root.as_deref())?;
    let instance = home()?.instance(request.name());
    let code = flux_operator_local::supervise(&instance, &request, &programs, |_| {
        // The process that started this one may have exited; the cluster stays up nevertheless.
        let _ = writeln!(std::io::stdout(), "ready");
    })?;
    Ok(ExitCode::from(code))
}
