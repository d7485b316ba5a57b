//! Reports from agents: who may speak, what was said last, what they get back.
//!
//! A report changes only the status of the cluster whose key sealed it. Every
//! exchange has a nonce that the next one must echo, so nothing can be
//! replayed; a restarted operator or agent just starts a new exchange.

mod bounded;
mod exchange;
#[cfg(test)]
mod fixture;
mod look_up;
mod nonces;
mod server;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{Drain, Report};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lock::lock;
use crate::watches::Changed;
use nonces::Nonces;

pub(crate) use server::report;

/// What agents have said. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reports {
    clusters: Arc<Mutex<HashMap<String, Cluster>>>,
    nonces: Arc<Mutex<Nonces>>,
    /// Whose status may have changed.
    changed: Changed,
    /// Moves whenever a pod does, for agents that wait for an address.
    pods_moved: watch::Sender<()>,
    /// When the first report could be taken.
    since: Timestamp,
}

type LookUp = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// What is known of one cluster's agents.
#[derive(Default)]
struct Cluster {
    key: Option<SealKey>,
    /// The Secret with the key is gone.
    lost_key: bool,
    /// Held by the one who looks for the key: when it was not found last.
    look_up: LookUp,
    /// What was said last, and the uid of the pod that said it.
    last: Option<(String, Report)>,
    /// What the lead should make so, for as long as it should be so.
    drain: watch::Sender<Option<Drain>>,
}

impl Reports {
    /// Nothing said yet. `changed` is told whose status may have changed.
    pub(crate) fn new(changed: Changed) -> Reports {
        let (pods_moved, since) = (watch::channel(()).0, Timestamp::now());
        Reports { clusters: Arc::default(), nonces: Arc::default(), changed, pods_moved, since }
    }

    /// The lead's last report of the cluster with this uid, and its pod's uid.
    pub(crate) fn last(&self, uid: &str) -> Option<(String, Report)> {
        self.lock().get(uid)?.last.clone()
    }

    /// Whether a report came from the cluster with this uid, and its key was not there.
    pub(crate) fn has_lost_key(&self, uid: &str) -> bool {
        self.lock().get(uid).is_some_and(|cluster| cluster.lost_key)
    }

    /// Since when reports have been taken.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// Wakes agents that wait for an address.
    pub(crate) fn pods_moved(&self) {
        self.pods_moved.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Cluster>> {
        lock(&self.clusters)
    }

    fn nonces(&self) -> MutexGuard<'_, Nonces> {
        lock(&self.nonces)
    }
}
