//! `kubectl minicluster ranks`: who has which rank of a Flux instance.

use std::process::ExitCode;

use anyhow::{Error, Result, anyhow};
use flux_operator_api::minicluster::LenderName;
use flux_operator_api::view::{RankRange, RankTable};
use flux_operator_api::{MiniCluster, Reason};
use flux_operator_plan::view::{NoRankTable, rank_table};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::outcome::status_line;
use super::output_format::TableFormat;
use super::session::Session;
use super::table::{format_age, table};
use crate::print;

/// Show the ranks of a MiniCluster's Flux instance: their hosts, whose brokers have them, and
/// whether these are online.
///
/// For a MiniCluster that joins another one, show the ranks that it leases there.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the MiniCluster.
    name: String,

    /// Output format.
    #[arg(short, long, value_enum)]
    output: Option<TableFormat>,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let minicluster = session.minicluster(&arguments.name).await?;
    let table = match LenderName::of(&minicluster) {
        Some(lender) => ranks_of_joiner(session, &minicluster, &lender).await?,
        None => ranks_of(session, &minicluster, None).await?,
    };
    let text = match arguments.output {
        Some(TableFormat::Data(format)) => format.print(&table)?,
        None | Some(TableFormat::Wide) if table.items.is_empty() => {
            let (name, state) = (&arguments.name, status_line(&minicluster));
            print::message(format_args!("No ranks are leased to {name}: {state}."));
            return Ok(ExitCode::SUCCESS);
        }
        wide => rows(&table, wide.is_some(), Timestamp::now()),
    };
    print::output(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The ranks that a joiner leases, with a note about whose they are.
async fn ranks_of_joiner(
    session: &Session,
    joiner: &MiniCluster,
    lender: &LenderName,
) -> Result<RankTable> {
    let (name, shown) = (joiner.name_any(), lender.shown_in(&session.namespace));
    let session_of_lender = session.in_namespace(&lender.namespace);
    let found = match session_of_lender.miniclusters().get_opt(&lender.name).await {
        Ok(found) => found,
        Err(error) => {
            let what = format!("failed to get {shown:?}, the MiniCluster that {name} joins");
            return Err(session.explain(error, &what).await);
        }
    };
    let Some(found) = found else {
        let remedy = Reason::LenderMissing.remedy();
        return Err(anyhow!(
            "{name} joins the MiniCluster {shown:?}, which does not exist\nhint: {remedy}"
        ));
    };
    let table = ranks_of(&session_of_lender, &found, Some(joiner)).await?;
    let all = session_of_lender.command(&format!("ranks {}", lender.name));
    print::message(format_args!(
        "note: {name} joins the instance of {shown}; `{all}` shows all its ranks"
    ));
    Ok(table)
}

/// The ranks of the instance of a MiniCluster in the session's namespace, or only those that a
/// joiner leases.
async fn ranks_of(
    session: &Session,
    minicluster: &MiniCluster,
    joiner: Option<&MiniCluster>,
) -> Result<RankTable> {
    let name = minicluster.name_any();
    let job = match session.api::<Job>().get_opt(&name).await {
        Ok(job) => job,
        Err(error) => {
            return Err(session.explain(error, &format!("failed to get the Job {name:?}")).await);
        }
    };
    let computed = rank_table(minicluster, job.as_ref(), joiner);
    computed.map_err(|error| no_table(session, minicluster, error))
}

/// Why there is no table, and what to do about it.
pub(super) fn no_table(session: &Session, minicluster: &MiniCluster, error: NoRankTable) -> Error {
    let name = minicluster.name_any();
    let (state, hint) = match &error {
        NoRankTable::NoJob => {
            let list = session.command("list -o wide");
            let hint = format!("try again once it has started; `{list}` shows what it waits for");
            (format!(" ({})", status_line(minicluster)), hint)
        }
        NoRankTable::Joiner => {
            let hint = match LenderName::of(minicluster) {
                Some(other) => format!("join {:?} instead", other.shown_in(&session.namespace)),
                None if minicluster.spec.remote_lead().is_some() => {
                    "its ranks are in an instance of another Kubernetes cluster: ask there"
                        .to_owned()
                }
                None => "correct spec.flux.bootServer: it names no MiniCluster".to_owned(),
            };
            (String::new(), hint)
        }
        NoRankTable::Invalid(_) => (String::new(), "correct its manifest".to_owned()),
    };
    anyhow!("{name} has no ranks to show: {:#}{state}\nhint: {hint}", Error::new(error))
}

/// The table, with properties and the ages of leases if `wide`.
fn rows(ranks: &RankTable, wide: bool, now: Timestamp) -> String {
    let mut header = vec!["RANK", "HOST", "OWNER", "STATE"];
    if wide {
        header.extend(["PROPERTY", "SINCE"]);
    }
    let age = |since: &str| {
        let since: Timestamp = since.parse().ok()?;
        Some(format_age(now.as_second() - since.as_second()))
    };
    let row = |range: &RankRange| {
        let RankRange { ranks, hosts, owner, state, property, since } = range;
        let owner = if owner.is_empty() { "-" } else { owner };
        let mut row = vec![ranks.clone(), hosts.clone(), owner.to_owned(), state.to_string()];
        if wide {
            let since = since.as_deref().and_then(age).unwrap_or_default();
            row.extend([property.clone(), since]);
        }
        row
    };
    let rows: Vec<Vec<String>> = ranks.items.iter().map(row).collect();
    table(&header, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::view::RankState;

    fn shown(wide: bool) -> String {
        let range = |ranks: &str, hosts: &str, owner: &str, state, property: &str| RankRange {
            ranks: ranks.into(),
            hosts: hosts.into(),
            owner: owner.into(),
            state,
            property: property.into(),
            since: (owner == "other/b").then(|| "2026-01-01T00:00:00Z".into()),
        };
        let items = vec![
            range("0-3", "fs-[0-3]", "fs", RankState::Online, "home"),
            range("4-5", "fs-spare-[0-1]", "other/b", RankState::Leaving, "spare"),
            range("6", "fs-spare-2", "", RankState::Free, "spare"),
        ];
        let ranks = RankTable { items, ..RankTable::default() };
        rows(&ranks, wide, "2026-01-01T00:02:05Z".parse().unwrap())
    }

    #[test]
    fn ranks_are_shown_with_their_owners_and_states() {
        let expected = "\
RANK   HOST             OWNER     STATE
0-3    fs-[0-3]         fs        online
4-5    fs-spare-[0-1]   other/b   leaving
6      fs-spare-2       -         free
";
        assert_eq!(shown(false), expected);
    }

    #[test]
    fn properties_and_the_ages_of_leases_are_shown_when_asked_for() {
        let expected = "\
RANK   HOST             OWNER     STATE     PROPERTY   SINCE
0-3    fs-[0-3]         fs        online    home
4-5    fs-spare-[0-1]   other/b   leaving   spare      2m5s
6      fs-spare-2       -         free      spare
";
        assert_eq!(shown(true), expected);
    }
}
