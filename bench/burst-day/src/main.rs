//! Simulates a day of a cluster that bursts, and prints figures or writes the documentation of them.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use flux_operator_burst_day::figures::table;
use flux_operator_burst_day::{SEED, docs};

/// Simulates a day of a cluster that bursts: never, for every job, and by a policy.
#[derive(Parser)]
struct Args {
    /// The seed of all randomness: another one gives another day.
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Write pictures and tables into this folder of documentation, instead of printing a table.
    #[arg(long)]
    docs: Option<PathBuf>,
}

fn main() -> Result<()> {
    let Args { seed, docs: folder } = Args::parse();
    let Some(folder) = folder else {
        print!("{}", table(&docs::runs(seed)));
        return Ok(());
    };
    for (name, text) in docs::files(&folder, &docs::days(seed))? {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("failed to create {parent:?}"))?;
        }
        std::fs::write(&path, text).with_context(|| format!("failed to write {path:?}"))?;
    }
    Ok(())
}
