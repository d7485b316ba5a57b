//! Pods that the restricted Pod Security Standard admits.

use anyhow::{Context, Result};
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

#[tokio::test]
async fn a_restricted_cluster_runs_in_a_restricted_namespace() -> Result<()> {
    with_operator(async |stage| {
        enforce(stage).await?;
        for delivery in ["imageVolume", "init"] {
            let containers = json!([
                { "runFlux": true, "command": "id -u" },
                { "name": "helper", "command": "sleep 1000000" },
            ]);
            let log = run(stage, delivery, containers, json!({})).await?;
            assert_eq!(log.lines().collect::<Vec<_>>(), ["1000", "1000"], "{delivery}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_user_of_the_manifest_is_kept() -> Result<()> {
    with_operator(async |stage| {
        enforce(stage).await?;
        // The image has no user with this id.
        let pod = json!({ "securityContext": { "runAsUser": 2000, "runAsGroup": 2000 } });
        let containers = json!([{ "command": "id -u", "commands": { "pre": "umask 077" } }]);
        let log = run(stage, "init", containers, pod).await?;
        assert_eq!(log.lines().collect::<Vec<_>>(), ["2000", "2000"]);
        Ok(())
    })
    .await
}

/// Makes the API server enforce the standard in the namespace.
async fn enforce(stage: &TestNamespace) -> Result<()> {
    let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    namespaces.patch(&stage.namespace, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Runs a restricted cluster of two and returns the lead's log.
async fn run(
    stage: &TestNamespace,
    delivery: &str,
    containers: Value,
    pod: Value,
) -> Result<String> {
    let name = format!("strict-{}", delivery.to_lowercase());
    let spec = json!({
        "size": 2, "tasks": 2, "podSecurity": "restricted", "containers": containers, "pod": pod,
        "logging": { "quiet": true }, "flux": { "container": { "delivery": delivery } },
    });
    stage.create(&name, spec).await?;
    let finished = stage.wait_until_finished(&name).await?;
    let log = stage.log(&name, 0).await?;
    assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0), "{log}");
    Ok(log)
}
