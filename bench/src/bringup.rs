//! One MiniCluster at a time on a real node: how long until it is done, and until it is gone.
//!
//! Beside it a bare Job of the same pods that runs `true`, and Flux alone: what is left is the
//! operator's and the agent's share. Operators have a testbed each and take turns.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flux_operator_testbed::{Level, Wanted};
use flux_operator_testkit::images::{REAL_VIEW, flux_root, import_to, import_view_to};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::runtime::watcher;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::{Bed, NAMESPACE};
use crate::contestant::{Operator, Running};
use crate::flux_alone;
use crate::manifest::{Bare, create, create_all, minicluster, miniclusters};
use crate::summary::{Measures, Samples, table};
use crate::waiting::{first, named, no_pods, of_job, within};

/// Far more than anything here should take.
const LIMIT: Duration = Duration::from_secs(120);
/// How long after its Job a MiniCluster may say that it has finished; some never do.
const WORD: Duration = Duration::from_secs(10);

/// What each operator gets.
const NODE: Wanted = Wanted { level: Level::Node, audit: false };

/// How much is measured.
#[derive(clap::Args)]
#[group(id = "bringup")]
pub(crate) struct Options {
    /// Rounds, in which all take turns
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Pods of the MiniCluster
    #[arg(id = "bringup_size", long = "bringup-size", default_value_t = 4)]
    size: u32,

