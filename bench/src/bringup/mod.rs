//! One MiniCluster at a time on a real node: how long until it has finished, and until it is
//! deleted.
//!
//! For comparison, it also measures a bare Job with the same pods that runs `true`, and Flux alone.
//! What remains is the share of operator and agent. Each operator has its own testbed, and the
//! operators are measured alternately.

mod figures;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flux_operator_testkit::images::{REAL_VIEW, flux_root, import_view_to};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

pub(crate) use figures::Figures;
use figures::OperatorFigures;

use crate::bench_testbed::{BenchTestbed, NAMESPACE};
use crate::flux_alone;
use crate::manifest::{RenderedObjects, create, create_all, minicluster, miniclusters};
use crate::node_stage::{
    LIMIT, NodeStage, delete, delete_all, desynchronize, has_true_condition, pod, pods,
    wait_for_condition,
};
use crate::summary::Samples;
use crate::under_test::OperatorUnderTest;
use crate::waiting::{named, of_job, time_of_first, time_without, within};

/// How long after its Job a MiniCluster may report that it has finished; some operators never do.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much to measure.
#[derive(clap::Args)]
#[group(id = "bringup")]
pub(crate) struct Options {
    /// Number of rounds; each round measures every operator once
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Number of pods of the MiniCluster
    #[arg(id = "bringup_size", long = "bringup-size", default_value_t = 4)]
    size: u32,

    /// Deliver Flux in a view image, to a user image without Flux. Only with FLUX_ROOT; without it,
    /// Flux is always delivered in a view image
    #[arg(long)]
    view: bool,
}

impl Options {
    fn minicluster(&self, name: &str, command: &str) -> Value {
        let mut manifest = minicluster(name, NAMESPACE, self.size, command);
        if self.view && flux_root().is_some() {
            manifest["spec"]["flux"] = json!({ "container": { "image": REAL_VIEW.view } });
            manifest["spec"]["containers"][0]["image"] = REAL_VIEW.runner.into();
        }
        manifest
    }
}

/// Measures all operators alternately, and a bare Job and Flux alone in every round.
pub(crate) async fn measure(options: &Options, operators: &[OperatorUnderTest]) -> Result<Figures> {
    let mut figures = Figures {
        size: options.size,
        rounds: options.rounds,
        bare_job: Samples::default(),
        bare_job_complete: Samples::default(),
        flux_alone: Samples::default(),
        operators: Vec::new(),
    };
    let mut stages: Vec<NodeStage> = Vec::new();
    for operator in operators {
        let stage = NodeStage::up(operator).await?;
        if let Some(root) = flux_root().filter(|_| options.view) {
            import_view_to(&stage.bed.testbed, &root)?;
        }
        let name = operator.name.clone();
        figures.operators.push(OperatorFigures { name, ..OperatorFigures::default() });
        stages.push(stage);
    }
    let bare = RenderedObjects::render(&options.minicluster("template", "hostname"))?;
    // Round 0 warms all caches and is not counted.
    for round in 0..=options.rounds {
        for (NodeStage { running, bed }, figures) in stages.iter_mut().zip(&mut figures.operators) {
            eprintln!("bring-up, round {round} of {}: {}", options.rounds, figures.name);
            let mut these =
                OperatorFigures { silent: figures.silent, ..OperatorFigures::default() };
            let outcome = running.while_alive(one_round(options, bed, round, &mut these)).await;
            if let Err(error) = outcome {
                eprintln!("warning: a round failed: {error:#}");
                these.lost += 1;
                delete_all(&bed.client).await?;
            }
            figures.silent = these.silent;
            if round > 0 {
                figures.merge(these);
            }
        }
        let Some(NodeStage { bed, .. }) = stages.first() else { break };
        desynchronize(round, options.rounds).await;
        let (lead, complete) = bare_job(&bed.client, &bare, round).await?;
        let flux = flux_alone::measure(options.size)?;
        if round > 0 {
            figures.bare_job.add(lead);
            figures.bare_job_complete.add(complete);
            figures.flux_alone.add(flux);
        }
    }
    Ok(figures)
}

async fn one_round(
    options: &Options,
    bed: &BenchTestbed,
    round: usize,
    figures: &mut OperatorFigures,
) -> Result<()> {
    let (client, host) = (&bed.client, bed.testbed.slot().host_address());
    desynchronize(round, options.rounds).await;
    let done = run(options, client, &format!("run-{round}"), !figures.silent).await?;
    figures.lead_done.add(done.lead);
    figures.job_complete.add(done.job);
    match done.reported {
        Some(word) => figures.says_finished.add(word),
        None => figures.silent = true,
    }
    let name = format!("stop-{round}");
    // The connection shows that the command runs. `nc` needs no quotes, and exits when it is
    // killed.
    let listener = TcpListener::bind((host, 0)).await?;
    let address = listener.local_addr()?;
    let command = format!("nc {} {}", address.ip(), address.port());
    create(client, &options.minicluster(&name, &command)).await?;
    let connections =
        within(LIMIT, "the command runs", accept_all(&listener, options.size)).await?;
    figures.delete.add(delete(client, &name).await?);
    drop(connections);
    // One after the other without a pause, as users do when they try things out: DNS still has the
    // address of the deleted lead.
    for (name, samples) in [
        (format!("new-{round}"), &mut figures.new_name),
        ("same".to_owned(), &mut figures.same_name),
    ] {
        samples.add(run(options, client, &name, false).await?.lead);
    }
    // Only for operators that report the state of their clusters.
    if !figures.silent {
        figures.lead_lost.add(lead_lost(options, client, &format!("lost-{round}")).await?);
    }
    Ok(())
}

