//! The answer to an agent that asks whether its broker may join another cluster.

use std::collections::HashSet;

use flux_operator_api::{MiniCluster, Reason};
use flux_operator_plan::{Permission, permission, remote_permission};
use flux_operator_wire::{JoinAnswer, JoinRequest};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::Reports;
use super::bounded::bounded_request;
use super::exchange::AgentHeaders;
use crate::http::ServerState;
use flux_operator_service::error_chain::chain;

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
        if let Some(decided) = remote_permission(joiner, request, Timestamp::now()) {
            return decided;
        }
        let cached = self.stores.lender_of(joiner, &self.reports);
        let decided = permission(joiner, cached.as_ref(), request);
        match cached {
            Some(cached) if !matches!(decided, Permission::Denied(..)) => {
                match self.read_lender(cached).await {
                    Ok(fresh) => permission(joiner, fresh.as_ref(), request),
                    Err(error) => {
                        let (cluster, namespace) = (joiner.name_any(), joiner.namespace());
                        let (rank, error) = (request.rank, chain(&*error));
                        tracing::warn!(cluster, namespace, rank, error, "failed to read a lender");
                        let message = "the lender could not be read from the API server";
                        Permission::Denied(Reason::LenderNotReady, message.into())
                    }
                }
            }
            _ => decided,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Leadership;
    use crate::reports::fixture::server_with;
    use axum::http::{Request, Response};
    use flux_operator_api::minicluster::{Lease, LeaseState};
    use flux_operator_plan::kubernetes::CLUSTER_LABEL;
    use flux_operator_plan::{Cluster, Valid};
    use flux_operator_wire::{BrokerFacts, InstanceState};
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};

    const START: &str = "2026-01-01T00:00:00Z";

    /// The request that reads the lender.
    const GET: &str = "GET /apis/flux-framework.org/v1alpha2/namespaces/hpc/miniclusters/lender";

    /// The answer of the API server to every request: its status and body. `None` if there is no
    /// API server.
    type ServerAnswer = Option<(u16, Value)>;

    fn minicluster(name: &str, spec: Value) -> MiniCluster {
        let metadata = json!({ "name": name, "namespace": "hpc", "uid": format!("{name}-uid") });
        let kind = ("flux-framework.org/v1alpha2", "MiniCluster");
        let object =
            json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "spec": spec });
        serde_json::from_value(object).unwrap()
    }

    fn joiner() -> MiniCluster {
        let flux = json!({ "join": { "name": "lender" } });
        minicluster("joiner", json!({ "size": 1, "flux": flux, "containers": [{ "image": "a" }] }))
    }

    /// A lender of two brokers with four spare ranks, of which the joiner leases these.
    fn lender(ranks: &str, state: LeaseState) -> MiniCluster {
        let flux = json!({ "bursting": { "spareRanks": 4 } });
        let containers = json!([{ "image": "a" }]);
        let spec =
            json!({ "size": 2, "interactive": true, "flux": flux, "containers": containers });
        let mut lender = minicluster("lender", spec);
        let lease = Lease {
            ranks: ranks.into(),
            holder: "joiner-uid".into(),
            namespace: "hpc".into(),
            name: "joiner".into(),
            table: table(&lender),
            since: START.into(),
            state,
            invitation: None,
        };
        lender.status.get_or_insert_default().leases = vec![lease];
        lender
    }

    /// The hash of a lender's rank table.
    fn table(lender: &MiniCluster) -> String {
        let valid = Valid::check(lender.clone()).unwrap();
        Cluster::of(&valid).unwrap().ranks.hash()
    }

    fn pod(uid: &str, cluster: &str) -> Pod {
        let labels = json!({ CLUSTER_LABEL: cluster });
        let metadata = json!({ "name": uid, "namespace": "hpc", "uid": uid, "labels": labels });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn headers(cluster_uid: &str, pod_uid: &str) -> AgentHeaders {
        AgentHeaders {
            cluster_uid: cluster_uid.into(),
            pod_uid: pod_uid.into(),
            nonce: String::new(),
            seal: String::new(),
            invitation: None,
        }
    }

    fn found(stored: &MiniCluster) -> ServerAnswer {
        Some((200, json!(stored)))
    }

    fn failure(code: u16, reason: &str) -> ServerAnswer {
        let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": reason, "code": code });
        Some((code, body))
    }

    /// The answer to the pod with this uid, which asks for rank 2, of a replica that has cached
    /// this lender; and the requests that the API server received. The lender's lead has reported.
    /// The joiner has the pod `pod`, and the pod `terminating`, which is being deleted.
    async fn ask_as(
        pod_uid: &str,
        cached: &MiniCluster,
        answer: ServerAnswer,
    ) -> (Permission, Vec<String>) {
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        let api = tower::service_fn(move |request: Request<Body>| {
            log.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
            let answer = answer.clone();
            async move {
                let (status, body) =
                    answer.ok_or_else(|| std::io::Error::other("there is no API server"))?;
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, std::io::Error>(Response::builder().status(status).body(body).unwrap())
            }
        });
        let client = kube::Client::new(api, "default");
        let server = server_with(Leadership::always(), client, [joiner(), cached.clone()]);
        let mut terminating = pod("terminating", "joiner");
        terminating.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!(START)).unwrap());
        for pod in [pod("lead", "lender"), pod("pod", "joiner"), terminating] {
            server.stores.pods.apply_event(Event::Apply(pod), |_| {});
        }
        let facts = BrokerFacts { version: "0.88.0".into(), uid: 1000, cores: 4 };
        let state = InstanceState { lead: Some(facts.clone()), ..InstanceState::default() };
        server.reports.store(cached, &headers("lender-uid", "lead"), state, Timestamp::now());
        let request = JoinRequest {
            index: 0,
            rank: 2,
            table: table(cached),
            facts,
            last_error: String::new(),
            refusal: None,
        };
        let agent = headers("joiner-uid", pod_uid);
        let permission = server.permission(&joiner(), &agent, &request).await;
        let received = received.lock().unwrap().clone();
        (permission, received)
    }

    async fn ask(cached: &MiniCluster, answer: ServerAnswer) -> (Permission, Vec<String>) {
        ask_as("pod", cached, answer).await
    }

    /// The reason of a denial.
    fn reason(permission: &Permission) -> Option<Reason> {
        match permission {
            Permission::Denied(reason, _) => Some(*reason),
            Permission::Granted | Permission::Outdated(_) => None,
        }
    }

    #[tokio::test]
    async fn a_permission_is_granted_after_one_read_of_the_lender() {
        let lender = lender("2", LeaseState::Active);
        let (permission, requests) = ask(&lender, found(&lender)).await;
        assert_eq!((permission, requests), (Permission::Granted, vec![GET.to_owned()]));
    }

    #[tokio::test]
    async fn a_pod_that_is_unknown_or_being_deleted_is_denied_without_a_request() {
        let lender = lender("2", LeaseState::Active);
        for pod in ["unknown", "terminating", "lead"] {
            let (permission, requests) = ask_as(pod, &lender, found(&lender)).await;
            assert_eq!((reason(&permission), requests), (Some(Reason::Joining), vec![]), "{pod}");
        }
    }

    #[tokio::test]
    async fn a_denial_from_the_cache_needs_no_request() {
        let (cached, stored) = (lender("2", LeaseState::Leaving), lender("2", LeaseState::Active));
        let (permission, requests) = ask(&cached, found(&stored)).await;
        assert_eq!((reason(&permission), requests), (Some(Reason::Leaving), vec![]));
    }

    #[tokio::test]
    async fn a_lease_that_is_active_only_in_the_cache_does_not_count() {
        let (cached, stored) = (lender("2", LeaseState::Active), lender("2", LeaseState::Leaving));
        let (permission, requests) = ask(&cached, found(&stored)).await;
        assert_eq!((reason(&permission), requests.len()), (Some(Reason::Leaving), 1));
    }

    #[tokio::test]
    async fn a_pod_is_not_replaced_because_of_a_lease_that_is_only_in_the_cache() {
        let (cached, stored) = (lender("3", LeaseState::Active), lender("2", LeaseState::Active));
        let (permission, requests) = ask(&cached, found(&stored)).await;
        assert_eq!((permission, requests.len()), (Permission::Granted, 1));
        let (permission, _) = ask(&stored, found(&cached)).await;
        assert!(matches!(permission, Permission::Outdated(_)), "{permission:?}");
    }

    #[tokio::test]
    async fn another_lender_of_the_same_name_grants_nothing() {
        let cached = lender("2", LeaseState::Active);
        let mut stored = cached.clone();
        stored.metadata.uid = Some("another-uid".into());
        let (permission, requests) = ask(&cached, found(&stored)).await;
        assert_eq!((reason(&permission), requests.len()), (Some(Reason::LenderMissing), 1));
    }

    #[tokio::test]
    async fn an_error_of_the_api_server_does_not_mean_that_the_lender_is_missing() {
        let lender = lender("2", LeaseState::Active);
        let undecodable = Some((200, json!({ "metadata": { "name": "lender" }, "spec": 1 })));
        let message = "the lender could not be read from the API server".to_owned();
        let unreadable = Permission::Denied(Reason::LenderNotReady, message);
        for answer in [failure(500, "InternalError"), failure(403, "Forbidden"), undecodable, None]
        {
            let (permission, requests) = ask(&lender, answer.clone()).await;
            assert_eq!((&permission, requests.len()), (&unreadable, 1), "{answer:?}");
        }
        let (permission, _) = ask(&lender, failure(404, "NotFound")).await;
        assert_eq!(reason(&permission), Some(Reason::LenderMissing));
    }
}
