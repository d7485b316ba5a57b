//! Runs what one replica runs, while it leads and while it waits to; and ends it in order.

use std::pin::pin;

use kube::Client;

use crate::client::{LIMITS, for_all, for_leader};
use crate::gate::Gate;
use crate::hand_over::{end_writes, wind_down};
use crate::health::Health;
use crate::lease::{Candidate, Election, Leadership, Lost};
use crate::metrics::Metrics;
use crate::tasks::{TaskEnded, Tasks};

/// Why the operator ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another replica may lead.
    #[error(transparent)]
    Lost(Lost),
    /// A part of the operator does not run any more.
    #[error(transparent)]
    TaskEnded(TaskEnded),
}

/// What all reconcilers use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Common {
    /// Writes only while this replica leads.
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

/// Runs what `start` starts until `stop`: then nothing new is begun, the work under way ends,
/// and the Lease is released. Fails when the Lease is lost, or when a task ends.
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
        // Another replica may write any moment: writes under way are cut off.
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
        // The Lease is renewed meanwhile.
        tokio::select! {
            () = async {
                if ended.is_some() {
                    // Cut off now, they might still be done after the Lease was released.
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
