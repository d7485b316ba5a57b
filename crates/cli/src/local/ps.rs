//! `flux-operator local ps`, `logs` and `down`.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::home;
use crate::print;

/// List the running MiniClusters of this machine.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Print the log of a rank of a MiniCluster.
#[derive(clap::Args)]
pub(crate) struct LogsArguments {
    /// Name of the MiniCluster.
    name: String,

    /// The rank.
    #[arg(long, default_value_t = 0)]
    rank: u32,
}

/// Stop a MiniCluster.
#[derive(clap::Args)]
pub(crate) struct DownArguments {
    /// Name of the MiniCluster.
    name: String,
}

pub(crate) fn run(_: &Arguments) -> Result<ExitCode> {
    let mut text = format!("{:<24} {:>5} {:<9} {:>8}  FLUX\n", "NAME", "SIZE", "STATUS", "AGE");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    for instance in home()?.instances()? {
        let Ok(record) = instance.record() else { continue };
        let status = if record.ready { "Ready" } else { "Starting" };
        let age = format!("{}s", now.saturating_sub(record.started));
        let flux = record.flux.display();
        let (name, size) = (instance.name(), record.size);
        text += &format!("{name:<24} {size:>5} {status:<9} {age:>8}  {flux}\n");
    }
    print::output(text)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn logs(arguments: &LogsArguments) -> Result<ExitCode> {
    let instance = home()?.instance(&arguments.name);
    instance.record()?;
    let path = instance.log_file(arguments.rank);
    let mut log = std::fs::File::open(&path)
        .with_context(|| format!("rank {} has no log", arguments.rank))?;
    std::io::copy(&mut log, &mut std::io::stdout()).map_err(print::write_error)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(arguments: &DownArguments) -> Result<ExitCode> {
    home()?.instance(&arguments.name).stop()?;
    Ok(ExitCode::SUCCESS)
}
