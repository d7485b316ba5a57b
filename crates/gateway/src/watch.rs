//! Watches MiniClusters, and keeps those that lend ranks by invitations.

use std::collections::BTreeSet;
use std::pin::pin;

use flux_operator_api::MiniCluster;
use flux_operator_service::guarded::Guarded;
use futures::{Stream, StreamExt};
use kube::api::{Api, ApiResource};
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use tokio::sync::watch;

use crate::current_routes::{Key, Lenders};
use crate::lender::{Lender, ObservedMiniCluster};
use crate::metrics::Metrics;

/// The number of seconds after which the API server ends a watch, which then continues where it
/// ended. A connection without data for 5 s longer is dead, and the watch continues on another one:
/// a revocation arrives within 15 s even then.
const WATCH_SECONDS: u32 = 10;

/// Objects of one page of a list. A page is in memory as a whole.
const PAGE: u32 = 100;

/// A MiniCluster, or the error if it cannot be decoded. An invalid object must not affect others.
type GuardedMiniCluster = Guarded<ObservedMiniCluster>;

/// Watches MiniClusters until the future is dropped. While the API server is unreachable, the last
/// known ones remain. `listed` becomes true once all have been listed.
pub(crate) async fn watch_lenders(
    client: Client,
    namespace: Option<String>,
    lenders: watch::Sender<Lenders>,
    listed: watch::Sender<bool>,
    metrics: Metrics,
) {
    let resource = ApiResource::erase::<MiniCluster>(&());
    let api: Api<GuardedMiniCluster> = match namespace {
        Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
    keep_lenders(watcher(api, config).default_backoff(), lenders, listed, metrics).await;
}

/// Applies the events of a watch.
async fn keep_lenders(
    events: impl Stream<Item = Result<Event<GuardedMiniCluster>, watcher::Error>>,
    lenders: watch::Sender<Lenders>,
    listed: watch::Sender<bool>,
    metrics: Metrics,
) {
    let mut events = pin!(events);
    let mut decoder = Decoder::default();
    // The lenders of a list that is not complete yet.
    let mut listing = Lenders::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                listing.clear();
                // What was deleted meanwhile is not in the list.
                decoder = Decoder::default();
            }
            Ok(Event::InitApply(object)) => {
                if let Some((key, Some(lender))) = decoder.read(object) {
                    listing.insert(key, lender);
                }
            }
            Ok(Event::InitDone) => {
                replace_all(&lenders, std::mem::take(&mut listing));
                listed.send_replace(true);
            }
            Ok(Event::Apply(object)) => {
                if let Some((key, lender)) = decoder.read(object) {
                    replace(&lenders, key, lender);
                }
            }
            Ok(Event::Delete(object)) => {
                if let Some(key) = key(object.meta()) {
                    decoder.undecodable.remove(&key);
                    replace(&lenders, key, None);
                }
            }
            Err(error) => {
                metrics.count_watch_failure();
                tracing::warn!(%error, kind = "MiniCluster", "a watch failed");
            }
        }
    }
}

fn key(metadata: &ObjectMeta) -> Option<Key> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

/// Reads lenders, and remembers which MiniClusters cannot be decoded, to log each once.
#[derive(Default)]
struct Decoder {
    undecodable: BTreeSet<Key>,
}

impl Decoder {
    /// The lender, if it is one. What cannot be decoded is not served: it could have been revoked.
    fn read(&mut self, object: GuardedMiniCluster) -> Option<(Key, Option<Lender>)> {
        let key = key(object.meta())?;
        match object.0 {
            Ok(minicluster) => {
                self.undecodable.remove(&key);
                Some((key, Lender::read(&minicluster)))
            }
            Err(invalid) => {
                if self.undecodable.insert(key.clone()) {
                    tracing::error!(
                        namespace = key.0,
                        cluster = key.1,
                        error = invalid.error,
                        "failed to decode a MiniCluster; its invitations are not served"
                    );
                }
                Some((key, None))
            }
        }
    }
}

/// Logs values that cannot be parsed, once after each change.
fn report_malformed(before: Option<&Lender>, lender: &Lender) {
    for malformed in &lender.malformed {
        if before.is_some_and(|before| before.malformed.contains(malformed)) {
            continue;
        }
        tracing::error!(
            namespace = lender.id.namespace,
            cluster = lender.id.name,
            field = malformed.field,
            value = malformed.value,
            "a value of a MiniCluster is malformed; connections are refused"
        );
    }
}

/// Replaces one lender. Wakes the receivers only if it has changed: most changes of MiniClusters do
/// not concern the gateway.
fn replace(lenders: &watch::Sender<Lenders>, key: Key, lender: Option<Lender>) {
    lenders.send_if_modified(|lenders| {
        if lenders.get(&key) == lender.as_ref() {
            return false;
        }
        match lender {
            Some(lender) => {
                report_malformed(lenders.get(&key), &lender);
                lenders.insert(key, lender);
            }
            None => drop(lenders.remove(&key)),
        }
        true
    });
}

/// Replaces all lenders by those of a list.
fn replace_all(lenders: &watch::Sender<Lenders>, listed: Lenders) {
    lenders.send_if_modified(|lenders| {
        if *lenders == listed {
            return false;
        }
        for (key, lender) in &listed {
            report_malformed(lenders.get(key), lender);
        }
        *lenders = listed;
        true
    });
}

#[cfg(test)]
mod tests;
