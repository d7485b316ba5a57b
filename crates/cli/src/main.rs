//! `flux-operator`: the program. One file per command.
//!
//! It is several programs, told apart by the name it is called: local mode calls
//! it as the agent, and as `flux` where the machine has none; kubectl calls it as
//! `kubectl-minicluster`.

mod crd;
mod input;
mod kubectl;
mod local;
mod manifests;
mod render;
mod run;
mod validate;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Flux Framework clusters in Kubernetes.
#[derive(Parser)]
#[command(name = "flux-operator", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Crd(crd::Arguments),
    Local(local::Arguments),
    Manifests(manifests::Arguments),
    Render(render::Arguments),
    Run(run::Arguments),
    Validate(validate::Arguments),
}

fn main() -> ExitCode {
    let name = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    match name.file_name().and_then(OsStr::to_str) {
        Some("flux-operator-agent") => flux_operator_agent::main(),
        Some("flux") => fluxlet::main(std::env::args_os()),
        Some("kubectl-minicluster") => kubectl::main(),
        _ => flux_operator(),
    }
}

fn flux_operator() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Crd(arguments) => crd::run(&arguments),
        Command::Local(arguments) => local::run(arguments),
        Command::Manifests(arguments) => manifests::run(&arguments),
        Command::Render(arguments) => render::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("flux-operator: {error:#}");
        ExitCode::FAILURE
    })
}
