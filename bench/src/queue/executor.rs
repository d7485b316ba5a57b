//! Simulates the execution of jobs: admitted jobs run for their runtime, and are then reported as
//! finished. Also records what can be observed meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use flux_operator_api::{FluxJob, FluxSetup};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, Object, PostParams, Request};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The label with the class of a job.
pub(crate) const CLASS: &str = "bench.flux-framework.org/class";
/// The annotation with the runtime of a job, in milliseconds.
pub(crate) const RUNTIME: &str = "bench.flux-framework.org/runtime";

/// A job with only the fields that execution needs: the benchmark itself should use as little of
/// the machine as possible.
type PartialJob = Object<NoSpec, RawStatus>;

#[derive(Clone, Debug, Deserialize)]
struct NoSpec {}

/// The status as it was received; it is written back with the result of the job.
type RawStatus = serde_json::Map<String, Value>;

/// The observed times of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobTimes {
    pub(crate) created: Instant,
    pub(crate) admitted: Option<Instant>,
    pub(crate) finished: Option<Instant>,
}

/// All observations.
#[derive(Default)]
pub(crate) struct Observations {
    /// The times of jobs, by class and name.
    jobs: Mutex<HashMap<(String, String), JobTimes>>,
    finished: Mutex<usize>,
    changed: Notify,
    /// The usage in the statuses of setups: when, and how many cores.
    usage: Mutex<BTreeMap<String, Vec<(Instant, f64)>>>,
}

impl Observations {
    /// Records the creation of a job.
    pub(crate) fn record_created(&self, class: &str, namespace: &str, name: &str, at: Instant) {
        let key = (class.to_owned(), format!("{namespace}/{name}"));
        // The watch may have been faster.
        lock(&self.jobs).entry(key).and_modify(|life| life.created = at).or_insert(JobTimes {
            created: at,
            admitted: None,
            finished: None,
        });
    }

    /// Waits until this many jobs have finished.
    pub(crate) async fn wait_until_finished(&self, count: usize) {
        loop {
            let changed = self.changed.notified();
            if *lock(&self.finished) >= count {
                return;
            }
            changed.await;
        }
    }

    /// The times of all jobs, by class.
    pub(crate) fn by_class(&self) -> BTreeMap<String, Vec<JobTimes>> {
        let mut classes: BTreeMap<String, Vec<JobTimes>> = BTreeMap::new();
        for ((class, _), life) in lock(&self.jobs).iter() {
            classes.entry(class.clone()).or_default().push(*life);
        }
        classes
    }

    /// The fraction of the quota in use, as the setups' statuses report it. It follows Kueue's
    /// formula: the used core-seconds, summed over the intervals between two statuses, divided by
    /// the quota and by the time between the first and the last status.
    pub(crate) fn reported_usage(&self, quota: f64) -> Option<f64> {
        let usage = lock(&self.usage);
        let moments = usage.values().flatten().map(|(at, _)| *at);
        let (first, last) = (moments.clone().min()?, moments.max()?);
        let used: f64 = usage
            .values()
            .flat_map(|reported| reported.windows(2))
            .map(|pair| pair[0].1 * (pair[1].0 - pair[0].0).as_secs_f64())
            .sum();
        Some(used / (quota * usage.len() as f64 * (last - first).as_secs_f64()))
    }
}

