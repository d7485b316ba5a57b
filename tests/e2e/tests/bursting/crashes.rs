//! The controller is killed after every write: the next one goes on, the end is the same, and there
//! was one burst.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use flux_operator_api::Burst;
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::proxy::{Fault, Proxy};
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use futures::TryStreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::steps::{
    expect_released, other_cluster, output, start_primary, submit, wait_for_no_bursts,
    wait_until_nothing_is_left,
};

/// Starts controllers, each of which is killed after its first write that the API server accepts.
async fn crash_after_every_write(home: &TestNamespace, count: &Mutex<usize>) -> Result<()> {
    let (config, token) = home.burst_account().await?;
    loop {
        let proxy = Proxy::start(Client::try_from(config.clone())?).await?;
        proxy.inject(Fault::CutAfterChange);
        let controller = home.start_burst_controller_with(proxy.client()?, token.clone()).await?;
        proxy.wait_until_cut().await;
        drop(controller);
        *count.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) += 1;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_every_write_reaches_the_same_end() -> Result<()> {
    with_two_clusters(async |home, away| {
        away.stop_operator();
        home.start_gateway().await?;
        home.start_operator().await?;
        home.create_target_secret("away", away).await?;
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        start_primary(home, "primary").await?;
        let (count, names) = (Mutex::new(0), Arc::new(Mutex::new(BTreeSet::new())));
        let life = async {
            let job = submit(home, "primary", "-N4 --setattr=burstable hostname").await?;
            let hosts = output(home, "primary", &job).await?;
            ensure!(hosts.len() == 4, "the job has printed {hosts:?}");
            wait_for_no_bursts(home).await?;
            wait_until_nothing_is_left(away).await?;
            expect_released(home, "primary").await
        };
        tokio::select! {
            ended = crash_after_every_write(home, &count) => ended?,
            ended = collect_names(home, Arc::clone(&names)) => ended?,
            ended = life => ended?,
        }
        let names = names.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        ensure!(names.len() == 1, "there were the Bursts {names:?}");
        let count = *count.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        ensure!(count >= 10, "only {count} controllers were killed");
        Ok(())
    })
    .await
}
