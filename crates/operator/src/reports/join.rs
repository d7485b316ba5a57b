//! The answer to an agent that asks whether its broker may join another cluster.

use std::collections::HashSet;
use std::sync::Arc;

use flux_operator_api::{MiniCluster, Reason};
use flux_operator_plan::{LenderView, Permission, permission};
use flux_operator_wire::{JoinAnswer, JoinRequest};
use kube::{Api, ResourceExt};

use super::Reports;
use super::bounded::bounded_request;
use super::exchange::AgentHeaders;
use crate::http::ServerState;

impl ServerState {
    /// Decides whether the broker of a joiner's pod may start. What only a cache shows may have
    /// changed, so the lender is read from the API server before a broker starts or exits.
    pub(super) async fn answer_join(
        &self,
        joiner: &MiniCluster,
        agent: &AgentHeaders,
        request: JoinRequest,
    ) -> JoinAnswer {
        let permission = self.permission(joiner, agent, &request).await;
        self.metrics.joins().count(permission.result());
        permission.to_answer()
    }

    async fn permission(
        &self,
        joiner: &MiniCluster,
        agent: &AgentHeaders,
        request: &JoinRequest,
    ) -> Permission {
        let pods = self.stores.live_pods(joiner);
        // Its lease is not given to another holder as long as the pod exists, so the pod must be
        // one that is known to exist.
        if !pods.contains(&agent.pod_uid) {
            let message = "the operator does not know the pod yet".to_owned();
            return Permission::Denied(Reason::Joining, message);
        }
        self.reports.store_join_request(joiner, agent, request, &pods);
        let cached = self.stores.lender_of(joiner, &self.reports);
        let decided = permission(joiner, cached.as_ref(), request);
        match cached {
            Some(cached) if !matches!(decided, Permission::Denied(..)) => {
                let fresh = self.read_lender(cached).await;
                permission(joiner, fresh.as_ref(), request)
            }
            _ => decided,
        }
    }

    /// A lender as the API server has it; `None` if it could not be read, or is another one of that
    /// name.
    async fn read_lender(&self, cached: LenderView) -> Option<LenderView> {
        let namespace = cached.minicluster.namespace().unwrap_or_default();
        let lenders: Api<MiniCluster> = Api::namespaced(self.client.clone(), &namespace);
        let fresh = lenders.get_opt(&cached.minicluster.name_any()).await.ok().flatten()?;
        (fresh.uid() == cached.minicluster.uid())
            .then(|| LenderView { minicluster: Arc::new(fresh), ..cached })
    }
}

impl Reports {
    /// Stores what an agent has found on its machine, for the joiner's status, and forgets pods that
    /// do not exist any more.
    fn store_join_request(
        &self,
        joiner: &MiniCluster,
        agent: &AgentHeaders,
        request: &JoinRequest,
        pods: &HashSet<String>,
    ) {
        let request = bounded_request(request.clone());
        let changed = {
            let mut clusters = self.lock();
            let cluster = clusters.entry(agent.cluster_uid.clone()).or_default();
            cluster.join_requests.retain(|pod, _| pods.contains(pod));
            let before = cluster.join_requests.insert(agent.pod_uid.clone(), request.clone());
            before.as_ref() != Some(&request)
        };
        if changed {
            self.request_reconciliation(joiner);
        }
    }

    /// What agents of the joiner with this uid have found, of pods that exist.
    pub(crate) fn join_requests(&self, uid: &str, pods: &HashSet<String>) -> Vec<JoinRequest> {
        let clusters = self.lock();
        let requests = clusters.get(uid).map(|cluster| &cluster.join_requests);
        let mut requests: Vec<JoinRequest> = requests
            .into_iter()
            .flatten()
            .filter(|(pod, _)| pods.contains(*pod))
            .map(|(_, request)| request.clone())
            .collect();
        requests.sort_by_key(|request| request.index);
        requests
    }
}
