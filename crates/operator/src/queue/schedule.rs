//! The scheduler's task: decides whenever something has happened, and never before
//! everything has been seen.

use std::time::Duration;

use flux_operator_queue::{Kind, Millis};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams};
use tokio::sync::mpsc::UnboundedSender;

use super::ledger::{Decided, Evicted, Renamed};
use super::queues::{GuardedJob, Queues};
use super::writer::Write;
use crate::errors::chain;
use crate::lease::Leadership;
use crate::stores::Guarded;
use crate::watches::api;

/// How many objects are asked for at once.
const PAGE: u32 = 500;

/// How long to wait after a list that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Decides for ever, while this replica leads. What is to be written goes to `writes`.
pub(super) async fn schedule(
    queues: Queues,
    leadership: Leadership,
    client: Client,
    namespace: Option<String>,
    writes: UnboundedSender<Write>,
) {
    queues.filled().await;
    // Each kind was read while the others were not known yet.
    queues.put_all();
    if !leadership.leads() {
        leadership.until_it_leads().await;
        catch_up(&queues, &client, namespace.as_deref()).await;
    }
    queues.stale.all_jobs();
    loop {
        let Decided { admit, evict, rename, changed, wake } = queues.ledger().cycle(now());
        let mut to_write: Vec<Write> = admit.into_iter().map(Write::Admit).collect();
        for Evicted { kind, namespace, name, reason, .. } in evict {
            match kind {
                // Its pass takes the record away, when its MiniCluster is gone.
                Kind::FluxJob => queues.look_at_job(&namespace, &name),
                Kind::MiniCluster => {
                    to_write.push(Write::Withdraw { namespace, name, reason });
                }
            }
        }
        for Renamed { kind, namespace, name, version, queue } in rename {
            match kind {
                // Its reconciliation rewrites the record, with the rest of the status.
                Kind::FluxJob => queues.look_at_job(&namespace, &name),
                Kind::MiniCluster => {
                    to_write.push(Write::Rename { namespace, name, version, queue });
                }
            }
        }
        for write in to_write {
            // Nobody receives while the operator stops; then it does not matter.
            let _ = writes.send(write);
        }
        changed.into_iter().for_each(|setup| queues.stale.setup(setup));
        let wait = wake
            .map(|wake| Duration::from_millis(wake.saturating_sub(now()).max(0).unsigned_abs()));
        tokio::select! {
            () = queues.something_happens() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

/// Reads all records again. What the leader before us has written last may not have
/// been shown by our watches yet, and its room must not be given twice.
async fn catch_up(queues: &Queues, client: &Client, namespace: Option<&str>) {
    while let Err(error) = read_records(queues, client, namespace).await {
        tracing::warn!(error = chain(&error), "failed to read what the last leader has admitted");
        tokio::time::sleep(RETRY).await;
    }
}

async fn read_records(
    queues: &Queues,
    client: &Client,
    namespace: Option<&str>,
) -> Result<(), kube::Error> {
    let jobs: Api<GuardedJob> = api(client, namespace);
    each(&jobs, |job| queues.put_guarded_job(&job)).await?;
    let miniclusters: Api<Guarded> = api(client, namespace);
    each(&miniclusters, |minicluster| {
        if let Ok(minicluster) = &minicluster.0 {
            queues.ledger().put_minicluster(minicluster);
        }
    })
    .await
}

/// Lists all objects, as they are now, and gives each to `take`.
async fn each<K>(api: &Api<K>, take: impl Fn(K)) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&parameters).await?;
        let next = page.metadata.continue_.clone().filter(|next| !next.is_empty());
        page.items.into_iter().for_each(&take);
        match next {
            Some(next) => parameters = parameters.continue_token(&next),
            None => return Ok(()),
        }
    }
}

/// The time.
pub(super) fn now() -> Millis {
    Timestamp::now().as_millisecond()
}
