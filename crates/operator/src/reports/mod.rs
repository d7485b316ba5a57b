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
mod pending;
mod server;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flux_operator_plan::LastReport;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lock::lock;
use crate::stores::Guarded;
use crate::watches::Changed;
use nonces::Nonces;
use pending::Pending;
use work::Wanted;

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

/// How often it is looked for reports that have become old.
const AGE_PERIOD: Duration = Duration::from_secs(5);

type LookUp = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// What is known of one cluster's agents.
#[derive(Default)]
struct Cluster {
    key: Option<SealKey>,
    /// The Secret with the key is gone.
    lost_key: bool,
    /// Held by the one who looks for the key: when it was not found last.
    look_up: LookUp,
    last: Option<Said>,
    /// What the lead should make so, for as long as it should be so.
    wanted: watch::Sender<Wanted>,
    /// The jobs that wait, while somebody asks for them.
    pending: Pending,
}

/// What was said last.
struct Said {
    /// The uid of the pod that said it.
    pod: String,
    report: LastReport,
    /// Whose status it is shown in.
    about: ObjectRef<Guarded>,
    /// It was told already that the report is old.
    told_old: bool,
}

impl Reports {
    /// Nothing said yet. `changed` is told whose status may have changed.
    pub(crate) fn new(changed: Changed) -> Reports {
        let (pods_moved, since) = (watch::channel(()).0, Timestamp::now());
        Reports { clusters: Arc::default(), nonces: Arc::default(), changed, pods_moved, since }
    }

    /// The lead's last report of the cluster with this uid, and its pod's uid.
    pub(crate) fn last(&self, uid: &str) -> Option<(String, LastReport)> {
        let clusters = self.lock();
        let said = clusters.get(uid)?.last.as_ref()?;
        Some((said.pod.clone(), said.report.clone()))
    }

    /// Asks for a reconciliation of every cluster whose last report becomes too old to be shown,
    /// and forgets what nobody asks for any more.
    pub(crate) async fn watch_age(self) {
        let mut ticks = tokio::time::interval(AGE_PERIOD);
        loop {
            ticks.tick().await;
            self.tell_old(Timestamp::now());
            self.forget_pending();
        }
    }

    fn tell_old(&self, now: Timestamp) {
        let mut clusters = self.lock();
        let said = clusters.values_mut().filter_map(|cluster| cluster.last.as_mut());
        for said in said.filter(|said| !said.told_old && said.report.is_old(now)) {
            said.told_old = true;
            // Nobody receives while the operator stops; then it does not matter.
            let _ = self.changed.send(said.about.clone());
        }
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
