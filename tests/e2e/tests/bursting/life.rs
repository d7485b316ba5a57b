//! The life of a burst: requested for a job, used, given back.

use anyhow::{Context, Result, ensure};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{Burst, BurstPolicy, MiniCluster};
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::steps::{
    FLUX, expect_released, give_back, other_cluster, output, start_primary, status, submit,
    wait_for_burst, wait_for_condition, wait_for_no_bursts, wait_until_nothing_is_left,
    with_target,
};

/// Seeds 001 and 003: a job that needs four nodes waits in a MiniCluster of two. A policy leases two
/// ranks to brokers of another cluster, the job runs over both, and nothing is left afterwards.
#[tokio::test]
async fn b40_a_policy_gets_nodes_of_another_cluster_and_gives_them_back() -> Result<()> {
    with_target(async |home, away| {
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        run_on_four_nodes(home).await?;
        wait_until_nothing_is_left(away).await?;
        // The same MiniCluster again, and another one of the same name.
        run_on_four_nodes(home).await?;
        home.delete_and_wait::<MiniCluster>("primary").await?;
        start_primary(home, "primary").await?;
        run_on_four_nodes(home).await?;
        wait_until_nothing_is_left(away).await
    })
    .await
}

/// Submits a job that needs two nodes more, and waits until they are given back.
async fn run_on_four_nodes(home: &TestNamespace) -> Result<()> {
    let job = submit(home, "primary", "-N4 --setattr=burstable hostname").await?;
    let hosts = output(home, "primary", &job).await?;
    ensure!(hosts.len() == 4, "the job has printed {hosts:?}");
    wait_for_no_bursts(home).await?;
    expect_released(home, "primary").await
}

