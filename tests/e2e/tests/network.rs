//! Names and Services, on a real node.

use anyhow::{Context, Result};
use flux_operator_tests_e2e::on_stage;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde_json::json;

#[tokio::test]
async fn a_service_for_the_lead_alone_is_enough() -> Result<()> {
    on_stage(async |stage| {
        let spec = json!({
            "size": 3,
            "tasks": 3,
            "flux": { "minimalService": true },
            "logging": { "quiet": true },
            "containers": [{ "command": "hostname" }],
        });
        stage.create("minimal", spec).await?;
        let ended = stage.wait_for_end("minimal").await?;
        assert_eq!(ended.status.context("there is no status")?.exit_code, Some(0));
        assert_eq!(stage.log("minimal", 0).await?.lines().count(), 3);
        let services: Api<Service> = Api::namespaced(stage.client.clone(), &stage.namespace);
        let service = services.get("minimal").await?.spec.context("there is no spec")?;
        assert_ne!(service.cluster_ip.as_deref(), Some("None"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_cluster_runs_below_a_name_of_the_users() -> Result<()> {
    on_stage(async |stage| {
        // Asked for on the lead, where the names of all pods are known by then.
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
        let ended = stage.wait_for_end("named").await?;
        let log = stage.log("named", 0).await?;
        assert_eq!(ended.status.context("there is no status")?.exit_code, Some(0), "{log}");
        Ok(())
    })
    .await
}
