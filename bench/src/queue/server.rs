//! The queue with a real API server, measured like Kueue's scalability test: the same jobs arrive
//! at the same times, and their execution is only simulated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flux_operator_api::{FluxJob, FluxSetup};
use flux_operator_testbed::{Level, Requirements};
use flux_operator_testkit::images::static_program;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams, Request};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::executor::{CLASS, JobTimes, Observations, RUNTIME, execute, watch_setups};
use super::load::{Class, Load};
use crate::bench_testbed::{BenchTestbed, NAMESPACE};
use crate::summary::{Measures, Samples, table};
use crate::under_test::OperatorUnderTest;
use crate::usage::Usage;
use crate::waiting::within;

/// Longer than any run may take.
const LIMIT: Duration = Duration::from_secs(1200);

/// Seconds after which quota is reserved for a job that does not fit. Kueue would evict other jobs
/// for it, which our scheduler cannot do yet.
const PATIENCE_SECONDS: u32 = 1;

/// The same as for Kueue: etcd and an API server, without controllers and without an audit log. Our
/// queues count their requests themselves.
const BED: Requirements = Requirements { level: Level::ApiServer, audit: false };

/// The name of all setups, each in its own namespace.
const SETUP: &str = "queue";

/// Kueue's own runner and scheduler with the baseline load, on a machine with 2 cores: as shipped,
/// and with its client's rate limit lifted.
const KUEUE: [KueueResult; 2] = [
    KueueResult {
        rate: Some(50),
        wall: 430.0,
        cpu: 106.0,
        mebibytes: 598.0,
        reported_use: 0.605,
        admission: [("large", 28.7), ("medium", 106.7), ("small", 238.0)],
    },
    KueueResult {
        rate: None,
        wall: 409.0,
        cpu: 97.0,
        mebibytes: 400.5,
        reported_use: 0.765,
        admission: [("large", 29.4), ("medium", 106.6), ("small", 226.0)],
    },
];

