//! `kubectl minicluster invite NAME`: lease ranks, and write the file for the other cluster.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::ExposeType;
use flux_operator_plan::{InvitationFile, invitation_file, lendable_ranks, shown_expiry};
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::addition::{Addition, MAX_JOINER_NAME, Wish, addition};
use super::change::{BurstingPatch, change, undo};
use super::invitation::{count_of_ranks, is_direct, is_exposed, lease};
use super::output::Output;
use super::refusal::InviteRefusal;
use super::wait::wait;
use super::{file, secrets};
use crate::kubectl::Connection;
use crate::kubectl::duration::{parse_timeout, parse_ttl};
use crate::kubectl::session::Session;
use crate::print;

/// The largest number of ranks of an invitation, as in its schema.
const MAX_RANKS: i32 = 1024;

/// The longest name of an invitation, as in its schema.
const MAX_INVITATION_NAME: usize = 32;

/// How long an invitation is valid without `--ttl`.
const DEFAULT_TTL: Duration = Duration::from_hours(1);

/// How many of them a second has.
const MICROSECONDS: i32 = 1_000_000;

/// The invitation to add.
#[derive(clap::Args)]
pub(super) struct NewInvitation {
    /// Name of the MiniCluster whose Flux instance the brokers join.
    name: String,

    /// Number of brokers, each of which uses a rank.
    #[arg(long, value_name = "N", value_parser = parse_ranks, allow_hyphen_values = true)]
    ranks: i32,

    /// How long the invitation is valid, such as 90s, 30m, 1h30m or 2d; at most 30d. It cannot be
    /// extended. When it ends, the connections of its brokers are closed, and jobs on its ranks fail.
    /// Default: 1h.
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl, allow_hyphen_values = true)]
    ttl: Option<Duration>,

    /// Name of the invitation. Default: `invite-` and five random characters.
    #[arg(long, value_name = "INVITATION", value_parser = parse_invitation)]
    invitation: Option<String>,

    /// Name of the MiniCluster in the other cluster. Default: NAME-INVITATION.
    #[arg(long = "as", value_name = "NAME", value_parser = parse_joiner)]
    joiner: Option<String>,

    /// Expose the MiniCluster by a Service of this type, if it is not exposed yet.
    #[arg(long, value_name = "TYPE", value_enum, ignore_case = true)]
    expose: Option<ExposeArgument>,

    /// How long to wait for ranks and an address. Then the invitation is removed again.
    #[arg(
        long, value_name = "DURATION", default_value = "60s",
        value_parser = parse_timeout, allow_hyphen_values = true
    )]
    timeout: Duration,

    /// Write to this file instead of standard output. Only you can read it.
    #[arg(long, value_name = "FILE")]
    output_file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ExposeArgument {
    #[value(name = "NodePort")]
    NodePort,
    #[value(name = "LoadBalancer")]
    LoadBalancer,
    #[value(name = "ClusterIP")]
    ClusterIP,
}

impl From<ExposeArgument> for ExposeType {
    fn from(argument: ExposeArgument) -> ExposeType {
        match argument {
            ExposeArgument::NodePort => ExposeType::NodePort,
            ExposeArgument::LoadBalancer => ExposeType::LoadBalancer,
            ExposeArgument::ClusterIP => ExposeType::ClusterIP,
        }
    }
}

fn parse_ranks(text: &str) -> Result<i32, String> {
    let ranks = text.parse().ok().filter(|ranks| (1..=MAX_RANKS).contains(ranks));
    ranks.ok_or_else(|| {
        format!("is not a number from 1 to {MAX_RANKS}\nhint: give the number of brokers that join")
    })
}

fn parse_invitation(text: &str) -> Result<String, String> {
    parse_name(text, MAX_INVITATION_NAME)
}

fn parse_joiner(text: &str) -> Result<String, String> {
    parse_name(text, MAX_JOINER_NAME)
}

fn parse_name(text: &str, max: usize) -> Result<String, String> {
    let is_name = text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    match (is_name, text.len() <= max) {
        (true, true) => Ok(text.to_owned()),
        (true, false) => Err(format!(
            "has {} characters\nhint: give a name of at most {max} characters",
            text.len()
        )),
        (false, _) => Err("is not a name\n\
             hint: use lowercase letters, digits and '-', starting with a letter"
            .to_owned()),
    }
}

