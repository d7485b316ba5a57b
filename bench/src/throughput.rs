//! Many MiniClusters at once: how fast their Jobs are created, and at what cost.
//!
//! There is no node, so only the operator and the control plane are measured. The ceiling is a bare
//! client that creates the same objects, MiniClusters included, with the same number of concurrent
//! requests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use flux_operator_testbed::{Level, Requirements};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use serde::Serialize;
use serde_json::Value;

use crate::audit::{Calls, Tally, calls_of};
use crate::bench_testbed::{BenchTestbed, NAMESPACE, OPERATOR_USER, WARM_UP};
use crate::manifest::{RenderedObjects, create, create_all, minicluster};
use crate::summary::{Measures, Samples, table};
use crate::under_test::{OperatorUnderTest, RunningOperator};
use crate::usage::Usage;
use crate::waiting::{named, time_of_count, time_of_first, within};

/// The number of MiniClusters that are created one after the other, before many at once.
const SINGLES: usize = 20;
/// How long an operator may still write after the last pod was created.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// The testbed of each operator: requests are counted.
const AUDITED: Requirements = Requirements { level: Level::ControlPlane, audit: true };

/// How much to measure.
#[derive(clap::Args)]
#[group(id = "throughput")]
pub(crate) struct Options {
    /// Number of MiniClusters to create at once
    #[arg(long, default_value_t = 200)]
    count: usize,

    /// Number of pods of each MiniCluster
    #[arg(long, default_value_t = 2)]
    size: u32,

    /// Number of concurrent requests of the client
    #[arg(long, default_value_t = 16)]
    concurrency: usize,

    /// Number of rounds; each round measures the bare client and every operator once
    #[arg(id = "throughput_rounds", long = "throughput-rounds", default_value_t = 1)]
    rounds: usize,

    /// Seconds for which an idle operator is observed, in the last round
    #[arg(long, default_value_t = 30)]
    idle: u64,

