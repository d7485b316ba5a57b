//! Waits for events of a watch, and returns when they happened.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// A kind that can be watched.
pub(crate) trait Watchable:
    Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static
{
}

impl<K> Watchable for K where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static
{
}

/// Awaits a future with a timeout.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(limit, future).await {
        Ok(outcome) => outcome.with_context(|| format!("while waiting until {what}")),
        Err(_) => bail!("timed out after {} s waiting until {what}", limit.as_secs()),
    }
}

/// The time at which the first object was observed for which `found` returns true.
pub(crate) async fn time_of_first<K: Watchable>(
    api: Api<K>,
    config: watcher::Config,
    mut found: impl FnMut(&K) -> bool,
) -> Result<Instant> {
    let mut changes = watcher(api, config).applied_objects().boxed();
    while let Some(object) = changes.try_next().await? {
        if found(&object) {
            return Ok(Instant::now());
        }
    }
    bail!("the watch ended")
}

/// The time at which this many different objects had been observed.
pub(crate) async fn time_of_count<K: Watchable>(api: Api<K>, count: usize) -> Result<Instant> {
    let mut names = BTreeSet::new();
    time_of_first(api, watcher::Config::default(), |object| {
        names.insert(object.name_any());
        names.len() >= count
    })
    .await
}

/// The time at which the last of some objects was deleted.
pub(crate) async fn time_without<K: Watchable>(
    api: Api<K>,
    config: watcher::Config,
) -> Result<Instant> {
    let mut left = BTreeSet::new();
    let mut changes = watcher(api, config).boxed();
    while let Some(change) = changes.try_next().await? {
        let may_be_empty = match change {
            watcher::Event::Init => {
                left.clear();
                false
            }
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                left.insert(object.name_any());
                false
            }
            watcher::Event::Delete(object) => {
                left.remove(&object.name_any());
                true
            }
            watcher::Event::InitDone => true,
        };
        if may_be_empty && left.is_empty() {
            return Ok(Instant::now());
        }
    }
    bail!("the watch ended")
}

/// Selects the pods of a Job.
pub(crate) fn of_job(job: &str) -> watcher::Config {
    watcher::Config::default().labels(&format!("batch.kubernetes.io/job-name={job}"))
}

/// Selects one object.
pub(crate) fn named(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}
