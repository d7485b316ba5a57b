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

    /// The rank. Default: its first one, which is 0 unless it joins another MiniCluster.
    #[arg(long)]
    rank: Option<u32>,
}

/// Stop a MiniCluster, and those that have joined it.
#[derive(clap::Args)]
pub(crate) struct DownArguments {
    /// Name of the MiniCluster.
    name: String,
}

pub(crate) fn run(_: &Arguments) -> Result<ExitCode> {
    let titles = ("NAME", "SIZE", "STATUS", "AGE", "JOINS");
    let mut text = row(titles, "FLUX");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    for instance in home()?.instances()? {
        let Ok(record) = instance.record() else { continue };
        let status = if record.ready { "Ready" } else { "Starting" };
        let age = format!("{}s", now.saturating_sub(record.started));
        let joins = record.joins.map(|it| format!("{} ({})", it.lender, it.ranks));
        let (size, joins) = (record.size.to_string(), joins.unwrap_or_else(|| "-".into()));
        let flux = record.flux.display().to_string();
        text += &row((instance.name(), &size, status, &age, &joins), &flux);
    }
    print::output(text)?;
    Ok(ExitCode::SUCCESS)
}

fn row((name, size, status, age, joins): (&str, &str, &str, &str, &str), flux: &str) -> String {
    format!("{name:<24} {size:>5} {status:<9} {age:>8}  {joins:<20} {flux}\n")
}

pub(crate) fn logs(arguments: &LogsArguments) -> Result<ExitCode> {
    let path = flux_operator_local::rank_log(&home()?, &arguments.name, arguments.rank)?;
    let mut log = std::fs::File::open(&path)
        .with_context(|| format!("there is no log {}", path.display()))?;
    std::io::copy(&mut log, &mut std::io::stdout()).map_err(print::write_error)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(arguments: &DownArguments) -> Result<ExitCode> {
    let home = home()?;
    let instance = home.instance(&arguments.name);
    let supervisor = instance.record()?.supervisor;
    for joiner in home.joiners_of(instance.name())? {
        // In `local run` all of them have one supervisor.
        if joiner.record().is_ok_and(|record| record.supervisor != supervisor) {
            print::message(format_args!(
                "{} joins {}: it is stopped too",
                joiner.name(),
                instance.name()
            ));
            // It may have exited meanwhile, and is then not running any more.
            let _ = joiner.stop();
        }
    }
    instance.stop()?;
    Ok(ExitCode::SUCCESS)
}