    /// Maximum seconds until all Jobs exist, and again until all pods exist
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

/// Measurements.
#[derive(Serialize)]
pub(crate) struct Figures {
    count: usize,
    size: u32,
    concurrency: usize,
    /// MiniClusters per second, by a client that creates everything itself.
    ceiling: Samples,
    ceiling_single_milliseconds: Samples,
    operators: Vec<OperatorFigures>,
}

#[derive(Serialize, Default)]
struct OperatorFigures {
    name: String,
    /// Jobs per second, from the first create request to the last Job.
    rate: Samples,
    /// From creating one MiniCluster to its Job, without other load.
    single_milliseconds: Samples,
    /// CPU time until all Jobs existed.
    cpu_seconds: Samples,
    /// Of the last round: the memory, and the requests until all Jobs existed and until it settled.
    peak_mebibytes: f64,
    until_jobs: Tally,
    settled: Option<SettledFigures>,
}

/// The measurements after all pods exist and the operator has settled.
#[derive(Serialize)]
struct SettledFigures {
    seconds: f64,
    calls: Tally,
    usage: Usage,
    idle_seconds: u64,
    idle_calls: Tally,
    idle_cpu_seconds: f64,
}

/// Measures the bare client and all operators alternately.
pub(crate) async fn measure(options: &Options, operators: &[OperatorUnderTest]) -> Result<Figures> {
    let mut figures = Figures {
        count: options.count,
        size: options.size,
        concurrency: options.concurrency,
        ceiling: Samples::default(),
        ceiling_single_milliseconds: Samples::default(),
        operators: operators.iter().map(OperatorFigures::of).collect(),
    };
    let template = minicluster("template", NAMESPACE, options.size, "hostname");
    let bare = RenderedObjects::render(&template)?;
    for round in 1..=options.rounds {
        eprintln!("throughput, round {round} of {}: bare client", options.rounds);
        measure_ceiling(options, &bare, &mut figures).await?;
        for (operator, figures) in operators.iter().zip(&mut figures.operators) {
            eprintln!("throughput, round {round} of {}: {}", options.rounds, operator.name);
            one_round(options, operator, round == options.rounds, figures).await?;
        }
    }
    Ok(figures)
}

/// Measures the MiniClusters per second of a client that creates each MiniCluster and its objects.
async fn measure_ceiling(
    options: &Options,
    bare: &RenderedObjects,
    figures: &mut Figures,
) -> Result<()> {
    let ours: Result<Vec<_>> =
        flux_operator_api::crd::all().iter().map(|crd| Ok(serde_json::to_value(crd)?)).collect();
    let bed = BenchTestbed::up("bare", AUDITED, &ours?).await?;
    let create_one = async |client: &Client, manifest: Value| {
        let owner = create(client, &manifest).await?;
        create_all(client, &bare.objects(&owner)?).await
    };
    // The operator's account, because its requests wait in the same queues of the API server.
    let client = bed.operator_client().await?;
    for number in 0..=SINGLES {
        let seconds = measure_single(options, &client, number, &create_one).await?;
        if number > 0 {
            figures.ceiling_single_milliseconds.add(1000.0 * seconds);
        }
    }
    figures.ceiling.add(measure_all_at_once(options, &client, &create_one).await?);
    Ok(())
}

/// Creates only the MiniCluster, as a user does.
async fn create_alone(client: &Client, manifest: Value) -> Result<()> {
    create(client, &manifest).await.map(drop)
}

async fn one_round(
    options: &Options,
    operator: &OperatorUnderTest,
    is_last: bool,
    figures: &mut OperatorFigures,
) -> Result<()> {
    let bed = BenchTestbed::up(&operator.name, AUDITED, &operator.crds()?).await?;
    let mut running = operator.start(&bed)?;
    for number in 0..=SINGLES {
        let seconds = running
            .while_alive(measure_single(options, &bed.client, number, &create_alone))
            .await?;
        // The first one waits for the operator to start.
        if number > 0 {
            figures.single_milliseconds.add(1000.0 * seconds);
        }
    }
    let before = running.usage();
    let (start, began) = (Timestamp::now(), Instant::now());
    let load = measure_all_at_once(options, &bed.client, &create_alone);
    figures.rate.add(running.while_alive(load).await?);
    let jobs_exist = Timestamp::now();
    let usage = running.usage();
    figures.cpu_seconds.add(usage.cpu_seconds - before.cpu_seconds);
    figures.peak_mebibytes = usage.peak_mebibytes;
    let settled = match is_last {
        true => Some(settle(options, &bed, &mut running, before, began).await?),
        false => None,
    };
    let calls = calls_of(OPERATOR_USER, &bed.testbed.log("audit"))?;
    figures.until_jobs = Tally::count(&calls, start, jobs_exist, WARM_UP);
    figures.settled = settled.map(|(quiet, idle_end, mut settled)| {
        settled.calls = Tally::count(&calls, start, quiet, WARM_UP);
        settled.idle_calls = Tally::count(&calls, quiet, idle_end, "");
        settled
    });
    Ok(())
}

/// Seconds from creating one MiniCluster to its Job.
async fn measure_single(
    options: &Options,
    client: &Client,
    number: usize,
    create_one: &impl AsyncFn(&Client, Value) -> Result<()>,
) -> Result<f64> {
    let name = format!("single-{number}");
    let jobs: Api<Job> = Api::namespaced(client.clone(), WARM_UP);
    let exists = within(
        Duration::from_secs(60),
        "a single Job exists",
        time_of_first(jobs, named(&name), |_| true),
    );
    let started = Instant::now();
    let manifest = minicluster(&name, WARM_UP, options.size, "hostname");
    let (exists, created) = tokio::join!(exists, create_one(client, manifest));
    created?;
    Ok((exists? - started).as_secs_f64())
}

/// Creates all MiniClusters, with `concurrency` requests at a time. Returns the Jobs per second,
/// from the first request to the last Job.
async fn measure_all_at_once(
    options: &Options,
    client: &Client,
    create_one: &impl AsyncFn(&Client, Value) -> Result<()>,
) -> Result<f64> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let limit = Duration::from_secs(options.limit);
    let all = within(limit, "all Jobs exist", time_of_count(jobs, options.count));
    let started = Instant::now();
    let creates = futures::stream::iter(0..options.count)
        .map(|number| {
            let name = format!("cluster-{number}");
            create_one(client, minicluster(&name, NAMESPACE, options.size, "hostname"))
        })
        .buffer_unordered(options.concurrency)
        .try_collect::<()>();
    let (last, created) = tokio::join!(all, creates);
    created?;
    Ok(options.count as f64 / (last? - started).as_secs_f64())
}

