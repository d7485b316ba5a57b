//! The operator crashes after any of its writes while a joiner joins, grows, shrinks, leaves, or
//! loses its lender, and another one takes over: the end is the same as without the crash, no Job
//! was created twice, and nothing is left behind.

use anyhow::{Context, Result, bail, ensure};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::{TIMEOUT, first_match};
use flux_operator_tests_e2e::object_counter::ObjectCounter;
use flux_operator_tests_e2e::proxy::{Fault, Proxy};
use flux_operator_tests_e2e::{TestNamespace, condition, without_operator};
use futures::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// The number of concurrent runs. They mostly wait, for pods that start and terminate.
static AT_ONCE: Semaphore = Semaphore::const_new(12);

const LENDER: &str = "lender";
const JOINER: &str = "joiner";

/// What happens while the operator crashes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Join,
    Grow,
    Shrink,
    Leave,
    LenderDeleted,
    LenderRestarted,
}

/// The state in the end.
#[derive(Debug, PartialEq)]
struct EndState {
    /// Ranks and state of each lease.
    leases: Vec<String>,
    /// The reason of the joiner's condition `Joined`, if it exists.
    joined: Option<String>,
    /// The number of pods of the joiner.
    pods: usize,
    /// Kind and name of every object of the joiner.
    objects: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joiner_joins() -> Result<()> {
    assert_survives_crashes(Change::Join).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joiner_grows() -> Result<()> {
    assert_survives_crashes(Change::Grow).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joiner_shrinks() -> Result<()> {
    assert_survives_crashes(Change::Shrink).await
}

#[tokio::test(flavor = "multi_thread")]
async fn b31_a_joiner_leaves_and_nothing_is_left() -> Result<()> {
    assert_survives_crashes(Change::Leave).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joiner_loses_its_lender() -> Result<()> {
    assert_survives_crashes(Change::LenderDeleted).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lead_of_the_lender_is_restarted() -> Result<()> {
    assert_survives_crashes(Change::LenderRestarted).await
}

/// Makes the change without faults, and then with a crash of the operator after each write.
async fn assert_survives_crashes(change: Change) -> Result<()> {
    let (expected, writes, _) = run(change, Fault::None, None).await?;
    ensure!(writes > 0, "the operator has written nothing");
    let runs = join_all((1..=writes).map(async |write| {
        let outcome = run(change, Fault::CutAfter(write), Some(&expected)).await;
        (write, outcome)
    }))
    .await;
    let mut crashes = 0;
    let mut failures = Vec::new();
    for (write, outcome) in runs {
        match outcome {
            Ok((_, _, crashed)) => crashes += usize::from(crashed),
            Err(error) => failures.push(format!("after write {write}: {error:#}")),
        }
    }
    ensure!(failures.is_empty(), "{change:?}:\n{}", failures.join("\n"));
    // Changes that coincide are written once, so a run may have fewer writes.
    ensure!(2 * crashes > writes, "{crashes} crashes at {writes} writes");
    Ok(())
}

/// Returns the end state, the number of writes, and whether the operator has crashed.
async fn run(
    change: Change,
    fault: Fault,
    expected: Option<&EndState>,
) -> Result<(EndState, usize, bool)> {
    let _permit = AT_ONCE.acquire().await?;
    without_operator(async |stage| {
        let mut proxy = Proxy::start(stage.client.clone()).await?;
        stage.start_operator_with(proxy.client()?).await?;
        let counter = ObjectCounter::start(stage, JOINER);
        let bursting = json!({ "bursting": { "spareRanks": 2 } });
        stage.create(LENDER, json!({ "interactive": true, "flux": bursting })).await?;
        stage.wait_for_status(LENDER, ConditionType::Ready, "True").await?;
        if change != Change::Join {
            let size = if change == Change::Shrink { 2 } else { 1 };
            stage.create(JOINER, joiner(size)).await?;
            wait_until_joined(stage, size).await?;
        }
        proxy.wait_until_idle().await?;
        proxy.inject(fault);
        make(stage, change).await?;
        let mut crashed = false;
        let end = loop {
            tokio::select! {
                biased;
                () = proxy.wait_until_cut() => {
                    stage.stop_operator();
                    crashed = true;
                    proxy = Proxy::start(stage.client.clone()).await?;
                    stage.start_operator_with(proxy.client()?).await?;
                }
                end = wait_for_end(stage, &proxy, change, expected) => break end?,
            }
        };
        let jobs = counter.counts().get("Job").copied().unwrap_or_default();
        ensure!(jobs <= 1, "{jobs} Jobs were created for the joiner");
        Ok((end, proxy.writes(), crashed))
    })
    .await
}

fn joiner(size: i32) -> Value {
    json!({ "size": size, "flux": { "join": { "name": LENDER } } })
}

async fn make(stage: &TestNamespace, change: Change) -> Result<()> {
    match change {
        Change::Join => stage.create(JOINER, joiner(1)).await.map(drop),
        Change::Grow => stage.patch(JOINER, json!({ "size": 2 })).await,
        Change::Shrink => stage.patch(JOINER, json!({ "size": 1 })).await,
        Change::Leave => stage.delete(JOINER).await,
        Change::LenderDeleted => stage.delete(LENDER).await,
        Change::LenderRestarted => {
            let lead = stage.pod(LENDER, 0).await?;
            stage.pod_api().delete(&lead.name_any(), &DeleteParams::default()).await?;
            // Kubernetes replaces it, also while no operator runs.
            let of_lender = watcher::Config::default().labels(&format!("job-name={LENDER}"));
            let pods = watcher(stage.pod_api(), of_lender).applied_objects();
            first_match(pods, |pod| (pod.uid() != lead.uid()).then_some(())).await
        }
    }
}

async fn wait_until_joined(stage: &TestNamespace, size: i32) -> Result<()> {
    let ready = format!("{size}/{size}");
    stage
        .wait_for_object(JOINER, |it: &MiniCluster| {
            let joined = condition(it, ConditionType::Joined);
            let is_joined = joined.is_some_and(|joined| joined.reason == "Joined");
            is_joined && it.status.as_ref().is_some_and(|status| status.ready == ready)
        })
        .await?;
    stage
        .wait_for_object(LENDER, |it: &MiniCluster| {
            it.status.as_ref().is_some_and(|it| it.joined == size && it.phase == "Ready")
        })
        .await?;
    Ok(())
}

/// Waits until the change is complete and the operator is idle.
async fn wait_for_end(
    stage: &TestNamespace,
    proxy: &Proxy,
    change: Change,
    expected: Option<&EndState>,
) -> Result<EndState> {
    proxy.wait_until_watched().await?;
    match change {
        Change::Join | Change::Shrink => wait_until_joined(stage, 1).await?,
        Change::Grow => wait_until_joined(stage, 2).await?,
        Change::LenderRestarted => {
            let restarted = wait_until_joined(stage, 1).await;
            restarted.context("it did not join the restarted lender")?;
        }
        Change::Leave => stage.wait_until_deleted::<MiniCluster>(JOINER).await?,
        Change::LenderDeleted => {
            stage.wait_for_reason(JOINER, ConditionType::Joined, "LenderMissing").await?;
        }
    }
    let since = std::time::Instant::now();
    loop {
        proxy.wait_until_idle().await?;
        let end = end_state(stage).await?;
        // Kubernetes may still be deleting pods, and the lender waits for them.
        match expected {
            None if is_settled(change, &end) => return Ok(end),
            Some(expected) if end == *expected => return Ok(end),
            _ if since.elapsed() < TIMEOUT => {}
            _ => bail!("the end differs: {end:#?}, expected {expected:#?}"),
        }
    }
}

fn is_settled(change: Change, end: &EndState) -> bool {
    let is_joined = end.joined.as_deref() == Some("Joined");
    match change {
        Change::Join | Change::Shrink | Change::LenderRestarted => {
            is_joined && end.leases == ["1 Active"] && end.pods == 1
        }
        Change::Grow => is_joined && end.leases == ["1-2 Active"] && end.pods == 2,
        Change::Leave => end.leases.is_empty() && end.objects.is_empty() && end.pods == 0,
        Change::LenderDeleted => end.pods == 0,
    }
}

async fn end_state(stage: &TestNamespace) -> Result<EndState> {
    let lender = stage.miniclusters().get_opt(LENDER).await?;
    let leases = lender.and_then(|it| it.status).map(|status| status.leases).unwrap_or_default();
    let leases = leases.into_iter().map(|it| format!("{} {:?}", it.ranks, it.state)).collect();
    let joiner = stage.miniclusters().get_opt(JOINER).await?;
    let joined = joiner.and_then(|it| Some(condition(&it, ConditionType::Joined)?.reason.clone()));
    let mut objects = stage.names::<Job>(JOINER).await?;
    objects.extend(stage.names::<ConfigMap>(JOINER).await?);
    objects.extend(stage.names::<Secret>(JOINER).await?);
    let pods = stage.pods(JOINER).await?.len();
    Ok(EndState { leases, joined, pods, objects })
}
