//! The reconciler's [`ReconciledKind`] for MiniClusters.

use std::borrow::Cow;
use std::sync::Arc;

use flux_operator_api::{MiniCluster, MiniClusterStatus};
use flux_operator_plan::bursting::must_list_policies;
use flux_operator_plan::kubernetes::{LENDER_LABEL, Settings};
use flux_operator_plan::status::undecodable;
use flux_operator_plan::{
    Decision, ExistingPod, FINALIZER, MiniClusterFacts, Observed, Query, QueryAnswer, ServerReply,
    Subject, completion_index, decide, joined_after, queries,
};
use flux_operator_wire::Drain;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::core::error_boundary::InvalidObject;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::listed_policies::listed_burst_ranks;
use crate::metrics::{Metrics, first_ready};
use crate::queue::Queues;
use crate::reconciler::{Memory, ReconciledKind, WrittenObject, is_terminating};
use crate::reports::Reports;
use crate::stores::{GuardedMiniCluster, Stores};
use crate::watches::api;
use flux_operator_service::error_chain::chain;

/// Gives the reconciler access to MiniClusters and their objects.
pub(crate) struct MiniClusterKind {
    pub(crate) settings: Settings,
    /// The namespace that the operator is restricted to.
    pub(crate) scope: Option<String>,
    pub(crate) stores: Stores,
    pub(crate) reports: Reports,
    pub(crate) queues: Queues,
    pub(crate) metrics: Metrics,
    pub(crate) memory: Arc<Memory>,
}

impl ReconciledKind for MiniClusterKind {
    type Stored = GuardedMiniCluster;
    type Object = MiniCluster;
    type Status = MiniClusterStatus;
    type Observed = Observed;
    type Facts<'a> = MiniClusterFacts<'a>;

    const NAME: &'static str = "MiniCluster";
    const CONDITION: &'static str = "Accepted";
    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    fn open(stored: &GuardedMiniCluster) -> Result<Cow<'_, MiniCluster>, &InvalidObject> {
        stored.0.as_ref().map(Cow::Borrowed)
    }

    fn observe(&self, minicluster: &MiniCluster, now: Timestamp) -> Option<Observed> {
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        let mut observed = self.stores.observe(minicluster, &self.reports, now);
        observed.answers = self.memory.answers(uid);
        observed.read_panic = self.queues.unreadable_reason(minicluster);
        observed.waiting = self.queues.waiting_reason(minicluster, now);
        Some(observed)
    }

    async fn query(&self, client: &Client, minicluster: &MiniCluster, observed: &mut Observed) {
        for query in queries(minicluster, observed) {
            let scope = self.scope.as_deref();
            let reply = execute_query(client, scope, minicluster, &query).await;
            let reply = reply.unwrap_or_else(|error| {
                let (cluster, error) = (minicluster.name_any(), chain(&error));
                let namespace = minicluster.namespace();
                tracing::warn!(cluster, namespace, error, "failed to query the API server");
                None
            });
            let answer = QueryAnswer::new(minicluster, query, reply, observed.now);
            observed.add_answer(answer);
        }
        if must_list_policies(minicluster, observed) {
            match listed_burst_ranks(client, minicluster).await {
                Ok(ranks) => observed.burst_ranks = ranks,
                // Those of the watch count.
                Err(error) => {
                    let (cluster, error) = (minicluster.name_any(), chain(&error));
                    tracing::debug!(cluster, error, "failed to list BurstPolicies");
                }
            }
        }
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        self.memory.set_answers(uid, observed.lasting_answers());
    }

    fn decide<'a>(
        &'a self,
        minicluster: &'a MiniCluster,
        observed: &'a Observed,
    ) -> Decision<MiniClusterFacts<'a>> {
        decide(minicluster, observed, &self.settings)
    }

    fn assign(&self, minicluster: &MiniCluster, work: Option<&Drain>) {
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        self.reports.set_drain(uid, work.cloned());
    }

    fn observed_version(
        &self,
        minicluster: &MiniCluster,
        written: &WrittenObject,
    ) -> Option<String> {
        self.stores.observed_version(minicluster, written)
    }

    fn on_status_written(&self, minicluster: &MiniCluster, status: &MiniClusterStatus) {
        if let Some(duration) = first_ready(minicluster, status) {
            self.metrics.record_bring_up(duration);
        }
        let lender = self.stores.lender_of(minicluster, &self.reports);
        if let Some(duration) = lender.and_then(|lender| joined_after(minicluster, status, &lender))
        {
            self.metrics.joins().record(duration);
        }
    }

    fn conditions(minicluster: &MiniCluster) -> Option<&[Condition]> {
        Some(minicluster.status.as_ref().map_or(&[], |status| &status.conditions))
    }

    fn unreadable_status(invalid: &InvalidObject, now: Timestamp) -> Value {
        let status = undecodable(&invalid.error, invalid.metadata.generation, now);
        let generation = status.observed_generation;
        json!({ "phase": status.phase, "observedGeneration": generation,
            "conditions": status.conditions })
    }
}

