//! `kubectl minicluster burst list`: list Bursts.

use std::process::ExitCode;

use anyhow::Result;
use flux_operator_api::Burst;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;

use super::state::needs_user;
use crate::kubectl::listing;
use crate::kubectl::printed_list::ListOptions;
use crate::kubectl::session::Session;
use crate::kubectl::table::{format_age, table};
use crate::print;

/// List Bursts: what they are doing, their nodes, and what these have used.
///
/// NODES are those that have joined and those that are requested. What only you can solve is
/// printed on standard error.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the Burst. Default: all of the namespace.
    #[arg(conflicts_with = "all_namespaces")]
    pub(super) name: Option<String>,

    #[command(flatten)]
    pub(super) options: ListOptions,
}

pub(super) async fn run(
    session: &Session,
    name: Option<&str>,
    options: &ListOptions,
) -> Result<ExitCode> {
    let all = options.all_namespaces;
    let mut listed = match name {
        Some(name) => vec![get(session, name).await?],
        None => {
            let api = if all { session.all() } else { session.api() };
            match listing::list(api).await {
                Ok(listed) => listed.items,
                Err(error) => return Err(session.explain(error, "failed to list Bursts").await),
            }
        }
    };
    let print_rows = |listed: &[Burst], wide| rows(listed, all, wide, Timestamp::now());
    if options.print(session, &mut listed, print_rows)? {
        listed.iter().filter_map(|burst| problem(burst, all)).for_each(print::message);
    }
    Ok(ExitCode::SUCCESS)
}

/// Gets a Burst by name. If there is none, the error suggests similar names.
pub(super) async fn get(session: &Session, name: &str) -> Result<Burst> {
    match session.api::<Burst>().get_opt(name).await {
        Ok(Some(burst)) => Ok(burst),
        Ok(None) => Err(not_found(session, name).await),
        Err(error) => Err(session.explain(error, &format!("failed to get {name:?}")).await),
    }
}

/// The error for a Burst that does not exist, with similar names.
pub(super) async fn not_found(session: &Session, name: &str) -> anyhow::Error {
    match session.api::<Burst>().list_metadata(&ListParams::default()).await {
        Ok(listed) => {
            let names: Vec<String> = listed.items.iter().map(ResourceExt::name_any).collect();
            session.not_found("Burst", name, &names)
        }
        Err(error) => session.explain(error, "failed to list Bursts").await,
    }
}

/// Bursts as a table, with their cost.
pub(crate) fn burst_table(listed: &[Burst]) -> String {
    rows(listed, false, false, Timestamp::now())
}

/// The columns of `kubectl get` and the cost, plus details with `wide`.
fn rows(listed: &[Burst], namespaces: bool, wide: bool, now: Timestamp) -> String {
    let mut header =
        vec!["NAME", "CLUSTER", "TARGET", "STATUS", "NODES", "JOBS", "NODE-HOURS", "COST", "AGE"];
    if namespaces {
        header.insert(0, "NAMESPACE");
    }
    if wide {
        header.extend(["POLICY", "RANKS", "OBJECTS"]);
    }
    let row = |burst: &Burst| {
        let status = burst.status.clone().unwrap_or_default();
        let created = burst.creation_timestamp();
        let age = created.map(|time| format_age(now.as_second() - time.0.as_second()));
        let mut row = vec![
            burst.name_any(),
            burst.spec.cluster.clone(),
            burst.spec.target.name.clone(),
            status.phase,
            if status.ready.is_empty() { format!("0/{}", burst.spec.nodes) } else { status.ready },
            status.jobs.to_string(),
            status.node_hours,
            status.cost,
            age.unwrap_or_default(),
        ];
        if namespaces {
            row.insert(0, burst.namespace().unwrap_or_default());
        }
        if wide {
            row.extend([burst.spec.policy.clone(), status.ranks, status.object_name]);
        }
        row
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    table(&header, &rows)
}

/// What only a user can solve, and what to do.
fn problem(burst: &Burst, namespaces: bool) -> Option<String> {
    let problem = needs_user(&burst.status.as_ref()?.conditions)?;
    let name = match namespaces {
        true => format!("{}/{}", burst.namespace().unwrap_or_default(), burst.name_any()),
        false => burst.name_any(),
    };
    Some(format!("{name}: {}\nhint: {}", problem.message, problem.remedy))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{burst, condition, now};
    use serde_json::json;

    use super::*;

    fn listed() -> Vec<Burst> {
        let refused = condition("CredentialsAccepted", "False", "CredentialsRefused", "401");
        vec![
            burst(
                "fs-gke-1",
                "cloud",
                json!({ "phase": "Ready", "ready": "2/2", "jobs": 1, "nodeHours": "1.50",
                    "cost": "0.54", "ranks": "2-3", "objectName": "burst-0123456789ab" }),
            ),
            burst("mine", "", json!({ "phase": "CredentialsRefused", "conditions": [refused] })),
        ]
    }

    #[test]
    fn the_table_shows_nodes_and_what_they_have_used() {
        let expected = "\
NAME       CLUSTER   TARGET   STATUS               NODES   JOBS   NODE-HOURS   COST   AGE
fs-gke-1   fs        gke      Ready                2/2     1      1.50         0.54   30m
mine       fs        gke      CredentialsRefused   0/2     0                          30m
";
        assert_eq!(rows(&listed(), false, false, now()), expected);
        let wide = rows(&listed(), true, true, now());
        let row: Vec<&str> = wide.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!((row[0], &row[10..]), ("team", &["cloud", "2-3", "burst-0123456789ab"][..]));
    }

    #[test]
    fn what_only_a_user_can_solve_is_shown_with_a_hint() {
        let listed = listed();
        assert_eq!(problem(&listed[0], false), None);
        let shown = problem(&listed[1], false).unwrap();
        assert!(shown.starts_with("mine: CredentialsRefused: 401\nhint: Replace "), "{shown}");
        assert!(problem(&listed[1], true).unwrap().starts_with("team/mine: "));
    }
}
