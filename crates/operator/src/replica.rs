//! Runs one replica, both as leader and on standby, and stops it in an orderly way.

use std::pin::pin;

use kube::Client;

use crate::client::{REQUEST_TIMEOUTS, leader_client, shared_client};
use crate::gate::WriteGate;
use crate::hand_over::{finish_writes, wind_down};
use crate::health::Health;
use crate::lease::{Candidate, Election, Leadership, LeaseLost};
use crate::metrics::Metrics;
use crate::tasks::{TaskExited, Tasks};

/// Why the operator stopped without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The Lease was lost, so that another replica may be the leader.
    #[error(transparent)]
    Lost(LeaseLost),
    /// A task of the operator has exited.
    #[error(transparent)]
    TaskExited(TaskExited),
}

/// What all reconcilers share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReplicaContext {
    /// Writes only while this replica is the leader.
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
}

impl ReplicaContext {
    pub(crate) fn new(client: Client, leadership: Leadership, metrics: Metrics) -> ReplicaContext {
        let health = Health::default();
        let gate = WriteGate::new(leadership.clone(), health.clone());
        let client = leader_client(client, metrics.clone(), REQUEST_TIMEOUTS, gate);
        ReplicaContext { client, leadership, health, metrics }
    }
}

/// Runs the tasks that `start` starts until `stop`. Then it starts no new work, waits for running
/// work to finish, and releases the Lease. Fails if the Lease is lost, or if a task exits.
pub(crate) async fn run_replica(
    client: Client,
    election: Option<Election>,
    stop: impl Future<Output = ()>,
    start: impl FnOnce(&ReplicaContext, Client) -> Tasks,
) -> Result<(), RunError> {
    let metrics = Metrics::new();
    let shared = shared_client(client.clone(), metrics.clone(), REQUEST_TIMEOUTS);
    let (mut candidate, leadership) = match &election {
        Some(election) => {
            let (candidate, leadership) = Candidate::new(shared.clone(), election, metrics.clone());
            (Some(candidate), leadership)
        }
        None => (None, Leadership::always()),
    };
    metrics.set_leader(leadership.is_leader());
    let context = ReplicaContext::new(client, leadership.clone(), metrics);
    let mut tasks = start(&context, shared);
    let exited = {
        let mut lost = pin!(async {
            match &mut candidate {
                Some(candidate) => candidate.campaign().await,
                None => std::future::pending().await,
            }
        });
        // Another replica may write at any moment: running writes are cut off.
        let give_up = |lost| {
            leadership.close();
            Err(RunError::Lost(lost))
        };
        let finished = tokio::select! {
            biased;
            () = stop => None,
            lost = &mut lost => return give_up(lost),
            finished = tasks.wait_for_exit() => Some(finished),
        };
        // The Lease is still renewed meanwhile.
        tokio::select! {
            () = async {
                if finished.is_some() {
                    // Writes that are cut off now could be executed after the Lease is released.
                    finish_writes(&leadership, &context.health).await;
                    tasks.cancel();
                } else {
                    wind_down(&leadership, &context.health).await;
                }
            } => {}
            lost = lost => return give_up(lost),
        }
        finished
    };
    drop(tasks);
    if let Some(candidate) = &mut candidate {
        candidate.release().await;
    }
    exited.map_or(Ok(()), |finished| Err(RunError::TaskExited(finished)))
}
