//! Benchmarks operators: the rate at which they create MiniClusters, their resource usage, and the
//! time for a single MiniCluster and for one that joins another.
//!
//! ```text
//! under_test ──► bench_testbed ──► throughput │ bringup │ connect │ gateway │ burst ──► summary ──► limits
//!                                     queue ─────────────────────────────────────────┘
//! ```
//!
//! An operator is just a shell command, so any operator can be compared with ours. Machines differ
//! and are noisy; only ratios within one run are meaningful. So everything is compared with the
//! optimum of the machine (a bare client, a bare Job, Flux alone), and operators are measured
//! alternately.

mod audit;
mod bench_testbed;
mod bringup;
mod burst;
mod connect;
mod flux_alone;
mod gateway;
mod limits;
mod manifest;
mod node_stage;
mod queue;
mod summary;
mod throughput;
mod under_test;
mod usage;
mod waiting;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use flux_operator_testbed::{SupervisorArguments, supervise};
use serde::Serialize;

use crate::summary::Measures;

#[derive(Parser)]
#[command(name = "bench", about = "Measure operators and compare them")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Many MiniClusters at once, on a control plane without nodes
    Throughput {
        #[command(flatten)]
        throughput: throughput::Options,
        #[command(flatten)]
        common: BenchArguments,
    },
    /// One MiniCluster after the other, on a real node (needs root)
    Bringup {
        #[command(flatten)]
        bringup: bringup::Options,
        #[command(flatten)]
        common: BenchArguments,
    },
    /// One MiniCluster that joins another, on a real node (needs root)
    Connect {
        #[command(flatten)]
        connect: connect::Options,
        #[command(flatten)]
        common: BenchArguments,
    },
    /// Brokers of another Kubernetes cluster that join by the gateway, on two real nodes (needs root)
    Gateway {
        #[command(flatten)]
        gateway: gateway::Options,
        #[command(flatten)]
        common: BenchArguments,
    },
    /// Decisions about pending jobs, and bursts for them on a real node (needs root)
    Burst {
        #[command(flatten)]
        burst: burst::Options,
        #[command(flatten)]
        common: BenchArguments,
    },
    /// Many jobs in queues, with the loads of Kueue's scalability test
    Queue {
        #[command(flatten)]
        queue: queue::Options,
        #[command(flatten)]
        common: BenchArguments,
    },
    /// All of these
    All {
        #[command(flatten)]
        throughput: throughput::Options,
        #[command(flatten)]
        bringup: bringup::Options,
        #[command(flatten)]
        connect: connect::Options,
        #[command(flatten)]
        gateway: gateway::Options,
        #[command(flatten)]
        burst: burst::Options,
        #[command(flatten)]
        queue: queue::Options,
        #[command(flatten)]
        common: BenchArguments,
    },
    /// Run a testbed in the foreground; used by this program itself
    #[command(hide = true)]
    Supervise(SupervisorArguments),
}

#[derive(clap::Args)]
struct BenchArguments {
    #[command(flatten)]
    operators: under_test::Options,

    /// Write all measurements as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Fail if a measurement is outside the limits in this file
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

/// What to measure.
#[derive(Default)]
struct Selection {
    throughput: Option<throughput::Options>,
    bringup: Option<bringup::Options>,
    connect: Option<connect::Options>,
    gateway: Option<gateway::Options>,
    burst: Option<burst::Options>,
    queue: Option<queue::Options>,
}

/// All measurements.
#[derive(Serialize, Default)]
struct Figures {
    throughput: Option<throughput::Figures>,
    bringup: Option<bringup::Figures>,
    connect: Option<connect::Figures>,
    gateway: Option<gateway::Figures>,
    burst: Option<burst::Figures>,
    queue: Option<queue::Figures>,
    /// The same by name, for limits.
    measures: Measures,
}

fn main() -> ExitCode {
    let outcome = match CommandLine::parse().command {
        Command::Supervise(supervision) => return supervise(supervision),
        Command::Throughput { throughput, common } => {
            run(&Selection { throughput: Some(throughput), ..Selection::default() }, &common)
        }
        Command::Bringup { bringup, common } => {
            run(&Selection { bringup: Some(bringup), ..Selection::default() }, &common)
        }
        Command::Connect { connect, common } => {
            run(&Selection { connect: Some(connect), ..Selection::default() }, &common)
        }
        Command::Gateway { gateway, common } => {
            run(&Selection { gateway: Some(gateway), ..Selection::default() }, &common)
        }
        Command::Burst { burst, common } => {
            run(&Selection { burst: Some(burst), ..Selection::default() }, &common)
        }
        Command::Queue { queue, common } => {
            run(&Selection { queue: Some(queue), ..Selection::default() }, &common)
        }
        Command::All { throughput, bringup, connect, gateway, burst, queue, common } => {
            let (throughput, bringup) = (Some(throughput), Some(bringup));
            let (connect, gateway) = (Some(connect), Some(gateway));
            let (burst, queue) = (Some(burst), Some(queue));
            run(&Selection { throughput, bringup, connect, gateway, burst, queue }, &common)
        }
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(selection: &Selection, common: &BenchArguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let figures = runtime.block_on(async {
        // An interrupt drops everything that was started, which stops it.
        tokio::select! {
            figures = measure(selection, &common.operators) => figures,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        }
    })?;
    if let Some(file) = &common.json {
        write_json(file, &figures)?;
    }
    match &common.check {
        Some(file) => limits::check(file, &figures.measures),
        None => Ok(ExitCode::SUCCESS),
    }
}

async fn measure(parts: &Selection, contestants: &under_test::Options) -> Result<Figures> {
    let Selection { throughput, bringup, connect, gateway, burst, queue } = parts;
    let operators = match (throughput, bringup, connect) {
        (None, None, None) => Vec::new(),
        _ => contestants.operators()?,
    };
    let mut figures = Figures::default();
    if let Some(options) = throughput {
        let found = throughput::measure(options, &operators).await?;
        print!("{}", found.table());
        figures.measures.extend(found.measures());
        figures.throughput = Some(found);
    }
    if let Some(options) = bringup {
        let found = bringup::measure(options, &operators).await?;
        print!("{}", found.table());
        figures.measures.extend(found.measures());
        figures.bringup = Some(found);
    }
    if let Some(options) = connect {
        let found = connect::measure(options, &operators).await?;
        print!("{}", found.table());
        figures.measures.extend(found.measures());
        figures.connect = Some(found);
    }
    if let Some(options) = gateway {
        let found = gateway::measure(options).await?;
        print!("{}", found.table());
        figures.measures.extend(found.measures());
        figures.gateway = Some(found);
    }
    if let Some(options) = burst {
        let found = burst::measure(options).await?;
        print!("{}", found.table());
        figures.measures.extend(found.measures());
        figures.burst = Some(found);
    }
    if let Some(options) = queue {
        let found = queue::measure(options).await?;
        print!("{}", found.table());
        figures.measures.extend(found.measures());
        figures.queue = Some(found);
    }
    Ok(figures)
}

fn write_json(file: &Path, figures: &Figures) -> Result<()> {
    let text = serde_json::to_string_pretty(figures).context("failed to write the figures")?;
    std::fs::write(file, text + "\n").with_context(|| format!("failed to write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        CommandLine::command().debug_assert();
    }
}
