//! Operators crash, each after its first write, while a joiner joins, grows, shrinks, leaves or loses
//! its lender, or its lender is resized or restarted. The next operator takes over: the end is the
//! same as without a crash, no Job was created twice, and nothing is left behind.

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
    LenderGrows,
    /// A joiner waits for the rank that the lender gives up.
    LenderShrinks,
}

/// When operators crash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crash {
    Never,
    /// The first one after this write, and no other one.
    AfterWrite(usize),
    /// Each one after the first write that changes something.
    AfterEveryWrite,
}

/// The largest number of crashes in one run. A change takes some 20 writes, and each is made only
/// once, however often the operator is restarted.
const MAX_CRASHES: usize = 60;

/// The state in the end.
#[derive(Debug, PartialEq)]
struct EndState {
    /// How many brokers of the lender are ready, if it exists.
    ready: Option<String>,
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

#[tokio::test(flavor = "multi_thread")]
async fn the_lender_grows() -> Result<()> {
    assert_survives_crashes(Change::LenderGrows).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lender_shrinks_and_a_joiner_gets_its_rank() -> Result<()> {
    assert_survives_crashes(Change::LenderShrinks).await
}

/// The changes with which the operator also crashes only once, after each write in turn, and the next
/// one runs undisturbed: that takes one run for each write.
const WITH_SINGLE_CRASHES: [Change; 2] = [Change::Join, Change::Leave];

/// Makes the change without faults, and then with operators that crash.
async fn assert_survives_crashes(change: Change) -> Result<()> {
    let Run { end, writes, .. } = run(change, Crash::Never, None).await?;
    ensure!(writes > 0, "the operator has written nothing");
    let single = WITH_SINGLE_CRASHES.contains(&change).then_some(1..=writes);
    let single = single.into_iter().flatten().map(Crash::AfterWrite);
    let crashes = single.chain([Crash::AfterEveryWrite]);
    let runs = join_all(crashes.map(async |crash| (crash, run(change, crash, Some(&end)).await)));
    let (mut single, mut failures) = (Vec::new(), Vec::new());
    for (crash, outcome) in runs.await {
        match (crash, outcome) {
            (Crash::AfterEveryWrite, Ok(run)) if run.crashes < 2 => {
                failures.push(format!("{crash:?}: only {} operators crashed", run.crashes));
            }
            (Crash::AfterEveryWrite, Ok(_)) => {}
            (_, Ok(run)) => single.push(run.crashes),
            (crash, Err(error)) => failures.push(format!("{crash:?}: {error:#}")),
        }
    }
    ensure!(failures.is_empty(), "{change:?}:\n{}", failures.join("\n"));
    // Changes that coincide are written once, so a run may have fewer writes.
    let crashed: usize = single.iter().sum();
    ensure!(2 * crashed >= single.len(), "{crashed} crashes at {writes} writes");
    Ok(())
}

/// What one run has shown.
struct Run {
    end: EndState,
    /// The number of writes of the last operator.
    writes: usize,
    crashes: usize,
}

async fn run(change: Change, crash: Crash, expected: Option<&EndState>) -> Result<Run> {
    let _permit = AT_ONCE.acquire().await?;
    without_operator(async |stage| {
        let mut proxy = Proxy::start(stage.client.clone()).await?;
        stage.start_operator_with(proxy.client()?).await?;
        let counter = ObjectCounter::start(stage, JOINER);
        prepare(stage, change).await?;
        proxy.wait_until_idle().await?;
        proxy.inject(match crash {
            Crash::Never => Fault::None,
            Crash::AfterWrite(write) => Fault::CutAfter(write),
            Crash::AfterEveryWrite => Fault::CutAfterChange,
        });
        make(stage, change).await?;
        let mut crashes = 0;
        let end = loop {
            tokio::select! {
                biased;
                () = proxy.wait_until_cut() => {
                    stage.stop_operator();
                    crashes += 1;
                    ensure!(crashes <= MAX_CRASHES, "they never finish: {:?}", proxy.requests());
                    proxy = Proxy::start(stage.client.clone()).await?;
                    if crash == Crash::AfterEveryWrite {
                        proxy.inject(Fault::CutAfterChange);
                    }
                    stage.start_operator_with(proxy.client()?).await?;
                }
                end = wait_for_end(stage, &proxy, change, expected) => break end?,
            }
        };
        let jobs = counter.counts().get("Job").copied().unwrap_or_default();
        ensure!(jobs <= 1, "{jobs} Jobs were created for the joiner");
        Ok(Run { end, writes: proxy.writes(), crashes })
    })
    .await
}

/// The state before the change: a lender with two spare ranks, and usually a joiner.
async fn prepare(stage: &TestNamespace, change: Change) -> Result<()> {
    let bursting = json!({ "bursting": { "spareRanks": 2 } });
    let mut lender = json!({ "interactive": true, "flux": bursting });
    match change {
        Change::LenderGrows => lender["maxSize"] = 2.into(),
        Change::LenderShrinks => lender["size"] = 2.into(),
        _ => {}
    }
    stage.create(LENDER, lender).await?;
    stage.wait_for_status(LENDER, ConditionType::Ready, "True").await?;
    match change {
        Change::Join => {}
        Change::LenderShrinks => {
            let join = json!({ "name": LENDER, "ranks": "1" });
            stage.create(JOINER, json!({ "size": 1, "flux": { "join": join } })).await?;
            stage.wait_for_reason(JOINER, ConditionType::Joined, "NoFreeRanks").await?;
        }
        _ => {
            let size = if change == Change::Shrink { 2 } else { 1 };
            stage.create(JOINER, joiner(size)).await?;
            wait_until_joined(stage, size).await?;
        }
    }
    Ok(())
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
        Change::LenderGrows => stage.patch(LENDER, json!({ "size": 2 })).await,
        Change::LenderShrinks => stage.patch(LENDER, json!({ "size": 1 })).await,
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
        Change::Join | Change::Shrink | Change::LenderGrows | Change::LenderShrinks => {
            wait_until_joined(stage, 1).await?;
        }
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
        Change::LenderGrows => {
            is_joined && end.leases == ["2 Active"] && end.ready.as_deref() == Some("2/2")
        }
        Change::LenderShrinks => {
            is_joined && end.leases == ["1 Active"] && end.ready.as_deref() == Some("1/1")
        }
        Change::Leave => end.leases.is_empty() && end.objects.is_empty() && end.pods == 0,
        Change::LenderDeleted => {
            end.pods == 0 && !end.objects.iter().any(|it| it.starts_with("Job"))
        }
    }
}

async fn end_state(stage: &TestNamespace) -> Result<EndState> {
    let lender = stage.miniclusters().get_opt(LENDER).await?;
    let status = lender.and_then(|it| it.status);
    let ready = status.as_ref().map(|status| status.ready.clone());
    let leases = status.map(|status| status.leases).unwrap_or_default();
    let leases = leases.into_iter().map(|it| format!("{} {:?}", it.ranks, it.state)).collect();
    let joiner = stage.miniclusters().get_opt(JOINER).await?;
    let joined = joiner.and_then(|it| Some(condition(&it, ConditionType::Joined)?.reason.clone()));
    let mut objects = stage.names::<Job>(JOINER).await?;
    objects.extend(stage.names::<ConfigMap>(JOINER).await?);
    objects.extend(stage.names::<Secret>(JOINER).await?);
    let pods = stage.pods(JOINER).await?.len();
    Ok(EndState { ready, leases, joined, pods, objects })
}
