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

use super::decision::{
    LeaseAction, ObservedLease, RENEW_DEADLINE, RETRY_PERIOD, acquired_spec, decide, released_spec,
};
use super::{Election, Leadership, parse_address};
use crate::metrics::Metrics;
use flux_operator_service::error_chain::chain;

/// Why this replica is no longer the leader. The process must exit: another replica may write.
#[derive(Debug, thiserror::Error)]
pub enum LeaseLost {
    /// Another replica is the holder.
    #[error("lost the Lease: {holder:?} holds it now")]
    Taken {
        /// The holder.
        holder: String,
    },
    /// The API server accepted no renewal in time.
    #[error("lost the Lease: failed to renew it for {} seconds", RENEW_DEADLINE.as_secs())]
    NotRenewed,
}

/// This replica's part in the election.
pub(crate) struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    observed: Option<ObservedLease>,
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
            identity: election.identity.to_holder(),
            observed: None,
            renewed: None,
            leadership: leadership.clone(),
            metrics,
        };
        (candidate, leadership)
    }

    /// Acquires the Lease as soon as possible and keeps renewing it. Returns when it is lost.
    pub(crate) async fn campaign(&mut self) -> LeaseLost {
        let mut changes = pin!(watch_object(self.api.clone(), &self.name).default_backoff());
        loop {
            let wait = match self.step().await {
                Ok(wait) => wait,
                Err(lost) => return lost,
            };
            let holder = self.observed.as_ref().and_then(ObservedLease::holder).map(str::to_owned);
            tokio::select! {
                () = sleep_until(wait.into()) => {}
                () = wait_for_other_holder(&mut changes, holder.as_deref()) => {}
            }
        }
    }

    /// Releases the Lease if we hold it, so that another replica need not wait for it to expire.
    /// All work must have finished before.
    pub(crate) async fn release(&mut self) {
        self.leadership.close();
        self.metrics.set_leader(false);
        if self.renewed.take().is_none() {
            return;
        }
        let released = async {
            let Some(lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            let spec = lease.spec.clone().unwrap_or_default();
            if spec.holder_identity.as_deref() != Some(&self.identity) {
                return Ok(());
            }
            self.write(Some(&lease), released_spec(&spec)).await.map(drop)
        };
        // If this fails, others acquire the Lease once it has expired.
        match timeout(RETRY_PERIOD, released).await {
            Ok(Ok(())) => tracing::info!("released the Lease"),
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "failed to release the Lease");
            }
            Err(_) => tracing::warn!("failed to release the Lease in time"),
        }
    }

    /// Tries once to acquire or renew the Lease. Returns when to try again.
    async fn step(&mut self) -> Result<Instant, LeaseLost> {
        let now = Instant::now();
        let limit = match self.renewed {
            Some(renewed) => (renewed + RENEW_DEADLINE).saturating_duration_since(now),
            None => RENEW_DEADLINE,
        };
        let before = self.renewed;
        let outcome = timeout(limit, self.try_acquire_or_renew()).await;
        if before.is_some_and(|before| before.elapsed() >= RENEW_DEADLINE) {
            // A renewal this late does not count: the replica may have stopped its work meanwhile.
            return Err(LeaseLost::NotRenewed);
        }
        if let Some(renewed) = self.renewed {
            let other = self
                .observed
                .as_ref()
                .and_then(ObservedLease::holder)
                .filter(|holder| *holder != self.identity);
            if let Some(holder) = other {
                return Err(LeaseLost::Taken { holder: holder.to_owned() });
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return Err(LeaseLost::NotRenewed);
            }
        }
        match outcome {
            Ok(Ok(wait)) => Ok(wait),
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "failed to acquire or renew the Lease");
                Ok(Instant::now() + RETRY_PERIOD)
            }
            // The deadline has passed already.
            Err(_) => Ok(Instant::now()),
        }
    }

    async fn try_acquire_or_renew(&mut self) -> Result<Instant, kube::Error> {
        let lease = self.api.get_opt(&self.name).await?;
        let now = Instant::now();
        let spec = lease.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        self.observed =
            spec.clone().map(|spec| ObservedLease::observe(self.observed.take(), spec, now));
        if let LeaseAction::Wait(until) = decide(&self.identity, self.observed.as_ref(), now) {
            self.publish();
            return Ok(until);
        }
        match self
            .write(lease.as_ref(), acquired_spec(&self.identity, spec.as_ref(), Timestamp::now()))
            .await
        {
            Ok(written) => {
                self.observed = written.spec.map(|spec| ObservedLease::observe(None, spec, now));
                if self.renewed.replace(now).is_none() {
                    tracing::info!(identity = self.identity, "became leader");
                }
                self.publish();
                Ok(now + RETRY_PERIOD)
            }
            // Another replica wrote first: read its Lease soon.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(now + RETRY_PERIOD / 10),
            Err(error) => Err(error),
        }
    }

    /// Writes the Lease only if it is unchanged since it was read, so that of two replicas that
    /// read the same Lease only one can write it.
    async fn write(&self, before: Option<&Lease>, spec: LeaseSpec) -> Result<Lease, kube::Error> {
        let parameters = PostParams::default();
        match before {
            Some(before) => {
                // The client does not read which fields managers own, so they must not be written.
                let metadata = ObjectMeta { managed_fields: None, ..before.metadata.clone() };
                let lease = Lease { metadata, spec: Some(spec) };
                self.api.replace(&self.name, &parameters, &lease).await
            }
            None => {
                let metadata =
                    ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                self.api.create(&parameters, &Lease { metadata, spec: Some(spec) }).await
            }
        }
    }

    /// Publishes whether this replica is the leader, and if not, the address of the leader.
    fn publish(&self) {
        let holder = self.observed.as_ref().and_then(ObservedLease::holder);
        let held = self.renewed.filter(|_| holder == Some(&self.identity));
        let leader = holder.filter(|holder| *holder != self.identity).and_then(parse_address);
        self.leadership.set(held.map(|renewed| renewed + RENEW_DEADLINE), leader);
        self.metrics.set_leader(held.is_some());
    }
}

/// Waits until the Lease has a holder other than `known`. Errors of the watch are ignored: the
/// watch is restarted, and the next attempt does not depend on it.
async fn wait_for_other_holder(
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
