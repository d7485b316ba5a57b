//! What the operator does with objects: owns them, changes mutable fields, leaves objects of other
//! owners alone, and reports refusals in a condition.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::with_timeout;
use flux_operator_tests_e2e::{condition, with_operator};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::json;

#[tokio::test]
async fn size_and_suspension_are_applied_to_the_job() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({ "size": 1, "maxSize": 3, "minSize": 1, "interactive": true });
        let minicluster = stage.create("sized", spec).await?;
        stage.wait_for_status("sized", ConditionType::Ready, "True").await?;
        let jobs: Api<Job> = Api::namespaced(stage.client.clone(), &stage.namespace);
        let job = jobs.get("sized").await?;
        assert_eq!(job.owner_references()[0].uid, minicluster.uid().context("no uid")?);
        stage.patch("sized", json!({ "size": 2 })).await?;
        wait_for_job(&jobs, "sized", |job| {
            job.spec.as_ref()?.parallelism.filter(|size| *size == 2).map(drop)
        })
        .await?;
        stage.patch("sized", json!({ "suspend": true })).await?;
        wait_for_job(&jobs, "sized", |job| {
            job.spec.as_ref()?.suspend.filter(|suspend| *suspend).map(drop)
        })
        .await?;
        stage.wait_for_no_pods("sized").await?;
        stage.patch("sized", json!({ "suspend": false })).await?;
        stage.wait_for_status("sized", ConditionType::Ready, "True").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_unsupported_field_is_refused_by_a_condition_that_names_it() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({ "autoscale": { "maxSize": 2 }, "containers": [{}] });
        stage.create("munge", spec).await?;
        let refused = stage.wait_for_status("munge", ConditionType::Accepted, "False").await?;
        let accepted = condition(&refused, ConditionType::Accepted).context("no condition")?;
        assert_eq!(accepted.reason, "NotYetSupported");
        assert!(accepted.message.contains("spec.autoscale"), "{accepted:?}");
        assert!(stage.keys("munge").await?.is_none(), "something was created");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_job_of_another_owner_is_left_alone() -> Result<()> {
    with_operator(async |stage| {
        let jobs: Api<Job> = Api::namespaced(stage.client.clone(), &stage.namespace);
        let foreign: Job = serde_json::from_value(json!({
            "metadata": { "name": "taken" },
            "spec": { "suspend": true, "template": { "spec": {
                "restartPolicy": "Never",
                "containers": [{ "name": "a", "image": "a" }],
            } } },
        }))?;
        let before = jobs.create(&PostParams::default(), &foreign).await?;
        stage.create("taken", json!({ "containers": [{ "command": "hostname" }] })).await?;
        let refused = stage.wait_for_status("taken", ConditionType::Accepted, "False").await?;
        let accepted = condition(&refused, ConditionType::Accepted).context("no condition")?;
        assert!(accepted.message.contains("has another owner"), "{accepted:?}");
        assert_eq!(jobs.get("taken").await?.spec, before.spec);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_namespace_can_be_deleted_with_a_running_cluster_in_it() -> Result<()> {
    with_operator(async |stage| {
        stage.create("inside", json!({ "size": 2, "interactive": true })).await?;
        stage.wait_for_status("inside", ConditionType::Ready, "True").await?;
        let namespaces: Api<Namespace> = Api::all(stage.client.clone());
        namespaces.delete(&stage.namespace, &DeleteParams::background()).await?;
        let deleted = |namespace: Option<&Namespace>| namespace.is_none();
        with_timeout(await_condition(namespaces, &stage.namespace, deleted)).await??;
        Ok(())
    })
    .await
}

async fn wait_for_job(
    jobs: &Api<Job>,
    name: &str,
    wanted: impl Fn(&Job) -> Option<()>,
) -> Result<()> {
    let condition = move |job: Option<&Job>| job.and_then(&wanted).is_some();
    with_timeout(await_condition(jobs.clone(), name, condition)).await??;
    Ok(())
}
