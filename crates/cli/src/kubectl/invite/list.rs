//! `kubectl minicluster invite list`: list invitations.

use std::process::ExitCode;

use anyhow::Result;
use flux_operator_plan::shown_expiry;
use jiff::Timestamp;

use super::invitation::{InvitationView, views};
use crate::kubectl::listing;
use crate::kubectl::output_format::DataFormat;
use crate::kubectl::session::Session;
use crate::kubectl::table::table;
use crate::print;

/// List invitations, and which MiniClusters use them.
///
/// Pending: no ranks are leased to it. Active: it can be used. Leaving: it was revoked or has
/// expired, and its ranks are being taken back. Expired: it cannot be used any more.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the MiniCluster that invites. Default: all of the namespace.
    name: Option<String>,

    /// Output format.
    #[arg(short, long, value_enum)]
    output: Option<DataFormat>,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let miniclusters = match &arguments.name {
        Some(name) => vec![session.minicluster(name).await?],
        None => match listing::list(session.api()).await {
            Ok(listed) => listed.items,
            Err(error) => return Err(session.explain(error, "failed to list MiniClusters").await),
        },
    };
    let now = Timestamp::now();
    let listed: Vec<InvitationView> =
        miniclusters.iter().flat_map(|minicluster| views(minicluster, now)).collect();
    let text = match arguments.output {
        Some(format) => format.print(&listed)?,
        None if listed.is_empty() => {
            print::message("No invitations.");
            return Ok(ExitCode::SUCCESS);
        }
        None => rows(&listed),
    };
    print::output(text)?;
    Ok(ExitCode::SUCCESS)
}

fn rows(listed: &[InvitationView]) -> String {
    let header = ["CLUSTER", "INVITATION", "RANKS", "STATE", "USED-BY", "ADDRESS", "EXPIRES"];
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let row = |it: &InvitationView| {
        vec![
            it.cluster.clone(),
            it.invitation.clone(),
            it.ranks.to_string(),
            it.state.as_str().to_owned(),
            or_dash(&it.used_by),
            or_dash(it.addresses.first().map(String::as_str).unwrap_or_default()),
            shown_expiry(&it.expires),
        ]
    };
    table(&header, &listed.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bursting_mut, invitation, lender, now};
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_invitation() {
        let mut lender = lender();
        let other = invitation("other", 1, "2026-01-03T00:00:00.123456Z");
        bursting_mut(&mut lender).invitations.push(other);
        let expected = "\
CLUSTER   INVITATION   RANKS   STATE     USED-BY   ADDRESS           EXPIRES
fs        a            2       Active    far/b     192.0.2.1:31000   2026-01-01T01:00:00Z
fs        other        1       Pending   -         -                 2026-01-03T00:00:00Z
";
        assert_eq!(rows(&views(&lender, now())), expected);
    }
}
