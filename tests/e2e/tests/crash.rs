//! The operator crashes after any of its writes, before it receives the response, and another one
//! takes over: the final state is the same as without the crash, nothing was created twice or left
//! behind, and the operator becomes idle.
//!
//! A crash before a write is equivalent to a crash after the previous write, so only the latter is
//! tested.

use anyhow::{Context, Result, bail, ensure};
use flux_operator_testkit::cluster::{TIMEOUT, first_match};
use flux_operator_tests_e2e::object_counter::ObjectCounter;
use flux_operator_tests_e2e::proxy::{Fault, Proxy};
use flux_operator_tests_e2e::{TestNamespace, without_operator};
use futures::future::join_all;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

mod snapshot;

use snapshot::{difference, take_snapshot};

/// The number of concurrent clusters, on a machine with two cores.
static AT_ONCE: Semaphore = Semaphore::const_new(4);

/// The name of all clusters here.
const NAME: &str = "crash";

/// The actions on a cluster, and its final state.
struct Scenario {
    /// The spec to create.
    spec: Value,
    /// The milestone to wait for, and the change to make then. Without it the fault is injected
    /// from the creation on.
    then: Option<(Milestone, Value)>,
    end: FinalState,
}

/// A phase, and the number of online brokers of the requested ones.
type Milestone = (&'static str, &'static str);

