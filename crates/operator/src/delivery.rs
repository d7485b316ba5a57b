//! Asks a cluster how agent and Flux reach its pods.

use flux_operator_plan::kubernetes::{DeliveryMethod, NodeVersions, decide_delivery};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, Error};

use crate::client::{LIMITS, for_all};
use crate::metrics::Metrics;

/// The method for clusters that do not say one. Copies where the server or the
/// nodes cannot be asked, which works everywhere.
pub async fn delivery(client: &Client) -> DeliveryMethod {
    // Nobody reads what is counted before the operator runs.
    let client = for_all(client.clone(), Metrics::new(), LIMITS);
    match ask(&client).await {
        Ok(method) => method,
        Err(error) => {
            tracing::info!(%error, "delivering by init container: the nodes cannot be asked");
            DeliveryMethod::Init
        }
    }
}

async fn ask(client: &Client) -> Result<DeliveryMethod, Error> {
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
