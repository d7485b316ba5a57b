//! The scheduler's task: runs a cycle whenever something has changed, but not before all objects
//! have been listed in this replica's term as leader.

use std::time::Duration;

use flux_operator_plan::queueing::admission;
use flux_operator_queue::{Kind, Millis};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc::UnboundedSender;

use super::ledger::{CycleActions, EvictionWrite, RecordRewrite};
use super::queues::Queues;
use super::writer::DecisionWrite;
use crate::health::Health;
use crate::lease::Leadership;

/// Runs the scheduler while this replica is the leader. Sends what is to be written to `writes`.
pub(super) async fn schedule(
    queues: Queues,
    leadership: Leadership,
    health: Health,
    writes: UnboundedSender<DecisionWrite>,
) {
    queues.wait_until_synced(leadership.wait_until_leader().await).await;
    // Each kind was put into the ledger while the others may have been incomplete.
    queues.put_all();
    queues.stale.mark_all_jobs();
    loop {
        let under_way = health.begin("scheduler cycle");
        if !leadership.can_start_work() {
            // A replica that is stopping never decides again.
            drop(under_way);
            return std::future::pending().await;
        }
        let CycleActions { admit, evict, rewrite: rename, changed, wake_at } =
            queues.ledger().cycle(now());
        let mut to_write: Vec<DecisionWrite> =
            admit.into_iter().map(DecisionWrite::Admit).collect();
        for EvictionWrite { uid, version, kind, namespace, name, reason, .. } in evict {
            match kind {
                // Reconciling the job removes the admission record once its MiniCluster is deleted.
                Kind::FluxJob => queues.request_job(&namespace, &name),
                Kind::MiniCluster => {
                    let change = admission::eviction_patch(version, reason);
                    to_write.push(DecisionWrite::Change { uid, namespace, name, version, change });
                }
            }
        }
        for RecordRewrite { uid, kind, namespace, name, version, queue } in rename {
            match kind {
                // Reconciling the job rewrites the record together with the rest of the status.
                Kind::FluxJob => queues.request_job(&namespace, &name),
                Kind::MiniCluster => {
                    let change = admission::record_queue_patch(version, &queue);
                    to_write.push(DecisionWrite::Change { uid, namespace, name, version, change });
                }
            }
        }
        for write in to_write {
            // The receiver is dropped only while the operator stops; the write is not needed then.
            let _ = writes.send(write);
        }
        changed.into_iter().for_each(|setup| queues.stale.mark_setup(setup));
        drop(under_way);
        let wait = wake_at
            .map(|wake| Duration::from_millis(wake.saturating_sub(now()).max(0).unsigned_abs()));
        tokio::select! {
            () = queues.wait_for_wake() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

/// The current time.
pub(super) fn now() -> Millis {
    Timestamp::now().as_millisecond()
}
