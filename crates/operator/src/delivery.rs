//! Determines how the agent and Flux are delivered to a cluster's pods.

use flux_operator_plan::kubernetes::{DeliveryMethod, NodeVersions, decide_delivery};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, Error};

use crate::client::{REQUEST_TIMEOUTS, shared_client};
use crate::metrics::Metrics;

/// The delivery method for MiniClusters that do not set one. If the API server or the nodes cannot
/// be queried, it is [`DeliveryMethod::Init`], which works everywhere.
pub async fn detect_delivery(client: &Client) -> DeliveryMethod {
    // These requests are made before the operator runs; their counts are not exported.
    let client = shared_client(client.clone(), Metrics::new(), REQUEST_TIMEOUTS);
    match query_nodes(&client).await {
        Ok(method) => method,
        Err(error) => {
            tracing::info!(%error, "failed to query the nodes; delivering by init container");
            DeliveryMethod::Init
        }
    }
}

async fn query_nodes(client: &Client) -> Result<DeliveryMethod, Error> {
    let server = client.apiserver_version().await?;
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let versions: Vec<NodeVersions<'_>> = nodes
        .iter()
        .map(|node| {
            let information = node.status.as_ref().and_then(|status| status.node_info.as_ref());
            NodeVersions {
                kubelet: information.map_or("", |node| &node.kubelet_version),
                runtime: information.map_or("", |node| &node.container_runtime_version),
            }
        })
        .collect();
    Ok(decide_delivery(&server.git_version, &versions))
}
