//! Services next to a cluster and in its pods, on a real node.

use anyhow::{Context, Result};
use flux_operator_testkit::cluster::busybox_image;
use flux_operator_tests_e2e::with_operator;
use serde_json::json;

/// Serves its host name. `exec`, because a shell that waits for the server would not forward the
/// signal that stops it.
const SERVER: &str = "hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp";

/// Retries until there is a response: a name may not be resolvable yet.
fn fetch_command(url: &str) -> String {
    format!("until wget -qO- {url}; do sleep 0.2; done")
}

#[tokio::test]
async fn services_of_a_cluster_are_reached_by_name() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({
            "services": [{ "name": "web", "image": busybox_image(), "command": SERVER, "ports": [8080] }],
            "containers": [{ "launcher": true, "command": fetch_command("http://beside-services.beside:8080") }],
        });
        stage.create("beside", spec).await?;
        let finished = stage.wait_until_finished("beside").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0));
        let log = stage.log("beside", 0).await?;
        assert!(log.contains("beside-services"), "{log}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_ports_of_a_sidecar_have_a_service() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({ "containers": [
            { "runFlux": true, "launcher": true, "command": fetch_command("http://sidecar-web:8080") },
            { "name": "sidecar-web", "image": busybox_image(), "command": SERVER, "ports": [8080, 8081] },
        ] });
        stage.create("ports", spec).await?;
        let finished = stage.wait_until_finished("ports").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0));
        let log = stage.log("ports", 0).await?;
        assert!(log.contains("ports-0"), "{log}");
        Ok(())
    })
    .await
}
