//! A replica that wants to lead: looks at the Lease, takes it, keeps it.

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

/// Why a leader does not lead any more. It must end, because another may write.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Another replica is the holder.
    #[error("lost the Lease: {holder:?} holds it now")]
    Taken {
        /// The holder.
        holder: String,
    },
    /// The API server took no renewal.
    #[error("lost the Lease: failed to renew it for {} seconds", RENEW_WITHIN.as_secs())]
    Unrenewed,
}

/// This replica in the election.
pub(crate) struct Candidate {
    api: Api<Lease>,
    name: String,
    me: String,
    seen: Option<Seen>,
    /// When the Lease was last written by us, counted from before the request.
    renewed: Option<Instant>,
    leadership: Leadership,
    metrics: Metrics,
}

impl Candidate {
    /// A replica that does not lead yet, and how it will stand.
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

    /// Takes the Lease when it can be had and keeps it. Returns when it is lost.
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

    /// Releases the Lease if it is ours, so that another replica need not wait. Nothing may
    /// be under way any more.
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
        // Others take it after its term in any case.
        match timeout(RETRY, released).await {
            Ok(Ok(())) => tracing::info!("released the Lease"),
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "failed to release the Lease");
            }
            Err(_) => tracing::warn!("failed to release the Lease in time"),
        }
    }

    /// Looks and acts once. Returns when to look again.
    async fn step(&mut self) -> Result<Instant, Lost> {
        let now = Instant::now();
        let limit = match self.renewed {
            Some(renewed) => (renewed + RENEW_WITHIN).saturating_duration_since(now),
            None => RENEW_WITHIN,
        };
        let before = self.renewed;
        let outcome = timeout(limit, self.look_and_act()).await;
        if before.is_some_and(|before| before.elapsed() >= RENEW_WITHIN) {
            // A renewal that came this late does not count: work was dropped meanwhile.
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
                tracing::warn!(error = chain(&error), "failed to see to the Lease");
                Ok(Instant::now() + RETRY)
            }
            // The time has passed already.
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
            // Somebody else was faster: look at what they wrote.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(now + RETRY / 10),
            Err(error) => Err(error),
        }
    }

    /// Writes the Lease as it was seen, or not at all: two replicas that see the
    /// same Lease cannot both change it.
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

    /// Tells everybody how this replica stands.
    fn stand(&self) {
        let holder = self.seen.as_ref().and_then(Seen::holder);
        let held = self.renewed.filter(|_| holder == Some(&self.me));
        let leader = holder.filter(|holder| *holder != self.me).and_then(address_of);
        self.leadership.set(held.map(|renewed| renewed + RENEW_WITHIN), leader);
        self.metrics.leads(held.is_some());
    }
}

/// Waits until the Lease has another holder than `known`. A watch that ends or
/// fails is no news: it is tried again, and the next look needs it not.
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