/// Waits until the operator should have settled, then observes it while idle. Returns the start and
/// the end of the idle period, and the figures; their requests are counted later.
async fn settle(
    options: &Options,
    bed: &BenchTestbed,
    running: &mut RunningOperator,
    before: Usage,
    began: Instant,
) -> Result<(Timestamp, Timestamp, SettledFigures)> {
    let pods: Api<Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let count = options.count * options.size as usize;
    let limit = Duration::from_secs(options.limit);
    let exist = within(limit, "all pods exist", time_of_count(pods, count));
    let last = running.while_alive(exist).await?;
    running.while_alive(sleep(SETTLE_TIME)).await?;
    let (quiet, settled) = (Timestamp::now(), running.usage());
    running.while_alive(sleep(Duration::from_secs(options.idle))).await?;
    let idle = running.usage();
    let usage = Usage {
        cpu_seconds: settled.cpu_seconds - before.cpu_seconds,
        peak_mebibytes: settled.peak_mebibytes,
    };
    let figures = SettledFigures {
        seconds: (last - began).as_secs_f64(),
        calls: Tally::default(),
        usage,
        idle_seconds: options.idle,
        idle_calls: Tally::default(),
        idle_cpu_seconds: idle.cpu_seconds - settled.cpu_seconds,
    };
    Ok((quiet, Timestamp::now(), figures))
}

/// Waits for a fixed time, to measure what happens meanwhile.
async fn sleep(time: Duration) -> Result<()> {
    tokio::time::sleep(time).await;
    Ok(())
}

impl OperatorFigures {
    fn of(operator: &OperatorUnderTest) -> OperatorFigures {
        OperatorFigures { name: operator.name.clone(), ..OperatorFigures::default() }
    }
}

impl Figures {
    /// All measurements by name, including ratios to the ceiling and to other operators.
    pub(crate) fn measures(&self) -> Measures {
        let mut measures = Measures::new();
        let count = self.count as f64;
        let ceiling = self.ceiling.median();
        for operator in &self.operators {
            let mut set = |name: &str, value: Option<f64>| {
                let name = format!("throughput.{}.{name}", operator.name);
                measures.extend(value.map(|value| (name, value)));
            };
            let rate = operator.rate.median();
            let ratio = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
            let settled = operator.settled.as_ref();
            set("rate", rate);
            set("rate_of_ceiling", ratio(rate, ceiling));
            set("single_milliseconds", operator.single_milliseconds.median());
            set("calls_until_jobs", Some(operator.until_jobs.total() as f64 / count));
            set("calls", settled.map(|settled| settled.calls.total() as f64 / count));
            set("idle_calls", settled.map(|settled| settled.idle_calls.total() as f64));
            set("cpu_milliseconds", operator.cpu_seconds.median().map(|cpu| 1000.0 * cpu / count));
            set("peak_mebibytes", Some(operator.peak_mebibytes));
            for other in self.operators.iter().filter(|other| other.name != operator.name) {
                set(&format!("rate_over.{}", other.name), ratio(rate, other.rate.median()));
            }
        }
        measures
    }

