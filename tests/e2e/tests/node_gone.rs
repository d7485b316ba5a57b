//! A node that does not answer. Every other test needs the node, so this file has
//! one test: files are run one after the other.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::testbed;
use flux_operator_tests_e2e::on_stage;
use serde_json::json;

#[tokio::test]
async fn a_node_that_does_not_answer_is_named_until_it_is_back() -> Result<()> {
    on_stage(async |stage| {
        stage.create("alone", json!({ "size": 2, "interactive": true })).await?;
        stage.wait("alone", ConditionType::Ready, "True").await?;
        let testbed = testbed()?;
        testbed.stop("kubelet")?;
        // Kubernetes itself takes some 50 s to be sure.
        let lost = stage.wait_for_reason("alone", ConditionType::Ready, "NodeLost").await;
        let told = stage.wait_for_event("NodeLost").await;
        testbed.start("kubelet").context("the node is not back: tests after this one will fail")?;
        let lost = lost?;
        told?;
        assert_eq!(lost.status, "False");
        let node = testbed.slot().node_name();
        assert!(lost.message.contains(&format!("{node:?} does not answer")), "{}", lost.message);
        stage.wait("alone", ConditionType::Ready, "True").await?;
        Ok(())
    })
    .await
}