/// The times of a run, in seconds.
struct RunTimes {
    lead: f64,
    job: f64,
    reported: Option<f64>,
}

/// Runs `hostname` in a MiniCluster with this name, and deletes it.
async fn run(options: &Options, client: &Client, name: &str, reports: bool) -> Result<RunTimes> {
    let manifest = options.minicluster(name, "hostname");
    let started = Instant::now();
    let (times, created) =
        tokio::join!(wait_for_completion(client, name, reports), create(client, &manifest));
    created?;
    let (lead, job, reported) = times?;
    delete(client, name).await?;
    let since = |moment: Instant| (moment - started).as_secs_f64();
    Ok(RunTimes { lead: since(lead), job: since(job), reported: reported.map(since) })
}

/// The time, in seconds, from deleting the lead's pod of an interactive cluster until the cluster
/// is Ready again.
async fn lead_lost(options: &Options, client: &Client, name: &str) -> Result<f64> {
    let mut manifest = options.minicluster(name, "");
    manifest["spec"]["interactive"] = true.into();
    create(client, &manifest).await?;
    wait_for_condition(client, name, "Ready").await?;
    let seconds = lose_lead(client, name).await?;
    delete(client, name).await?;
    Ok(seconds)
}

async fn lose_lead(client: &Client, name: &str) -> Result<f64> {
    let lead = pod(client, name, 0).await?.name_any();
    let mut was_unready = false;
    let back = time_of_first(miniclusters(client, NAMESPACE), named(name), |found| {
        let ready = has_true_condition(found, "Ready");
        was_unready |= !ready;
        was_unready && ready
    });
    let started = Instant::now();
    let deleted = async {
        pods(client).delete(&lead, &DeleteParams::default()).await.context("failed to delete")
    };
    let (_, back) = tokio::try_join!(deleted, within(LIMIT, "it is Ready again", back))?;
    Ok((back - started).as_secs_f64())
}

/// Waits until the task on every node has connected.
async fn accept_all(listener: &TcpListener, count: u32) -> Result<Vec<TcpStream>> {
    let mut calls = Vec::new();
    for _ in 0..count {
        calls.push(listener.accept().await?.0);
    }
    Ok(calls)
}

/// When the lead's container terminated, when the Job was complete, and when the MiniCluster
/// reported it, if it does.
async fn wait_for_completion(
    client: &Client,
    name: &str,
    talks: bool,
) -> Result<(Instant, Instant, Option<Instant>)> {
    let lead = within(
        LIMIT,
        "the lead terminated",
        time_of_first(pods(client), of_job(name), is_lead_terminated),
    );
    let job =
        within(LIMIT, "the Job is complete", time_of_first(jobs(client), named(name), is_complete));
    let word = time_of_first(miniclusters(client, NAMESPACE), named(name), is_reported_finished);
    let finished = tokio::sync::Notify::new();
    let both = async {
        let both = tokio::try_join!(lead, job);
        finished.notify_one();
        both
    };
    let word = async {
        let patience = async {
            finished.notified().await;
            tokio::time::sleep(if talks { REPORT_TIMEOUT } else { Duration::ZERO }).await;
        };
        tokio::select! {
            word = word => word.map(Some),
            () = patience => Ok(None),
        }
    };
    let ((lead, job), word) = tokio::try_join!(both, word)?;
    Ok((lead, job, word))
}

/// Our pods without operator and without Flux: every container runs `true`.
async fn bare_job(client: &Client, bare: &RenderedObjects, round: usize) -> Result<(f64, f64)> {
    let name = format!("bare-{round}");
    let mut objects = bare.without_owner(&name, NAMESPACE)?;
    for job in objects.iter_mut().filter(|object| object["kind"] == "Job") {
        for container in
            job["spec"]["template"]["spec"]["containers"].as_array_mut().into_iter().flatten()
        {
            container["command"] = json!(["true"]);
            container["readinessProbe"] = json!(null);
        }
    }
    let lead = within(
        LIMIT,
        "the lead terminated",
        time_of_first(pods(client), of_job(&name), is_lead_terminated),
    );
    let job = within(
        LIMIT,
        "the Job is complete",
        time_of_first(jobs(client), named(&name), is_complete),
    );
    let started = Instant::now();
    let ((), lead, job) = tokio::try_join!(create_all(client, &objects), lead, job)?;
    jobs(client).delete(&name, &DeleteParams::background()).await?;
    within(LIMIT, "no pod is left", time_without(pods(client), of_job(&name))).await?;
    Ok(((lead - started).as_secs_f64(), (job - started).as_secs_f64()))
}

fn jobs(client: &Client) -> Api<Job> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn index(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get("batch.kubernetes.io/job-completion-index").map(String::as_str)
}

fn container_states(
    pod: &Pod,
) -> impl Iterator<Item = &k8s_openapi::api::core::v1::ContainerState> {
    let status = pod.status.iter();
    let containers = status.filter_map(|status| status.container_statuses.as_ref()).flatten();
    containers.filter_map(|container| container.state.as_ref())
}

fn is_lead_terminated(pod: &Pod) -> bool {
    index(pod) == Some("0") && container_states(pod).any(|state| state.terminated.is_some())
}

fn is_complete(job: &Job) -> bool {
    let conditions = job.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Complete" && condition.status == "True")
}

fn is_reported_finished(minicluster: &DynamicObject) -> bool {
    has_true_condition(minicluster, "JobFinished")
}
