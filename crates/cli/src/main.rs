//! `flux-operator`: the program. One file per command.
//!
//! It is several programs, selected by the name under which it is called: local mode calls it as
//! the agent, and as `flux` if Flux is not installed; kubectl calls it as `kubectl-minicluster`.

// `println!` and `eprintln!` panic on a closed pipe; use `print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod burst;
mod burst_controller;
mod connection;
mod crd;
mod gateway;
mod image;
mod input;
mod kubectl;
mod local;
mod manifests;
mod named_secrets;
mod number;
mod print;
mod render;
mod run;
mod service;
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
    Burst(burst::Arguments),
    BurstController(burst_controller::Arguments),
    Crd(crd::Arguments),
    Gateway(gateway::Arguments),
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
        Command::Burst(arguments) => burst::run(&arguments),
        Command::BurstController(arguments) => burst_controller::run(&arguments),
        Command::Crd(arguments) => crd::run(&arguments),
        Command::Gateway(arguments) => gateway::run(&arguments),
        Command::Local(arguments) => local::run(arguments),
        Command::Manifests(arguments) => manifests::run(&arguments),
        Command::Render(arguments) => render::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments),
    };
    outcome.unwrap_or_else(|error| print::failure("flux-operator", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    #[test]
    fn commands_in_the_documentation_can_be_parsed() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let folders = ["guide", "concepts"].map(|name| format!("{root}/docs/{name}"));
        let pages = folders.into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let pages = pages.map(|file| file.unwrap().path());
        let mut count = 0;
        for file in pages.chain([format!("{root}/README.md").into()]) {
            let text = std::fs::read_to_string(&file).unwrap();
            for line in text.lines().filter_map(|line| line.strip_prefix("$ ")) {
                // Comments, redirections and the rest of a pipe are ignored.
                let is_of_command = |word: &&str| !["#", "|", ">", "&"].contains(word);
                let words = line.split_whitespace().take_while(is_of_command);
                let words: Vec<&str> = words.collect();
                let parsed = match words.as_slice() {
                    ["flux-operator", ..] => Arguments::try_parse_from(&words).map(drop),
                    ["kubectl", "minicluster", ..] => kubectl::try_parse(&words[1..]),
                    _ => continue,
                };
                let understood = match &parsed {
                    Ok(()) => true,
                    Err(error) => error.kind() == ErrorKind::DisplayHelp,
                };
                assert!(understood, "{}: {line}: {parsed:?}", file.display());
                count += 1;
            }
        }
        assert!(count > 10, "only {count} commands in the documents");
    }
}
