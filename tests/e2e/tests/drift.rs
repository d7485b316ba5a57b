//! Changes by other clients are reverted; changes by the user are applied or refused.

use anyhow::{Context, Result};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_tests_e2e::{condition, with_operator};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

#[tokio::test]
async fn changes_and_deletions_by_others_are_reverted_while_the_cluster_runs() -> Result<()> {
    with_operator(async |stage| {
        stage.create("kept", json!({ "interactive": true })).await?;
        stage.wait_for_status("kept", ConditionType::Ready, "True").await?;
        let lead = stage.pod("kept", 0).await?.uid();

        let map: ConfigMap = stage.api().get("kept-entrypoint").await?;
        let garbled = json!({ "data": { "boot.json": "{}" } });
        stage.edit::<ConfigMap>("kept-entrypoint", garbled).await?;
        let right = map.data.clone();
        stage.wait_for_object("kept-entrypoint", move |map: &ConfigMap| map.data == right).await?;
        stage.api::<ConfigMap>().delete("kept-entrypoint", &DeleteParams::default()).await?;
        let (right, uid) = (map.data.clone(), map.uid());
        stage
            .wait_for_object("kept-entrypoint", move |map: &ConfigMap| {
                map.uid() != uid && map.data == right
            })
            .await?;

        let service: Service = stage.api().get("kept").await?;
        let right = service.spec.clone().context("the Service has no spec")?.selector;
        let elsewhere = json!({ "spec": { "selector": { "job-name": "elsewhere" } } });
        stage.edit::<Service>("kept", elsewhere).await?;
        let selects = move |service: &Service| {
            service.spec.as_ref().is_some_and(|spec| spec.selector == right)
        };
        stage.wait_for_object("kept", selects.clone()).await?;
        stage.api::<Service>().delete("kept", &DeleteParams::default()).await?;
        let uid = service.uid();
        stage
            .wait_for_object("kept", move |service: &Service| {
                service.uid() != uid && selects(service)
            })
            .await?;

        assert_eq!(stage.pod("kept", 0).await?.uid(), lead, "the cluster was started again");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_deleted_job_is_created_again() -> Result<()> {
    with_operator(async |stage| {
        stage.create("again", json!({ "interactive": true })).await?;
        stage.wait_for_status("again", ConditionType::Ready, "True").await?;
        let lost: Job = stage.api().get("again").await?;
        stage.api::<Job>().delete("again", &DeleteParams::background()).await?;
        let uid = lost.uid();
        stage.wait_for_object("again", move |job: &Job| job.uid() != uid).await?;
        stage.wait_for_status("again", ConditionType::Ready, "False").await?;
        stage.wait_for_status("again", ConditionType::Ready, "True").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_change_after_the_start_is_refused_and_the_cluster_keeps_running() -> Result<()> {
    with_operator(async |stage| {
        stage.create("fixed", json!({ "interactive": true })).await?;
        stage.wait_for_status("fixed", ConditionType::Ready, "True").await?;
        let lead = stage.pod("fixed", 0).await?.uid();
        stage.patch("fixed", json!({ "tasks": 3 })).await?;
        let refused = stage.wait_for_status("fixed", ConditionType::Accepted, "False").await?;
        let accepted = condition(&refused, ConditionType::Accepted).context("no condition")?;
        assert_eq!(accepted.reason, "Immutable");
        assert!(accepted.message.contains("spec.tasks"), "{}", accepted.message);
        let ready = condition(&refused, ConditionType::Ready).context("no condition")?;
        assert_eq!(ready.status, "True");
        stage.patch("fixed", json!({ "tasks": 1 })).await?;
        stage.wait_for_status("fixed", ConditionType::Accepted, "True").await?;
        assert_eq!(stage.pod("fixed", 0).await?.uid(), lead, "the cluster was started again");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_change_before_the_start_is_applied() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({
            "suspend": true,
            "containers": [{ "launcher": true, "command": "echo before" }],
            "logging": { "quiet": true },
        });
        let created = stage.create("early", spec).await?;
        stage.wait_for_object("early", |job: &Job| job.uid().is_some()).await?;
        let mut container = serde_json::to_value(&created.spec.containers[0])?;
        container["command"] = "echo after".into();
        stage.patch("early", json!({ "suspend": false, "containers": [container] })).await?;
        stage.wait_until_finished("early").await?;
        assert_eq!(stage.log("early", 0).await?.trim(), "after");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_finished_cluster_is_deleted_if_requested() -> Result<()> {
    with_operator(async |stage| {
        let containers = json!([{ "command": "hostname" }]);
        let cleanup = json!({ "cleanup": true, "containers": containers });
        let ttl = json!({ "ttlSecondsAfterFinished": 1, "containers": containers });
        stage.create("cleaned", cleanup).await?;
        stage.create("timed", ttl).await?;
        for name in ["cleaned", "timed"] {
            stage.wait_until_deleted::<MiniCluster>(name).await?;
            stage.wait_until_deleted::<Job>(name).await?;
        }
        Ok(())
    })
    .await
}