/// Executes a query against the API server. Of a Secret, only its existence is read.
async fn execute_query(
    client: &Client,
    scope: Option<&str>,
    minicluster: &MiniCluster,
    query: &Query,
) -> Result<Option<ServerReply>, kube::Error> {
    let namespace = minicluster.namespace().unwrap_or_default();
    let deleted = |is_gone| Some(if is_gone { ServerReply::Deleted } else { ServerReply::Exists });
    Ok(match &query.subject {
        Subject::MiniCluster => {
            let miniclusters: Api<MiniCluster> = Api::namespaced(client.clone(), &namespace);
            let found = miniclusters.get_metadata_opt(&minicluster.name_any()).await?;
            let is_same = found.is_some_and(|found| {
                found.metadata.uid == minicluster.metadata.uid
                    && found.metadata.deletion_timestamp.is_none()
            });
            deleted(!is_same)
        }
        Subject::JoinerPods { lender } => {
            let of_lender = format!("{LENDER_LABEL}={lender}");
            let jobs: Api<Job> = api(client, scope);
            let jobs = jobs.list(&ListParams::default().labels(&of_lender)).await?.items;
            Some(pods_of(&jobs, &api(client, scope), &of_lender).await?)
        }
        Subject::OwnPods { job } => {
            let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
            let own = jobs.get_opt(&minicluster.name_any()).await?;
            let own: Vec<Job> =
                own.into_iter().filter(|it| it.uid().as_ref() == Some(job)).collect();
            let labels = format!("batch.kubernetes.io/controller-uid={job}");
            let pods = Api::namespaced(client.clone(), &namespace);
            Some(pods_of(&own, &pods, &labels).await?)
        }
        Subject::Namespace => deleted(is_terminating(client, &namespace).await?),
        Subject::Job { uid } => Some(ServerReply::Events(warnings(client, &namespace, uid).await?)),
        Subject::Keys { name } => {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
            deleted(secrets.get_metadata_opt(name).await?.is_none())
        }
        Subject::Pod { uid, .. } => {
            Some(ServerReply::Events(warnings(client, &namespace, uid).await?))
        }
    })
}

/// The pods with these labels that have not finished, and those that Jobs will create. The Jobs were
/// read before.
async fn pods_of(jobs: &[Job], pods: &Api<Pod>, labels: &str) -> Result<ServerReply, kube::Error> {
    let unfinished = "status.phase!=Succeeded,status.phase!=Failed";
    let selected = ListParams::default().labels(labels).fields(unfinished);
    let pods = pods.list_metadata(&selected).await?;
    let existing = pods.iter().map(|pod| ExistingPod::new(pod, completion_index(pod)));
    let to_come = jobs.iter().filter_map(ExistingPod::last_of);
    Ok(ServerReply::Pods(existing.chain(to_come).collect()))
}

/// The warning Events about an object.
async fn warnings(client: &Client, namespace: &str, uid: &str) -> Result<Vec<Event>, kube::Error> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning"));
    events.list(&about).await.map(|list| list.items)
}
