//! The reconciler's [`Kind`] for MiniClusters.

use std::borrow::Cow;
use std::sync::Arc;

use flux_operator_api::{MiniCluster, MiniClusterStatus};
use flux_operator_plan::kubernetes::{Settings, secret_name};
use flux_operator_plan::status::undecodable;
use flux_operator_plan::{
    Answer, Decision, MiniClusterFacts, Query, Reply, Seen, Subject, decide, queries,
};
use flux_operator_wire::Drain;
use k8s_openapi::api::core::v1::{Event, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::core::error_boundary::InvalidObject;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::errors::chain;
use crate::metrics::{Metrics, first_ready};
use crate::queue::Queues;
use crate::reconciler::{Kind, Memory, Written, is_terminating};
use crate::reports::Reports;
use crate::stores::{Guarded, Stores};

/// Gives the reconciler access to MiniClusters and their objects.
pub(crate) struct MiniClusters {
    pub(crate) settings: Settings,
    pub(crate) stores: Stores,
    pub(crate) reports: Reports,
    pub(crate) queues: Queues,
    pub(crate) metrics: Metrics,
    pub(crate) memory: Arc<Memory>,
}

impl Kind for MiniClusters {
    type Stored = Guarded;
    type Object = MiniCluster;
    type Status = MiniClusterStatus;
    type Observed = Seen;
    type Facts<'a> = MiniClusterFacts<'a>;

    const NAME: &'static str = "MiniCluster";
    const CONDITION: &'static str = "Accepted";

    fn open(stored: &Guarded) -> Result<Cow<'_, MiniCluster>, &InvalidObject> {
        stored.0.as_ref().map(Cow::Borrowed)
    }

    fn observe(&self, minicluster: &MiniCluster, now: Timestamp) -> Option<Seen> {
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        let mut seen = self.stores.seen(minicluster, &self.reports, now);
        seen.answers = self.memory.answers(uid);
        seen.unreadable = self.queues.unreadable(minicluster);
        seen.waiting = self.queues.why(minicluster, now);
        Some(seen)
    }

    async fn ask(&self, client: &Client, minicluster: &MiniCluster, seen: &mut Seen) {
        for query in queries(minicluster, seen) {
            let reply = reply(client, minicluster, &query).await.unwrap_or_else(|error| {
                let (cluster, error) = (minicluster.name_any(), chain(&error));
                let namespace = minicluster.namespace();
                tracing::warn!(cluster, namespace, error, "failed to query for a MiniCluster");
                None
            });
            let answer = Answer::new(minicluster, query, reply, seen.now);
            seen.answered(answer);
        }
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        self.memory.set_answers(uid, seen.lasting_answers());
    }

    fn decide<'a>(
        &'a self,
        minicluster: &'a MiniCluster,
        seen: &'a Seen,
    ) -> Decision<MiniClusterFacts<'a>> {
        decide(minicluster, seen, &self.settings)
    }

    fn assign(&self, minicluster: &MiniCluster, work: Option<&Drain>) {
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        self.reports.set_drain(uid, work.cloned());
    }

    fn shown(&self, minicluster: &MiniCluster, written: &Written) -> Option<String> {
        self.stores.version(minicluster, written)
    }

    fn status_written(&self, minicluster: &MiniCluster, status: &MiniClusterStatus) {
        if let Some(duration) = first_ready(minicluster, status) {
            self.metrics.brought_up(duration);
        }
    }

    fn conditions(minicluster: &MiniCluster) -> Option<&[Condition]> {
        Some(minicluster.status.as_ref().map_or(&[], |status| &status.conditions))
    }

    fn unreadable(invalid: &InvalidObject, now: Timestamp) -> Value {
        let status = undecodable(&invalid.error, invalid.metadata.generation, now);
        let generation = status.observed_generation;
        json!({ "phase": status.phase, "observedGeneration": generation,
            "conditions": status.conditions })
    }
}

/// Executes a query against the API server. Of a Secret, only its existence is read.
async fn reply(
    client: &Client,
    minicluster: &MiniCluster,
    query: &Query,
) -> Result<Option<Reply>, kube::Error> {
    let namespace = minicluster.namespace().unwrap_or_default();
    let gone = |is_gone| Some(if is_gone { Reply::Gone } else { Reply::Exists });
    Ok(match &query.subject {
        Subject::Itself => {
            let miniclusters: Api<MiniCluster> = Api::namespaced(client.clone(), &namespace);
            let found = miniclusters.get_metadata_opt(&minicluster.name_any()).await?;
            let is_it = found.is_some_and(|found| {
                found.metadata.uid == minicluster.metadata.uid
                    && found.metadata.deletion_timestamp.is_none()
            });
            gone(!is_it)
        }
        Subject::Namespace => gone(is_terminating(client, &namespace).await?),
        Subject::Job { uid } => Some(Reply::Events(warnings(client, &namespace, uid).await?)),
        Subject::Keys => {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
            gone(secrets.get_metadata_opt(&secret_name(minicluster)).await?.is_none())
        }
        Subject::Pod { uid, .. } => Some(Reply::Events(warnings(client, &namespace, uid).await?)),
    })
}

/// The warning Events about an object.
async fn warnings(client: &Client, namespace: &str, uid: &str) -> Result<Vec<Event>, kube::Error> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning"));
    events.list(&about).await.map(|list| list.items)
}
