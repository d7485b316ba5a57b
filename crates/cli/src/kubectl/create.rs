//! `kubectl minicluster create`: create a MiniCluster and wait for it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use flux_operator_api::MiniCluster;
use kube::ResourceExt;
use kube::api::PostParams;
use tokio::signal::unix::{SignalKind, signal};

use super::follow::{LogPrinter, LogSource};
use super::outcome::{ClusterOutcome, FailureCause, is_interactive, outcome, status_line};
use super::progress::Progress;
use super::session::Session;
use super::watch::{self, WatchedState};
use super::{Connection, delete, exit_code, manifest, pods};
use crate::{input, print};

/// Create a MiniCluster and wait for it: print its output, and exit with its command's exit code.
/// If it has no command, wait until it is ready; if it joins another MiniCluster, until all its
/// brokers have joined.
///
/// ^C leaves the MiniCluster running, unless --rm is given.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Manifest of the MiniCluster; `-` is standard input.
    #[arg(short, long = "filename", value_name = "FILE", conflicts_with_all = ["Flags", "command"])]
    filename: Option<PathBuf>,

    #[command(flatten)]
    flags: Option<manifest::Flags>,

    /// The command and its arguments, passed on unchanged. Without a command, the MiniCluster
    /// stays up.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,

    /// Return as soon as the MiniCluster is created.
    #[arg(long, conflicts_with = "rm")]
    detach: bool,

    /// Wait for completion (default).
    #[arg(long, conflicts_with = "detach")]
    wait: bool,

    /// Delete the MiniCluster afterwards, whether it succeeded or not.
    #[arg(long)]
    rm: bool,
}

pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<ExitCode> {
    let mut wanted = match (&arguments.filename, &arguments.flags) {
        (Some(file), _) => {
            let documents = input::parse_checked(file, &input::read_bytes(file)?)?;
            let only_one = format!(
                ", and one can be created\nhint: create them with `kubectl apply -f {}`",
                file.display()
            );
            input::only_minicluster(file, &documents, &only_one)?
        }
        (None, Some(flags)) => manifest::from_flags(flags, &arguments.command)?,
        (None, None) => bail!(
            "nothing to create\n\
             hint: give -f FILE, or NAME --image IMAGE --size N -- COMMAND"
        ),
    };
    if arguments.rm && wanted.spec.is_joiner() {
        bail!(
            "--rm needs a command\nhint: a MiniCluster that joins another one runs none and never finishes"
        );
    }
    if arguments.rm && is_interactive(&wanted) {
        bail!("--rm needs a command\nhint: a cluster without one never finishes");
    }
    // The check sets a placeholder for the generated name; let the server generate it.
    if let Some(prefix) = &wanted.metadata.generate_name
        && wanted.metadata.name.as_deref() == Some(&format!("{prefix}xxxxx"))
    {
        wanted.metadata.name = None;
    }
    let mut session = Session::open(connection).await?;
    session.use_namespace(wanted.metadata.namespace.as_deref())?;
    let name = wanted.name_any();
    let created = session.miniclusters().create(&PostParams::default(), &wanted).await;
    let created = match created {
        Ok(created) => created,
        Err(error) => {
            return Err(session.explain(error, &format!("failed to create {name:?}")).await);
        }
    };
    if arguments.detach {
        print::output(format!("minicluster.flux-framework.org/{} created\n", created.name_any()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = created.name_any();
    let outcome = tokio::select! {
        observed = wait_and_print(&session, &created) => observed.map(Ok),
        code = wait_for_signal() => code.map(Err),
    };
    if arguments.rm {
        delete::request_deletion(&session, &name).await?;
    } else if !matches!(outcome, Ok(Ok(_))) {
        print_still_running(&session, &name);
    }
    Ok(match outcome? {
        Ok(outcome) => report_outcome(&session, &name, outcome, arguments.rm),
        Err(code) => ExitCode::from(code),
    })
}

/// Waits until the MiniCluster finishes, or is ready if it has no command, and prints the lead's
/// output meanwhile. A joiner has no lead.
async fn wait_and_print(session: &Session, created: &MiniCluster) -> Result<ClusterOutcome> {
    let name = created.name_any();
    if created.spec.is_joiner() {
        return wait(session, created, &mut Progress::of(&name)).await;
    }
    let source = LogSource {
        pods: session.pods(),
        selector: pods::index_selector(&name, 0),
        container: name.clone(),
    };
    let mut progress = Progress::of(&name);
    let mut printer = LogPrinter::new(source, progress.spinner_clearer());
    let reached = tokio::select! {
        finished = wait(session, created, &mut progress) => finished?,
        failure = printer.follow() => match failure? {},
    };
    if !matches!(reached, ClusterOutcome::Ready) {
        printer.print_rest().await?;
    }
    Ok(reached)
}

async fn wait(
    session: &Session,
    created: &MiniCluster,
    progress: &mut Progress,
) -> Result<ClusterOutcome> {
    let deleted = || {
        let message = "it was deleted before it finished".into();
        ClusterOutcome::Failed(FailureCause { message, remedy: None })
    };
    let finished = watch::watch_object(session.miniclusters(), created, |observed| {
        let (minicluster, is_deleted) = match observed {
            WatchedState::Current(now) => (now, false),
            WatchedState::Deleted(Some(last)) => (last, true),
            WatchedState::Deleted(None) => return Some(deleted()),
        };
        progress.show(status_line(&minicluster));
        match outcome(&minicluster) {
            ClusterOutcome::InProgress | ClusterOutcome::Ready | ClusterOutcome::Joined(_)
                if is_deleted =>
            {
                Some(deleted())
            }
            ClusterOutcome::InProgress => None,
            reached => Some(reached),
        }
    });
    finished.await
}

/// Prints the outcome, and returns the exit code. If the MiniCluster was `removed`, prints no hints
/// about it.
fn report_outcome(
    session: &Session,
    name: &str,
    outcome: ClusterOutcome,
    removed: bool,
) -> ExitCode {
    match outcome {
        ClusterOutcome::Ready | ClusterOutcome::InProgress => {
            print::message(format_args!("{name} is ready"));
            if !removed {
                let shell = session.command(&format!("shell {name}"));
                print::message(format_args!("hint: open a shell in it with `{shell}`"));
            }
            ExitCode::SUCCESS
        }
        ClusterOutcome::Joined(message) => {
            print::message(format_args!("{name} has joined: {message}"));
            let ranks = session.command(&format!("ranks {name}"));
            print::message(format_args!("hint: show its ranks with `{ranks}`"));
            ExitCode::SUCCESS
        }
        ClusterOutcome::Exited(0, _) => ExitCode::SUCCESS,
        ClusterOutcome::Exited(code, message) => {
            print::message(format_args!("error: {name} failed: {message}"));
            exit_code(code)
        }
        ClusterOutcome::Failed(cause) => {
            print_cause(session, name, "failed", &cause, removed);
            ExitCode::FAILURE
        }
        ClusterOutcome::Refused(cause) => {
            print_cause(session, name, "was refused", &cause, removed);
            hint_delete(session, name, removed);
            ExitCode::FAILURE
        }
        ClusterOutcome::Blocked(cause) => {
            print_cause(session, name, "does not start", &cause, removed);
            hint_delete(session, name, removed);
            ExitCode::FAILURE
        }
    }
}

/// Prints why it does not run, and what to do about it.
fn print_cause(session: &Session, name: &str, what: &str, cause: &FailureCause, removed: bool) {
    let FailureCause { message, remedy } = cause;
    print::message(format_args!("error: {name} {what}: {message}"));
    let about_the_object = |remedy: &&str| remedy.contains("NAME");
    if let Some(remedy) = remedy.filter(|remedy| !(removed && about_the_object(remedy))) {
        print::message(format_args!("hint: {}", session.remedy(remedy, name)));
    }
}

fn hint_delete(session: &Session, name: &str, removed: bool) {
    if !removed {
        let delete = session.command(&format!("delete {name}"));
        print::message(format_args!("hint: remove this MiniCluster with `{delete}`"));
    }
}

/// Waits for SIGINT or SIGTERM. Returns the exit code that shells report for that signal.
async fn wait_for_signal() -> Result<u8> {
    let listen = |kind| signal(kind).context("failed to listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(tokio::select! {
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    })
}

/// Prints that the MiniCluster keeps running without this program.
fn print_still_running(session: &Session, name: &str) {
    let logs = session.command(&format!("logs -f {name}"));
    let delete = session.command(&format!("delete {name}"));
    print::message(format_args!("{name} is still running: follow it with `{logs}`"));
    print::message(format_args!("hint: delete it with `{delete}`"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct TestCommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = ["create"].into_iter().chain(line.split_whitespace());
        TestCommandLine::try_parse_from(words)
            .map(|line| line.arguments)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn either_a_manifest_or_flags_can_be_given() {
        assert!(parse("-f a.yaml").unwrap().flags.is_none());
        let by_flags = parse("fs --image a --rm -- echo -n").unwrap();
        assert!(by_flags.flags.is_some() && by_flags.rm);
        assert_eq!(by_flags.command, ["echo", "-n"]);
        for line in ["-f a.yaml fs --image a", "-f a.yaml --size 2", "-f a.yaml -- echo", "fs"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("fs --image a --rm --detach").is_err());
    }
}