    /// The measurements as a table.
    pub(crate) fn table(&self) -> String {
        let names = self.operators.iter().map(|operator| operator.name.clone());
        let mut rows =
            vec![["".to_owned(), "bare client".to_owned()].into_iter().chain(names).collect()];
        let dash = || "-".to_owned();
        let count = self.count as f64;
        let mut row = |what: &str, bare: String, cell: &dyn Fn(&OperatorFigures) -> String| {
            let cells = self.operators.iter().map(cell);
            rows.push([what.to_owned(), bare].into_iter().chain(cells).collect::<Vec<_>>());
        };
        let ceiling = self.ceiling.median().unwrap_or(f64::NAN);
        row("Jobs/s", self.ceiling.rate_text(1), &|each| each.rate.rate_text(1));
        row("relative to the ceiling", "1.00".into(), &|each| {
            format!("{:.2}", each.rate.median().unwrap_or(f64::NAN) / ceiling)
        });
        let single = self.ceiling_single_milliseconds.text(0);
        row("single MiniCluster to its Job, ms: median (worst)", single, &|each| {
            each.single_milliseconds.text(0)
        });
        row("CPU until all Jobs, ms each", dash(), &|each| {
            let cpu = each.cpu_seconds.median().unwrap_or(f64::NAN);
            format!("{:.2}", 1000.0 * cpu / count)
        });
        row("peak memory, MiB", dash(), &|each| format!("{:.1}", each.peak_mebibytes));
        row("calls until all Jobs, each", "5.00".into(), &|each| {
            format!("{:.2}", each.until_jobs.total() as f64 / count)
        });
        let settled = |each: &OperatorFigures, text: &dyn Fn(&SettledFigures) -> String| {
            each.settled.as_ref().map_or_else(dash, text)
        };
        row("all pods exist after, s", dash(), &|each| {
            settled(each, &|settled| format!("{:.1}", settled.seconds))
        });
        row("calls until settled, each", dash(), &|each| {
            settled(each, &|settled| format!("{:.2}", settled.calls.total() as f64 / count))
        });
        row("CPU until settled, ms each", dash(), &|each| {
            settled(each, &|settled| format!("{:.2}", 1000.0 * settled.usage.cpu_seconds / count))
        });
        row("peak memory when settled, MiB", dash(), &|each| {
            settled(each, &|settled| format!("{:.1}", settled.usage.peak_mebibytes))
        });
        row("idle: calls / watches / lease / CPU ms", dash(), &|each| {
            settled(each, &|settled| {
                let Tally { watches, lease, .. } = settled.idle_calls;
                let cpu = 1000.0 * settled.idle_cpu_seconds;
                format!("{} / {watches} / {lease} / {cpu:.0}", settled.idle_calls.total())
            })
        });
        let title = format!(
            "{} MiniClusters of {}, {} concurrent requests",
            self.count, self.size, self.concurrency
        );
        table(&title, &rows) + &self.call_table()
    }

    /// Requests by kind per MiniCluster, until the operator had settled.
    fn call_table(&self) -> String {
        let tally = |each: &OperatorFigures| match &each.settled {
            Some(settled) => settled.calls.clone(),
            None => each.until_jobs.clone(),
        };
        let tallies: Vec<Tally> = self.operators.iter().map(tally).collect();
        let kinds: BTreeSet<&String> =
            tallies.iter().flat_map(|tally| tally.calls.keys()).collect();
        let names = self.operators.iter().map(|each| each.name.clone());
        let mut rows: Vec<Vec<String>> =
            vec![std::iter::once("call".to_owned()).chain(names).collect()];
        for kind in kinds {
            let each = |tally: &Tally| {
                let Calls { count, milliseconds } =
                    tally.calls.get(kind).copied().unwrap_or_default();
                match count {
                    0 => "-".to_owned(),
                    _ => format!(
                        "{:.2} × {:.0} ms",
                        count as f64 / self.count as f64,
                        milliseconds / count as f64
                    ),
                }
            };
            rows.push(std::iter::once(kind.clone()).chain(tallies.iter().map(each)).collect());
        }
        table("requests per MiniCluster × time in the API server", &rows)
    }
}