/// The same with nodes of the MiniCluster's own Kubernetes cluster.
#[tokio::test]
async fn a_policy_gets_nodes_of_the_same_cluster() -> Result<()> {
    with_operator(async |home| {
        let target = json!({ "name": "here", "maxNodes": 4, "startupSeconds": 1, "cluster": {} });
        home.create_policy("burst", json!({ "targets": [target] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        run_on_four_nodes(home).await?;
        wait_until_nothing_is_left(home).await
    })
    .await
}

/// A job with more cores than any node at home has waits for ranks of a pool that has them.
#[tokio::test]
async fn b23_a_job_of_a_shape_that_home_lacks_gets_ranks_of_a_pool() -> Result<()> {
    with_operator(async |home| {
        let target = json!({ "name": "here", "maxNodes": 1, "startupSeconds": 1, "ranks": "large",
            "cores": 2, "cluster": {} });
        home.create_policy("burst", json!({ "targets": [target] })).await?;
        let _controller = home.start_burst_controller().await?;
        let pool = json!({ "name": "large", "size": 1, "cores": 2 });
        let spec = json!({ "size": 2, "interactive": true,
            "flux": { "resources": { "cores": 1 }, "bursting": { "clusters": [pool] } } });
        home.create("primary", spec).await?;
        home.wait_for_status("primary", ConditionType::Ready, "True").await?;
        let job = submit(home, "primary", "-n1 -c2 --setattr=burstable hostname").await?;
        // Those behind it need not wait.
        let other = submit(home, "primary", "-n1 hostname").await?;
        ensure!(output(home, "primary", &job).await?.len() == 1, "the job has not run");
        ensure!(output(home, "primary", &other).await?.len() == 1, "the other has not run");
        wait_for_no_bursts(home).await?;
        wait_until_nothing_is_left(home).await
    })
    .await
}

/// Nodes ahead of jobs: with an empty queue, until the user gives them back. The operator and the
/// controller are restarted meanwhile.
#[tokio::test]
async fn b24_a_burst_is_requested_ahead_of_jobs() -> Result<()> {
    with_target(async |home, away| {
        // Its nodes are why the MiniCluster has spare ranks.
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let spec = json!({ "cluster": "primary", "nodes": 2, "target": other_cluster() });
        home.create_burst("ahead", spec).await?;
        let before = wait_for_condition(home, "ahead", "Ready", "True", "").await?;
        drop(controller);
        home.stop_operator();
        home.start_operator().await?;
        let _controller = home.start_burst_controller().await?;
        let job = submit(home, "primary", "-N4 hostname").await?;
        ensure!(output(home, "primary", &job).await?.len() == 4, "the nodes are not there");
        let after = home.api::<Burst>().get("ahead").await?;
        ensure!(status(&after).ranks == status(&before).ranks, "{after:?}");
        give_back(home, away, "ahead").await
    })
    .await
}

/// A burst grows for another job, shrinks while the first one runs, and is given back with the last.
#[tokio::test]
async fn b32_a_burst_grows_and_shrinks_between_its_sizes() -> Result<()> {
    with_target(async |home, away| {
        let mut target = other_cluster();
        target["scaling"] = json!({ "minNodes": 1, "maxNodes": 3 });
        home.create_policy("burst", json!({ "targets": [target] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let long = submit(home, "primary", "-N3 --setattr=burstable sleep inf").await?;
        let name = wait_for_burst(home).await?.name_any();
        wait_for_condition(home, &name, "Ready", "True", "").await?;
        ensure!(size(home, &name).await? == 1);

        let job = submit(home, "primary", "-N2 --setattr=burstable hostname").await?;
        let hosts = output(home, "primary", &job).await?;
        ensure!(hosts.len() == 2, "the job has printed {hosts:?}");
        home.wait_for_object(&name, |it: &Burst| it.spec.nodes == 3).await?;
        home.wait_for_object(&name, |it: &Burst| it.spec.nodes == 1).await?;
        let is_small = |it: &Burst| status(it).ready == "1/1" && status(it).counted_nodes == 1;
        home.wait_for_object(&name, is_small).await.context("it does not shrink")?;
        let running = home.exec("primary", 0, &format!("{FLUX} jobs -no {{state}} {long}")).await?;
        ensure!(running.trim() == "RUN", "the job was disturbed: {running}");

        home.exec("primary", 0, &format!("{FLUX} cancel {long}")).await?;
        home.wait_until_deleted::<Burst>(&name).await?;
        wait_until_nothing_is_left(away).await?;
        expect_released(home, "primary").await
    })
    .await
}

async fn size(home: &TestNamespace, name: &str) -> Result<i32> {
    Ok(home.api::<Burst>().get(name).await?.spec.nodes)
}

/// The oldest policy serves a job. The next one does when it is deleted.
#[tokio::test]
async fn two_policies_that_select_a_job_create_one_burst() -> Result<()> {
    with_operator(async |home| {
        let target = |name: &str| {
            let mock = json!({ "joinedAfterSeconds": 3600 });
            json!({ "targets": [{ "name": name, "maxNodes": 4, "mock": mock }] })
        };
        home.create_policy("first", target("a")).await?;
        home.create_policy("second", target("b")).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        submit(home, "primary", "-N3 --setattr=burstable hostname").await?;
        let burst = wait_for_burst(home).await?;
        ensure!(burst.spec.policy == "first", "{burst:?}");
        let has_answered = |it: &BurstPolicy| {
            it.status
                .as_ref()
                .is_some_and(|it| it.jobs.iter().any(|it| it.reason == "WaitsForBurst"))
        };
        home.wait_for_object("first", has_answered).await?;
        let all = home.api::<Burst>().list(&ListParams::default()).await?;
        ensure!(all.items.len() == 1, "{all:?}");
        home.api::<BurstPolicy>().delete("first", &DeleteParams::default()).await?;
        home.wait_until_deleted::<Burst>(&burst.name_any()).await?;
        let burst = wait_for_burst(home).await?;
        ensure!(burst.spec.policy == "second", "{burst:?}");
        home.api::<BurstPolicy>().delete("second", &DeleteParams::default()).await?;
        wait_for_no_bursts(home).await
    })
    .await
}
