//! What an operator that serves all namespaces does across them. In a separate
//! file, because no other operator may run at the same time.

use anyhow::{Context, Result, ensure};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{Burst, BurstPolicy, FluxJob, FluxSetup, MiniCluster};
use flux_operator_testkit::cluster::{first_match, with_timeout};
use flux_operator_testkit::images::with_flux;
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_tests_e2e::install::Installation;
use flux_operator_tests_e2e::queue::LONG_COMMAND;
use flux_operator_tests_e2e::{TestNamespace, without_operator};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

#[tokio::test]
async fn q18_q20_q22_queues_and_joiners_of_other_namespaces_and_installed_bursts() -> Result<()> {
    without_operator(async |stage| {
        let install = Installation::cluster_wide(stage).await?;
        let home = &install.settings.namespace;
        let outcome = async {
            check_shared_queue(stage, home).await?;
            check_lender_elsewhere(stage).await?;
            check_bursts(stage).await
        };
        let outcome = outcome.await;
        install.uninstall(outcome).await
    })
    .await
}

/// The burst controller learns of a job that waits from the operator, and creates a Burst.
async fn check_bursts(stage: &TestNamespace) -> Result<()> {
    let name = "bursts";
    let target = json!({ "name": "mock", "maxNodes": 4, "mock": {} });
    stage.create_policy("burst", json!({ "targets": [target] })).await?;
    stage.create(name, json!({ "size": 2, "interactive": true })).await?;
    stage.wait_for_status(name, ConditionType::Ready, "True").await?;
    let flux = ". /mnt/flux/flux-view.sh && flux proxy $fluxsocket flux";
    let submit = format!("{flux} submit -N3 --setattr=burstable hostname");
    let job = stage.exec(name, 0, &submit).await?;
    let bursts = watcher(stage.api::<Burst>(), watcher::Config::default()).applied_objects();
    let burst = first_match(bursts, Some).await.context("there is no Burst")?;
    stage.api::<BurstPolicy>().delete("burst", &DeleteParams::default()).await?;
    stage.wait_until_deleted::<Burst>(&burst.name_any()).await?;
    stage.exec(name, 0, &format!("{flux} cancel {}", job.trim())).await?;
    stage.delete_and_wait::<MiniCluster>(name).await
}

/// A lender in a namespace, and a joiner in another one.
async fn check_lender_elsewhere(stage: &TestNamespace) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let elsewhere = format!("{}-lender", stage.namespace);
    let namespace = serde_json::from_value(json!({ "metadata": { "name": elsewhere } }))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let lenders: Api<MiniCluster> = Api::namespaced(stage.client.clone(), &elsewhere);
    let mut lender = smallest_minicluster("lender");
    let spec = json!({ "interactive": true, "flux": { "bursting": { "spareRanks": 1 } } });
    merge(&mut lender, &json!({ "metadata": { "namespace": elsewhere }, "spec": spec }));
    with_flux(&mut lender);
    lenders.create(&PostParams::default(), &serde_json::from_value(lender)?).await?;
    let join = json!({ "name": "lender", "namespace": elsewhere });
    stage.create("joiner", json!({ "flux": { "join": join } })).await?;
    stage.wait_for_reason("joiner", ConditionType::Joined, "NotAllowed").await?;
    let allow = async |names: Vec<&str>| {
        let bursting = json!({ "allowedNamespaces": names });
        let patch = Patch::Merge(json!({ "spec": { "flux": { "bursting": bursting } } }));
        lenders.patch("lender", &PatchParams::default(), &patch).await
    };
    allow(vec![&stage.namespace]).await?;
    stage.wait_for_reason("joiner", ConditionType::Joined, "Joined").await?;
    // It gives its ranks back when it is not allowed any more.
    allow(Vec::new()).await?;
    stage.wait_for_reason("joiner", ConditionType::Joined, "NotAllowed").await?;
    stage.wait_for_no_pods("joiner").await?;
    // The finalizer of a joiner does not keep it, or its lender's namespace.
    allow(vec!["*"]).await?;
    stage.wait_for_reason("joiner", ConditionType::Joined, "Joined").await?;
    namespaces.delete(&elsewhere, &DeleteParams::default()).await?;
    stage.wait_for_reason("joiner", ConditionType::Joined, "LenderMissing").await?;
    stage.delete_and_wait::<MiniCluster>("joiner").await?;
    let deleted = await_condition(namespaces, &elsewhere, |it: Option<&Namespace>| it.is_none());
    with_timeout(deleted).await.context("the namespace is not deleted")??;
    Ok(())
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
    with_timeout(deleted).await.context("the setup is not deleted")??;
    Ok(())
}
