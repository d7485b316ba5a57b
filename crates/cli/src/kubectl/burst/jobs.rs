//! `kubectl minicluster jobs`: the jobs of an instance, with those that run, or have run, in an
//! instance of their own elsewhere.

use std::process::ExitCode;

use anyhow::Result;
use flux_operator_api::Burst;
use flux_operator_api::burst::RunState;
use flux_operator_flux::{JobId, ListedJob};
use kube::ResourceExt;
use serde::Serialize;

use super::instance::list_jobs;
use super::why::{LeadFlux, list};
use crate::kubectl::output_format::DataFormat;
use crate::kubectl::session::Session;
use crate::kubectl::table::table;
use crate::print;

/// List the jobs of a MiniCluster that wait and run, and those that run or have run in an instance
/// of their own elsewhere, with their state and exit code.
///
/// The latter are shown for a day after they have finished; `logs NAME --job ID` prints their output.
/// All others that have finished are listed by `flux jobs -a` in the lead's pod.
#[derive(clap::Args)]
pub(in crate::kubectl) struct Arguments {
    /// Name of the MiniCluster.
    name: String,

    /// Output format.
    #[arg(short, long, value_enum)]
    output: Option<DataFormat>,
}

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct JobRow {
    /// Its id.
    job: String,
    /// `pending`, `held` or `running` here, otherwise the state of its run elsewhere.
    state: String,
    /// How many nodes it requests, or has.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    /// The ranks that it runs on.
    #[serde(skip_serializing_if = "String::is_empty")]
    ranks: String,
    /// The target where it runs in an instance of its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    target: String,
    /// The Burst that runs it.
    #[serde(skip_serializing_if = "String::is_empty")]
    burst: String,
    /// Its exit code there.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// What has happened to it there.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

/// The jobs of a MiniCluster.
#[derive(Serialize)]
struct JobRows {
    namespace: String,
    cluster: String,
    items: Vec<JobRow>,
}

pub(in crate::kubectl) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let name = &arguments.name;
    let flux = LeadFlux::open(session, name).await?;
    let (pending, running) = list_jobs(&flux).await?;
    let bursts = list::<Burst>(session, "Bursts").await?;
    let items = rows_of(name, &pending, &running, &bursts);
    let rows = JobRows { namespace: session.namespace.clone(), cluster: name.clone(), items };
    let text = match arguments.output {
        Some(format) => format.print(&rows)?,
        None if rows.items.is_empty() => {
            print::message(format_args!("No jobs wait or run in {name}."));
            return Ok(ExitCode::SUCCESS);
        }
        None => text(&rows.items),
    };
    print::output(text)?;
    if arguments.output.is_none() {
        reasons(&rows.items).for_each(|reason| print::message(format_args!("{reason}")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Why jobs have no exit code: they could not run elsewhere, or were lost there.
fn reasons(rows: &[JobRow]) -> impl Iterator<Item = String> {
    let has_reason = |row: &&JobRow| row.exit_code.is_none() && !row.message.is_empty();
    rows.iter().filter(has_reason).map(|row| format!("{}: {}: {}", row.job, row.state, row.message))
}

/// The Burst that runs a job of a MiniCluster in an instance of its own, or has run it: the newest, and
/// one that does not run it only if there is no other.
pub(in crate::kubectl) fn run_of<'a>(
    cluster: &str,
    job: JobId,
    bursts: &'a [Burst],
) -> Option<&'a Burst> {
    let is_of = |burst: &&Burst| {
        burst.spec.cluster == cluster && burst.spec.isolated_job.parse::<JobId>() == Ok(job)
    };
    let order = |burst: &&Burst| (!has_left_job(burst), burst.creation_timestamp());
    bursts.iter().filter(is_of).max_by_key(order)
}

/// Whether a run has left its job to others, so that it says nothing of a job that runs at home or has
/// finished there. Its record exists for a day.
pub(super) fn has_left_job(burst: &Burst) -> bool {
    burst.run().is_some_and(|run| matches!(run.state, RunState::Refused | RunState::Yielded))
}

fn rows_of(
    cluster: &str,
    pending: &[ListedJob],
    running: &[ListedJob],
    bursts: &[Burst],
) -> Vec<JobRow> {
    let runs = |job: JobId| run_of(cluster, job, bursts).filter(|burst| !has_left_job(burst));
    let row = |state: &str, job: &ListedJob, run: Option<&Burst>| {
        let row = JobRow {
            job: job.id.to_string(),
            state: state.to_owned(),
            nodes: job.nodes,
            ranks: job.ranks.to_string(),
            ..JobRow::default()
        };
        match run {
            Some(burst) => JobRow { nodes: row.nodes, ..elsewhere(job.id, burst) },
            None => row,
        }
    };
    let state = |job: &ListedJob| if job.is_held { "held" } else { "pending" };
    let mut rows: Vec<JobRow> =
        running.iter().map(|job| row("running", job, runs(job.id))).collect();
    // A job that waits gets also the reason why it cannot run elsewhere.
    rows.extend(pending.iter().map(|job| row(state(job), job, run_of(cluster, job.id, bursts))));
    let is_listed = |id: JobId| pending.iter().chain(running).any(|job| job.id == id);
    let mut finished: Vec<JobId> = bursts
        .iter()
        .filter(|burst| burst.spec.cluster == cluster)
        .filter_map(|burst| burst.spec.isolated_job.parse().ok())
        .filter(|id| !is_listed(*id))
        .collect();
    finished.sort_unstable();
    finished.dedup();
    rows.extend(finished.into_iter().filter_map(|id| Some(elsewhere(id, runs(id)?))));
    rows
}

/// A job that runs in an instance of its own.
fn elsewhere(id: JobId, burst: &Burst) -> JobRow {
    let run = burst.run().cloned().unwrap_or_default();
    JobRow {
        job: id.to_string(),
        state: run.state.as_str().to_lowercase(),
        nodes: u32::try_from(burst.spec.nodes).ok(),
        ranks: String::new(),
        target: burst.spec.target.name.clone(),
        burst: burst.name_any(),
        exit_code: run.exit_code,
        message: run.message,
    }
}

fn text(rows: &[JobRow]) -> String {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let row = |row: &JobRow| {
        vec![
            row.job.clone(),
            row.state.clone(),
            row.nodes.map_or("-".to_owned(), |nodes| nodes.to_string()),
            or_dash(&row.ranks),
            or_dash(&row.target),
            or_dash(&row.burst),
            row.exit_code.map_or("-".to_owned(), |code| code.to_string()),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    table(&["JOB", "STATE", "NODES", "RANKS", "TARGET", "BURST", "EXIT"], &rows)
}

#[cfg(test)]
mod tests {
    use super::super::testing::burst;
    use serde_json::json;

    use super::*;

    fn listed(id: u64, ranks: &str, is_held: bool) -> ListedJob {
        let urgency = if is_held { 0 } else { 16 };
        let line = json!({ "id": id, "nnodes": 2, "ranks": ranks, "urgency": urgency, "state": 8 });
        ListedJob::parse(&line.to_string()).unwrap()
    }

    fn isolated(name: &str, id: u64, run: serde_json::Value) -> Burst {
        let mut burst = burst(name, "p", json!({ "run": run }));
        burst.spec.isolated_job = JobId::from(id).to_f58_plain();
        burst
    }

    #[test]
    fn jobs_that_run_elsewhere_are_shown_with_their_exit_code() {
        let bursts = [
            isolated("fs-away-1", 3, json!({ "state": "Running" })),
            isolated("fs-away-2", 4, json!({ "state": "Failed", "exitCode": 7 })),
            burst("joined", "p", json!({})),
        ];
        let pending = [listed(2, "", false), listed(3, "", true), listed(5, "", true)];
        let rows = rows_of("fs", &pending, &[listed(1, "0-1", false)], &bursts);
        let shown: Vec<(String, &str, Option<i32>)> =
            rows.iter().map(|row| (row.job.clone(), row.state.as_str(), row.exit_code)).collect();
        let id = |id: u64| JobId::from(id).to_string();
        assert_eq!(
            shown,
            [
                (id(1), "running", None),
                (id(2), "pending", None),
                (id(3), "running", None),
                (id(5), "held", None),
                (id(4), "failed", Some(7)),
            ]
        );
        assert_eq!((rows[0].target.as_str(), rows[2].target.as_str()), ("", "gke"));
        let text = text(&rows);
        assert!(text.lines().last().unwrap().trim().ends_with("fs-away-2   7"), "{text}");
    }

    #[test]
    fn a_run_that_has_left_its_job_is_shown_only_while_the_job_waits() {
        let refused = json!({ "state": "Refused", "message": "it is bound to its instance" });
        let runs = [1, 2, 3].map(|id| isolated(&format!("refused-{id}"), id, refused.clone()));
        let yielded = isolated("yielded", 4, json!({ "state": "Yielded" }));
        let bursts = [runs.as_slice(), &[yielded]].concat();
        let running = [listed(1, "0-1", false), listed(4, "2-3", false)];
        let rows = rows_of("fs", &[listed(2, "", false)], &running, &bursts);
        let shown: Vec<(&str, &str, &str)> = rows
            .iter()
            .map(|row| (row.state.as_str(), row.ranks.as_str(), row.burst.as_str()))
            .collect();
        assert_eq!(
            shown,
            [("running", "0-1", ""), ("running", "2-3", ""), ("refused", "", "refused-2")]
        );
        let expected = format!("{}: refused: it is bound to its instance", JobId::from(2));
        assert_eq!(reasons(&rows).collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn a_job_without_an_exit_code_has_a_reason() {
        let bursts = [
            isolated("fs-away-1", 3, json!({ "state": "Failed", "message": "it was lost" })),
            isolated("fs-away-2", 4, json!({ "state": "Failed", "exitCode": 7, "message": "7" })),
            isolated("fs-away-3", 5, json!({ "state": "Running" })),
        ];
        let rows = rows_of("fs", &[], &[], &bursts);
        let expected = format!("{}: failed: it was lost", JobId::from(3));
        assert_eq!(reasons(&rows).collect::<Vec<_>>(), [expected]);
    }
}
