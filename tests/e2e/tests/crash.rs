//! The operator crashes after any of its writes, before it receives the response, and another one
//! takes over: the final state is the same as without the crash, nothing was created twice or left
//! behind, and the operator becomes idle.
//!
//! A crash before a write is equivalent to a crash after the previous write, so only the latter is
//! tested.

use anyhow::{Context, Result, bail, ensure};
use flux_operator_testkit::cluster::{PATIENCE, first};
use flux_operator_tests_e2e::proxy::{Proxy, Trouble};
use flux_operator_tests_e2e::{Stage, on_empty_stage};
use futures::future::join_all;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

mod picture;

use picture::{Census, difference, picture};

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
    end: End,
}

/// A phase, and the number of online brokers of the requested ones.
type Milestone = (&'static str, &'static str);

enum End {
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
    survives(Scenario { spec, then: None, end: End::At(("Ready", "2/2")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_well_and_ran_once() -> Result<()> {
    let spec = json!({ "containers": [{ "command": "echo ran" }] });
    survives(Scenario { spec, then: None, end: End::At(("Succeeded", "0/1")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_fails_and_ran_once() -> Result<()> {
    let spec = json!({ "containers": [{ "command": "sh -c 'echo ran; exit 7'" }] });
    survives(Scenario { spec, then: None, end: End::At(("Failed", "0/1")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_grows() -> Result<()> {
    let spec = json!({ "size": 1, "maxSize": 2, "interactive": true });
    let then = Some((("Ready", "1/1"), json!({ "size": 2 })));
    survives(Scenario { spec, then, end: End::At(("Ready", "2/2")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_shrinks() -> Result<()> {
    let spec = json!({ "size": 2, "interactive": true });
    let then = Some((("Ready", "2/2"), json!({ "size": 1 })));
    survives(Scenario { spec, then, end: End::At(("Ready", "1/1")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_suspended() -> Result<()> {
    let spec = json!({ "interactive": true });
    let then = Some((("Ready", "1/1"), json!({ "suspend": true })));
    survives(Scenario { spec, then, end: End::At(("Suspended", "0/1")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_resumed() -> Result<()> {
    let spec = json!({ "interactive": true, "suspend": true });
    let then = Some((("Suspended", "0/1"), json!({ "suspend": false })));
    survives(Scenario { spec, then, end: End::At(("Ready", "1/1")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_has_not_started_is_replaced_once() -> Result<()> {
    let spec = json!({ "interactive": true, "suspend": true });
    let then = Some((("Suspended", "0/1"), json!({ "tasks": 2 })));
    survives(Scenario { spec, then, end: End::At(("Suspended", "0/1")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_deleted_while_nobody_looks() -> Result<()> {
    let spec = json!({ "interactive": true });
    survives(Scenario { spec, then: None, end: End::Deleted(("Ready", "1/1")) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_has_ended_is_cleaned_up() -> Result<()> {
    let spec = json!({ "containers": [{ "command": "true" }] });
    let then = Some((("Succeeded", "0/1"), json!({ "cleanup": true })));
    survives(Scenario { spec, then, end: End::CleanedUp }).await
}

/// Runs the scenario without faults, and then with a crash of the operator after each write.
async fn survives(scenario: Scenario) -> Result<()> {
    let peaceful = run(&scenario, Trouble::None, None).await?;
    ensure!(peaceful.writes > 0, "the operator has written nothing");
    let troubles = (1..=peaceful.writes).map(Trouble::CutAfter).chain([Trouble::Lossy]);
    let runs = join_all(troubles.map(async |trouble| {
        let outcome = run(&scenario, trouble.clone(), Some(&peaceful.picture)).await;
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
    ensure!(2 * crashes > peaceful.writes, "{crashes} crashes at {} writes", peaceful.writes);
    Ok(())
}

/// The result of a run.
struct Run {
    picture: Value,
    writes: usize,
    crashed: bool,
}

/// Runs the scenario until the state is as `expected`, or, if that is not known yet, to its end.
async fn run(scenario: &Scenario, trouble: Trouble, expected: Option<&Value>) -> Result<Run> {
    let _permit = AT_ONCE.acquire().await?;
    on_empty_stage(async |stage| {
        let census = Census::start(stage, NAME);
        let mut proxy = Proxy::start(stage.client.clone()).await?;
        stage.start_operator_through(proxy.client()?).await?;
        if scenario.then.is_none() {
            proxy.trouble(trouble.clone());
        }
        stage.create(NAME, scenario.spec.clone()).await?;
        if let Some((milestone, change)) = &scenario.then {
            reaches(stage, *milestone).await?;
            proxy.silence().await?;
            proxy.trouble(trouble);
            let patch = Patch::Merge(json!({ "spec": change }));
            stage.miniclusters().patch(NAME, &PatchParams::default(), &patch).await?;
        }
        let mut crashed = false;
        let picture = loop {
            tokio::select! {
                biased;
                () = proxy.is_cut() => {
                    stage.stop_operator();
                    crashed = true;
                    if matches!(scenario.end, End::Deleted(_)) {
                        delete(stage).await?;
                    }
                    proxy = Proxy::start(stage.client.clone()).await?;
                    stage.start_operator_through(proxy.client()?).await?;
                }
                picture = ends(scenario, stage, &proxy, &census, expected, crashed) => {
                    break picture?;
                }
            }
        };
        Ok(Run { picture, writes: proxy.writes(), crashed })
    })
    .await
}

/// Waits until the scenario has reached its end and the operator is idle.
async fn ends(
    scenario: &Scenario,
    stage: &Stage,
    proxy: &Proxy,
    census: &Census,
    expected: Option<&Value>,
    crashed: bool,
) -> Result<Value> {
    proxy.is_watched().await?;
    let gone = picture::nothing();
    let expected = match scenario.end {
        End::At(milestone) => {
            reaches(stage, milestone).await?;
            expected
        }
        End::CleanedUp => Some(&gone),
        End::Deleted(milestone) => {
            if !crashed {
                reaches(stage, milestone).await?;
                proxy.silence().await?;
                delete(stage).await?;
            }
            Some(&gone)
        }
    };
    let since = std::time::Instant::now();
    loop {
        proxy.silence().await?;
        let seen = picture(stage, NAME, census).await?;
        match (seen, expected) {
            (Some(seen), None) => return Ok(seen),
            (Some(seen), Some(expected)) if seen == *expected => return Ok(seen),
            // Kubernetes may still be working while the operator is idle.
            (_, _) if since.elapsed() < PATIENCE => {}
            (None, _) => bail!("the Job and its pods never settled"),
            (Some(seen), expected) => {
                let difference = difference(expected.unwrap_or(&Value::Null), &seen);
                bail!("the final state differs:\n{difference}after {:#?}", proxy.requests());
            }
        }
    }
}

/// Deletes the MiniCluster, unless it is already deleted.
async fn delete(stage: &Stage) -> Result<()> {
    match stage.miniclusters().delete(NAME, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => Ok(outcome.map(drop)?),
    }
}

/// Waits until the cluster is in a phase with this many online brokers, for its newest spec.
async fn reaches(stage: &Stage, (phase, ready): Milestone) -> Result<()> {
    let one = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let changes = watcher(stage.miniclusters(), one).applied_objects();
    let mut last = None;
    let found = first(changes, |minicluster| {
        last = minicluster.status;
        let status = last.as_ref()?;
        let newest = status.observed_generation == minicluster.metadata.generation;
        (newest && status.phase == phase && status.ready == ready).then_some(())
    });
    let outcome = found.await;
    outcome.with_context(|| format!("it never was {phase} with {ready}; it was {last:?}"))
}
