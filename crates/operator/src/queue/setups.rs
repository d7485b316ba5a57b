//! The reconciler's [`ReconciledKind`] for FluxSetups. The status of a setup changes with every
//! job, so a setup is reconciled at most once a second.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::{FluxSetup, FluxSetupStatus};
use flux_operator_plan::Decision;
use flux_operator_plan::queueing::ledger::{SetupQueueState, setup_name};
use flux_operator_plan::queueing::setup::{FluxSetupFacts, ObservedSetup, QueuedSetup, decide};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::ObjectRef;

use super::queues::{GuardedSetup, Queues};
use super::rate_limit::{LowPriorityWrite, RateLimiter};
use crate::lease::Leadership;
use crate::reconciler::{ReconciledKind, WriteTime, WrittenObject};

/// How often setups with a changed status are reconciled.
const INTERVAL: Duration = Duration::from_secs(1);

/// Gives the reconciler access to FluxSetups.
pub(super) struct FluxSetupKind {
    pub(super) queues: Queues,
    pub(super) rate_limiter: Arc<RateLimiter>,
}

/// The observed state of a setup.
pub(super) struct SetupObservation {
    queue: Option<SetupQueueState>,
    now: Timestamp,
}

impl ReconciledKind for FluxSetupKind {
    type Stored = GuardedSetup;
    type Object = FluxSetup;
    type Status = FluxSetupStatus;
    type Observed = SetupObservation;
    type Facts<'a> = FluxSetupFacts<'a>;

    const NAME: &'static str = "FluxSetup";
    const CONDITION: &'static str = "Active";

    fn open(stored: &GuardedSetup) -> Result<Cow<'_, FluxSetup>, &InvalidObject> {
        stored.0.as_ref().map(Cow::Borrowed)
    }

    fn observe(&self, setup: &FluxSetup, now: Timestamp) -> Option<SetupObservation> {
        Some(SetupObservation { queue: self.queues.ledger().setup(&setup_name(setup)), now })
    }

    fn decide<'a>(
        &'a self,
        setup: &'a FluxSetup,
        observed: &'a SetupObservation,
    ) -> Decision<FluxSetupFacts<'a>> {
        let queue = observed.queue.as_ref().map(|SetupQueueState { rules, usage, running }| {
            QueuedSetup { rules, usage, running: *running }
        });
        decide(ObservedSetup { setup, queue, now: observed.now })
    }

    /// A setup has no other written objects.
    fn observed_version(&self, _: &FluxSetup, _: &WrittenObject) -> Option<String> {
        None
    }

    fn status_turn(&self, _: &FluxSetup) -> WriteTime {
        if self.rate_limiter.try_acquire_low_priority(LowPriorityWrite::Setup) {
            WriteTime::Now
        } else {
            WriteTime::After(INTERVAL)
        }
    }

    fn conditions(setup: &FluxSetup) -> Option<&[Condition]> {
        Some(setup.status.as_ref().map_or(&[], |status| &status.conditions))
    }
}

/// Requests, once a second, the reconciliation of setups whose status has changed, and of all jobs
/// if something has changed that may affect any job.
pub(super) async fn request_stale(queues: Queues, leadership: Leadership) {
    let term = leadership.wait_until_leader().await;
    queues.wait_until_synced(term).await;
    loop {
        let stale = queues.stale.take().await;
        if stale.all_jobs {
            queues.request_all_jobs();
        }
        for name in stale.setups {
            queues.request_setup(ObjectRef::new(&name.name).within(&name.namespace));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
