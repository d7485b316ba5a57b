//! The reconciler's [`Kind`] for FluxSetups. The status of a setup changes with every job, so a
//! setup is reconciled at most once a second.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::{FluxSetup, FluxSetupStatus};
use flux_operator_plan::Decision;
use flux_operator_plan::queueing::ledger::{SetupFacts, setup_name};
use flux_operator_plan::queueing::setup::{Facts, SetupSeen, SetupUse, decide};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::ObjectRef;

use super::pace::{News, Pace};
use super::queues::{GuardedSetup, Queues};
use crate::lease::Leadership;
use crate::reconciler::{Kind, Turn, Written};

/// How often setups with a changed status are reconciled.
const INTERVAL: Duration = Duration::from_secs(1);

/// Gives the reconciler access to FluxSetups.
pub(super) struct Setups {
    pub(super) queues: Queues,
    pub(super) pace: Arc<Pace>,
}

/// The observed state of a setup.
pub(super) struct Observed {
    queue: Option<SetupFacts>,
    now: Timestamp,
}

impl Kind for Setups {
    type Stored = GuardedSetup;
    type Object = FluxSetup;
    type Status = FluxSetupStatus;
    type Observed = Observed;
    type Facts<'a> = Facts<'a>;

    const NAME: &'static str = "FluxSetup";
    const CONDITION: &'static str = "Active";

    fn open(stored: &GuardedSetup) -> Result<Cow<'_, FluxSetup>, &InvalidObject> {
        stored.0.as_ref().map(Cow::Borrowed)
    }

    fn observe(&self, setup: &FluxSetup, now: Timestamp) -> Option<Observed> {
        Some(Observed { queue: self.queues.ledger().setup(&setup_name(setup)), now })
    }

    fn decide<'a>(&'a self, setup: &'a FluxSetup, observed: &'a Observed) -> Decision<Facts<'a>> {
        let queue = observed.queue.as_ref().map(|SetupFacts { read, usage, running }| SetupUse {
            read,
            usage,
            running: *running,
        });
        decide(SetupSeen { setup, queue, now: observed.now })
    }

    /// A setup has no other written objects.
    fn shown(&self, _: &FluxSetup, _: &Written) -> Option<String> {
        None
    }

    fn turn(&self, _: &FluxSetup) -> Turn {
        if self.pace.spare(News::Setup) { Turn::Now } else { Turn::In(INTERVAL) }
    }

    fn conditions(setup: &FluxSetup) -> Option<&[Condition]> {
        Some(setup.status.as_ref().map_or(&[], |status| &status.conditions))
    }
}

/// Requests, once a second, the reconciliation of setups whose status has changed, and of all jobs
/// if that affects them.
pub(super) async fn ask_for_stale(queues: Queues, leadership: Leadership) {
    let term = leadership.until_it_leads().await;
    queues.filled(term).await;
    loop {
        let what = queues.stale.take().await;
        if what.all_jobs {
            queues.look_at_all_jobs();
        }
        for name in what.setups {
            queues.look_at_setup(ObjectRef::new(&name.name).within(&name.namespace));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
