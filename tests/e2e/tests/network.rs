//! Host names and Services, on a real node.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde_json::json;

#[tokio::test]
async fn a_service_for_only_the_lead_is_enough() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({
            "size": 3,
            "tasks": 3,
            "flux": { "minimalService": true },
            "logging": { "quiet": true },
            "containers": [{ "command": "hostname" }],
        });
        stage.create("minimal", spec).await?;
        let finished = stage.wait_until_finished("minimal").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0));
        assert_eq!(stage.log("minimal", 0).await?.lines().count(), 3);
        let services: Api<Service> = Api::namespaced(stage.client.clone(), &stage.namespace);
        let service = services.get("minimal").await?.spec.context("there is no spec")?;
        assert_ne!(service.cluster_ip.as_deref(), Some("None"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_cluster_runs_with_a_user_defined_headless_name() -> Result<()> {
    with_operator(async |stage| {
        // Resolved on the lead, when the names of all pods are known.
        let command = "nslookup named-1.flux-service.$NAMESPACE.svc.cluster.local";
        let spec = json!({
            "size": 2,
            "network": { "headlessName": "flux-service" },
            "containers": [{
                "launcher": true,
                "command": command,
                "environment": { "NAMESPACE": stage.namespace },
            }],
        });
        stage.create("named", spec).await?;
        let finished = stage.wait_until_finished("named").await?;
        let log = stage.log("named", 0).await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0), "{log}");
        Ok(())
    })
    .await
}

/// The DNS server still has the address of the old lead, and the old pods have the same labels.
#[tokio::test]
async fn brokers_of_a_recreated_cluster_never_connect_to_the_old_lead() -> Result<()> {
    with_operator(async |stage| {
        for round in 0..3 {
            stage.create("again", json!({ "size": 3, "interactive": true })).await?;
            stage.wait_for_status("again", ConditionType::Ready, "True").await?;
            assert_joined_this_lead(stage, "again")
                .await
                .with_context(|| format!("round {round}"))?;
            stage.delete("again").await?;
            stage.wait_for_no_pods("again").await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn brokers_of_a_resumed_cluster_never_connect_to_the_old_lead() -> Result<()> {
    with_operator(async |stage| {
        stage.create("resumed", json!({ "size": 3, "interactive": true })).await?;
        stage.wait_for_status("resumed", ConditionType::Ready, "True").await?;
        stage.patch("resumed", json!({ "suspend": true })).await?;
        stage.wait_for_status("resumed", ConditionType::Ready, "False").await?;
        stage.wait_for_no_pods("resumed").await?;
        stage.patch("resumed", json!({ "suspend": false })).await?;
        stage.wait_for_status("resumed", ConditionType::Ready, "True").await?;
        assert_joined_this_lead(stage, "resumed").await
    })
    .await
}

/// Asserts that every worker has started its broker once, with the address of its lead.
async fn assert_joined_this_lead(stage: &TestNamespace, name: &str) -> Result<()> {
    let lead = stage.pod(name, 0).await?.status.and_then(|status| status.pod_ip);
    let lead = lead.context("the lead has no address")?;
    for index in [1, 2] {
        let config = "cat /mnt/flux/config/etc/flux/config/broker.toml";
        let config = stage.exec(name, index, config).await?;
        assert!(config.contains(&format!("\"tcp://{lead}:8050\"")), "{lead} is not in {config}");
        let log = stage.log(name, index).await?;
        // The agent's own messages: a broker that connects before its lead listens retries by
        // itself.
        for restarted in ["the lead has moved to", "the broker exited"] {
            assert!(!log.contains(restarted), "{log}");
        }
    }
    Ok(())
}
