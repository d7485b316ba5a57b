//! `kubectl minicluster invite`: invitations for brokers of other Kubernetes clusters.
//!
//! ```text
//! create:  MiniCluster ──► checks, new list (`change`) ──► patch ──► `wait` for the lease
//!              └──► `secrets` ──► `flux_operator_plan::invitation_file` ──► `file` ──► `output`
//! list, revoke:  `invitation`: what the spec and the status say about each invitation
//! ```
//!
//! The operator leases the ranks and publishes addresses and ports. The spec is changed only by a
//! patch for the resource version that was read, because it contains the whole list.

mod addition;
mod change;
mod create;
mod file;
mod invitation;
mod list;
mod output;
mod refusal;
mod revoke;
mod secrets;
#[cfg(test)]
mod testing;
mod wait;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;

use super::Connection;
use super::session::Session;

/// Invite brokers of another Kubernetes cluster to join the Flux instance of a MiniCluster.
///
/// Leases ranks of the instance, and prints a file for the other cluster: `kubectl apply -f` there
/// starts brokers that use these ranks. The file contains the keys of the instance, so it is not
/// printed to a terminal. If the MiniCluster has an invitation of this name for as many ranks, its
/// file is printed again. Invitations that have expired are removed when another one is added.
///
/// If the MiniCluster itself is called `list`, `revoke` or `help`, write `--` before its name, at the
/// end.
// With `args_conflicts_with_subcommands`, `list` in `invite -n team list` would be a MiniCluster.
#[derive(clap::Args)]
#[command(
    subcommand_negates_reqs = true,
    override_usage = "kubectl minicluster invite [OPTIONS] --ranks <N> <NAME>\n       \
                      kubectl minicluster invite <COMMAND>"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    new: Option<create::NewInvitation>,
}

#[derive(Subcommand)]
enum Command {
    #[command(visible_alias = "ls")]
    List(list::Arguments),
    Revoke(revoke::Arguments),
}

pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<ExitCode> {
    match (&arguments.command, &arguments.new) {
        (Some(_), Some(_)) => bail!(
            "a MiniCluster to invite to is given, and also a command\n\
             hint: omit the name and its options before `list` or `revoke`"
        ),
        (Some(Command::List(arguments)), None) => {
            list::run(&Session::open(connection).await?, arguments).await
        }
        (Some(Command::Revoke(arguments)), None) => {
            revoke::run(&Session::open(connection).await?, arguments).await
        }
        // Checks where the file goes before it connects to a cluster.
        (None, Some(new)) => create::run(connection, new).await,
        (None, None) => bail!("no MiniCluster is given\nhint: give NAME --ranks N"),
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

    /// Which command it is, and the namespace.
    fn parse(line: &str) -> Result<(&'static str, Option<String>), String> {
        let words = ["invite"].into_iter().chain(line.split_whitespace());
        let parsed = TestCommandLine::try_parse_from(words).map_err(|error| error.to_string())?;
        let command = match (parsed.arguments.command, parsed.arguments.new) {
            (Some(Command::List(_)), None) => "list",
            (Some(Command::Revoke(_)), None) => "revoke",
            (None, Some(_)) => "invite",
            _ => "neither or both",
        };
        Ok((command, parsed.namespace))
    }

    #[test]
    fn commands_and_names_are_told_apart() {
        for (line, expected) in [
            ("fs --ranks 2", "invite"),
            ("--ranks 2 --ttl 30m fs", "invite"),
            ("--ranks 2 -- list", "invite"),
            ("list", "list"),
            ("ls fs", "list"),
            ("revoke fs a b", "revoke"),
            ("revoke fs --all", "revoke"),
        ] {
            assert_eq!(parse(line), Ok((expected, None)), "{line}");
            let with_namespace = Ok((expected, Some("team".to_owned())));
            assert_eq!(parse(&format!("-n team {line}")), with_namespace, "{line}");
        }
        for line in ["", "fs", "--ranks 2", "--ranks 2 list", "revoke fs", "revoke fs a --all"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
