//! A node that does not respond. All other tests need the node, so this file has only one test:
//! files run one after the other.

use std::time::Duration;

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::testbed;
use flux_operator_tests_e2e::{TestNamespace, condition, with_operator};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::runtime::wait::await_condition;
use serde_json::json;

/// How long Kubernetes may take to mark a node NotReady, or Ready again. Its own limit is about 50
/// s without a heartbeat, after which a controller must get its turn on a machine that runs several
/// testbeds.
const NODE_TIMEOUT: Duration = Duration::from_secs(400);

#[tokio::test]
async fn an_unresponsive_node_is_reported_until_it_is_back() -> Result<()> {
    with_operator(async |stage| {
        stage.create("alone", json!({ "size": 2, "interactive": true })).await?;
        stage.wait_for_status("alone", ConditionType::Ready, "True").await?;
        let testbed = testbed()?;
        let node = testbed.slot().node_name();
        testbed.stop("kubelet")?;
        let lost = wait_until_lost(stage, &node).await;
        testbed.start("kubelet").context("the node is not back: tests after this one will fail")?;
        wait_for_node_ready(stage, &node, true).await?;
        let lost = lost?;
        assert_eq!(lost.reason, "NodeLost");
        assert!(lost.message.contains(&format!("{node:?} does not answer")), "{}", lost.message);
        stage.wait_for_status("alone", ConditionType::Ready, "True").await?;
        Ok(())
    })
    .await
}

/// The condition of the MiniCluster once Kubernetes considers its node lost.
async fn wait_until_lost(stage: &TestNamespace, node: &str) -> Result<Condition> {
    wait_for_node_ready(stage, node, false).await?;
    // A worker may be considered lost before the lead, and until then the cluster is ready.
    let lost = stage.wait_for_status("alone", ConditionType::Ready, "False").await?;
    stage.wait_for_event("NodeLost").await?;
    Ok(condition(&lost, ConditionType::Ready).context("the condition is missing")?.clone())
}

/// Waits until Kubernetes considers a node ready, or not ready.
async fn wait_for_node_ready(stage: &TestNamespace, node: &str, wanted: bool) -> Result<()> {
    let is_wanted = |node: Option<&Node>| {
        let status = node.and_then(|node| node.status.as_ref());
        let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        ready.is_some_and(|ready| (ready.status == "True") == wanted)
    };
    let nodes: Api<Node> = Api::all(stage.client.clone());
    tokio::time::timeout(NODE_TIMEOUT, await_condition(nodes, node, is_wanted))
        .await
        .with_context(|| format!("the node never became ready={wanted}"))??;
    Ok(())
}