/// A name for an invitation. It is not a secret.
fn random_name() -> String {
    const CHARACTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let one = |_| char::from(CHARACTERS[fastrand::usize(..CHARACTERS.len())]);
    let suffix: String = (0..5).map(one).collect();
    format!("invite-{suffix}")
}

pub(super) async fn run(connection: &Connection, new: &NewInvitation) -> Result<ExitCode> {
    let is_terminal = std::io::stdout().is_terminal();
    let output = Output::open(new.output_file.as_deref(), is_terminal)?;
    let session = Session::open(connection).await?;
    let lender = session.minicluster(&new.name).await?;
    let job = secrets::job(&session, &new.name).await?;
    let ttl = new.ttl.unwrap_or(DEFAULT_TTL);
    let expires = expiry(ttl, Timestamp::now(), fastrand::i32(1..MICROSECONDS))?;
    let decide = |lender: &MiniCluster| {
        decide(&session, lender, new, expires, lendable_ranks(lender, job.as_ref()))
    };
    // What would make it fail later is checked before anything is changed.
    decide(&lender)?;
    secrets::check_permission(&session, &lender, job.as_ref()).await?;
    let mut signals = Signals::listen()?;
    let (lender, added) = change(&session, lender, decide).await?;
    if !added.is_new {
        print::message(format_args!(
            "note: invitation {:?} exists: its file is written again",
            added.invitation.name
        ));
    }
    let outcome = tokio::select! {
        written = write(&session, &lender, &added, output, new.timeout) => written.map(Ok),
        code = signals.next() => Ok(Err(code)),
    };
    if !matches!(outcome, Ok(Ok(()))) && added.is_new {
        tokio::select! {
            () = remove_again(&session, &added, &new.name) => {}
            // A second ^C: the API server does not answer.
            _ = signals.next() => {}
        }
    }
    outcome.map(|reached| match reached {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => ExitCode::from(code),
    })
}

/// When an invitation ends that begins now. Its key follows from its name and its end, so the end has
/// random digits after the second: otherwise the file of an invitation that was revoked could be used
/// again as soon as there is another one of its name with the same end.
fn expiry(ttl: Duration, now: Timestamp, microsecond: i32) -> Result<Timestamp> {
    let seconds = i64::try_from(ttl.as_secs()).context("the duration is too long")?;
    let end = now.as_second().checked_add(seconds).context("the duration is too long")?;
    let nanosecond = microsecond.saturating_mul(1000);
    Timestamp::new(end, nanosecond).context("the duration is too long")
}

fn decide(
    session: &Session,
    lender: &MiniCluster,
    new: &NewInvitation,
    expires: Timestamp,
    lendable: Option<usize>,
) -> Result<(Option<BurstingPatch>, Addition)> {
    let wish = Wish {
        invitation: new.invitation.as_deref(),
        ranks: new.ranks,
        expires,
        has_ttl: new.ttl.is_some(),
        joiner: new.joiner.as_deref(),
        expose: new.expose.map(ExposeType::from),
        lendable,
    };
    let explain = |refusal: InviteRefusal| -> Error {
        let hint = session.remedy(&refusal.hint(), &lender.name_any());
        anyhow!("{refusal}\nhint: {hint}")
    };
    addition(lender, &wish, Timestamp::now(), random_name).map_err(explain)
}

/// Waits for the ranks of an invitation, and writes its file.
async fn write(
    session: &Session,
    lender: &MiniCluster,
    added: &Addition,
    output: Output,
    timeout: Duration,
) -> Result<()> {
    let Addition { invitation, joiner, .. } = added;
    let lender = wait(session, lender, invitation, timeout).await?;
    let job = secrets::job(session, &lender.name_any()).await?;
    let secrets = secrets::read(session, &lender, job.as_ref()).await?;
    let made = invitation_file(&lender, job.as_ref(), &invitation.name, joiner, secrets);
    let made = made.map_err(|error| {
        let name = &invitation.name;
        anyhow!("failed to write invitation {name:?}: {error}\nhint: try again")
    })?;
    let text = file::text(&lender, invitation, &made)?;
    let file_name = output.file_name();
    output.write(&text)?;
    report(&lender, added, &made, &file_name);
    Ok(())
}