enum FinalState {
    At(Milestone),
    /// Everything is deleted by the operator.
    CleanedUp,
    /// Everything is deleted by the user: while the operator is down, or otherwise at the
    /// milestone.
    Deleted(Milestone),
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_comes_up() -> Result<()> {
    let spec = json!({ "size": 2, "interactive": true });
    assert_survives_crashes(Scenario { spec, then: None, end: FinalState::At(("Ready", "2/2")) })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_succeeds_and_ran_once() -> Result<()> {
    let spec = json!({ "containers": [{ "command": "echo ran" }] });
    assert_survives_crashes(Scenario {
        spec,
        then: None,
        end: FinalState::At(("Succeeded", "0/1")),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_fails_and_ran_once() -> Result<()> {
    let spec = json!({ "containers": [{ "command": "sh -c 'echo ran; exit 7'" }] });
    assert_survives_crashes(Scenario { spec, then: None, end: FinalState::At(("Failed", "0/1")) })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_grows() -> Result<()> {
    let spec = json!({ "size": 1, "maxSize": 2, "interactive": true });
    let then = Some((("Ready", "1/1"), json!({ "size": 2 })));
    assert_survives_crashes(Scenario { spec, then, end: FinalState::At(("Ready", "2/2")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_shrinks() -> Result<()> {
    let spec = json!({ "size": 2, "interactive": true });
    let then = Some((("Ready", "2/2"), json!({ "size": 1 })));
    assert_survives_crashes(Scenario { spec, then, end: FinalState::At(("Ready", "1/1")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_suspended() -> Result<()> {
    let spec = json!({ "interactive": true });
    let then = Some((("Ready", "1/1"), json!({ "suspend": true })));
    assert_survives_crashes(Scenario { spec, then, end: FinalState::At(("Suspended", "0/1")) })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_resumed() -> Result<()> {
    let spec = json!({ "interactive": true, "suspend": true });
    let then = Some((("Suspended", "0/1"), json!({ "suspend": false })));
    assert_survives_crashes(Scenario { spec, then, end: FinalState::At(("Ready", "1/1")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_has_not_started_is_replaced_once() -> Result<()> {
    let spec = json!({ "interactive": true, "suspend": true });
    let then = Some((("Suspended", "0/1"), json!({ "tasks": 2 })));
    assert_survives_crashes(Scenario { spec, then, end: FinalState::At(("Suspended", "0/1")) })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_deleted_while_the_operator_is_down() -> Result<()> {
    let spec = json!({ "interactive": true });
    assert_survives_crashes(Scenario {
        spec,
        then: None,
        end: FinalState::Deleted(("Ready", "1/1")),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_cluster_is_cleaned_up() -> Result<()> {
    let spec = json!({ "containers": [{ "command": "true" }] });
    let then = Some((("Succeeded", "0/1"), json!({ "cleanup": true })));
    assert_survives_crashes(Scenario { spec, then, end: FinalState::CleanedUp }).await
}

/// Runs the scenario without faults, and then with a crash of the operator after each write.
async fn assert_survives_crashes(scenario: Scenario) -> Result<()> {
    let undisturbed = run(&scenario, Fault::None, None).await?;
    ensure!(undisturbed.writes > 0, "the operator has written nothing");
    let troubles = (1..=undisturbed.writes).map(Fault::CutAfter).chain([Fault::Lossy]);
    let runs = join_all(troubles.map(async |trouble| {
        let outcome = run(&scenario, trouble.clone(), Some(&undisturbed.snapshot)).await;
        (trouble, outcome)
    }))
    .await;
    let mut failures = Vec::new();
    let mut crashes = 0;
    for (trouble, outcome) in runs {
        match outcome {
            Ok(run) => crashes += usize::from(run.crashed),
            Err(error) => failures.push(format!("{trouble:?}: {error:#}")),
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    // Changes that coincide are written once, so a run may have one write less.
    ensure!(2 * crashes > undisturbed.writes, "{crashes} crashes at {} writes", undisturbed.writes);
    Ok(())
}

/// The result of a run.
struct RunResult {
    snapshot: Value,
    writes: usize,
    crashed: bool,
}

/// Runs the scenario until the state is as `expected`, or, if that is not known yet, to its end.
async fn run(scenario: &Scenario, trouble: Fault, expected: Option<&Value>) -> Result<RunResult> {
    let _permit = AT_ONCE.acquire().await?;
    without_operator(async |stage| {
        let counter = ObjectCounter::start(stage, NAME);
        let mut proxy = Proxy::start(stage.client.clone()).await?;
        stage.start_operator_with(proxy.client()?).await?;
        if scenario.then.is_none() {
            proxy.inject(trouble.clone());
        }
        stage.create(NAME, scenario.spec.clone()).await?;
        if let Some((milestone, change)) = &scenario.then {
            wait_for_milestone(stage, *milestone).await?;
            proxy.wait_until_idle().await?;
            proxy.inject(trouble);
            let patch = Patch::Merge(json!({ "spec": change }));
            stage.miniclusters().patch(NAME, &PatchParams::default(), &patch).await?;
        }
        let mut crashed = false;
        let picture = loop {
            tokio::select! {
                biased;
                () = proxy.wait_until_cut() => {
                    stage.stop_operator();
                    crashed = true;
                    if matches!(scenario.end, FinalState::Deleted(_)) {
                        delete(stage).await?;
                    }
                    proxy = Proxy::start(stage.client.clone()).await?;
                    stage.start_operator_with(proxy.client()?).await?;
                }
                picture = wait_for_end(scenario, stage, &proxy, &counter, expected, crashed) => {
                    break picture?;
                }
            }
        };
        Ok(RunResult { snapshot: picture, writes: proxy.writes(), crashed })
    })
    .await
}

/// Waits until the scenario has reached its end and the operator is idle.
async fn wait_for_end(
    scenario: &Scenario,
    stage: &TestNamespace,
    proxy: &Proxy,
    census: &ObjectCounter,
    expected: Option<&Value>,
    crashed: bool,
) -> Result<Value> {
    proxy.wait_until_watched().await?;
    let deleted = snapshot::empty_snapshot();
    let expected = match scenario.end {
        FinalState::At(milestone) => {
            wait_for_milestone(stage, milestone).await?;
            expected
        }
        FinalState::CleanedUp => Some(&deleted),
        FinalState::Deleted(milestone) => {
            if !crashed {
                wait_for_milestone(stage, milestone).await?;
                proxy.wait_until_idle().await?;
                delete(stage).await?;
            }
            Some(&deleted)
        }
    };
    let since = std::time::Instant::now();
    loop {
        proxy.wait_until_idle().await?;
        let observed = take_snapshot(stage, NAME, census).await?;
        match (observed, expected) {
            (Some(observed), None) => return Ok(observed),
            (Some(observed), Some(expected)) if observed == *expected => return Ok(observed),
            // Kubernetes may still be working while the operator is idle.
            (_, _) if since.elapsed() < TIMEOUT => {}
            (None, _) => bail!("the Job and its pods never settled"),
            (Some(observed), expected) => {
                let difference = difference(expected.unwrap_or(&Value::Null), &observed);
                bail!("the final state differs:\n{difference}after {:#?}", proxy.requests());
            }
        }
    }
}

/// Deletes the MiniCluster, unless it is already deleted.
async fn delete(stage: &TestNamespace) -> Result<()> {
    match stage.miniclusters().delete(NAME, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => Ok(outcome.map(drop)?),
    }
}

/// Waits until the cluster is in a phase with this many online brokers, for its newest spec.
async fn wait_for_milestone(stage: &TestNamespace, (phase, ready): Milestone) -> Result<()> {
    let one = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let changes = watcher(stage.miniclusters(), one).applied_objects();
    let mut last = None;
    let found = first_match(changes, |minicluster| {
        last = minicluster.status;
        let status = last.as_ref()?;
        let newest = status.observed_generation == minicluster.metadata.generation;
        (newest && status.phase == phase && status.ready == ready).then_some(())
    });
    let outcome = found.await;
    outcome.with_context(|| format!("it never was {phase} with {ready}; it was {last:?}"))
}
