//! An operator on a testbed with a node, where pods run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flux_operator_testbed::{Level, Requirements};
use flux_operator_testkit::images::import_to;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::runtime::watcher;

use crate::bench_testbed::{BenchTestbed, NAMESPACE};
use crate::manifest::miniclusters;
use crate::under_test::{OperatorUnderTest, RunningOperator};
use crate::waiting::{named, of_job, time_of_first, time_without, within};

/// Far more than anything on a node should take.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

const NODE: Requirements = Requirements { level: Level::Node, audit: false };

/// A running operator with a testbed of its own.
pub(crate) struct NodeStage {
    // Fields are dropped in this order: the operator is killed before its testbed is deleted.
    /// The operator.
    pub(crate) running: RunningOperator,
    /// Its testbed.
    pub(crate) bed: BenchTestbed,
}

impl NodeStage {
    /// Starts the testbed, imports the images of agent and Flux, and starts the operator.
    pub(crate) async fn up(operator: &OperatorUnderTest) -> Result<NodeStage> {
        let bed = BenchTestbed::up(&operator.name, NODE, &operator.crds()?).await?;
        import_to(&bed.testbed)?;
        let running = operator.start(&bed)?;
        Ok(NodeStage { running, bed })
    }
}

/// The kubelet checks containers once a second, and the previous step finished with one of its
/// checks. Rounds start at different times after it; otherwise all would be rounded up to the same
/// second.
pub(crate) async fn desynchronize(round: usize, rounds: usize) {
    let part = round as f64 / rounds.max(1) as f64;
    tokio::time::sleep(Duration::from_secs(1).mul_f64(part.min(1.0))).await;
}

/// Waits until a condition of a MiniCluster is true; returns when it was.
pub(crate) async fn wait_for_condition(
    client: &Client,
    name: &str,
    condition: &str,
) -> Result<Instant> {
    let time = time_of_first(miniclusters(client, NAMESPACE), named(name), |found| {
        has_true_condition(found, condition)
    });
    within(LIMIT, &format!("{name} is {condition}"), time).await
}

/// Whether a condition of a MiniCluster is true.
pub(crate) fn has_true_condition(minicluster: &DynamicObject, condition: &str) -> bool {
    let conditions = minicluster.data["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|found| found["type"] == condition && found["status"] == "True")
}

/// Deletes a MiniCluster; returns the seconds until its pods are deleted.
pub(crate) async fn delete(client: &Client, name: &str) -> Result<f64> {
    let started = Instant::now();
    let request = miniclusters(client, NAMESPACE);
    request.delete(name, &DeleteParams::background()).await.context("failed to delete")?;
    let deleted = within(LIMIT, "no pod is left", time_without(pods(client), of_job(name))).await?;
    Ok((deleted - started).as_secs_f64())
}

/// Removes the remains of a failed round, so that the next one has the node to itself.
pub(crate) async fn delete_all(client: &Client) -> Result<()> {
    let (background, all) = (DeleteParams::background(), ListParams::default());
    miniclusters(client, NAMESPACE).delete_collection(&background, &all).await?;
    // Pods without an owner are not deleted with any MiniCluster.
    pods(client).delete_collection(&background, &all).await?;
    within(LIMIT, "no pod is left", time_without(pods(client), watcher::Config::default())).await?;
    Ok(())
}

/// The pods of what is measured.
pub(crate) fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// A pod of a Job, by its index.
pub(crate) async fn pod(client: &Client, job: &str, index: u32) -> Result<Pod> {
    let selected = ListParams::default().labels(&format!(
        "batch.kubernetes.io/job-name={job},batch.kubernetes.io/job-completion-index={index}"
    ));
    let found = pods(client).list(&selected).await?.items.into_iter().next();
    found.with_context(|| format!("Job {job:?} has no pod {index}"))
}