/// Prints what was made, and what its owner should know.
fn report(lender: &MiniCluster, added: &Addition, made: &InvitationFile, file_name: &str) {
    let (cluster, invitation) = (lender.name_any(), &added.invitation);
    let leased = lease(lender, invitation).map(|lease| lease.ranks.as_str()).unwrap_or_default();
    print::message(format_args!(
        "invitation {:?} for {} ({leased}) of {cluster} was written: use it in the other cluster \
         with `kubectl apply -f {file_name}`",
        invitation.name,
        count_of_ranks(invitation.ranks)
    ));
    if !made.left_out.is_empty() {
        print::message(format_args!(
            "note: left out, because they name objects of this Kubernetes cluster: {}",
            made.left_out.join(", ")
        ));
    }
    let end = match is_direct(lender) {
        // The gateway cannot close what does not pass through it.
        true => format!("until {cluster} is deleted: it is exposed without the gateway"),
        false => format!("until {}", shown_expiry(&invitation.expires)),
    };
    print::message(format_args!(
        "warning: whoever can read this file has full access to the Flux instance of {cluster}, \
         {end}"
    ));
}

/// Removes an invitation whose file was not written.
async fn remove_again(session: &Session, added: &Addition, cluster: &str) {
    let Addition { invitation, expose, .. } = added;
    let name = &invitation.name;
    let removed = async {
        let lender = session.minicluster(cluster).await?;
        let decide = |lender: &MiniCluster| Ok((undo(lender, invitation, expose.as_ref()), ()));
        change(session, lender, decide).await
    };
    match removed.await {
        Ok((lender, ())) if expose.is_some() && !is_exposed(&lender) => print::message(
            format_args!("invitation {name:?} and flux.bursting.expose were removed again"),
        ),
        Ok(_) => print::message(format_args!("invitation {name:?} was removed again")),
        Err(error) => {
            let revoke = session.command(&format!("invite revoke {cluster} {name}"));
            print::message(format_args!(
                "warning: failed to remove invitation {name:?} again: {error:#}\n\
                 hint: remove it with `{revoke}`"
            ));
        }
    }
}

/// Signals that end the command. Those that arrive before `next` is called are not lost.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Signals> {
        let listen = |kind| signal(kind).context("failed to listen for signals");
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Signals { interrupt, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for SIGINT or SIGTERM. Returns the exit code that shells report for that signal.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_ranks_are_checked() {
        assert_eq!((parse_ranks("1"), parse_ranks("1024")), (Ok(1), Ok(1024)));
        for text in ["0", "-1", "1025", "99999999999", "two", "", "2.5"] {
            let error = parse_ranks(text).unwrap_err();
            assert!(error.starts_with("is not a number from 1 to 1024\nhint: "), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_checked() {
        for name in ["a", "a-1", &"a".repeat(32)] {
            assert_eq!(parse_invitation(name), Ok(name.to_owned()));
        }
        for name in ["", "-a", "a-", "1a", "A", "a.b", "a:b", "ü", "a b"] {
            let error = parse_invitation(name).unwrap_err();
            assert!(error.starts_with("is not a name\nhint: "), "{name}: {error}");
        }
        let error = parse_invitation(&"a".repeat(33)).unwrap_err();
        assert!(error.starts_with("has 33 characters\nhint: "), "{error}");
        assert!(parse_joiner(&"a".repeat(54)).is_ok() && parse_joiner(&"a".repeat(55)).is_err());
    }

    #[test]
    fn generated_names_are_valid_and_differ() {
        let names: std::collections::BTreeSet<String> = (0..100).map(|_| random_name()).collect();
        assert!(names.len() > 90, "{names:?}");
        for name in names {
            assert_eq!((parse_invitation(&name).as_deref(), name.len()), (Ok(name.as_str()), 12));
        }
    }

    #[test]
    fn no_two_invitations_end_at_the_same_time() {
        let now = "2026-01-01T00:00:00.9Z".parse().unwrap();
        let end = |digits: i32| expiry(Duration::from_millis(90_500), now, digits).unwrap();
        assert_eq!(end(123_456).to_string(), "2026-01-01T00:01:30.123456Z");
        assert_eq!(end(MICROSECONDS - 1).to_string(), "2026-01-01T00:01:30.999999Z");
        assert_ne!(end(1).to_string(), end(2).to_string());
        assert_eq!(shown_expiry(&end(123_456).to_string()), "2026-01-01T00:01:30Z");
        assert!(expiry(Duration::MAX, now, 1).is_err());
    }
}
