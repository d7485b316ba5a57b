//! One MiniCluster on a real node, from manifest to exit code.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::busybox_image;
use flux_operator_tests_e2e::{WAIT_FOR_FILE, condition, index_of, with_operator};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

#[tokio::test]
async fn a_command_runs_on_four_nodes() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({ "size": 4, "tasks": 4, "containers": [{ "command": "hostname" }], "logging": { "quiet": true } });
        stage.create("hello", spec).await?;
        let finished = stage.wait_until_finished("hello").await?;
        let status = finished.status.as_ref().context("there is no status")?;
        assert_eq!(status.exit_code, Some(0), "{status:?}");
        assert_eq!(status.phase, "Succeeded");
        let succeeded = condition(&finished, ConditionType::Succeeded).context("no condition")?;
        assert_eq!(succeeded.status, "True");
        let log = stage.log("hello", 0).await?;
        let mut hosts: Vec<&str> = log.lines().collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["hello-0", "hello-1", "hello-2", "hello-3"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_failing_command_fails_the_job_with_its_code_and_runs_once() -> Result<()> {
    with_operator(async |stage| {
        let command = "sh -c 'echo ran; exit 7'";
        stage.create("fails", json!({ "size": 2, "containers": [{ "command": command }] })).await?;
        let finished = stage.wait_until_finished("fails").await?;
        let status = finished.status.as_ref().context("there is no status")?;
        assert_eq!(status.exit_code, Some(7), "{status:?}");
        assert_eq!(status.phase, "Failed");
        let succeeded = condition(&finished, ConditionType::Succeeded).context("no condition")?;
        assert_eq!(
            (succeeded.status.as_str(), succeeded.reason.as_str()),
            ("False", "CommandFailed")
        );
        stage.wait_for_event("CommandFailed").await?;
        let leads =
            stage.pods("fails").await?.iter().filter(|pod| index_of(pod) == Some(0)).count();
        assert_eq!(leads, 1, "the lead was started again");
        let log = stage.log("fails", 0).await?;
        assert_eq!(log.lines().filter(|line| *line == "ran").count(), 1, "{log}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn exit_codes_that_are_special_for_jobs_are_reported_unchanged() -> Result<()> {
    with_operator(async |stage| {
        stage
            .create("odd", json!({ "containers": [{ "launcher": true, "command": "exit 143" }] }))
            .await?;
        let finished = stage.wait_until_finished("odd").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(143));
        assert_eq!(stage.pods("odd").await?.len(), 1, "the command ran again");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_sidecar_does_not_keep_the_run_alive() -> Result<()> {
    with_operator(async |stage| {
        let containers = json!([
            { "runFlux": true, "command": "hostname" },
            { "name": "helper", "command": "sleep 1000000" },
        ]);
        stage.create("aside", json!({ "containers": containers })).await?;
        let finished = stage.wait_until_finished("aside").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn variables_exported_by_hooks_reach_the_command() -> Result<()> {
    with_operator(async |stage| {
        let commands = json!({
            "init": "export ONE=1", "pre": "cd /tmp; export TWO=\"2 two\"",
            "brokerPre": "export THREE=3", "post": "echo after",
        });
        let command = "printf '%s|%s|%s|%s\\n' \"$ONE\" \"$TWO\" \"$THREE\" \"$PWD\"";
        let containers = json!([{ "launcher": true, "command": command, "commands": commands }]);
        let quiet = json!({ "quiet": true });
        stage.create("hooks", json!({ "containers": containers, "logging": quiet })).await?;
        stage.wait_until_finished("hooks").await?;
        let log = stage.log("hooks", 0).await?;
        assert_eq!(log.lines().collect::<Vec<_>>(), ["1|2 two|3|/tmp", "after"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_interactive_cluster_stays_ready_and_accepts_a_later_job() -> Result<()> {
    with_operator(async |stage| {
        stage.create("stays", json!({ "size": 2, "interactive": true })).await?;
        let ready = stage.wait_for_status("stays", ConditionType::Ready, "True").await?;
        assert_eq!(ready.status.as_ref().context("there is no status")?.phase, "Ready");
        let line = ". /mnt/flux/flux-view.sh && flux proxy $fluxsocket flux run -N2 hostname";
        let mut hosts: Vec<String> =
            stage.exec("stays", 0, line).await?.lines().map(str::to_owned).collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["stays-0", "stays-1"]);
        let after = stage.miniclusters().get("stays").await?;
        let succeeded = condition(&after, ConditionType::Succeeded).context("no condition")?;
        assert_eq!(succeeded.status, "Unknown");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn deleting_a_running_cluster_deletes_its_pods() -> Result<()> {
    with_operator(async |stage| {
        stage
            .create("gone", json!({ "size": 2, "containers": [{ "command": "sleep 1000" }] }))
            .await?;
        stage.wait_for_status("gone", ConditionType::Running, "True").await?;
        stage.delete("gone").await?;
        stage.wait_for_no_pods("gone").await
    })
    .await
}

#[tokio::test]
async fn a_lost_lead_is_not_restarted_by_default() -> Result<()> {
    with_operator(async |stage| {
        let containers = json!([{ "command": "sleep 1000" }]);
        stage.create("once", json!({ "size": 2, "containers": containers })).await?;
        stage.wait_for_status("once", ConditionType::Running, "True").await?;
        delete_pod(stage, "once", 0).await?;
        let finished = stage.wait_until_finished("once").await?;
        let succeeded = condition(&finished, ConditionType::Succeeded).context("no condition")?;
        assert_eq!(
            (succeeded.status.as_str(), succeeded.reason.as_str()),
            ("False", "RestartLimit")
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lost_lead_is_restarted_within_its_limit() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({ "size": 2, "interactive": true, "restart": { "limit": 1 } });
        stage.create("again", spec).await?;
        stage.wait_for_status("again", ConditionType::Ready, "True").await?;
        delete_pod(stage, "again", 0).await?;
        stage.wait_for_status("again", ConditionType::Ready, "False").await?;
        stage.wait_for_status("again", ConditionType::Ready, "True").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lost_worker_is_replaced_and_jobs_are_still_listed() -> Result<()> {
    with_operator(async |stage| {
        stage.create("worker", json!({ "size": 2, "interactive": true })).await?;
        stage.wait_for_status("worker", ConditionType::Ready, "True").await?;
        let flux = ". /mnt/flux/flux-view.sh && flux proxy $fluxsocket flux";
        stage.exec("worker", 0, &format!("{flux} submit --wait true")).await?;
        let lost = stage.pod("worker", 1).await?.name_any();
        delete_pod(stage, "worker", 1).await?;
        stage.wait_until_deleted::<Pod>(&lost).await?;
        // Runs once the worker is back.
        let hosts = stage.exec("worker", 0, &format!("{flux} run -N2 hostname")).await?;
        assert_eq!(hosts.lines().count(), 2, "{hosts}");
        let jobs = stage.exec("worker", 0, &format!("{flux} jobs -a -n -o '{{name}}'")).await?;
        assert!(jobs.lines().any(|line| line.trim() == "true"), "{jobs}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_missing_flux_is_reported_and_fails_the_cluster() -> Result<()> {
    with_operator(async |stage| {
        let flux = json!({ "container": { "disable": true } });
        let containers = json!([{ "command": "hostname", "image": busybox_image() }]);
        stage.create("none", json!({ "flux": flux, "containers": containers })).await?;
        let finished = stage.wait_until_finished("none").await?;
        let succeeded = condition(&finished, ConditionType::Succeeded).context("no condition")?;
        assert_eq!(succeeded.reason, "FluxMissing", "{succeeded:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_old_flux_is_refused_with_its_version() -> Result<()> {
    with_operator(async |stage| {
        let flux = json!({ "container": { "disable": true } });
        // A hook creates it, so that no image is needed.
        let script = r"#!/bin/sh\necho commands: 0.46.1\n";
        let pre = format!(
            "mkdir -p /tmp/old && printf '{script}' >/tmp/old/flux && \
             chmod +x /tmp/old/flux && export PATH=/tmp/old:$PATH"
        );
        let containers = json!([{
            "command": "hostname", "image": busybox_image(), "commands": { "pre": pre },
        }]);
        stage.create("old", json!({ "flux": flux, "containers": containers })).await?;
        let finished = stage.wait_until_finished("old").await?;
        let succeeded = condition(&finished, ConditionType::Succeeded).context("no condition")?;
        assert_eq!(succeeded.reason, "FluxTooOld", "{succeeded:?}");
        let message = &succeeded.message;
        assert!(message.contains("0.46.1") && message.contains("/tmp/old/flux"), "{message}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_restarted_operator_reports_what_happened_meanwhile() -> Result<()> {
    with_operator(async |stage| {
        let containers = json!([{ "command": WAIT_FOR_FILE }]);
        stage.create("away", json!({ "size": 2, "tasks": 2, "containers": containers })).await?;
        stage.wait_for_status("away", ConditionType::Running, "True").await?;
        stage.stop_operator();
        stage.let_finish("away").await?;
        stage.start_operator().await?;
        let finished = stage.wait_until_finished("away").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0));
        Ok(())
    })
    .await
}

async fn delete_pod(
    stage: &flux_operator_tests_e2e::TestNamespace,
    name: &str,
    index: u32,
) -> Result<()> {
    let pod = stage.pod(name, index).await?.name_any();
    stage.pod_api().delete(&pod, &DeleteParams::default()).await?;
    Ok(())
}
