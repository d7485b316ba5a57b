//! The operator crashes after any of its writes while a queue is active, and another one takes
//! over: the final state is the same as without the crash, no job ran twice, and no quota is lost
//! or given twice. See `crash.rs`.

use anyhow::{Result, bail, ensure};
use flux_operator_testkit::cluster::TIMEOUT;
use flux_operator_tests_e2e::object_counter::ObjectCounter;
use flux_operator_tests_e2e::proxy::{Fault, Proxy};
use flux_operator_tests_e2e::queue::LONG_COMMAND;
use flux_operator_tests_e2e::{TestNamespace, without_operator};
use futures::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

mod snapshot;

use snapshot::{difference, scrub, take_snapshot};

/// The number of concurrent queues, on a machine with two cores.
static AT_ONCE: Semaphore = Semaphore::const_new(4);

/// The name of the job under test.
const NAME: &str = "crash";

/// The actions while the fault is injected.
#[derive(Clone, Copy)]
enum Scenario {
    /// A job is submitted, admitted, and runs to completion.
    Admission,
    /// A job is deleted, and a waiting job gets its quota.
    Finish,
    /// A setup replaces the one that admitted a job.
    Replaced,
    /// A queue is drained.
    Drained,
}

#[tokio::test(flavor = "multi_thread")]
async fn q8_a_job_is_admitted_and_runs_once() -> Result<()> {
    assert_survives_crashes(Scenario::Admission).await
}

#[tokio::test(flavor = "multi_thread")]
async fn q13_a_job_is_deleted_and_its_quota_is_given_once() -> Result<()> {
    assert_survives_crashes(Scenario::Finish).await
}

#[tokio::test(flavor = "multi_thread")]
async fn q19_a_setup_is_replaced_and_its_job_keeps_running() -> Result<()> {
    assert_survives_crashes(Scenario::Replaced).await
}

#[tokio::test(flavor = "multi_thread")]
async fn q16_a_queue_is_drained_and_its_job_waits() -> Result<()> {
    assert_survives_crashes(Scenario::Drained).await
}

impl Scenario {
    /// Creates the initial state.
    async fn prepare(self, stage: &TestNamespace) -> Result<()> {
        stage.create_setup("old", json!({ "quota": { "nodes": "1" } })).await?;
        match self {
            Scenario::Admission => {}
            Scenario::Finish => {
                stage.submit("before", LONG_COMMAND, json!({})).await?;
                stage.wait_for_job_phase("before", "Running").await?;
                stage.submit(NAME, "echo ran", json!({})).await?;
                stage.wait_for_job_phase(NAME, "Waiting").await?;
            }
            Scenario::Replaced | Scenario::Drained => {
                stage.submit(NAME, LONG_COMMAND, json!({})).await?;
                stage.wait_for_job_phase(NAME, "Running").await?;
            }
        }
        Ok(())
    }

    /// Acts while the fault is injected.
    async fn act(self, stage: &TestNamespace) -> Result<()> {
        match self {
            Scenario::Admission => {
                stage.submit(NAME, "echo ran", json!({})).await?;
            }
            Scenario::Finish => {
                let jobs = stage.fluxjobs();
                jobs.delete("before", &Default::default()).await?;
            }
            Scenario::Replaced => {
                let spec = json!({ "quota": { "nodes": "1" }, "replaces": ["old"] });
                stage.create_setup("new", spec).await?;
            }
            Scenario::Drained => {
                let drain = json!({ "stopPolicy": "HoldAndDrain" });
                stage.patch_spec::<flux_operator_api::FluxSetup>("old", drain).await?;
            }
        }
        Ok(())
    }

    /// Waits until the action has had its effect.
    async fn wait_for_effect(self, stage: &TestNamespace) -> Result<()> {
        match self {
            Scenario::Admission => drop(stage.wait_for_job_phase(NAME, "Finished").await?),
            Scenario::Finish => {
                stage.wait_for_job_phase(NAME, "Finished").await?;
                // Kubernetes deletes dependents after a while.
                stage.wait_until_deleted::<Job>("before").await?;
                stage.wait_for_no_pods("before").await?;
                stage.wait_for_no_secrets("before").await?;
                stage.wait_until_deleted::<ConfigMap>("before-entrypoint").await?;
                stage.wait_until_deleted::<Service>("before").await?;
            }
            Scenario::Replaced => {
                stage.wait_until_deleted::<flux_operator_api::FluxSetup>("old").await?
            }
            Scenario::Drained => {
                let has_left = stage.wait_for_job(NAME, |status| status.admission.is_none());
                drop(has_left.await?);
            }
        }
        Ok(())
    }
}

