//! `kubectl minicluster`: MiniClusters from the command line. One file per command.
//!
//! Plain functions over a MiniCluster and its pods (`manifest`, `outcome`, `pods`, `rank_pod`,
//! `table`, `pod_commands`) and over queues (`view`, `explanation`) decide what to show, run and
//! return; the commands query the API server and act. To wait, they watch objects.

mod burst;
mod create;
mod delete;
mod duration;
mod exec;
mod explanation;
mod follow;
mod invite;
mod job_output;
mod list;
mod listing;
mod logs;
mod manifest;
mod outcome;
mod output_format;
mod pod_commands;
mod pods;
mod printed_list;
mod progress;
mod queue;
mod rank_pod;
mod ranks;
mod session;
mod shell;
mod stop;
mod submit;
mod table;
mod target;
mod terminal;
mod view;
mod watch;
mod why;

pub(crate) use burst::burst_table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::print;
use session::Session;

/// Run Flux clusters in Kubernetes.
#[derive(Parser)]
#[command(
    name = "kubectl-minicluster",
    bin_name = "kubectl minicluster",
    version,
    arg_required_else_help = true
)]
struct Arguments {
    #[command(flatten)]
    connection: Connection,

    #[command(subcommand)]
    command: Command,
}

/// The cluster and namespace, selected as in kubectl.
#[derive(clap::Args)]
struct Connection {
    /// Namespace to work in. Default: the one of the kubeconfig's context.
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Context of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,

    /// Kubeconfig file to use.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    Burst(burst::Arguments),
    Create(create::Arguments),
    Delete(delete::Arguments),
    Invite(invite::Arguments),
    Jobs(burst::jobs::Arguments),
    #[command(visible_alias = "ls")]
    List(list::Arguments),
    Logs(logs::Arguments),
    Queue(queue::Arguments),
    Ranks(ranks::Arguments),
    Resume(stop::ResumeArguments),
    Shell(shell::Arguments),
    Stop(stop::Arguments),
    Submit(submit::Arguments),
    Why(why::Arguments),
}

/// The plugin's `main`.
pub(crate) fn main() -> ExitCode {
    run(Arguments::parse()).unwrap_or_else(|error| print::failure("error", &error))
}

/// Whether the plugin can parse a command line.
#[cfg(test)]
pub(crate) fn try_parse(words: &[&str]) -> Result<(), clap::Error> {
    Arguments::try_parse_from(words).map(drop)
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let outcome = runtime.block_on(execute(arguments));
    // A pending read of standard input cannot be cancelled.
    runtime.shutdown_background();
    outcome
}

async fn execute(arguments: Arguments) -> Result<ExitCode> {
    let connection = &arguments.connection;
    match &arguments.command {
        Command::Burst(arguments) => burst::run(connection, arguments).await,
        // Checks the manifest before it connects to a cluster.
        Command::Create(arguments) => create::run(connection, arguments).await,
        Command::Delete(arguments) => {
            delete::run(&Session::open(connection).await?, arguments).await
        }
        // Checks where its file goes before it connects to a cluster.
        Command::Invite(arguments) => invite::run(connection, arguments).await,
        Command::Jobs(arguments) => {
            burst::jobs::run(&Session::open(connection).await?, arguments).await
        }
        Command::List(arguments) => list::run(&Session::open(connection).await?, arguments).await,
        Command::Logs(arguments) => logs::run(&Session::open(connection).await?, arguments).await,
        Command::Queue(arguments) => queue::run(&Session::open(connection).await?, arguments).await,
        Command::Ranks(arguments) => ranks::run(&Session::open(connection).await?, arguments).await,
        Command::Resume(arguments) => {
            stop::resume(&Session::open(connection).await?, arguments).await
        }
        Command::Stop(arguments) => stop::run(&Session::open(connection).await?, arguments).await,
        Command::Shell(arguments) => shell::run(&Session::open(connection).await?, arguments).await,
        Command::Submit(arguments) => {
            submit::run(&Session::open(connection).await?, arguments).await
        }
        // Checks the manifest before it connects to a cluster.
        Command::Why(arguments) => why::run(connection, arguments).await,
    }
}

/// The exit code of a remote process, as ours. Kubernetes' exit codes have 32 bits; one that does
/// not fit must not become success.
fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_namespace_can_be_given_before_or_after_the_command() {
        for words in [
            ["kubectl-minicluster", "-n", "team", "list"],
            ["kubectl-minicluster", "list", "-n", "team"],
        ] {
            let arguments = Arguments::try_parse_from(words).unwrap();
            assert_eq!(arguments.connection.namespace.as_deref(), Some("team"));
        }
    }

    #[test]
    fn arguments_after_the_name_of_submit_are_for_flux() {
        let submitted = |words: &[&str]| {
            let words = ["kubectl-minicluster", "submit", "-n", "team"].iter().chain(words);
            let arguments = Arguments::try_parse_from(words).unwrap();
            assert_eq!(arguments.connection.namespace.as_deref(), Some("team"));
            let Command::Submit(submit) = arguments.command else { panic!("not submit") };
            submit.words
        };
        for words in [
            &["fs", "-n4", "--", "a", "--", "b"][..],
            &["fs", "--", "a", "--help"],
            &["fs", "-n", "4", "--namespace", "a", "-b"],
        ] {
            assert_eq!(submitted(words), words);
        }
    }

    #[test]
    fn exit_codes_that_do_not_fit_are_failures() {
        assert_eq!(exit_code(0), ExitCode::SUCCESS);
        assert_eq!(exit_code(143), ExitCode::from(143));
        assert_eq!(exit_code(256), ExitCode::FAILURE);
        assert_eq!(exit_code(-1), ExitCode::FAILURE);
    }
}
