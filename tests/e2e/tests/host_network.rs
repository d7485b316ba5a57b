//! A cluster on its node's network.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_tests_e2e::with_operator;
use serde_json::json;

#[tokio::test]
async fn pods_on_the_nodes_network_become_ready_and_do_not_share_a_node() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({ "interactive": true, "pod": { "hostNetwork": true } });
        stage.create("first", spec.clone()).await?;
        stage.wait_for_status("first", ConditionType::Ready, "True").await?;
        let pod = stage.pod("first", 0).await?.spec.context("no spec")?;
        let ports = pod.containers[0].ports.clone().unwrap_or_default();
        let ports: Vec<_> = ports.iter().filter_map(|port| port.host_port).collect();
        assert_eq!(ports, [8050, 8051]);
        // There is only one node, and its ports are in use.
        stage.create("second", spec).await?;
        stage.wait_for_status("second", ConditionType::JobWaitingForResources, "True").await?;
        stage.delete("first").await?;
        stage.wait_for_status("second", ConditionType::Ready, "True").await?;
        Ok(())
    })
    .await
}
