//! One pass: observe, validate, plan, apply, report.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{self, Rendering, Settings};
use flux_operator_plan::status::{Observed, status};
use flux_operator_plan::{Cluster, RankTableError, Valid};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::runtime::controller::Action;
use kube::runtime::events::Recorder;

use crate::apply::{ApplyError, adjust_job, apply, create_once, delete_job, is_going};
use crate::errors::chain;
use crate::keys::{KeyError, new_keys};
use crate::observe::{Seen, observe};
use crate::publish::{PublishError, publish};
use crate::reports::Reports;
use crate::stores::Stores;

/// What a pass works with.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) recorder: Recorder,
    pub(crate) settings: Settings,
    pub(crate) stores: Stores,
    pub(crate) reports: Reports,
}

/// Why a pass failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error(transparent)]
    Carry(CarryError),
    #[error(transparent)]
    Publish(PublishError),
}

/// Why a cluster could not be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CarryError {
    #[error(transparent)]
    Apply(ApplyError),
    #[error(transparent)]
    Keys(KeyError),
    #[error(transparent)]
    Ranks(RankTableError),
}

/// How long after a failed pass the next one is.
const RETRY: Duration = Duration::from_secs(5);

pub(crate) async fn reconcile(
    minicluster: Arc<MiniCluster>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    if minicluster.metadata.deletion_timestamp.is_some() {
        // Kubernetes deletes what we own.
        return Ok(Action::await_change());
    }
    let seen = observe(&minicluster, &context.stores, &context.reports);
    let valid = Valid::check(MiniCluster::clone(&minicluster));
    let carried = match &valid {
        Ok(valid) => carry_out(valid, &seen, &context).await,
        Err(_) => Ok(()),
    };
    let failure = carried.as_ref().err().map(|error| chain(error));
    let observed = Observed {
        job: seen.job.as_deref(),
        pods: &seen.pods,
        report: seen.report.as_ref(),
        refusal: valid.as_ref().err(),
        failure: failure.as_deref(),
    };
    let status = status(&minicluster, &observed, &Time(jiff::Timestamp::now()));
    publish(&context.client, &context.recorder, &minicluster, &status)
        .await
        .map_err(ReconcileError::Publish)?;
    carried.map_err(ReconcileError::Carry)?;
    Ok(Action::await_change())
}

pub(crate) fn retry(
    minicluster: Arc<MiniCluster>,
    error: &ReconcileError,
    _: Arc<Context>,
) -> Action {
    let name = minicluster.metadata.name.as_deref().unwrap_or_default();
    tracing::warn!(cluster = name, error = chain(error), "a pass failed");
    Action::requeue(RETRY)
}

/// Makes what is missing, and brings the Job to its size.
async fn carry_out(
    minicluster: &Valid<MiniCluster>,
    seen: &Seen,
    context: &Context,
) -> Result<(), CarryError> {
    let Context { client, settings, .. } = context;
    let cluster = Cluster::of(minicluster).map_err(CarryError::Ranks)?;
    let rendering = Rendering { minicluster, cluster: &cluster, settings };
    let job = kubernetes::job(&rendering);
    if let Some(current) = &seen.job {
        if loses_its_namespace(client, seen, current).await.map_err(CarryError::Apply)? {
            return delete_job(client, current).await.map_err(CarryError::Apply);
        }
        return adjust_job(client, current, &job).await.map_err(CarryError::Apply);
    }
    if has_ended(minicluster) {
        // Its Job was deleted after the end; running it again must be asked for.
        return Ok(());
    }
    if rendering.owns_secret() {
        let keys = new_keys(minicluster).map_err(CarryError::Keys)?;
        create_once(client, &kubernetes::secret(&rendering, &keys))
            .await
            .map_err(CarryError::Apply)?;
    }
    apply(client, &kubernetes::config_map(&rendering)).await.map_err(CarryError::Apply)?;
    apply(client, &kubernetes::headless_service(&rendering)).await.map_err(CarryError::Apply)?;
    create_once(client, &job).await.map_err(CarryError::Apply)
}

/// Whether the whole namespace is going. Kubernetes deletes its pods first and waits
/// for them, but a Job keeps its last failed pods until it has replaced them, which
/// it cannot do there any more: without us that would be for ever.
async fn loses_its_namespace(client: &Client, seen: &Seen, job: &Job) -> Result<bool, ApplyError> {
    if !seen.pods.iter().any(|pod| pod.metadata.deletion_timestamp.is_some()) {
        return Ok(false);
    }
    is_going(client, job.metadata.namespace.as_deref().unwrap_or_default()).await
}

fn has_ended(minicluster: &MiniCluster) -> bool {
    let conditions = minicluster.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|c| c.type_ == "JobFinished" && c.status == "True")
}
