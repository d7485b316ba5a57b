//! Agent and Flux are delivered to the pods, with image volumes and without.

use anyhow::{Context, Result};
use flux_operator_testkit::images;
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use serde_json::json;

#[tokio::test]
async fn a_view_is_mounted() -> Result<()> {
    with_operator(async |stage| runs_with_view(stage, "imageVolume").await).await
}

#[tokio::test]
async fn a_view_is_copied() -> Result<()> {
    with_operator(async |stage| runs_with_view(stage, "init").await).await
}

#[tokio::test]
async fn an_image_without_a_view_is_reported() -> Result<()> {
    with_operator(async |stage| {
        let runner = images::view()?.runner;
        let container = json!({ "image": runner, "delivery": "init" });
        let containers = json!([{ "image": runner, "command": "hostname" }]);
        let spec = json!({ "flux": { "container": container }, "containers": containers });
        stage.create("none", spec).await?;
        let log = stage.wait_for_init("none", "flux-view").await?;
        assert!(log.contains("no Flux view"), "{log}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn flux_in_the_image_needs_only_the_agent() -> Result<()> {
    with_operator(async |stage| {
        let flux = json!({ "container": { "delivery": "init" } });
        let spec = json!({ "size": 2, "tasks": 2, "flux": flux, "containers": [{ "command": "hostname" }] });
        stage.create("image", spec).await?;
        let finished = stage.wait_until_finished("image").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0));
        Ok(())
    })
    .await
}

/// Two nodes and a sidecar that use the view, and the path where users expect it.
async fn runs_with_view(stage: &TestNamespace, delivery: &str) -> Result<()> {
    let images::ViewImages { view, runner } = images::view()?;
    let helper = "flux proxy $fluxsocket flux resource list >/shared/seen; touch /shared/done";
    let shared = json!({ "shared": { "path": "/shared", "emptyDir": true } });
    let command = "test -x /mnt/flux/view/bin/flux && flux run -N2 hostname && \
                   until test -e /shared/done; do sleep 0.1; done; cat /shared/seen";
    let spec = json!({
        "size": 2,
        "logging": { "quiet": true },
        "flux": { "container": { "image": view, "delivery": delivery } },
        "containers": [
            { "image": runner, "runFlux": true, "launcher": true, "command": command, "volumes": shared },
            { "image": runner, "name": "helper", "command": helper, "volumes": shared },
        ],
    });
    stage.create("view", spec).await?;
    let finished = stage.wait_until_finished("view").await?;
    let log = stage.log("view", 0).await?;
    assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0), "{log}");
    let mut hosts: Vec<&str> = log.lines().take(2).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["view-0", "view-1"], "{log}");
    // It does not matter whether both nodes had joined at that time.
    assert!(log.contains("NODELIST"), "the sidecar did not reach Flux: {log}");
    Ok(())
}
