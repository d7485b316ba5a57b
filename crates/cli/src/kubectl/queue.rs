//! `kubectl minicluster queue`: queues, their use, and who waits at which place.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context, Result};
use flux_operator_plan::reason::{of_inactive, of_waiting};
use flux_operator_queue::{Setup, SetupName, Waiting, Workload};
use jiff::Timestamp;
use serde::Serialize;

use super::lookout::{Seen, look};
use super::session::Session;
use super::table::{age, table};
use super::view::{Standing, View, amounts_text, strategy};
use crate::print;

/// List queues with their use, and the jobs that wait at them with their places.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the queue. Default: all of the namespace, and those its jobs wait at.
    name: Option<String>,

    /// Queues of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// How to print them.
    #[arg(short, long, value_enum)]
    output: Option<Output>,

    #[command(flatten)]
    operator: Operator,
}

/// Where the operator is.
#[derive(clap::Args)]
pub(super) struct Operator {
    /// Namespace of the operator: only there can a queue serve other namespaces.
    #[arg(long, value_name = "NAMESPACE", default_value = "operator-system")]
    pub(super) operator_namespace: String,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Json,
    Yaml,
    Wide,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let objects = match look(session).await? {
        Seen::Objects(objects) => objects,
        Seen::Forbidden(error) => {
            return Err(session.explain(error, "failed to list queues and jobs").await);
        }
    };
    let now = Timestamp::now();
    let view = View::of(&objects, &arguments.operator.operator_namespace, now);
    let shown = Shown {
        namespace: (!arguments.all_namespaces).then_some(session.namespace.as_str()),
        name: arguments.name.as_deref(),
    };
    let report = report(&view, &shown);
    if let (Some(name), true) = (&arguments.name, report.queues.is_empty()) {
        let all = self::report(&view, &Shown { name: None, ..shown });
        let names: Vec<String> = all.queues.into_iter().map(|queue| queue.name).collect();
        return Err(session.none("FluxSetup", name, &names));
    }
    if !objects.everywhere {
        print::message(
            "note: jobs and queues of other namespaces are not counted: you may not list them",
        );
    }
    let text = match arguments.output {
        Some(Output::Json) => serde_json::to_string_pretty(&report)? + "\n",
        Some(Output::Yaml) => {
            serde_saphyr::to_string(&report).context("failed to write the queues as YAML")?
        }
        None | Some(Output::Wide) if report.queues.is_empty() && report.pending.is_empty() => {
            match arguments.all_namespaces {
                true => print::message("No queues found."),
                false => print::message(format_args!(
                    "No queues found in {} namespace.",
                    session.namespace
                )),
            }
            return Ok(ExitCode::SUCCESS);
        }
        wide => tables(&report, wide.is_some(), now),
    };
    print::output(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Which queues are shown.
struct Shown<'a> {
    /// Of one namespace.
    namespace: Option<&'a str>,
    /// Of one name.
    name: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Report {
    queues: Vec<Queue>,
    pending: Vec<Pending>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Queue {
    namespace: String,
    name: String,
    strategy: &'static str,
    used: String,
    pending: usize,
    admitted: usize,
    state: String,
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pending {
    queue: Option<String>,
    position: Option<usize>,
    kind: String,
    namespace: String,
    name: String,
    priority: i32,
    size: u32,
    asks: String,
    reason: String,
    message: String,
    /// Seconds since 1970.
    since: i64,
}

fn report(view: &View, shown: &Shown<'_>) -> Report {
    let near = near(view, shown.namespace);
    let queues: Vec<&Setup> = view
        .setups()
        .filter(|setup| shown.name.is_none_or(|name| *setup.name.name == *name))
        .filter(|setup| near.contains(&setup.name))
        .collect();
    let listed: BTreeSet<&SetupName> = queues.iter().map(|setup| &setup.name).collect();
    let is_listed = |job: &&Workload| match view.queue_of(&job.uid) {
        Some(queue) => listed.contains(queue),
        // One without a queue is shown with its namespace.
        None => shown.name.is_none() && is_in(&job.namespace, shown.namespace),
    };
    Report {
        pending: view
            .waiting()
            .into_iter()
            .filter(is_listed)
            .map(|job| pending(view, job))
            .collect(),
        queues: queues.into_iter().map(|setup| queue(view, setup)).collect(),
    }
}

/// The queues of a namespace, and those that its jobs wait at or have room of.
fn near<'a>(view: &'a View, namespace: Option<&str>) -> BTreeSet<&'a SetupName> {
    let own = view.setups().map(|setup| &setup.name);
    let own = own.filter(|name| is_in(&name.namespace, namespace));
    let jobs = view.unfinished().filter(|job| is_in(&job.namespace, namespace));
    own.chain(jobs.filter_map(|job| view.queue_of(&job.uid))).collect()
}

fn is_in(there: &str, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| namespace == there)
}

fn queue(view: &View, setup: &Setup) -> Queue {
    let usage = view.usage(&setup.name);
    let used = setup.room.iter().map(|(resource, room)| {
        let used = usage.used.amount(resource);
        format!("{}/{} {resource}", resource.quantity(used), resource.quantity(room))
    });
    let used: Vec<String> = used.collect();
    let (state, message) = match usage.inactive {
        Some(inactive) => (of_inactive(inactive.reason).to_string(), inactive.message),
        None => ("Active".into(), String::new()),
    };
    Queue {
        namespace: setup.name.namespace.to_string(),
        name: setup.name.name.to_string(),
        strategy: strategy(setup.strategy),
        used: if used.is_empty() { "unlimited".into() } else { used.join(", ") },
        pending: usage.pending,
        admitted: usage.admitted,
        state,
        message,
    }
}

fn pending(view: &View, job: &Workload) -> Pending {
    let (reason, message) = match view.standing(&job.uid) {
        Standing::Waits(Waiting { reason, .. }) => {
            (of_waiting(&reason).to_string(), reason.to_string())
        }
        _ => ("Admissible".into(), "there is room for it: it is about to be admitted".into()),
    };
    let queue = view.queue_of(&job.uid);
    Pending {
        queue: queue.map(ToString::to_string),
        position: view.position(&job.uid),
        kind: format!("{:?}", job.kind),
        namespace: job.namespace.to_string(),
        name: job.name.to_string(),
        priority: job.priority,
        size: job.size_at(view.setup_of(job)),
        asks: amounts_text(&view.asks(job)),
        reason,
        message,
        since: job.since / 1000,
    }
}

fn tables(report: &Report, wide: bool, now: Timestamp) -> String {
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
    let Queue { namespace, name, strategy, used, pending, admitted, state, message } = queue;
    let mut row = vec![
        namespace.clone(),
        name.clone(),
        (*strategy).to_owned(),
        used.clone(),
        pending.to_string(),
        admitted.to_string(),
        state.clone(),
    ];
    if wide {
        row.push(message.clone());
    }
    row
}

fn pending_row(job: &Pending, wide: bool, now: Timestamp) -> Vec<String> {
    let mut row = vec![
        job.position.map(|place| place.to_string()).unwrap_or_default(),
        job.namespace.clone(),
        job.name.clone(),
        job.queue.clone().unwrap_or_default(),
        job.priority.to_string(),
        job.size.to_string(),
        job.reason.clone(),
        age(now.as_second() - job.since),
    ];
    if wide {
        row.extend([job.asks.clone(), job.message.clone()]);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{admitted, job, now, setup, view};
    use super::*;
    use serde_json::json;

    #[test]
    fn q33_queues_come_with_their_use_and_jobs_with_their_place() {
        let view = view(&[
            setup(4),
            admitted("first", 2, json!({})),
            admitted("second", 2, json!({})),
            job("large", json!({ "size": 3 })),
            job("urgent", json!({ "size": 1, "priority": 5 })),
            job("lost", json!({ "queue": "nowhere" })),
        ]);
        let report = report(&view, &Shown { namespace: Some("team"), name: None });
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
    fn a_stopped_queue_says_so() {
        let mut stopped = setup(4);
        stopped["spec"]["stopPolicy"] = "Hold".into();
        let view = view(&[stopped, job("a", json!({}))]);
        let report = report(&view, &Shown { namespace: None, name: Some("main") });
        assert_ne!(report.queues[0].state, "Active");
        assert!(!report.queues[0].message.is_empty());
        assert_eq!(report.pending[0].name, "a");
    }

    #[test]
    fn queues_of_other_namespaces_are_shown_when_asked_for() {
        let view = view(&[setup(4)]);
        let queues = |namespace| report(&view, &Shown { namespace, name: None }).queues.len();
        assert_eq!((queues(Some("other")), queues(None)), (0, 1));
    }
}
