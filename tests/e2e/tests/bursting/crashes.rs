//! The controller is killed after every write: the next one goes on, the end is the same, and there
//! was one burst.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use flux_operator_api::Burst;
use flux_operator_burst_controller::connect_to_target;
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::proxy::{Fault, Proxy};
use futures::TryStreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::steps::{
    expect_released, other_cluster, output, start_primary, submit, wait_for_no_bursts,
    wait_until_nothing_is_left, with_target,
};

/// Starts controllers, each of which is killed after its first write that the API server accepts.
pub async fn crash_after_every_write(home: &TestNamespace, count: &AtomicUsize) -> Result<()> {
    let (config, token) = home.burst_account().await?;
    loop {
        let proxy = Proxy::start(Client::try_from(config.clone())?).await?;
        proxy.inject(Fault::CutAfterChange);
        let controller = home.start_burst_controller_with(proxy.client()?, token.clone()).await?;
        proxy.wait_until_cut().await;
        drop(controller);
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same for writes at the target, whose API server is behind the proxy.
pub async fn crash_after_every_write_at_target(
    home: &TestNamespace,
    away: &TestNamespace,
    count: &AtomicUsize,
) -> Result<()> {
    let target = connect_to_target(&away.target_kubeconfig().await?.to_string()).await?.client;
    let proxy = Proxy::start(target).await?;
    home.set_target_secret("away", &proxy.kubeconfig(&away.namespace)).await?;
    loop {
        proxy.inject(Fault::CutAfterChange);
        let controller = home.start_burst_controller().await?;
        proxy.wait_until_cut().await;
        drop(controller);
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Collects the names of all Bursts that ever exist.
async fn collect_names(home: &TestNamespace, names: Arc<Mutex<BTreeSet<String>>>) -> Result<()> {
    let bursts = watcher(home.api::<Burst>(), watcher::Config::default()).applied_objects();
    let collect = bursts.try_for_each(async |burst| {
        names.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(burst.name_any());
        Ok(())
    });
    Ok(collect.await?)
}

/// A job that needs a burst, and the burst given back, while controllers are killed.
pub async fn live_through(
    home: &TestNamespace,
    away: &TestNamespace,
    crashes: impl Future<Output = Result<()>>,
) -> Result<()> {
    let names = Arc::new(Mutex::new(BTreeSet::new()));
    let life = async {
        let job = submit(home, "primary", "-N4 --setattr=burstable hostname").await?;
        let hosts = output(home, "primary", &job).await?;
        ensure!(hosts.len() == 4, "the job has printed {hosts:?}");
        wait_for_no_bursts(home).await?;
        wait_until_nothing_is_left(away).await?;
        expect_released(home, "primary").await
    };
    tokio::select! {
        ended = crashes => ended?,
        ended = collect_names(home, Arc::clone(&names)) => ended?,
        ended = life => ended?,
    }
    let names = names.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    ensure!(names.len() == 1, "there were the Bursts {names:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b22_a_controller_that_is_killed_after_every_write_reaches_the_same_end() -> Result<()> {
    with_target(async |home, away| {
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        start_primary(home, "primary").await?;
        let count = AtomicUsize::new(0);
        live_through(home, away, crash_after_every_write(home, &count)).await?;
        let count = count.into_inner();
        ensure!(count >= 10, "only {count} controllers were killed");
        Ok(())
    })
    .await
}

/// Secret, ConfigMap and Job are created and deleted there.
#[tokio::test(flavor = "multi_thread")]
async fn b22_a_controller_that_is_killed_after_every_write_at_the_target_reaches_the_same_end()
-> Result<()> {
    with_target(async |home, away| {
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        start_primary(home, "primary").await?;
        let count = AtomicUsize::new(0);
        let crashes = crash_after_every_write_at_target(home, away, &count);
        live_through(home, away, crashes).await?;
        let count = count.into_inner();
        ensure!(count >= 6, "only {count} controllers were killed");
        Ok(())
    })
    .await
}