struct KueueResult {
    rate: Option<u32>,
    wall: f64,
    cpu: f64,
    mebibytes: f64,
    reported_use: f64,
    admission: [(&'static str, f64); 3],
}

/// The measurements of one run.
#[derive(Serialize)]
pub(crate) struct Figures {
    load: &'static str,
    /// The allowed writes per second.
    rate: Option<u32>,
    wall_seconds: f64,
    /// Work divided by quota and wall time.
    true_use: f64,
    /// As reported in the setups' statuses, by Kueue's formula.
    told_use: Option<f64>,
    usage: Usage,
    /// Seconds from creation to admission, by class.
    admission: Vec<(&'static str, Samples)>,
    jobs: usize,
    /// Our requests, by verb and resource.
    calls: BTreeMap<String, f64>,
    /// The 99th percentile of the cycle time in seconds, from the metrics' histogram.
    cycle_p99: Option<f64>,
    /// Seconds from the release of quota until the next admission is written: median and 99th
    /// percentile.
    freed: [Option<f64>; 2],
}

/// Runs a load; `rate` limits our writes.
pub(crate) async fn measure(load: &Load, rate: Option<u32>) -> Result<Figures> {
    let crds: Result<Vec<_>> =
        flux_operator_api::crd::all().iter().map(|crd| Ok(serde_json::to_value(crd)?)).collect();
    let bed = BenchTestbed::up("queue", BED, &crds?).await?;
    let program = static_program("queue-controller")?;
    let limit = rate.map(|rate| format!("--rate {rate} --burst {}", 2 * rate)).unwrap_or_default();
    let command = format!(
        "exec '{}' --home {NAMESPACE} --bind \"$BENCH_HOST_ADDRESS:$BENCH_PORT\" {limit}",
        program.display()
    );
    let mut running = OperatorUnderTest::new("queue", command).start(&bed)?;
    let seen = Arc::new(Observations::default());
    let watches = [
        tokio::spawn(execute(bed.client.clone(), seen.clone())),
        tokio::spawn(watch_setups(bed.client.clone(), seen.clone())),
    ];
    let outcome = running.while_alive(run(load, &bed.client, &seen)).await;
    watches.iter().for_each(|watch| watch.abort());
    let started = outcome?;
    let metrics = read_metrics(&running.address).await?;
    let lives = seen.by_class();
    let last = lives.values().flatten().filter_map(|life| life.finished).max();
    let wall = (last.context("no job has finished")? - started).as_secs_f64();
    let quota = (load.queues as i64 * load.quota) as f64;
    let admission = load.classes.iter().map(|class| {
        (class.name, lives.get(class.name).map(|lives| waits(lives)).unwrap_or_default())
    });
    Ok(Figures {
        load: load.name,
        rate,
        wall_seconds: wall,
        true_use: load.cpu_seconds() / (quota * wall),
        told_use: seen.reported_usage(load.quota as f64),
        usage: running.usage(),
        admission: admission.collect(),
        jobs: load.jobs(),
        calls: calls(&metrics),
        cycle_p99: quantile(&metrics, "flux_operator_admission_attempt_duration_seconds", 0.99),
        freed: [0.5, 0.99]
            .map(|share| quantile(&metrics, "flux_operator_freed_to_admission_seconds", share)),
    })
}

fn waits(lives: &[JobTimes]) -> Samples {
    let mut samples = Samples::default();
    let admitted = lives.iter().filter_map(|life| life.admitted.map(|at| at - life.created));
    admitted.for_each(|wait| samples.add(wait.as_secs_f64()));
    samples
}

/// Creates the setups, then each job at its time, and waits until all jobs have finished. Returns
/// the time at which the load started.
async fn run(load: &Load, client: &Client, seen: &Arc<Observations>) -> Result<Instant> {
    for queue in 0..load.queues {
        create_setup(client, load, queue).await?;
    }
    within(LIMIT, "all setups are active", wait_until_active(client, load.queues)).await?;
    let started = Instant::now();
    let generators: FuturesUnordered<_> = (0..load.queues)
        .flat_map(|queue| load.classes.iter().map(move |class| (queue, class)))
        .map(|(queue, class)| generate(client, queue, class, seen))
        .collect();
    let generated = async {
        let outcomes: Vec<Result<()>> = generators.collect().await;
        outcomes.into_iter().collect::<Result<()>>()?;
        eprintln!("queue: all jobs exist after {:.1} s", started.elapsed().as_secs_f64());
        seen.wait_until_finished(load.jobs()).await;
        Ok(())
    };
    within(LIMIT, "all jobs have finished", generated).await?;
    Ok(started)
}

fn namespace(queue: usize) -> String {
    format!("queue-{queue}")
}

async fn create_setup(client: &Client, load: &Load, queue: usize) -> Result<()> {
    let name = namespace(queue);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let object = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    namespaces.create(&PostParams::default(), &object).await?;
    let setup = serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxSetup",
        "metadata": { "name": SETUP },
        "spec": { "quota": { "cpu": load.quota.to_string() }, "patienceSeconds": PATIENCE_SECONDS },
    }))?;
    let setups: Api<FluxSetup> = Api::namespaced(client.clone(), &name);
    setups.create(&PostParams::default(), &setup).await?;
    Ok(())
}

/// Waits until this many setups are active.
async fn wait_until_active(client: &Client, count: usize) -> Result<()> {
    let mut found = std::collections::BTreeSet::new();
    let setups = watcher(Api::<FluxSetup>::all(client.clone()), watcher::Config::default());
    let mut setups = setups.applied_objects().boxed();
    while found.len() < count {
        let setup = setups.next().await.context("the watch of setups ended")??;
        let conditions = setup.status.iter().flat_map(|status| &status.conditions);
        if conditions
            .into_iter()
            .any(|reported| reported.type_ == "Active" && reported.status == "True")
        {
            found.insert(setup.metadata.namespace);
        }
    }
    Ok(())
}

