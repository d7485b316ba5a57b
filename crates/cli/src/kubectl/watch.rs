//! Waits by watches: transient errors are retried, others are returned.

use std::fmt::Debug;
use std::pin::pin;

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// The state of a watched object.
pub(super) enum WatchedState<K> {
    /// Its current state.
    Current(K),
    /// It was deleted; with its last state, if known.
    Deleted(Option<K>),
}

/// Watches this object, and not a later one with the same name, until `inspect` returns `Some`.
pub(super) async fn watch_object<K, R>(
    api: Api<K>,
    which: &K,
    mut inspect: impl FnMut(WatchedState<K>) -> Option<R>,
) -> Result<R>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let one = watcher::Config::default().fields(&format!("metadata.name={}", which.name_any()));
    // An interrupted watch does not report a deletion, but the object is missing in the next list.
    let mut listed = false;
    watch_until(api, one, |event| match event {
        Event::Init => {
            listed = false;
            None
        }
        Event::InitDone if !listed => inspect(WatchedState::Deleted(None)),
        Event::InitDone => None,
        Event::Apply(now) | Event::InitApply(now) if now.uid() == which.uid() => {
            listed = true;
            inspect(WatchedState::Current(now))
        }
        Event::Delete(last) if last.uid() == which.uid() => {
            inspect(WatchedState::Deleted(Some(last)))
        }
        Event::Apply(_) | Event::InitApply(_) | Event::Delete(_) => None,
    })
    .await
}

/// Watches objects until `found` returns `Some`.
pub(super) async fn watch_until<K, R>(
    api: Api<K>,
    config: watcher::Config,
    mut found: impl FnMut(Event<K>) -> Option<R>,
) -> Result<R>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let mut events = pin!(watcher(api, config).default_backoff());
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                if let Some(result) = found(event) {
                    return Ok(result);
                }
            }
            Ok(None) => bail!("the watch ended"),
            Err(error) if is_final(&error) => return Err(error).context("failed to watch"),
            Err(_) => {}
        }
    }
}

/// Whether retrying a watch cannot help.
pub(super) fn is_final(error: &watcher::Error) -> bool {
    let cause = match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => cause,
        _ => return false,
    };
    matches!(cause, kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404))
}
