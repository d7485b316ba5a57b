//! Passes over FluxSetups: what is true of each is written at most once a second, beside
//! the way of admissions.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::FluxSetup;
use flux_operator_plan::queueing::merge_patch;
use flux_operator_plan::queueing::setup::{FINALIZER, SetupSeen, SetupStep, first_step, plan};
use flux_operator_queue::SetupName;
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use super::pace::{News, Pace};
use super::queues::{GuardedSetup, Queues};
use super::unreadable;
use crate::apply::{ApplyError, delete};
use crate::errors::chain;
use crate::health::Health;
use crate::lease::Leadership;
use crate::status::{Unreadable, patch_status};

/// How often what is true of a setup is written.
const INTERVAL: Duration = Duration::from_secs(1);

/// Setups that are passed over at the same time.
const CONCURRENCY: usize = 8;

/// What a pass works with.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) queues: Queues,
    pub(super) leadership: Leadership,
    pub(super) health: Health,
    pub(super) pace: Arc<Pace>,
    pub(super) unreadable: Unreadable,
}

/// Why a pass failed; it is tried again.
#[derive(Debug, thiserror::Error)]
enum SetupError {
    #[error("failed to write the status")]
    Publish { source: kube::Error },
    #[error("failed to change the finalizers")]
    Finalizers { source: kube::Error },
    #[error(transparent)]
    Delete(ApplyError),
}

/// Keeps new setups, at once: before anybody has room of them. What fails here the next
/// pass does.
pub(super) async fn keep_new_ones(
    context: Arc<Context>,
    mut unkept: UnboundedReceiver<ObjectRef<GuardedSetup>>,
) {
    context.queues.filled(context.leadership.until_it_leads().await).await;
    while let Some(reference) = unkept.recv().await {
        if !context.leadership.decides() {
            continue;
        }
        let Some(guarded) = context.queues.setups.get(&reference) else { continue };
        let Ok(setup) = &guarded.0 else { continue };
        if let Some(step) = first_step(setup)
            && let Err(error) = context.carry_out(setup, step).await
        {
            tracing::warn!(setup = %reference, error = chain(&error), "failed to keep a FluxSetup");
        }
    }
}

/// Passes over setups of which something else has become true, for ever.
pub(super) async fn pass_over_all(context: Arc<Context>) {
    context.queues.filled(context.leadership.until_it_leads().await).await;
    loop {
        let what = context.queues.stale.take().await;
        if what.all_jobs {
            context.queues.look_at_all_jobs();
        }
        let passes = what.setups.into_iter().map(|name| context.try_pass(name));
        futures::stream::iter(passes).buffer_unordered(CONCURRENCY).collect::<()>().await;
        tokio::time::sleep(INTERVAL).await;
    }
}

impl Context {
    async fn try_pass(&self, name: SetupName) {
        match self.pass(&name).await {
            Ok(Done::Yes) => {}
            Ok(Done::Later) => self.queues.stale.setup(name),
            Err(error) => {
                tracing::warn!(setup = %name, error = chain(&error), "a pass over a FluxSetup failed");
                self.queues.stale.setup(name);
            }
        }
    }

    async fn pass(&self, name: &SetupName) -> Result<Done, SetupError> {
        let _under_way = self.health.begin("FluxSetup");
        if !self.leadership.decides() {
            return Ok(Done::Later);
        }
        let reference = ObjectRef::new(&name.name).within(&name.namespace);
        let Some(guarded) = self.queues.setups.get(&reference) else { return Ok(Done::Yes) };
        let setup = match &guarded.0 {
            Ok(setup) => setup,
            Err(invalid) => {
                let status = unreadable("Active", invalid);
                let told = self.unreadable.tell::<FluxSetup>(&self.client, invalid, status).await;
                told.map_err(|source| SetupError::Publish { source })?;
                return Ok(Done::Yes);
            }
        };
        let facts = self.queues.ledger().setup(name);
        // One that the scheduler has not read yet is told of when it has.
        let Some(facts) = facts else { return Ok(Done::Yes) };
        let plan = plan(SetupSeen {
            setup,
            read: &facts.read,
            usage: &facts.usage,
            running: facts.running,
            now: Timestamp::now(),
        });
        if let Some(step) = plan.step
            && let Done::Later = self.carry_out(setup, step).await?
        {
            return Ok(Done::Later);
        }
        let before = setup.status.clone().unwrap_or_default();
        let Some(patch) = merge_patch(&before, &plan.status) else { return Ok(Done::Yes) };
        if !self.pace.spare(News::Setup) {
            return Ok(Done::Later);
        }
        let patch = json!({ "status": patch });
        match patch_status::<FluxSetup>(&self.client, &name.namespace, &name.name, &patch).await {
            Ok(()) => Ok(Done::Yes),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Done::Yes),
            Err(source) => Err(SetupError::Publish { source }),
        }
    }

    async fn carry_out(&self, setup: &FluxSetup, step: SetupStep) -> Result<Done, SetupError> {
        let (namespace, name) = (setup.namespace().unwrap_or_default(), setup.name_any());
        let others = setup.finalizers().iter().filter(|name| *name != FINALIZER).cloned();
        let finalizers: Vec<String> = match step {
            SetupStep::Delete => {
                let deleted = delete::<FluxSetup>(&self.client, &namespace, &name, setup.uid());
                return deleted.await.map(|_| Done::Yes).map_err(SetupError::Delete);
            }
            SetupStep::Keep => others.chain([FINALIZER.to_owned()]).collect(),
            SetupStep::Release => others.collect(),
        };
        // A merge patch replaces a list as a whole, so it must be of this very version.
        let version = &setup.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
        let setups: Api<FluxSetup> = Api::namespaced(self.client.clone(), &namespace);
        match setups.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(Done::Yes),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Done::Yes),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Done::Later),
            Err(source) => Err(SetupError::Finalizers { source }),
        }
    }
}

/// Whether a pass has said all there is.
enum Done {
    Yes,
    Later,
}
