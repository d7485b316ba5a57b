//! `flux-operator`: the program. One file per command.

mod crd;
mod input;
mod validate;

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
    Validate(validate::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Crd(arguments) => crd::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("flux-operator: {error:#}");
        ExitCode::FAILURE
    })
}
