//! BurstPolicies as the API server has them now. The watch of them may be behind that of MiniClusters: one that
//! is applied together with its policy would be started without ranks for it, for good.

use flux_operator_api::MiniCluster;
use flux_operator_plan::bursting::burst_ranks;
use flux_operator_service::guarded::Guarded;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::stores::GuardedPolicy;

/// How many are read at once: users choose how large they are.
const PAGE: u32 = 10;

/// How many spare ranks BurstPolicies give a MiniCluster that is started now.
pub(crate) async fn listed_burst_ranks(
    client: &Client,
    minicluster: &MiniCluster,
) -> Result<i32, kube::Error> {
    let namespace = minicluster.namespace().unwrap_or_default();
    let policies: Api<GuardedPolicy> = Api::namespaced(client.clone(), &namespace);
    let mut parameters = ListParams::default().limit(PAGE);
    let mut ranks: i32 = 0;
    loop {
        let page = policies.list(&parameters).await?;
        let readable = page.items.iter().filter_map(|Guarded(policy)| policy.as_ref().ok());
        ranks = ranks.saturating_add(burst_ranks(minicluster, readable));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(ranks),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn policy(nodes: i32, team: &str) -> Value {
        json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "metadata": { "name": team, "namespace": "hpc" },
            "spec": { "selector": { "matchLabels": { "team": team } }, "limits": { "nodes": nodes },
                "targets": [{ "name": "t", "maxNodes": 4, "cluster": {} }] } })
    }

    /// An API server with two pages of policies, of which one cannot be read.
    async fn respond(request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let query = request.uri().query().unwrap_or_default();
        let unreadable = json!({ "metadata": { "name": "x" }, "spec": 7 });
        let (items, token) = match query.contains("continue=next") {
            false => (json!([policy(4, "a"), policy(8, "b"), unreadable]), "next"),
            true => (json!([policy(2, "a")]), ""),
        };
        let list = json!({ "metadata": { "continue": token }, "items": items });
        Ok(Response::new(Body::from(serde_json::to_vec(&list).unwrap())))
    }

    #[tokio::test]
    async fn policies_of_all_pages_that_select_a_minicluster_count() {
        let client = Client::new(tower::service_fn(respond), "default");
        let cluster = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "metadata": { "name": "fs", "namespace": "hpc", "labels": { "team": "a" } },
            "spec": { "size": 2, "containers": [{ "image": "i" }] } });
        let cluster: MiniCluster = serde_json::from_value(cluster).unwrap();
        assert_eq!(listed_burst_ranks(&client, &cluster).await.unwrap(), 6);
    }
}
