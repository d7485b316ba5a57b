//! The operator in the cluster: installed as users install it, with its own image, roles and Lease.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster, manifest};
use flux_operator_testkit::cluster::testbed;
use flux_operator_testkit::samples;
use flux_operator_tests_e2e::install::Install;
use flux_operator_tests_e2e::queue::LONG;
use flux_operator_tests_e2e::{Stage, on_empty_stage, on_stage};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::json;

/// How long a Lease lasts that is not released.
const TERM: Duration = Duration::from_secs(15);

#[tokio::test]
async fn an_installed_operator_runs_miniclusters_and_hands_over() -> Result<()> {
    on_empty_stage(async |stage| {
        let install = Install::of(stage, 2).await?;
        let outcome = runs_and_hands_over(stage, &install).await;
        install.end(outcome).await
    })
    .await
}

/// As `make apply job` does on the testbed.
#[tokio::test]
async fn samples_run_to_their_end_on_a_node_that_can_pull_nothing() -> Result<()> {
    on_stage(async |stage| {
        samples::import_to(&testbed()?)?;
        let queue: FluxSetup = sample("queue/setup.yaml")?;
        stage.setups().create(&PostParams::default(), &queue).await?;
        let job: FluxJob = sample("queue/job.yaml")?;
        let job = stage.fluxjobs().create(&PostParams::default(), &job).await?.name_any();
        let hello: MiniCluster = sample("hello.yaml")?;
        let hello = stage.miniclusters().create(&PostParams::default(), &hello).await?.name_any();
        let finished = stage.job_is(&job, "Finished").await?;
        ensure!(finished.exit_code == Some(0), "{job} failed: {finished:?}");
        let finished = stage.wait_for_end(&hello).await?.status.unwrap_or_default();
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

/// An example, adapted to the testbed.
fn sample<K: DeserializeOwned>(file: &str) -> Result<K> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file);
    let read = manifest::read(&std::fs::read(&file)?)?;
    let mut document = read.documents.into_iter().next().context("there is no document")?.value;
    samples::adapt(&mut document);
    Ok(serde_json::from_value(document)?)
}

async fn runs_and_hands_over(stage: &Stage, install: &Install) -> Result<()> {
    let leader = install.leader(None).await?;
    stage.create("stays", json!({ "size": 2, "interactive": true })).await?;
    stage.wait("stays", ConditionType::Ready, "True").await?;
    runs(stage, "first").await?;
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
    stage.submit("keeps", LONG, json!({})).await?;
    stage.job_is("keeps", "Running").await?;
    let pod = stage.pod("keeps", 0).await?.uid();
    stage.submit("waits", "hostname", json!({})).await?;
    stage.job_is("waits", "Waiting").await?;

    let deleted = Instant::now();
    install.pods().delete(&leader, &DeleteParams::default()).await?;
    let next = install.leader(Some(&leader)).await?;
    let took = deleted.elapsed();
    ensure!(took < TERM, "the Lease was not released: acquiring it took {took:?}");
    runs(stage, "second").await?;
    let waits = stage.fluxjobs().get("waits").await?.status.unwrap_or_default();
    ensure!(waits.admission.is_none(), "quota was given twice: {waits:?}");
    ensure!(stage.pod("keeps", 0).await?.uid() == pod, "the job was restarted");
    stage.delete_wholly::<FluxJob>("keeps").await?;
    stage.job_is("waits", "Finished").await?;
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
async fn runs(stage: &Stage, name: &str) -> Result<()> {
    let spec = json!({ "size": 2, "tasks": 2, "containers": [{ "command": "hostname" }] });
    stage.create(name, spec).await?;
    let status = stage.wait_for_end(name).await?.status.context("there is no status")?;
    ensure!(status.exit_code == Some(0), "{name} did not succeed: {status:?}");
    Ok(())
}
