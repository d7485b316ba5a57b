//! Queues of an operator that serves all namespaces, with cluster-scoped objects. In a separate
//! file, because no other operator may run at the same time.

use anyhow::{Context, Result, ensure};
use flux_operator_api::{FluxJob, FluxSetup};
use flux_operator_tests_e2e::install::Installation;
use flux_operator_tests_e2e::queue::LONG_COMMAND;
use flux_operator_tests_e2e::{TestNamespace, without_operator};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;

#[tokio::test]
async fn q18_q20_q22_a_queue_for_other_namespaces_with_quota_from_nodes_and_priority_classes()
-> Result<()> {
    without_operator(async |stage| {
        let install = Installation::cluster_wide(stage).await?;
        let outcome = check_shared_queue(stage, &install.settings.namespace).await;
        install.uninstall(outcome).await
    })
    .await
}

async fn check_shared_queue(stage: &TestNamespace, home: &str) -> Result<()> {
    let setups: Api<FluxSetup> = Api::namespaced(stage.client.clone(), home);
    let setup = serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxSetup",
        "metadata": { "name": "shared" },
        "spec": {
            "quotaFromNodes": {},
            "namespaceSelector": { "matchLabels": { "test": stage.namespace } },
        },
    }))?;
    setups.create(&PostParams::default(), &setup).await?;
    stage.submit("first", "hostname", json!({})).await?;
    let waits = stage.wait_for_job_phase("first", "Waiting").await?;
    ensure!(waits.reason == "NoQueue", "{waits:?}");

    // The selector matches the namespace, and the testbed's only node is the capacity.
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let label = json!({ "metadata": { "labels": { "test": stage.namespace } } });
    namespaces.patch(&stage.namespace, &PatchParams::default(), &Patch::Merge(label)).await?;
    let first = stage.wait_for_job_phase("first", "Finished").await?;
    ensure!(first.queue == format!("{home}/shared"), "{first:?}");
    let shown = setups.get("shared").await?.status.context("the setup has no status")?;
    let nodes = shown.room.get("nodes").map(|nodes| nodes.0.as_str());
    ensure!(nodes == Some("1"), "the capacity is {:?}", shown.room);
    ensure!(shown.room.contains_key("cpu"), "the capacity is {:?}", shown.room);

    // The value of a PriorityClass precedes the order of creation.
    let classes: Api<PriorityClass> = Api::all(stage.client.clone());
    let class = format!("{}-urgent", stage.namespace);
    stage.submit("runs", LONG_COMMAND, json!({})).await?;
    stage.wait_for_job_phase("runs", "Running").await?;
    stage.submit("usual", "hostname", json!({})).await?;
    stage.submit("urgent", "hostname", json!({ "priorityClassName": class })).await?;
    let mistaken = stage.wait_for_job("urgent", |status| !status.reason.is_empty()).await?;
    ensure!(mistaken.reason == "UnknownPriorityClass", "{mistaken:?}");
    let urgent = serde_json::from_value(json!({ "metadata": { "name": class }, "value": 1000 }))?;
    classes.create(&PostParams::default(), &urgent).await?;
    stage.wait_for_job("urgent", |status| status.reason == "WaitingForQuota").await?;
    stage.delete_and_wait::<FluxJob>("runs").await?;
    let usual = stage.wait_for_job_phase("usual", "Finished").await?;
    let urgent = stage.wait_for_job_phase("urgent", "Finished").await?;
    let admitted = usual.admission.and_then(|admission| admission.time).context("no time")?;
    let finished = urgent.finish_time.context("no time")?;
    ensure!(
        finished.0 <= admitted.0,
        "the usual job was admitted before the urgent one had finished"
    );
    classes.delete(&class, &DeleteParams::default()).await?;

    // Cluster-scoped objects are deleted with the operator; objects with its finalizer must be
    // deleted before.
    setups.delete("shared", &DeleteParams::default()).await?;
    let deleted = await_condition(setups, "shared", |setup: Option<&FluxSetup>| setup.is_none());
    flux_operator_testkit::cluster::with_timeout(deleted)
        .await
        .context("the setup is not deleted")??;
    Ok(())
}
