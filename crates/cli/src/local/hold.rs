//! `flux-operator local hold`: the supervisor process of a cluster that stays up. Started by `up`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use flux_operator_local::{Record, RunRequest};

use crate::input;

use super::{SourceArguments, home, programs};

/// Supervise a MiniCluster that stays up; prints `ready` once it is.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let file = &arguments.source.filename;
    let documents = input::parse_checked(file, &input::read_bytes(file)?)?;
    let minicluster = input::only_minicluster(file, &documents, ", and one can be supervised")?;
    let programs = programs(arguments.source.flux_root.as_deref())?;
    let home = home()?;
    let ready = |_: &Record| {
        // The process that started this one may have exited; the cluster stays up nevertheless.
        let _ = writeln!(std::io::stdout(), "ready");
    };
    let code = if minicluster.spec.is_joiner() {
        flux_operator_local::join(&home, minicluster, &programs, ready)?
    } else {
        let request = RunRequest::new(minicluster)?;
        let instance = home.instance(request.name());
        flux_operator_local::supervise(&instance, &request, &programs, ready)?
    };
    Ok(ExitCode::from(code))
}
