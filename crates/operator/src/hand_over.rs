//! How a replica gives up leadership: it stops deciding, waits for running work to finish, and only
//! then releases the Lease to the next leader.
//!
//! ```text
//! stop deciding ──► reconciliations finish ──► no new writes ──► writes finish ──► release Lease
//!                   (bounded time)                               (request timeout)
//! ```
//!
//! The kubelet kills the pod 10 s after asking it to stop. The time limits here and that of the
//! release add up to 9 s.

use std::time::Duration;

use tokio::time::timeout;

use crate::client::REQUEST_TIMEOUTS;
use crate::health::{Health, WRITE};
use crate::lease::Leadership;

/// How long to wait for reconciliations to finish. They can be cut off after any write, but then
/// the Events of that write are lost.
const RECONCILE_GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Returns once this replica no longer decides or writes.
pub(crate) async fn wind_down(leadership: &Leadership, health: &Health) {
    leadership.stop_deciding();
    if timeout(RECONCILE_GRACE_PERIOD, health.wait_until_none(|_| true)).await.is_err() {
        tracing::warn!("reconciliations did not finish in time and are cut off");
    }
    finish_writes(leadership, health).await;
}

/// Rejects new writes, and returns once the running ones have finished.
pub(crate) async fn finish_writes(leadership: &Leadership, health: &Health) {
    leadership.close();
    // Each write has this timeout itself.
    let finished =
        timeout(REQUEST_TIMEOUTS.object, health.wait_until_none(|name| name == WRITE)).await;
    if finished.is_err() {
        tracing::warn!("writes did not finish in time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::WriteGate;
    use std::sync::{Arc, Mutex};

    /// A leader that records its actions in order.
    #[derive(Clone)]
    struct Replica {
        leadership: Leadership,
        health: Health,
        gate: WriteGate,
        actions: Arc<Mutex<Vec<String>>>,
    }

    impl Replica {
        fn new() -> Replica {
            let (leadership, health) = (Leadership::always(), Health::default());
            let gate = WriteGate::new(leadership.clone(), health.clone());
            Replica { leadership, health, gate, actions: Arc::default() }
        }

        fn record(&self, action: impl Into<String>) {
            self.actions.lock().unwrap().push(action.into());
        }

        /// Decides once a second, and writes each decision, which takes three seconds.
        async fn schedule(self) {
            for number in 0.. {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if !self.leadership.can_start_work() {
                    return self.record("stopped deciding");
                }
                let replica = self.clone();
                tokio::spawn(async move {
                    let Ok(_write) = replica.gate.begin_write() else { return };
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    replica.record(format!("wrote {number}"));
                });
            }
        }

        async fn release(&self) -> Vec<String> {
            wind_down(&self.leadership, &self.health).await;
            self.record("released");
            // Leaves time for actions that would come too late.
            tokio::time::sleep(Duration::from_secs(60)).await;
            self.actions.lock().unwrap().clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_after_the_last_write_has_finished() {
        let replica = Replica::new();
        tokio::spawn(replica.clone().schedule());
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let actions = replica.release().await;
        assert_eq!(actions, ["stopped deciding", "wrote 0", "wrote 1", "released"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hung_reconciliation_cannot_write_and_delays_the_release_only_briefly() {
        let replica = Replica::new();
        let hung = replica.clone();
        tokio::spawn(async move {
            let _reconciliation = hung.health.begin("MiniCluster");
            tokio::time::sleep(Duration::from_secs(30)).await;
            let written = hung.gate.begin_write().is_ok();
            hung.record(format!("written afterwards: {written}"));
        });
        tokio::task::yield_now().await;
        let begun = tokio::time::Instant::now();
        wind_down(&replica.leadership, &replica.health).await;
        assert!(begun.elapsed() <= RECONCILE_GRACE_PERIOD + Duration::from_millis(10));
        let said = replica.release().await;
        assert_eq!(said, ["released", "written afterwards: false"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_replica_stops_at_once() {
        let replica = Replica::new();
        let begun = tokio::time::Instant::now();
        wind_down(&replica.leadership, &replica.health).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
