//! Reports from agents: authentication, the last report of each cluster, and responses.
//!
//! A report affects only the status of the cluster whose key sealed it. Every sealed response has a
//! nonce that the next request must echo, so that no request can be replayed. After a restart of
//! the operator or the agent, the agent gets a new nonce.

mod bounded;
mod exchange;
#[cfg(test)]
pub(crate) mod fixture;
mod forward;
mod hand_over;
mod invited;
mod join;
mod key_lookup;
mod lender_read;
mod nonces;
mod pending;
mod server;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flux_operator_plan::LastReport;
use flux_operator_wire::JoinRequest;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lease::Leadership;
use crate::lock::lock;
use crate::stores::GuardedMiniCluster;
use crate::watches::ChangeSender;
use hand_over::HandOvers;
use invited::InvitedClusters;
use lender_read::LenderRead;
use nonces::Nonces;
use pending::PendingList;
use work::DesiredWork;

pub(crate) use hand_over::{HandOverError, is_too_large};
pub(crate) use pending::MAX_WAIT;
pub(crate) use server::report;

/// The last reports of all clusters. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reports {
    clusters: Arc<Mutex<HashMap<String, ClusterReports>>>,
    nonces: Arc<Mutex<Nonces>>,
    /// Where MiniClusters whose status may have changed are sent to be reconciled.
    changed: ChangeSender,
    /// Notified on every change of a pod, for agents that wait for an address.
    pods_changed: watch::Sender<()>,
    /// Only the leader receives reports.
    leadership: Leadership,
    /// When this process started.
    started: Timestamp,
}

/// How often to check for outdated reports.
const AGE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

type KeyLookup = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// The reporting state of one cluster.
#[derive(Default)]
struct ClusterReports {
    /// The key, and when it was read.
    key: Option<(SealKey, Instant)>,
    /// Whether the Secret with the key is missing.
    lost_key: bool,
    /// Locked while the key is looked up; contains the time of the last failed lookup.
    lookup: KeyLookup,
    last: Option<StoredReport>,
    /// What the agents of a joiner have found on their machines, by the uid of the pod.
    join_requests: HashMap<String, JoinRequest>,
    /// Clusters elsewhere that have asked with an invitation.
    invited: InvitedClusters,
    /// The last read of it as a lender.
    lender_read: LenderRead,
    /// The desired state that the lead maintains.
    desired: watch::Sender<DesiredWork>,
    /// The jobs of the instance, while a client asks for them.
    pending: PendingList,
    /// Jobs that are handed over.
    hand_overs: HandOvers,
    /// Notified when the lead has answered about one.
    answered: watch::Sender<()>,
    /// Notified when what is shown to such a client changes.
    shown: watch::Sender<()>,
}

/// The last report of a cluster.
struct StoredReport {
    /// The uid of the pod that sent it.
    pod: String,
    report: LastReport,
    /// The MiniCluster whose status shows it.
    minicluster: ObjectRef<GuardedMiniCluster>,
    /// Whether a reconciliation was already requested because the report is outdated.
    is_marked_old: bool,
}

impl Reports {
    /// No reports yet. MiniClusters whose status may have changed are sent to `changed`.
    pub(crate) fn new(changed: ChangeSender, leadership: Leadership) -> Reports {
        Reports {
            clusters: Arc::default(),
            nonces: Arc::default(),
            changed,
            pods_changed: watch::channel(()).0,
            leadership,
            started: Timestamp::now(),
        }
    }

    /// The last report of the lead of the cluster with this uid, and the uid of its pod.
    pub(crate) fn last(&self, uid: &str) -> Option<(String, LastReport)> {
        let clusters = self.lock();
        let last = clusters.get(uid)?.last.as_ref()?;
        Some((last.pod.clone(), last.report.clone()))
    }

    /// Requests a reconciliation of every cluster whose last report becomes too old to be shown,
    /// and forgets pending jobs that no client asks for any more.
    pub(crate) async fn watch_age(self) {
        let mut ticks = tokio::time::interval(AGE_CHECK_INTERVAL);
        loop {
            ticks.tick().await;
            self.mark_old(Timestamp::now());
            self.forget_pending();
            self.forget_hand_overs();
        }
    }

    fn mark_old(&self, now: Timestamp) {
        let mut clusters = self.lock();
        let said = clusters.values_mut().filter_map(|cluster| {
            let last = cluster.last.as_mut()?;
            Some((last, &cluster.shown))
        });
        for (said, shown) in
            said.filter(|(said, _)| !said.is_marked_old && said.report.is_stale(now))
        {
            said.is_marked_old = true;
            shown.send_replace(());
            // The receiver is dropped only while the operator stops.
            let _ = self.changed.send(said.minicluster.clone());
        }
    }

    /// Whether the cluster with this uid sent a report while its key was missing.
    pub(crate) fn has_lost_key(&self, uid: &str) -> bool {
        self.lock().get(uid).is_some_and(|cluster| cluster.lost_key)
    }

    /// Since when reports have been received: a replica that stood by for a day has none when it
    /// becomes leader.
    pub(crate) fn since(&self) -> Timestamp {
        self.leadership.leader_since().map_or(self.started, |since| since.max(self.started))
    }

    /// Wakes agents that wait for an address.
    pub(crate) fn notify_pods_changed(&self) {
        self.pods_changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ClusterReports>> {
        lock(&self.clusters)
    }

    fn nonces(&self) -> MutexGuard<'_, Nonces> {
        lock(&self.nonces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_wire::InstanceState;
    use k8s_openapi::jiff::SignedDuration;

    #[test]
    fn a_replica_that_becomes_leader_has_received_no_reports_before() {
        let leadership = Leadership::unknown();
        let reports = Reports::new(tokio::sync::mpsc::unbounded_channel().0, leadership.clone());
        let before = reports.since();
        assert_eq!(reports.since(), before);
        leadership.acquire();
        assert!(reports.since() > before);
    }

    #[test]
    fn a_cluster_is_reconciled_once_when_its_report_becomes_old() {
        let (changed, mut reconciled) = tokio::sync::mpsc::unbounded_channel();
        let reports = Reports::new(changed, Leadership::always());
        let received = Timestamp::now();
        let report = LastReport { state: InstanceState::default(), received };
        let minicluster = ObjectRef::new("fs").within("hpc");
        let last = StoredReport { pod: "p".into(), report, minicluster, is_marked_old: false };
        reports.lock().entry("uid".into()).or_default().last = Some(last);
        let after = |seconds| received + SignedDuration::from_secs(seconds);
        reports.mark_old(after(10));
        assert!(reconciled.try_recv().is_err(), "it is not old yet");
        reports.mark_old(after(60));
        assert_eq!(reconciled.try_recv().unwrap().name, "fs");
        reports.mark_old(after(120));
        assert!(reconciled.try_recv().is_err(), "once is enough");
    }
}