/// Creates the jobs of a class in a queue, each after its interval.
async fn generate(client: &Client, queue: usize, class: &Class, seen: &Observations) -> Result<()> {
    let namespace = namespace(queue);
    let request = Request::new(FluxJob::url_path(&(), Some(&namespace)));
    for number in 0..class.count {
        tokio::time::sleep(class.interval).await;
        let name = format!("{}-{number}", class.name);
        let job = json!({
            "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxJob",
            "metadata": {
                "name": name, "labels": { CLASS: class.name },
                "annotations": { RUNTIME: class.runtime.as_millis().to_string() },
            },
            "spec": {
                "queue": SETUP, "size": 1, "priority": class.priority,
                "image": "busybox", "command": "true",
                "resources": { "requests": { "cpu": class.cpu.to_string() } },
            },
        });
        let create = request.create(&PostParams::default(), serde_json::to_vec(&job)?)?;
        client.request::<IgnoredAny>(create).await?;
        seen.record_created(class.name, &namespace, &name, Instant::now());
    }
    Ok(())
}

/// Reads the metrics of our queues.
async fn read_metrics(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await.context("failed to read the metrics")?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The requests to the API server, by verb and resource. A watch is one request, whatever its
/// duration.
fn calls(metrics: &str) -> BTreeMap<String, f64> {
    let label = |labels: &str, name: &str| {
        let (_, rest) = labels.split_once(&format!("{name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let lines = metrics.lines().filter_map(|line| {
        let (labels, count) =
            line.strip_prefix("flux_operator_api_requests_total{")?.split_once("} ")?;
        let name = format!("{} {}", label(labels, "verb")?, label(labels, "resource")?);
        Some((name, count.parse().ok()?))
    });
    lines.collect()
}

/// The upper bound of the bucket that contains this quantile, of a histogram in Prometheus' text
/// format.
fn quantile(metrics: &str, name: &str, share: f64) -> Option<f64> {
    let prefix = format!("{name}_bucket{{le=\"");
    let buckets: Vec<(f64, f64)> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix)?.split_once("\"}"))
        .filter_map(|(bound, count)| Some((bound.parse().ok()?, count.trim().parse().ok()?)))
        .collect();
    let all = buckets.iter().map(|(_, count)| *count).fold(0.0, f64::max);
    buckets.into_iter().find(|(_, count)| *count >= share * all).map(|(bound, _)| bound)
}

impl Figures {
    /// The same by name, for limits.
    pub(crate) fn measures(&self) -> Measures {
        let rate = self.rate.map_or("uncapped".to_owned(), |rate| format!("capped{rate}"));
        let name = |what: &str| format!("queue.{}.{rate}.{what}", self.load);
        let mut measures = Measures::from([
            (name("wall_seconds"), self.wall_seconds),
            (name("true_use"), self.true_use),
            (name("cpu_seconds"), self.usage.cpu_seconds),
            (name("peak_mebibytes"), self.usage.peak_mebibytes),
            (name("calls"), self.calls.values().sum::<f64>() / self.jobs as f64),
        ]);
        measures.extend(self.told_use.map(|reported| (name("told_use"), reported)));
        measures.extend(self.freed[1].map(|p99| (name("freed_milliseconds_p99"), 1000.0 * p99)));
        for (class, waits) in &self.admission {
            measures.extend(waits.mean().map(|mean| (name(&format!("admission.{class}")), mean)));
        }
        if let Some(kueue) = self.reference() {
            measures.insert(name("wall_over.kueue"), self.wall_seconds / kueue.wall);
            measures.insert(name("cpu_over.kueue"), self.usage.cpu_seconds / kueue.cpu);
            measures.insert(name("memory_over.kueue"), self.usage.peak_mebibytes / kueue.mebibytes);
            for (class, theirs) in kueue.admission {
                let ours = self.admission.iter().find(|(name, _)| *name == class);
                let ratio = ours.and_then(|(_, waits)| waits.mean()).map(|mean| mean / theirs);
                measures
                    .extend(ratio.map(|it| (name(&format!("admission_over.kueue.{class}")), it)));
            }
        }
        measures
    }

