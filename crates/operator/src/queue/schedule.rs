//! The scheduler's task: runs a cycle whenever something has changed, but not before all objects
//! have been listed in this replica's term as leader.

use std::time::Duration;

use flux_operator_plan::queueing::admission;
use flux_operator_queue::{Kind, Millis};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc::UnboundedSender;

use super::ledger::{Decided, Evicted, Renamed};
use super::queues::Queues;
use super::writer::Write;
use crate::health::Health;
use crate::lease::Leadership;

/// Runs the scheduler while this replica is the leader. Sends what is to be written to `writes`.
pub(super) async fn schedule(
    queues: Queues,
    leadership: Leadership,
    health: Health,
    writes: UnboundedSender<Write>,
) {
    queues.filled(leadership.until_it_leads().await).await;
    // Each kind was read before the others were known.
    queues.put_all();
    queues.stale.all_jobs();
    loop {
        let under_way = health.begin("scheduler cycle");
        if !leadership.decides() {
            // A replica that is stopping never decides again.
            drop(under_way);
            return std::future::pending().await;
        }
        let Decided { admit, evict, rename, changed, wake } = queues.ledger().cycle(now());
        let mut to_write: Vec<Write> = admit.into_iter().map(Write::Admit).collect();
        for Evicted { uid, version, kind, namespace, name, reason, .. } in evict {
            match kind {
                // Reconciling the job removes the admission record once its MiniCluster is deleted.
                Kind::FluxJob => queues.look_at_job(&namespace, &name),
                Kind::MiniCluster => {
                    let change = admission::taken_from_minicluster(version, reason);
                    to_write.push(Write::Change { uid, namespace, name, version, change });
                }
            }
        }
        for Renamed { uid, kind, namespace, name, version, queue } in rename {
            match kind {
                // Reconciling the job rewrites the record together with the rest of the status.
                Kind::FluxJob => queues.look_at_job(&namespace, &name),
                Kind::MiniCluster => {
                    let change = admission::renamed_minicluster(version, &queue);
                    to_write.push(Write::Change { uid, namespace, name, version, change });
                }
            }
        }
        for write in to_write {
            // The receiver is dropped only while the operator stops; a lost write does not matter
            // then.
            let _ = writes.send(write);
        }
        changed.into_iter().for_each(|setup| queues.stale.setup(setup));
        drop(under_way);
        let wait = wake
            .map(|wake| Duration::from_millis(wake.saturating_sub(now()).max(0).unsigned_abs()));
        tokio::select! {
            () = queues.something_happens() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

/// The current time.
pub(super) fn now() -> Millis {
    Timestamp::now().as_millisecond()
}
