//! A replica that takes part in the election: reads, acquires and renews the Lease.

use std::pin::pin;
use std::time::Instant;

use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use tokio::time::{sleep_until, timeout};

use super::decision::{Decision, RENEW_WITHIN, RETRY, Seen, decide, held, released};
use super::{Election, Leadership, address_of};
use crate::errors::chain;
use crate::metrics::Metrics;

/// Why this replica is no longer the leader. The process must exit, because another replica may
/// write.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Another replica is the holder.
    #[error("lost the Lease: {holder:?} holds it now")]
    Taken {
        /// The holder.
        holder: String,
    },
    /// The API server accepted no renewal in time.
    #[error("lost the Lease: failed to renew it for {} seconds", RENEW_WITHIN.as_secs())]
    Unrenewed,
}

/// This replica's part in the election.
pub(crate) struct Candidate {
    api: Api<Lease>,
    name: String,
    me: String,
    seen: Option<Seen>,
    /// When we last wrote the Lease, measured before the request was sent.
    renewed: Option<Instant>,
    leadership: Leadership,
    metrics: Metrics,
}

impl Candidate {
    /// A replica that does not lead yet, and its [`Leadership`].
    pub(crate) fn new(
        client: Client,
        election: &Election,
        metrics: Metrics,
    ) -> (Candidate, Leadership) {
        let leadership = Leadership::unknown();
        let candidate = Candidate {
            api: Api::namespaced(client, &election.namespace),
            name: election.lease.clone(),
            me: election.identity.to_holder(),
            seen: None,
            renewed: None,
            leadership: leadership.clone(),
            metrics,
        };
        (candidate, leadership)
    }

    /// Acquires the Lease as soon as possible and keeps renewing it. Returns when it is lost.
    pub(crate) async fn campaign(&mut self) -> Lost {
        let mut changes = pin!(watch_object(self.api.clone(), &self.name).default_backoff());
        loop {
            let wait = match self.step().await {
                Ok(wait) => wait,
                Err(lost) => return lost,
            };
            let holder = self.seen.as_ref().and_then(Seen::holder).map(str::to_owned);
            tokio::select! {
                () = sleep_until(wait.into()) => {}
                () = other_holder(&mut changes, holder.as_deref()) => {}
            }
        }
    }

    /// Releases the Lease if we hold it, so that another replica need not wait for it to expire. No
    /// work may be running any more.
    pub(crate) async fn release(&mut self) {
        self.leadership.close();
        self.metrics.leads(false);
        if self.renewed.take().is_none() {
            return;
        }
        let released = async {
            let Some(lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            let spec = lease.spec.clone().unwrap_or_default();
            if spec.holder_identity.as_deref() != Some(&self.me) {
                return Ok(());
            }
            self.write(Some(&lease), released(&spec)).await.map(drop)
        };
        // If this fails, others acquire the Lease once it has expired.
        match timeout(RETRY, released).await {
            Ok(Ok(())) => tracing::info!("released the Lease"),
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "failed to release the Lease");
            }
            Err(_) => tracing::warn!("failed to release the Lease in time"),
        }
    }

    /// Tries once to acquire or renew the Lease. Returns when to try again.
    async fn step(&mut self) -> Result<Instant, Lost> {
        let now = Instant::now();
        let limit = match self.renewed {
            Some(renewed) => (renewed + RENEW_WITHIN).saturating_duration_since(now),
            None => RENEW_WITHIN,
        };
        let before = self.renewed;
        let outcome = timeout(limit, self.look_and_act()).await;
        if before.is_some_and(|before| before.elapsed() >= RENEW_WITHIN) {
            // A renewal this late does not count: the replica may have stopped its work meanwhile.
            return Err(Lost::Unrenewed);
        }
        if let Some(renewed) = self.renewed {
            let other =
                self.seen.as_ref().and_then(Seen::holder).filter(|holder| *holder != self.me);
            if let Some(holder) = other {
                return Err(Lost::Taken { holder: holder.to_owned() });
            }
            if renewed.elapsed() >= RENEW_WITHIN {
                return Err(Lost::Unrenewed);
            }
        }
        match outcome {
            Ok(Ok(wait)) => Ok(wait),
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "failed to acquire or renew the Lease");
                Ok(Instant::now() + RETRY)
            }
            // The deadline has passed already.
            Err(_) => Ok(Instant::now()),
        }
    }

    async fn look_and_act(&mut self) -> Result<Instant, kube::Error> {
        let lease = self.api.get_opt(&self.name).await?;
        let now = Instant::now();
        let spec = lease.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        self.seen = spec.clone().map(|spec| Seen::look(self.seen.take(), spec, now));
        if let Decision::Wait(until) = decide(&self.me, self.seen.as_ref(), now) {
            self.stand();
            return Ok(until);
        }
        match self.write(lease.as_ref(), held(&self.me, spec.as_ref(), Timestamp::now())).await {
            Ok(written) => {
                self.seen = written.spec.map(|spec| Seen::look(None, spec, now));
                if self.renewed.replace(now).is_none() {
                    tracing::info!(identity = self.me, "leads");
                }
                self.stand();
                Ok(now + RETRY)
            }
            // Another replica wrote first: read its Lease soon.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(now + RETRY / 10),
            Err(error) => Err(error),
        }
    }

    /// Writes the Lease only if it is unchanged since it was read, so that of two replicas that
    /// read the same Lease only one can write it.
    async fn write(&self, before: Option<&Lease>, spec: LeaseSpec) -> Result<Lease, kube::Error> {
        let parameters = PostParams::default();
        match before {
            Some(before) => {
                let lease = Lease { metadata: before.metadata.clone(), spec: Some(spec) };
                self.api.replace(&self.name, &parameters, &lease).await
            }
            None => {
                let metadata =
                    ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                self.api.create(&parameters, &Lease { metadata, spec: Some(spec) }).await
            }
        }
    }

    /// Publishes whether this replica is the leader, and otherwise who is.
    fn stand(&self) {
        let holder = self.seen.as_ref().and_then(Seen::holder);
        let held = self.renewed.filter(|_| holder == Some(&self.me));
        let leader = holder.filter(|holder| *holder != self.me).and_then(address_of);
        self.leadership.set(held.map(|renewed| renewed + RENEW_WITHIN), leader);
        self.metrics.leads(held.is_some());
    }
}

/// Waits until the Lease has another holder than `known`. Errors of the watch are ignored: the
/// watch is restarted, and the next attempt does not depend on it.
async fn other_holder(
    changes: &mut (impl Stream<Item = watcher::Result<Option<Lease>>> + Unpin),
    known: Option<&str>,
) {
    while let Some(change) = changes.next().await {
        let Ok(lease) = change else { continue };
        let spec = lease.and_then(|lease| lease.spec);
        if spec.and_then(|spec| spec.holder_identity).as_deref() != known {
            return;
        }
    }
    std::future::pending().await
}