    /// Bring Flux in a view image, as users have it whose own image has none. Needs FLUX_ROOT;
    /// without one it always is so
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

/// What was measured, in seconds.
#[derive(Serialize)]
pub(crate) struct Figures {
    size: u32,
    rounds: usize,
    /// A Job of the same pods that runs `true`: until its lead has ended.
    bare_job: Samples,
    /// The same, until the Job is complete.
    bare_job_complete: Samples,
    /// Flux alone, started by hand on this machine.
    flux_alone: Samples,
    operators: Vec<OperatorFigures>,
}

#[derive(Serialize, Default)]
struct OperatorFigures {
    name: String,
    lead_done: Samples,
    job_complete: Samples,
    says_finished: Samples,
    /// Deleting a cluster whose command runs, until its pods are gone.
    delete: Samples,
    /// Rounds that did not end in time.
    lost: u32,
    /// Whether it was ever heard to say that a MiniCluster has finished.
    silent: bool,
}

/// Measures all, in turns.
pub(crate) async fn measure(options: &Options, operators: &[Operator]) -> Result<Figures> {
    let mut figures = Figures {
        size: options.size,
        rounds: options.rounds,
        bare_job: Samples::default(),
        bare_job_complete: Samples::default(),
        flux_alone: Samples::default(),
        operators: Vec::new(),
    };
    let mut stages: Vec<(Bed, Running)> = Vec::new();
    for operator in operators {
        let bed = Bed::up(&operator.name, NODE, &operator.crds()?).await?;
        import_to(&bed.testbed)?;
        if let Some(root) = flux_root().filter(|_| options.view) {
            import_view_to(&bed.testbed, &root)?;
        }
        let running = operator.start(&bed)?;
        let name = operator.name.clone();
        figures.operators.push(OperatorFigures { name, ..OperatorFigures::default() });
        stages.push((bed, running));
    }
    let bare = Bare::of(&options.minicluster("template", "hostname"))?;
    // Round 0 warms every cache and does not count.
    for round in 0..=options.rounds {
        for ((bed, running), figures) in stages.iter_mut().zip(&mut figures.operators) {
            eprintln!("bring-up, round {round} of {}: {}", options.rounds, figures.name);
            let mut these =
                OperatorFigures { silent: figures.silent, ..OperatorFigures::default() };
            let outcome = running.alive(one_round(options, bed, round, &mut these)).await;
            if let Err(error) = outcome {
                eprintln!("warning: a lost round: {error:#}");
                these.lost += 1;
                delete_all(&bed.client).await?;
            }
            figures.silent = these.silent;
            if round > 0 {
                figures.take(these);
            }
        }
        let Some((bed, _)) = stages.first() else { break };
        out_of_step(options, round).await;
        let (lead, complete) = bare_job(&bed.client, &bare, round).await?;
        let flux = flux_alone::seconds(options.size)?;
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
    bed: &Bed,
    round: usize,
    figures: &mut OperatorFigures,
) -> Result<()> {
    let (client, host) = (&bed.client, bed.testbed.slot().host_address());
    let name = format!("run-{round}");
    let manifest = options.minicluster(&name, "hostname");
    out_of_step(options, round).await;
    let started = Instant::now();
    let (seen, created) =
        tokio::join!(endings(client, &name, !figures.silent), create(client, &manifest));
    created?;
    let (lead, job, word) = seen?;
    let since = |moment: Instant| (moment - started).as_secs_f64();
    figures.lead_done.add(since(lead));
    figures.job_complete.add(since(job));
    match word {
        Some(word) => figures.says_finished.add(since(word)),
        None => figures.silent = true,
    }
    delete(client, &name).await?;
    let name = format!("stop-{round}");
    // A command that tells when it runs, needs no quotes, and ends when it is ended.
    let listener = TcpListener::bind((host, 0)).await?;
    let address = listener.local_addr()?;
    let command = format!("nc {} {}", address.ip(), address.port());
    create(client, &options.minicluster(&name, &command)).await?;
    let calls = within(LIMIT, "the command runs", callers(&listener, options.size)).await?;
    figures.delete.add(delete(client, &name).await?);
    drop(calls);
    Ok(())
}

/// The kubelet looks at containers once a second, and what came before has ended with one of its
/// looks. Rounds begin at different times after it, or all would be rounded up to the same
/// second.
async fn out_of_step(options: &Options, round: usize) {
    let part = round as f64 / options.rounds.max(1) as f64;
    tokio::time::sleep(Duration::from_secs(1).mul_f64(part.min(1.0))).await;
}

/// Waits until every node's task has called.
async fn callers(listener: &TcpListener, count: u32) -> Result<Vec<TcpStream>> {
    let mut calls = Vec::new();
    for _ in 0..count {
        calls.push(listener.accept().await?.0);
    }
    Ok(calls)
}

/// When the lead's container had ended, when the Job was complete, and when the MiniCluster said
/// so, if it does.
async fn endings(
    client: &Client,
    name: &str,
    talks: bool,
) -> Result<(Instant, Instant, Option<Instant>)> {
    let lead = within(LIMIT, "the lead has ended", first(pods(client), of_job(name), lead_ended));
    let job = within(LIMIT, "the Job is complete", first(jobs(client), named(name), is_complete));
    let word = first(miniclusters(client, NAMESPACE), named(name), says_finished);
    let ended = tokio::sync::Notify::new();
    let both = async {
        let both = tokio::try_join!(lead, job);
        ended.notify_one();
        both
    };
    let word = async {
        let patience = async {
            ended.notified().await;
            tokio::time::sleep(if talks { WORD } else { Duration::ZERO }).await;
        };
        tokio::select! {
            word = word => word.map(Some),
            () = patience => Ok(None),
        }
    };
    let ((lead, job), word) = tokio::try_join!(both, word)?;
    Ok((lead, job, word))
}

/// Deletes a MiniCluster; seconds until its pods are gone.
async fn delete(client: &Client, name: &str) -> Result<f64> {
    let started = Instant::now();
    let request = miniclusters(client, NAMESPACE);
    request.delete(name, &DeleteParams::background()).await.context("failed to delete")?;
    let gone = within(LIMIT, "no pod is left", no_pods(pods(client), of_job(name))).await?;
    Ok((gone - started).as_secs_f64())
}

/// Removes what a lost round has left, so that the next one has the node to itself.
async fn delete_all(client: &Client) -> Result<()> {
    let all = miniclusters(client, NAMESPACE);
    all.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
    within(LIMIT, "no pod is left", no_pods(pods(client), watcher::Config::default())).await?;
    Ok(())
}

/// Our pods without the operator and without Flux: every container runs `true`.
async fn bare_job(client: &Client, bare: &Bare, round: usize) -> Result<(f64, f64)> {
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
    let lead = within(LIMIT, "the lead has ended", first(pods(client), of_job(&name), lead_ended));
    let job = within(LIMIT, "the Job is complete", first(jobs(client), named(&name), is_complete));
    let started = Instant::now();
    let ((), lead, job) = tokio::try_join!(create_all(client, &objects), lead, job)?;
    jobs(client).delete(&name, &DeleteParams::background()).await?;
    within(LIMIT, "no pod is left", no_pods(pods(client), of_job(&name))).await?;
    Ok(((lead - started).as_secs_f64(), (job - started).as_secs_f64()))
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn jobs(client: &Client) -> Api<Job> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn index(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get("batch.kubernetes.io/job-completion-index").map(String::as_str)
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &k8s_openapi::api::core::v1::ContainerState> {
    let status = pod.status.iter();
    let containers = status.filter_map(|status| status.container_statuses.as_ref()).flatten();
    containers.filter_map(|container| container.state.as_ref())
}

fn lead_ended(pod: &Pod) -> bool {
    index(pod) == Some("0") && statuses(pod).any(|state| state.terminated.is_some())
}

fn is_complete(job: &Job) -> bool {
    let conditions = job.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Complete" && condition.status == "True")
}

fn says_finished(minicluster: &DynamicObject) -> bool {
    let conditions = minicluster.data["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "JobFinished" && condition["status"] == "True")
}

impl OperatorFigures {
    fn take(&mut self, other: OperatorFigures) {
        let OperatorFigures {
            name: _,
            lead_done,
            job_complete,
            says_finished,
            delete,
            lost,
            silent,
        } = other;
        self.lead_done.take(lead_done);
        self.job_complete.take(job_complete);
        self.says_finished.take(says_finished);
        self.delete.take(delete);
        self.lost += lost;
        self.silent = silent;
    }
}

impl Figures {
    /// What is neither the pods' nor Flux's own.
    fn own_share(&self, operator: &OperatorFigures) -> Option<f64> {
        Some(operator.lead_done.median()? - self.bare_job.median()? - self.flux_alone.median()?)
    }

    /// All figures by name; ratios to the floor and to other operators too.
    pub(crate) fn measures(&self) -> Measures {
        let mut measures = Measures::new();
        let floor =
            self.bare_job.median().zip(self.flux_alone.median()).map(|(job, flux)| job + flux);
        for operator in &self.operators {
            let mut set = |name: &str, value: Option<f64>| {
                let name = format!("bringup.{}.{name}", operator.name);
                measures.extend(value.map(|value| (name, value)));
            };
            let ratio = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
            let lead_done = operator.lead_done.median();
            set("lead_done", lead_done);
            set("lead_done_over_floor", ratio(lead_done, floor));
            set("worst_over_median", ratio(operator.lead_done.worst(), lead_done));
            set("own_share", self.own_share(operator));
            set("job_complete", operator.job_complete.median());
            set("says_finished", operator.says_finished.median());
            set("delete", operator.delete.median());
            set("lost", Some(f64::from(operator.lost)));
            for other in self.operators.iter().filter(|other| other.name != operator.name) {
                let over = |what: &str| format!("{what}_over.{}", other.name);
                set(&over("lead_done"), ratio(lead_done, other.lead_done.median()));
                set(&over("delete"), ratio(operator.delete.median(), other.delete.median()));
            }
        }
        measures
    }

    /// The figures for people.
    pub(crate) fn table(&self) -> String {
        let names = self.operators.iter().map(|operator| operator.name.clone());
        let mut rows: Vec<Vec<String>> = vec![
            ["", "bare Job", "Flux alone"].map(str::to_owned).into_iter().chain(names).collect(),
        ];
        let dash = || "-".to_owned();
        let mut row =
            |what: &str, bare: String, flux: String, cell: &dyn Fn(&OperatorFigures) -> String| {
                let cells = self.operators.iter().map(cell);
                rows.push([what.to_owned(), bare, flux].into_iter().chain(cells).collect());
            };
        row("lead done", self.bare_job.text(2), self.flux_alone.text(2), &|each| {
            each.lead_done.text(2)
        });
        row("Job complete", self.bare_job_complete.text(2), dash(), &|each| {
            each.job_complete.text(2)
        });
        row("MiniCluster says finished", dash(), dash(), &|each| each.says_finished.text(2));
        row("lead done − bare Job − Flux alone", dash(), dash(), &|each| {
            self.own_share(each).map_or_else(dash, |share| format!("{share:.2}"))
        });
        row("delete while it runs, until no pod is left", dash(), dash(), &|each| {
            each.delete.text(2)
        });
        row("lost rounds", dash(), dash(), &|each| each.lost.to_string());
        let title = format!(
            "one MiniCluster of {}, {} rounds, seconds: median (worst)",
            self.size, self.rounds
        );
        table(&title, &rows)
    }
}