/// Runs the scenario without faults, and then with a crash of the operator after each write.
async fn assert_survives_crashes(scenario: Scenario) -> Result<()> {
    let (expected, writes) = run(scenario, Fault::None, None).await?;
    ensure!(writes > 0, "the operator has written nothing");
    let troubles = (1..=writes).map(Fault::CutAfter).chain([Fault::Lossy]);
    let runs = join_all(troubles.map(async |trouble| {
        let outcome = run(scenario, trouble.clone(), Some(&expected)).await;
        outcome.err().map(|error| format!("{trouble:?}: {error:#}"))
    }))
    .await;
    let failures: Vec<String> = runs.into_iter().flatten().collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Runs the scenario until the state is as `expected`, or, if that is not known yet, to its end.
/// Returns the final state, and the number of the operator's writes.
async fn run(
    scenario: Scenario,
    trouble: Fault,
    expected: Option<&Value>,
) -> Result<(Value, usize)> {
    let _permit = AT_ONCE.acquire().await?;
    without_operator(async |stage| {
        let census = ObjectCounter::start(stage, NAME);
        let mut proxy = Proxy::start(stage.client.clone()).await?;
        stage.start_operator_with(proxy.client()?).await?;
        scenario.prepare(stage).await?;
        proxy.wait_until_idle().await?;
        proxy.inject(trouble);
        scenario.act(stage).await?;
        let observed = loop {
            tokio::select! {
                biased;
                () = proxy.wait_until_cut() => {
                    stage.stop_operator();
                    proxy = Proxy::start(stage.client.clone()).await?;
                    stage.start_operator_with(proxy.client()?).await?;
                }
                observed = wait_until_settled(scenario, stage, &proxy, &census, expected) => break observed?,
            }
        };
        Ok((observed, proxy.writes()))
    })
    .await
}

/// Waits until the scenario has reached its end and the operator is idle.
async fn wait_until_settled(
    scenario: Scenario,
    stage: &TestNamespace,
    proxy: &Proxy,
    census: &ObjectCounter,
    expected: Option<&Value>,
) -> Result<Value> {
    proxy.wait_until_watched().await?;
    scenario.wait_for_effect(stage).await?;
    let since = std::time::Instant::now();
    loop {
        proxy.wait_until_idle().await?;
        let observed = full_snapshot(stage, census).await?;
        match (observed, expected) {
            (Some(observed), None) => return Ok(observed),
            (Some(observed), Some(expected)) if observed == *expected => return Ok(observed),
            // Kubernetes may still be working while the operator is idle.
            (_, _) if since.elapsed() < TIMEOUT / 4 => {}
            (None, _) => bail!("the Job and its pods never settled"),
            (Some(observed), expected) => {
                let difference = difference(expected.unwrap_or(&Value::Null), &observed);
                bail!("the final state differs:\n{difference}after {:#?}", proxy.requests());
            }
        }
    }
}

/// The queue's objects, the MiniCluster with all its objects, and how many were ever created.
async fn full_snapshot(stage: &TestNamespace, census: &ObjectCounter) -> Result<Option<Value>> {
    let Some(cluster) = take_snapshot(stage, NAME, census).await? else { return Ok(None) };
    let mut jobs = stage.fluxjobs().list(&ListParams::default()).await?.items;
    for status in jobs.iter_mut().filter_map(|job| job.status.as_mut()) {
        // It is derived from the uid.
        status.jobid.clear();
    }
    let setups = stage.setups().list(&ListParams::default()).await?.items;
    let mut queue = serde_json::to_value((jobs, setups))?;
    scrub(&mut queue);
    let text = queue.to_string().replace(&stage.namespace, "<own>");
    let queue: Value = serde_json::from_str(&text)?;
    Ok(Some(json!({ "queue": queue, "cluster": cluster, "made": census.counts() })))
}
