//! The scheduler's task: decides whenever something has happened, and never before
//! everything has been listed since this replica leads.

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

/// Decides while this replica leads. What is to be written goes to `writes`.
pub(super) async fn schedule(
    queues: Queues,
    leadership: Leadership,
    health: Health,
    writes: UnboundedSender<Write>,
) {
    queues.filled(leadership.until_it_leads().await).await;
    // Each kind was read while the others were not known yet.
    queues.put_all();
    queues.stale.all_jobs();
    loop {
        let under_way = health.begin("scheduler cycle");
        if !leadership.decides() {
            // A replica that has stopped to decide never does again.
            drop(under_way);
            return std::future::pending().await;
        }
        let Decided { admit, evict, rename, changed, wake } = queues.ledger().cycle(now());
        let mut to_write: Vec<Write> = admit.into_iter().map(Write::Admit).collect();
        for Evicted { uid, version, kind, namespace, name, reason, .. } in evict {
            match kind {
                // Its reconciliation takes the record away, when its MiniCluster is gone.
                Kind::FluxJob => queues.look_at_job(&namespace, &name),
                Kind::MiniCluster => {
                    let change = admission::taken_from_minicluster(version, reason);
                    to_write.push(Write::Change { uid, namespace, name, version, change });
                }
            }
        }
        for Renamed { uid, kind, namespace, name, version, queue } in rename {
            match kind {
                // Its reconciliation rewrites the record, with the rest of the status.
                Kind::FluxJob => queues.look_at_job(&namespace, &name),
                Kind::MiniCluster => {
                    let change = admission::renamed_minicluster(version, &queue);
                    to_write.push(Write::Change { uid, namespace, name, version, change });
                }
            }
        }
        for write in to_write {
            // Nobody receives while the operator stops; then it does not matter.
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

/// The time.
pub(super) fn now() -> Millis {
    Timestamp::now().as_millisecond()
}
