//! `kubectl minicluster burst`: nodes elsewhere that join the Flux instance of a MiniCluster.
//!
//! ```text
//! list, policies:      Bursts and BurstPolicies as tables
//! request, give-back:  create or delete a Burst, and `wait`
//! why:      Flux in the lead's pod ──► `instance` ──► crate `burst`: decide ──► `answers`
//! cleanup:  objects here and at a target ──► `leftovers` ──► delete
//! ```
//!
//! The burst controller does the rest. `why` calls the function by which it decides.

mod answers;
mod cleanup;
mod give_back;
mod instance;
pub(super) mod jobs;
mod leftovers;
mod list;
mod policies;
mod request;
mod state;
#[cfg(test)]
mod testing;
mod wait;
pub(super) mod why;

pub(crate) use list::burst_table;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use super::Connection;
use super::printed_list::ListOptions;
use super::session::Session;
use crate::print;

/// Nodes of other clusters for a MiniCluster: list, request and give back Bursts, explain why nodes
/// were or were not requested for a job, and delete leftovers.
///
/// Without a command, Bursts are listed.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    options: ListOptions,
}

#[derive(Subcommand)]
enum Command {
    #[command(visible_alias = "ls")]
    List(list::Arguments),
    Policies(policies::Arguments),
    Request(request::Arguments),
    GiveBack(give_back::Arguments),
    Why(why::Arguments),
    Cleanup(cleanup::Arguments),
}

/// The exit code for a command line that is not valid, as clap's.
const INVALID_COMMAND_LINE: u8 = 2;

pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.command.is_some() && arguments.options.is_any() {
        print::message(
            "error: -A or -o is given before the command\nhint: put it after the command",
        );
        return Ok(INVALID_COMMAND_LINE.into());
    }
    let session = Session::open(connection).await?;
    match &arguments.command {
        None => list::run(&session, None, &arguments.options).await,
        Some(Command::List(it)) => list::run(&session, it.name.as_deref(), &it.options).await,
        Some(Command::Policies(it)) => policies::run(&session, it).await,
        Some(Command::Request(it)) => request::run(&session, it).await,
        Some(Command::GiveBack(it)) => give_back::run(&session, it).await,
        Some(Command::Why(it)) => why::run(&session, it).await,
        Some(Command::Cleanup(it)) => cleanup::run(&session, connection, it).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct TestCommandLine {
        #[arg(short, global = true)]
        namespace: Option<String>,

        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = ["burst"].into_iter().chain(line.split_whitespace());
        let parsed = TestCommandLine::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(parsed.arguments)
    }

    #[test]
    fn bursts_are_listed_without_a_command() {
        for line in ["", "-A", "-o wide", "-n team"] {
            assert!(parse(line).unwrap().command.is_none(), "{line}");
        }
        for line in ["list", "ls fs-gke-1", "-n team list -A", "list -o json"] {
            let command = parse(line).unwrap().command;
            assert!(matches!(command, Some(Command::List(_))), "{line}");
        }
    }

    #[test]
    fn complete_command_lines_are_accepted() {
        for line in [
            "request fs --policy p --nodes 2",
            "request fs --policy p --target gke --nodes 2 --for 2h --idle 10m --name n --wait",
            "request fs --policy p --nodes 9 --job f1 --isolated",
            "give-back a b --wait",
            "why fs",
            "why fs --job f1 -o json",
            "why fs --all",
            "cleanup",
            "cleanup --kubeconfig-secret s --target-namespace there --delete",
            "cleanup --target-context cloud",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn command_lines_that_lack_something_are_refused() {
        for line in [
            "request fs --policy p",
            "request fs --nodes 2",
            "request fs --policy p --nodes 0",
            "request fs --policy p --nodes 9 --isolated",
            "request fs --policy p --nodes 9 --job f1",
            "request fs --policy p --nodes 9 --job f1 --isolated --idle 5m",
            "request fs --policy p --nodes 1025",
            "request fs --policy p --nodes 2 --for 10s",
            "request fs --policy p --nodes 2 --name A",
            "give-back",
            "why",
            "why fs --job nonsense!",
            "why fs --job f1 --all",
            "cleanup --kubeconfig-secret s --target-context cloud",
            "cleanup --target-namespace there",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
