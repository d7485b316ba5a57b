//! The first process of every runner container, and of every rank on one
//! machine: it boots one broker from the cluster's boot plan, supervises it, and
//! reports how it exited.
//!
//! It starts in milliseconds, needs nothing from the image but the programs it
//! runs, and is linked statically. So it must never load libraries at run time:
//! it does not use the C library's name service, neither for hosts nor for users.
//! It must never know Kubernetes' API; what it needs from there is in the plan
//! and in environment variables. Secrets are in files, and never in an argument,
//! a variable, a message or a notice.

mod archive;
mod arguments;
mod backoff;
mod batch;
mod blocked;
mod broker;
mod broker_arguments;
mod broker_process;
mod config;
mod connection;
mod connection_watch;
mod copy;
mod copy_view;
mod cores;
mod dns;
mod drain;
mod endpoint;
mod environment;
mod files;
mod flux_command;
mod flux_version;
mod hand_over;
mod hooks;
mod http;
mod join;
mod launcher;
mod layout;
mod lead_proof;
mod lead_search;
mod lead_watch;
mod listener;
mod listing_schedule;
mod nonce;
mod notice;
mod operator_client;
mod own_program;
mod pending;
mod processes;
mod program;
mod rank_plan;
mod ready;
mod remote_lead;
mod report;
mod run;
mod run_job;
mod search_path;
mod secrets;
mod sidecar;
mod signals;
mod supervisor;
mod tail;
mod termination;
mod user_files;
mod view;
mod work;

pub use cores::count as count_cores;
pub use drain::Drainer;
pub use flux_command::FluxCommand;
pub use flux_version::VersionQuery;
pub use pending::PendingJobs;

use std::process::ExitCode;

use arguments::Command;
use flux_operator_wire::names::variable;

/// The exit code for invalid arguments (EX_USAGE).
const USAGE_ERROR: u8 = 64;

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let job_index = std::env::var(variable::JOB_INDEX).ok();
    match arguments::parse(std::env::args_os().skip(1), job_index.as_deref()) {
        Ok(Command::Run(arguments)) => run::run(&arguments),
        Ok(Command::Broker(stage)) => broker::run(&stage),
        Ok(Command::Program(stage)) => program::run(&stage),
        Ok(Command::Sidecar(arguments)) => sidecar::run(&arguments),
        Ok(Command::Await(socket)) => sidecar::await_socket(&socket),
        Ok(Command::RunJob(arguments)) => run_job::run(&arguments),
        Ok(Command::Copy(directory)) => copy::run(&directory),
        Ok(Command::CopyView(directory)) => copy_view::run(&directory),
        Ok(Command::Version) => {
            println!("flux-operator-agent {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Command::Help) => {
            print!("{}", arguments::USAGE);
            ExitCode::SUCCESS
        }
        Err(error) => {
            termination::log(&termination::error_chain(&error));
            termination::log("hint: run with --help for usage");
            ExitCode::from(USAGE_ERROR)
        }
    }
}
