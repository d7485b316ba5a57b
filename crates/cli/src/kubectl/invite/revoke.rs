//! `kubectl minicluster invite revoke`: end invitations before their time.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::Invitation;
use flux_operator_plan::invitation_holder;
use kube::ResourceExt;

use super::change::{BurstingPatch, change};
use super::invitation::{invitations, is_direct, leases};
use crate::kubectl::duration::parse_timeout;
use crate::kubectl::session::Session;
use crate::kubectl::table::format_age;
use crate::kubectl::watch::{WatchedState, watch_object};
use crate::print;

/// Revoke invitations: close the connections of their brokers, and free their ranks. Jobs on these
/// ranks fail at once; drain the ranks first with `flux resource drain` to let them finish.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the MiniCluster that invites.
    name: String,

    /// Names of the invitations.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    invitation: Vec<String>,

    /// Revoke all invitations of the MiniCluster.
    #[arg(long)]
    all: bool,

    /// Do not wait until their ranks are free.
    #[arg(long)]
    no_wait: bool,

    /// How long to wait until their ranks are free.
    #[arg(
        long, value_name = "DURATION", default_value = "60s", conflicts_with = "no_wait",
        value_parser = parse_timeout, allow_hyphen_values = true
    )]
    timeout: Duration,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let lender = session.minicluster(&arguments.name).await?;
    let names = (!arguments.all).then_some(arguments.invitation.as_slice());
    let decide = |lender: &MiniCluster| {
        let removed = removal(lender, names);
        removed.map_err(|error| anyhow!("{error}\nhint: {}", error.hint(lender, session)))
    };
    let (lender, revoked) = change(session, lender, decide).await?;
    if revoked.is_empty() {
        print::message("No invitations.");
        return Ok(ExitCode::SUCCESS);
    }
    let is_free = match arguments.no_wait {
        true => false,
        false => wait_until_free(session, &lender, &revoked, arguments.timeout).await?,
    };
    let (cluster, is_direct) = (lender.name_any(), is_direct(&lender));
    for Invitation { name, .. } in &revoked {
        print::output(match (is_free, is_direct) {
            (true, false) => format!(
                "invitation {name:?} was revoked: its connections are closed and its ranks are \
                 free\n"
            ),
            (true, true) => format!("invitation {name:?} was revoked: its ranks are free\n"),
            (false, _) => format!("invitation {name:?} was revoked\n"),
        })?;
    }
    if is_direct {
        print::message(format_args!(
            "warning: {cluster} is exposed without the gateway: whoever has the file of an \
             invitation can still connect\n\
             hint: delete {cluster} and create it again, which makes a new certificate"
        ));
    }
    if !is_free && !arguments.no_wait {
        let timeout = format_age(i64::try_from(arguments.timeout.as_secs()).unwrap_or(i64::MAX));
        let ranks = session.command(&format!("ranks {cluster}"));
        return Err(anyhow!(
            "the ranks are not free after {timeout}: the operator waits until their brokers are \
             offline\n\
             hint: `{ranks}` shows their state; check that the operator is running"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// There is no invitation of these names.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cluster:?} has no invitation {}", quoted(missing))]
struct UnknownInvitation {
    cluster: String,
    missing: Vec<String>,
}

impl UnknownInvitation {
    /// Which invitations there are.
    fn hint(&self, lender: &MiniCluster, session: &Session) -> String {
        let is_missing = |name: &String| self.missing.contains(name);
        let leaving: Vec<String> =
            leases(lender).filter(|it| it.invitation.is_some()).map(|it| it.name.clone()).collect();
        if leaving.iter().any(is_missing) {
            let list = session.command(&format!("invite list {}", self.cluster));
            return format!("it was revoked already, and its ranks are taken back: `{list}`");
        }
        let names: Vec<String> = invitations(lender).iter().map(|it| it.name.clone()).collect();
        match names.is_empty() {
            true => "it has no invitations".to_owned(),
            false => format!("it has {}", quoted(&names)),
        }
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// The invitations to remove, and the patch that does it. Without names, all are removed. If one
/// of the names is not known, none is removed.
fn removal(
    lender: &MiniCluster,
    names: Option<&[String]>,
) -> Result<(Option<BurstingPatch>, Vec<Invitation>), UnknownInvitation> {
    let all = invitations(lender);
    let unknown = names.into_iter().flatten().filter(|name| all.iter().all(|it| it.name != **name));
    let missing: Vec<String> = unknown.cloned().collect();
    if !missing.is_empty() {
        return Err(UnknownInvitation { cluster: lender.name_any(), missing });
    }
    let is_named = |it: &Invitation| names.is_none_or(|names| names.contains(&it.name));
    let (removed, left): (Vec<Invitation>, Vec<Invitation>) =
        all.iter().cloned().partition(is_named);
    let patch = (!removed.is_empty()).then(|| BurstingPatch::default().invitations(&left));
    Ok((patch, removed))
}

/// Waits until no ranks are leased to these invitations. Returns whether that is so.
async fn wait_until_free(
    session: &Session,
    lender: &MiniCluster,
    revoked: &[Invitation],
    timeout: Duration,
) -> Result<bool> {
    let holders: BTreeSet<String> = revoked.iter().map(invitation_holder).collect();
    let watched = watch_object(session.miniclusters(), lender, |observed| match observed {
        WatchedState::Deleted(_) => Some(()),
        WatchedState::Current(now) => {
            (!leases(&now).any(|lease| holders.contains(&lease.holder))).then_some(())
        }
    });
    match tokio::time::timeout(timeout, watched).await {
        Ok(freed) => freed.map(|()| true),
        Err(_elapsed) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bursting_mut, invitation, lender};
    use super::*;
    use serde_json::{Value, json};

    fn with_two() -> MiniCluster {
        let mut lender = lender();
        bursting_mut(&mut lender).invitations.push(invitation("b", 1, "2026-01-03T00:00:00Z"));
        lender
    }

    fn remove(names: Option<&[&str]>) -> Result<(Option<Value>, Vec<String>), UnknownInvitation> {
        let names: Option<Vec<String>> =
            names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let (patch, removed) = removal(&with_two(), names.as_deref())?;
        let list = patch.map(|patch| patch.fields()["invitations"].clone());
        Ok((list, removed.into_iter().map(|it| it.name).collect()))
    }

    #[test]
    fn the_others_are_left() {
        let (list, removed) = remove(Some(&["a"])).unwrap();
        assert_eq!(removed, ["a"]);
        assert_eq!(list, Some(json!([invitation("b", 1, "2026-01-03T00:00:00Z")])));
        let (list, removed) = remove(Some(&["b", "a", "a"])).unwrap();
        assert_eq!((list, removed), (Some(Value::Null), vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn all_are_removed_without_names() {
        let (list, removed) = remove(None).unwrap();
        assert_eq!((list, removed.len()), (Some(Value::Null), 2));
        let mut none = lender();
        none.spec.flux = None;
        assert_eq!(removal(&none, None), Ok((None, Vec::new())));
    }

    #[test]
    fn nothing_is_removed_if_a_name_is_unknown() {
        let error = remove(Some(&["a", "c", "d"])).unwrap_err();
        assert_eq!(error.to_string(), "\"fs\" has no invitation \"c\", \"d\"");
    }
}
