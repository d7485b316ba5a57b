//! The life of a burst: requested for a job, used, given back.

use anyhow::{Result, ensure};
use flux_operator_api::Burst;
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use flux_operator_tests_e2e::with_operator;
use kube::api::DeleteParams;
use serde_json::json;

use super::steps::{
    expect_released, has_condition, other_cluster, output, start_primary, submit,
    wait_for_no_bursts, wait_until_nothing_is_left,
};

/// Seeds 001 and 003: a job that needs four nodes waits in a MiniCluster of two. A policy leases two
/// ranks to brokers of another cluster, the job runs over both, and nothing is left afterwards.
#[tokio::test]
async fn a_policy_gets_nodes_of_another_cluster_and_gives_them_back() -> Result<()> {
    with_two_clusters(async |home, away| {
        // There is neither an operator nor a controller at the target.
        away.stop_operator();
        home.start_gateway().await?;
        home.start_operator().await?;
        home.create_target_secret("away", away).await?;
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let job = submit(home, "primary", "-N4 --setattr=burstable hostname").await?;
        let hosts = output(home, "primary", &job).await?;
        ensure!(hosts.len() == 4, "the job has printed {hosts:?}");
        wait_for_no_bursts(home).await?;
        wait_until_nothing_is_left(away).await?;
        expect_released(home, "primary").await
    })
    .await
}

/// The same with nodes of the MiniCluster's own Kubernetes cluster.
#[tokio::test]
async fn a_policy_gets_nodes_of_the_same_cluster() -> Result<()> {
    with_operator(async |home| {
        let target = json!({ "name": "here", "maxNodes": 4, "startupSeconds": 1, "cluster": {} });
        home.create_policy("burst", json!({ "targets": [target] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let job = submit(home, "primary", "-N4 --setattr=burstable hostname").await?;
        let hosts = output(home, "primary", &job).await?;
        ensure!(hosts.len() == 4, "the job has printed {hosts:?}");
        wait_for_no_bursts(home).await?;
        wait_until_nothing_is_left(home).await?;
        expect_released(home, "primary").await
    })
    .await
}

/// Nodes ahead of jobs: with an empty queue, until the user gives them back.
#[tokio::test]
async fn a_burst_is_requested_ahead_of_jobs() -> Result<()> {
    with_two_clusters(async |home, away| {
        away.stop_operator();
        home.start_gateway().await?;
        home.start_operator().await?;
        home.create_target_secret("away", away).await?;
        // Its nodes are why the MiniCluster has spare ranks.
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let spec = json!({ "cluster": "primary", "nodes": 2, "target": other_cluster() });
        home.create_burst("ahead", spec).await?;
        let is_ready = |burst: &Burst| has_condition(burst, "Ready", "True", "");
        home.wait_for_object("ahead", is_ready).await?;
        let job = submit(home, "primary", "-N4 hostname").await?;
        ensure!(output(home, "primary", &job).await?.len() == 4, "the nodes are not there");
        home.api::<Burst>().delete("ahead", &DeleteParams::default()).await?;
        home.wait_until_deleted::<Burst>("ahead").await?;
        wait_until_nothing_is_left(away).await?;
        expect_released(home, "primary").await
    })
    .await
}
