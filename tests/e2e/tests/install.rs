//! The operator in the cluster: installed as users install it, with its own image, roles and Lease.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster, manifest};
use flux_operator_testkit::cluster::testbed;
use flux_operator_testkit::samples;
use flux_operator_tests_e2e::install::Installation;
use flux_operator_tests_e2e::queue::LONG_COMMAND;
use flux_operator_tests_e2e::{TestNamespace, with_operator, without_operator};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::json;

/// How long a Lease lasts that is not released.
const LEASE_DURATION: Duration = Duration::from_secs(15);

#[tokio::test]
async fn an_installed_operator_runs_miniclusters_and_a_replica_takes_over() -> Result<()> {
    without_operator(async |stage| {
        let install = Installation::namespaced(stage, 2).await?;
        let outcome = run_and_take_over(stage, &install).await;
        install.uninstall(outcome).await
    })
    .await
}

/// As `make apply job` does on the testbed.
#[tokio::test]
async fn examples_run_on_a_node_that_cannot_pull_images() -> Result<()> {
    with_operator(async |stage| {
        samples::import_to(&testbed()?)?;
        let queue: FluxSetup = sample("queue/setup.yaml")?;
        stage.setups().create(&PostParams::default(), &queue).await?;
        let job: FluxJob = sample("queue/job.yaml")?;
        let job = stage.fluxjobs().create(&PostParams::default(), &job).await?.name_any();
        let hello: MiniCluster = sample("hello.yaml")?;
        let hello = stage.miniclusters().create(&PostParams::default(), &hello).await?.name_any();
        let finished = stage.wait_for_job_phase(&job, "Finished").await?;
        ensure!(finished.exit_code == Some(0), "{job} failed: {finished:?}");
        let finished = stage.wait_until_finished(&hello).await?.status.unwrap_or_default();
        ensure!(finished.exit_code == Some(0), "{hello} failed: {finished:?}");
        // The example job keeps its cluster so that users can read its log.
        for (name, size) in [(job, 2), (hello, 4)] {
            let log = stage.log(&name, 0).await?;
            let hosts = (0..size).map(|index| format!("{name}-{index}"));
            let missing: Vec<String> = hosts.filter(|host| !log.contains(host)).collect();
            ensure!(missing.is_empty(), "{missing:?} are not in\n{log}");
        }
        Ok(())
    })
    .await
}

/// The brokers of one example join the Flux instance of the other.
#[tokio::test]
async fn connected_examples_are_one_instance() -> Result<()> {
    with_operator(async |stage| {
        samples::import_to(&testbed()?)?;
        for file in ["connected/joiner.yaml", "connected/lender.yaml"] {
            let minicluster: MiniCluster = sample(file)?;
            stage.miniclusters().create(&PostParams::default(), &minicluster).await?;
        }
        stage.wait_for_reason("joiner", ConditionType::Joined, "Joined").await?;
        Ok(())
    })
    .await
}

/// An example, adapted to the testbed.
fn sample<K: DeserializeOwned>(file: &str) -> Result<K> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file);
    let read = manifest::read(&std::fs::read(&file)?)?;
    let mut document = read.documents.into_iter().next().context("there is no document")?.value;
    samples::adapt(&mut document);
    Ok(serde_json::from_value(document)?)
}

async fn run_and_take_over(stage: &TestNamespace, install: &Installation) -> Result<()> {
    let leader = install.wait_for_leader(None).await?;
    stage.create("stays", json!({ "size": 2, "interactive": true })).await?;
    stage.wait_for_status("stays", ConditionType::Ready, "True").await?;
    run_to_completion(stage, "first").await?;
    let counted = install.metrics(&leader).await?;
    for line in [
        "flux_operator_leader 1",
        r#"flux_operator_miniclusters{phase="Succeeded"} 1"#,
        r#"flux_operator_api_requests_total{resource="jobs",verb="create"} 2"#,
    ] {
        ensure!(counted.lines().any(|each| each == line), "{line} is not in\n{counted}");
    }
    // The interactive cluster was ready; a short one may finish before all its brokers are online.
    let brought_up = value(&counted, "flux_operator_bring_up_seconds_count")?;
    ensure!((1..=2).contains(&brought_up), "{brought_up} were brought up:\n{counted}");
    // Half of the agents contacted the other replica first, which redirected them.
    ensure!(counted.contains(r#"flux_operator_reports_total{outcome="heard"}"#), "{counted}");
    // A missing permission would show here.
    ensure!(!counted.contains("flux_operator_reconcile_errors_total{"), "{counted}");

    // The next leader must not give quota again that the previous leader gave.
    stage.create_setup("default", json!({ "quota": { "nodes": "1" } })).await?;
    stage.submit("keeps", LONG_COMMAND, json!({})).await?;
    stage.wait_for_job_phase("keeps", "Running").await?;
    let pod = stage.pod("keeps", 0).await?.uid();
    stage.submit("waits", "hostname", json!({})).await?;
    stage.wait_for_job_phase("waits", "Waiting").await?;

    let deleted = Instant::now();
    install.pods().delete(&leader, &DeleteParams::default()).await?;
    let next = install.wait_for_leader(Some(&leader)).await?;
    let took = deleted.elapsed();
    ensure!(took < LEASE_DURATION, "the Lease was not released: acquiring it took {took:?}");
    run_to_completion(stage, "second").await?;
    let waits = stage.fluxjobs().get("waits").await?.status.unwrap_or_default();
    ensure!(waits.admission.is_none(), "quota was given twice: {waits:?}");
    ensure!(stage.pod("keeps", 0).await?.uid() == pod, "the job was restarted");
    stage.delete_and_wait::<FluxJob>("keeps").await?;
    stage.wait_for_job_phase("waits", "Finished").await?;
    let counted = install.metrics(&next).await?;
    ensure!(counted.lines().any(|line| line == "flux_operator_leader 1"), "{counted}");
    Ok(())
}

/// The value of a metric without labels.
fn value(metrics: &str, name: &str) -> Result<u64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("{name} is not in\n{metrics}"))?.parse()?)
}

/// Runs a MiniCluster of two to completion.
async fn run_to_completion(stage: &TestNamespace, name: &str) -> Result<()> {
    let spec = json!({ "size": 2, "tasks": 2, "containers": [{ "command": "hostname" }] });
    stage.create(name, spec).await?;
    let status = stage.wait_until_finished(name).await?.status.context("there is no status")?;
    ensure!(status.exit_code == Some(0), "{name} did not succeed: {status:?}");
    Ok(())
}
