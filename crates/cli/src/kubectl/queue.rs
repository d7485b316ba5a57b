//! `kubectl minicluster queue`: queues, their usage, and the positions of waiting jobs.

use std::process::ExitCode;

use anyhow::Result;
use flux_operator_api::view::{Queue, QueueOverview, ResourceUse, WaitingJob};
use jiff::Timestamp;

use super::listing::{Listing, list_all};
use super::output_format::TableFormat;
use super::session::Session;
use super::table::{format_age, table};
use super::view::QueueSnapshot;
use crate::print;

/// List queues with their usage, and the waiting jobs with their positions.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the queue. Default: all queues of the namespace, and the queues of its waiting jobs.
    name: Option<String>,

    /// List queues of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Output format.
    #[arg(short, long, value_enum)]
    output: Option<TableFormat>,

    #[command(flatten)]
    operator: OperatorArguments,
}

/// The location of the operator.
#[derive(clap::Args)]
pub(super) struct OperatorArguments {
    /// Namespace of the operator: only queues in it can serve other namespaces.
    #[arg(long, value_name = "NAMESPACE", default_value = "operator-system")]
    pub(super) operator_namespace: String,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let objects = match list_all(session).await? {
        Listing::Objects(objects) => objects,
        Listing::Forbidden(error) => {
            return Err(session.explain(error, "failed to list queues and jobs").await);
        }
    };
    let now = Timestamp::now();
    let snapshot = QueueSnapshot::compute(&objects, &arguments.operator.operator_namespace, now);
    let view = snapshot.view();
    let namespace = (!arguments.all_namespaces).then_some(session.namespace.as_str());
    let overview = view.queues(namespace, arguments.name.as_deref());
    if let (Some(name), true) = (&arguments.name, overview.queues.is_empty()) {
        let all = view.queues(namespace, None);
        let names: Vec<String> = all.queues.into_iter().map(|queue| queue.name).collect();
        return Err(session.not_found("FluxSetup", name, &names));
    }
    if let Some(missing) = objects.missing {
        print::message(format_args!("note: {}", missing.explanation()));
    }
    let text = match arguments.output {
        Some(TableFormat::Data(format)) => format.print(&overview)?,
        None | Some(TableFormat::Wide)
            if overview.queues.is_empty() && overview.pending.is_empty() =>
        {
            match arguments.all_namespaces {
                true => print::message("No queues found."),
                false => print::message(format_args!(
                    "No queues found in {} namespace.",
                    session.namespace
                )),
            }
            return Ok(ExitCode::SUCCESS);
        }
        wide => tables(&overview, wide.is_some(), now),
    };
    print::output(text)?;
    Ok(ExitCode::SUCCESS)
}

fn tables(report: &QueueOverview, wide: bool, now: Timestamp) -> String {
    let mut header = vec!["NAMESPACE", "QUEUE", "STRATEGY", "USED", "PENDING", "ADMITTED", "STATE"];
    if wide {
        header.push("MESSAGE");
    }
    let rows: Vec<Vec<String>> = report.queues.iter().map(|queue| queue_row(queue, wide)).collect();
    let mut text = if rows.is_empty() { String::new() } else { table(&header, &rows) };
    if report.pending.is_empty() {
        return text;
    }
    let mut header =
        vec!["POSITION", "NAMESPACE", "JOB", "QUEUE", "PRIORITY", "SIZE", "REASON", "SINCE"];
    if wide {
        header.extend(["ASKS", "MESSAGE"]);
    }
    let rows: Vec<Vec<String>> =
        report.pending.iter().map(|job| pending_row(job, wide, now)).collect();
    if !text.is_empty() {
        text.push('\n');
    }
    text + &table(&header, &rows)
}

fn queue_row(queue: &Queue, wide: bool) -> Vec<String> {
    let mut row = vec![
        queue.namespace.clone(),
        queue.name.clone(),
        queue.strategy.clone(),
        usage(queue),
        queue.pending.to_string(),
        queue.admitted.to_string(),
        queue.reason.clone(),
    ];
    if wide {
        row.push(queue.message.clone());
    }
    row
}

/// The usage of a queue, as in `2/4 nodes`.
fn usage(queue: &Queue) -> String {
    if queue.resources.is_empty() {
        return "unlimited".into();
    }
    let one = |it: &ResourceUse| format!("{}/{} {}", it.used, it.quota, it.name);
    queue.resources.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The resources that a job requests, as in `2 nodes, 4 cpu`.
fn requests(job: &WaitingJob) -> String {
    let one = |(name, amount): (&String, &String)| format!("{amount} {name}");
    job.asks.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn pending_row(job: &WaitingJob, wide: bool, now: Timestamp) -> Vec<String> {
    let mut row = vec![
        job.position.map(|place| place.to_string()).unwrap_or_default(),
        job.namespace.clone(),
        job.name.clone(),
        job.queue.clone().unwrap_or_default(),
        job.priority.to_string(),
        job.size.to_string(),
        job.reason.clone(),
        format_age(now.as_second() - job.since),
    ];
    if wide {
        row.extend([requests(job), job.message.clone()]);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{admitted, job, now, setup, snapshot};
    use super::*;
    use serde_json::json;

    #[test]
    fn q33_queues_show_their_usage_and_jobs_their_position() {
        let decided = snapshot(&[
            setup(4),
            admitted("first", 2, json!({})),
            admitted("second", 2, json!({})),
            job("large", json!({ "size": 3 })),
            job("urgent", json!({ "size": 1, "priority": 5 })),
            job("lost", json!({ "queue": "nowhere" })),
        ]);
        let report = decided.view().queues(Some("team"), None);
        let expected = "\
NAMESPACE   QUEUE   STRATEGY         USED        PENDING   ADMITTED   STATE
team        main    BestEffortFIFO   4/4 nodes   2         2          Active

POSITION   NAMESPACE   JOB      QUEUE       PRIORITY   SIZE   REASON            SINCE
0          team        urgent   team/main   5          1      WaitingForQuota   4m56s
1          team        large    team/main   0          3      WaitingForQuota   4m57s
           team        lost                 0          1      UnknownQueue      4m55s
";
        assert_eq!(tables(&report, false, now()), expected);
    }

    #[test]
    fn a_stopped_queue_is_shown_as_stopped() {
        let mut stopped = setup(4);
        stopped["spec"]["stopPolicy"] = "Hold".into();
        let decided = snapshot(&[stopped, job("a", json!({}))]);
        let report = decided.view().queues(None, Some("main"));
        assert_ne!(report.queues[0].reason, "Active");
        assert!(!report.queues[0].message.is_empty());
        assert_eq!(report.pending[0].name, "a");
    }

    #[test]
    fn queues_of_other_namespaces_are_shown_when_asked_for() {
        let decided = snapshot(&[setup(4)]);
        let queues = |namespace| decided.view().queues(namespace, None).queues.len();
        assert_eq!((queues(Some("other")), queues(None)), (0, 1));
    }
}