/// Executes admitted jobs until the future is dropped.
pub(crate) async fn execute(client: Client, observations: Arc<Observations>) -> Result<()> {
    let kind = ApiResource::erase::<FluxJob>(&());
    let jobs: Api<PartialJob> = Api::all_with(client.clone(), &kind);
    let mut changes = watcher(jobs, watcher::Config::default()).applied_objects().boxed();
    while let Some(job) = changes.try_next().await? {
        let Some(status) = &job.status else { continue };
        let class = job.labels().get(CLASS).context("a job without a class")?.clone();
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        let now = Instant::now();
        let runs = {
            let mut lives = lock(&observations.jobs);
            let key = (class, format!("{namespace}/{name}"));
            let life = lives.entry(key).or_insert(JobTimes {
                created: now,
                admitted: None,
                finished: None,
            });
            let is_finished = status.contains_key("finishTime");
            if is_finished && life.finished.is_none() {
                life.finished = Some(now);
                *lock(&observations.finished) += 1;
                observations.changed.notify_waiters();
            }
            let starts = status.contains_key("admission") && life.admitted.is_none();
            if starts {
                life.admitted = Some(now);
            }
            starts && !is_finished
        };
        if runs {
            let runtime = job.annotations().get(RUNTIME).context("a job without a runtime")?;
            let runtime = Duration::from_millis(runtime.parse()?);
            let client = client.clone();
            tokio::spawn(async move {
                tokio::time::sleep(runtime).await;
                if let Err(error) = finish(&client, job).await {
                    eprintln!("warning: {error:#}");
                }
            });
        }
    }
    bail!("the watch of jobs ended")
}

/// Reports a job as finished, as the operator would.
async fn finish(client: &Client, job: PartialJob) -> Result<()> {
    let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
    let mut status = job.status.unwrap_or_default();
    status.extend([
        ("phase".to_owned(), json!("Finished")),
        ("finishTime".to_owned(), json!(Timestamp::now().to_string())),
        ("exitCode".to_owned(), json!(0)),
    ]);
    let finished = json!({
        "apiVersion": FluxJob::api_version(&()), "kind": FluxJob::kind(&()),
        "metadata": {
            "name": name, "namespace": namespace, "resourceVersion": job.metadata.resource_version,
        },
        "status": status,
    });
    let body = serde_json::to_vec(&finished)?;
    let request = Request::new(FluxJob::url_path(&(), Some(&namespace))).replace_subresource(
        "status",
        &name,
        &PostParams::default(),
        body,
    )?;
    let answer = client.request::<IgnoredAny>(request).await;
    answer.with_context(|| format!("failed to finish job {name:?}"))?;
    Ok(())
}

/// Records the usage in the statuses of setups.
pub(crate) async fn watch_setups(client: Client, seen: Arc<Observations>) -> Result<()> {
    let mut changes = watcher(Api::<FluxSetup>::all(client), watcher::Config::default())
        .applied_objects()
        .boxed();
    while let Some(setup) = changes.try_next().await? {
        let Some(status) = &setup.status else { continue };
        let cores = status.used.get("cpu").map_or(0.0, |cpu| parse_cores(&cpu.0));
        let name = format!("{}/{}", setup.namespace().unwrap_or_default(), setup.name_any());
        lock(&seen.usage).entry(name).or_default().push((Instant::now(), cores));
    }
    bail!("the watch of setups ended")
}

/// Parses a number of cores, in whole cores or in thousandths.
fn parse_cores(text: &str) -> f64 {
    match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse::<f64>().unwrap_or_default() / 1000.0,
        None => text.parse().unwrap_or_default(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_the_reported_use_over_quota_and_time() {
        let seen = Observations::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        lock(&seen.usage).insert("a/q".into(), vec![(at(0), 10.0), (at(5), 20.0), (at(10), 0.0)]);
        assert_eq!(seen.reported_usage(20.0), Some(0.75));
        assert_eq!(Observations::default().reported_usage(20.0), None);
    }

    #[test]
    fn cores_are_whole_or_in_thousandths() {
        assert_eq!((parse_cores("2"), parse_cores("500m")), (2.0, 0.5));
    }

    #[tokio::test]
    async fn jobs_are_recorded_by_class_and_waited_for() {
        let seen = Observations::default();
        seen.record_created("small", "a", "b", Instant::now());
        assert_eq!(seen.by_class()["small"].len(), 1);
        *lock(&seen.finished) = 1;
        seen.wait_until_finished(1).await;
    }
}
