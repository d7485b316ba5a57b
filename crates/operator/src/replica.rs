//! Runs one replica, both while it is the leader and while it waits to be, and stops it in order.

use std::pin::pin;

use kube::Client;

use crate::client::{LIMITS, for_all, for_leader};
use crate::gate::Gate;
use crate::hand_over::{end_writes, wind_down};
use crate::health::Health;
use crate::lease::{Candidate, Election, Leadership, Lost};
use crate::metrics::Metrics;
use crate::tasks::{TaskEnded, Tasks};

/// Why the operator stopped without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The Lease was lost, so that another replica may be the leader.
    #[error(transparent)]
    Lost(Lost),
    /// A task of the operator has exited.
    #[error(transparent)]
    TaskEnded(TaskEnded),
}

/// What all reconcilers share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Common {
    /// Writes only while this replica is the leader.
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
}

impl Common {
    pub(crate) fn new(client: Client, leadership: Leadership, metrics: Metrics) -> Common {
        let health = Health::default();
        let gate = Gate::new(leadership.clone(), health.clone());
        let client = for_leader(client, metrics.clone(), LIMITS, gate);
        Common { client, leadership, health, metrics }
    }
}

/// Runs the tasks that `start` starts until `stop`. Then it starts no new work, waits for running
/// work to finish, and releases the Lease. Fails if the Lease is lost, or if a task exits.
pub(crate) async fn lead(
    client: Client,
    election: Option<Election>,
    stop: impl Future<Output = ()>,
    start: impl FnOnce(&Common, Client) -> Tasks,
) -> Result<(), RunError> {
    let metrics = Metrics::new();
    let for_all = for_all(client.clone(), metrics.clone(), LIMITS);
    let (mut candidate, leadership) = match &election {
        Some(election) => {
            let (candidate, leadership) =
                Candidate::new(for_all.clone(), election, metrics.clone());
            (Some(candidate), leadership)
        }
        None => (None, Leadership::always()),
    };
    metrics.leads(leadership.leads());
    let common = Common::new(client, leadership.clone(), metrics);
    let mut tasks = start(&common, for_all);
    let ended = {
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
        let ended = tokio::select! {
            biased;
            () = stop => None,
            lost = &mut lost => return give_up(lost),
            ended = tasks.first_end() => Some(ended),
        };
        // The Lease is still renewed meanwhile.
        tokio::select! {
            () = async {
                if ended.is_some() {
                    // Writes that are cut off now could still be executed after the Lease was
                    // released.
                    end_writes(&leadership, &common.health).await;
                    tasks.cancel();
                } else {
                    wind_down(&leadership, &common.health).await;
                }
            } => {}
            lost = lost => return give_up(lost),
        }
        ended
    };
    drop(tasks);
    if let Some(candidate) = &mut candidate {
        candidate.release().await;
    }
    ended.map_or(Ok(()), |ended| Err(RunError::TaskEnded(ended)))
}
