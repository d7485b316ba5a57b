//! Ranks that are reserved for other clusters: brokers of a pool, started by hand, fill them.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use flux_operator_api::MiniCluster;
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

#[tokio::test]
async fn brokers_of_a_pool_stay_free_and_are_counted_separately() -> Result<()> {
    with_operator(async |stage| {
        let pool = json!({ "name": "cloud", "size": 2 });
        let flux = json!({ "bursting": { "clusters": [pool] } });
        let spec = json!({ "size": 2, "interactive": true, "flux": flux });
        stage.create("lender", spec).await?;
        let shows = |ready: &'static str, joined| {
            move |it: &MiniCluster| {
                it.status.as_ref().is_some_and(|it| it.ready == ready && it.joined == joined)
            }
        };
        stage.wait_for_object("lender", shows("2/2", 0)).await?;
        for index in 0..2 {
            join(stage, index).await?;
        }
        stage.wait_for_object("lender", shows("2/2", 2)).await?;
        // The instance uses them, and they are not drained.
        let flux = ". /mnt/flux/flux-view.sh && flux proxy $fluxsocket flux";
        let hosts = stage.exec("lender", 0, &format!("{flux} run -N4 hostname")).await?;
        let hosts: BTreeSet<&str> = hosts.lines().collect();
        assert_eq!(hosts, ["cloud-0", "cloud-1", "lender-0", "lender-1"].into());
        let free = stage
            .exec("lender", 0, &format!("{flux} resource list -s free -no {{nnodes}}"))
            .await?;
        assert_eq!(free.trim(), "4");
        Ok(())
    })
    .await
}

/// Starts a broker of the pool in its own pod: like a worker of the lender, but with the ranks that
/// follow the lender's own.
async fn join(stage: &TestNamespace, index: u32) -> Result<()> {
    let name = format!("cloud-{index}");
    let maps: Api<ConfigMap> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let map = maps.get("lender-entrypoint").await?;
    let mut plan: Value = serde_json::from_str(&map.data.context("no data")?["boot.json"])?;
    plan["firstRank"] = 2.into();
    let plan = json!({ "metadata": { "name": name }, "data": { "boot.json": plan.to_string() } });
    maps.create(&PostParams::default(), &serde_json::from_value(plan)?).await?;

    let worker = stage.pod("lender", 1).await?;
    let job =
        worker.metadata.labels.as_ref().context("no labels")?["batch.kubernetes.io/controller-uid"]
            .clone();
    let mut spec = serde_json::to_value(worker.spec.context("the pod has no spec")?)?;
    spec["hostname"] = name.clone().into();
    spec["restartPolicy"] = "Never".into();
    for volume in spec["volumes"].as_array_mut().context("the pod has no volumes")? {
        if volume["configMap"]["name"] == "lender-entrypoint" {
            volume["configMap"]["name"] = name.clone().into();
        }
    }
    // What a Job sets for its pods is set explicitly for this one.
    let set_by_job = [("JOB_COMPLETION_INDEX", index.to_string()), ("FLUX_OPERATOR_JOB_UID", job)];
    let variables = spec["containers"][0]["env"].as_array_mut().context("no variables")?;
    variables.retain(|it| set_by_job.iter().all(|(name, _)| it["name"] != *name));
    variables.extend(set_by_job.map(|(name, value)| json!({ "name": name, "value": value })));
    let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
    stage.pod_api().create(&PostParams::default(), &pod).await?;
    Ok(())
}