    /// Kueue's result for the same load and rate.
    fn reference(&self) -> Option<&'static KueueResult> {
        let same = |kueue: &&KueueResult| kueue.rate == self.rate;
        KUEUE.iter().filter(|_| self.load == super::load::BASELINE.name).find(same)
    }

    /// The same as a table.
    pub(crate) fn table(&self) -> String {
        let kueue = self.reference();
        let mut rows = vec![vec!["".to_owned(), "ours".into(), "Kueue, another run".into()]];
        let mut row = |what: String, ours: String, theirs: Option<String>| {
            rows.push(vec![what, ours, theirs.unwrap_or("-".into())]);
        };
        let text = |value: f64, decimals: usize| format!("{value:.decimals$}");
        row("wall, s".into(), text(self.wall_seconds, 1), kueue.map(|it| text(it.wall, 0)));
        row("usage: work over quota and wall time".into(), text(self.true_use, 3), None);
        let reported = self.told_use.map_or("-".into(), |reported| text(reported, 3));
        row(
            "usage as reported in statuses".into(),
            reported,
            kueue.map(|it| text(it.reported_use, 3)),
        );
        for (class, waits) in &self.admission {
            let theirs = kueue.and_then(|it| it.admission.iter().find(|(name, _)| name == class));
            row(
                format!("time to admission, {class}, s: mean / p50 / p99"),
                waits.mean_and_quantiles(&[0.5, 0.99], 2),
                theirs.map(|(_, mean)| format!("{mean} / - / -")),
            );
        }
        row("CPU, s".into(), text(self.usage.cpu_seconds, 1), kueue.map(|it| text(it.cpu, 0)));
        let memory = text(self.usage.peak_mebibytes, 1);
        row("peak memory, MiB".into(), memory, kueue.map(|it| text(it.mebibytes, 0)));
        for (call, count) in &self.calls {
            row(format!("{call}, each job"), text(count / self.jobs as f64, 3), None);
        }
        let cycle = self.cycle_p99.map_or("-".into(), |seconds| text(1000.0 * seconds, 2));
        row("cycle, ms: p99".into(), cycle, None);
        let freed = self.freed.map(|seconds| {
            seconds.map_or("-".into(), |seconds| match seconds.is_finite() {
                true => format!("<= {:.0}", 1000.0 * seconds),
                false => "more".to_owned(),
            })
        });
        row("quota freed to next admission written, ms: p50 / p99".into(), freed.join(" / "), None);
        let rate = self.rate.map_or("without a limit".into(), |rate| {
            format!("{rate} writes per second, burst {}", 2 * rate)
        });
        let title = format!(
            "queue, {} jobs of load {:?} with an API server, one resource, no borrowing; {rate}",
            self.jobs, self.load
        );
        table(&title, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_read_from_a_histogram() {
        let text =
            "x_bucket{le=\"0.001\"} 98\nx_bucket{le=\"0.01\"} 99\nx_bucket{le=\"+Inf\"} 100\n";
        assert_eq!(quantile(text, "x", 0.99), Some(0.01));
        assert_eq!(quantile(text, "x", 0.5), Some(0.001));
        assert_eq!(quantile(text, "y", 0.99), None);
    }

    #[test]
    fn requests_are_named_by_verb_and_resource() {
        let text = "flux_operator_api_requests_total{resource=\"fluxjobs\",verb=\"patch\"} 7\n";
        assert_eq!(calls(text), BTreeMap::from([("patch fluxjobs".to_owned(), 7.0)]));
    }
}
