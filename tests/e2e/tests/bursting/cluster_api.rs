//! Cluster API makes a cluster for a Burst, and deletes it. Its core manager is the real one; the test plays
//! the provider. The second testbed plays the cluster that is made.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flux_operator_api::Burst;
use flux_operator_install::BurstClusters;
use flux_operator_testkit::cluster::with_timeout;
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::cluster_api::{
    CLASS, Provider, WORKERS, create_class, install_provider, start_core,
};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::crashes::{crash_after_every_write, live_through};
use super::steps::{start_primary, wait_for_condition, wait_until_nothing_is_left, with_target};

const ALLOWED: BurstClusters = BurstClusters { cluster_api: true, commands: false };

const VERSION: &str = "v1.34.0";

/// A target of the ClusterClass, in a zone.
fn target(zone: &str, namespace: &str) -> Value {
    json!({ "name": "made", "maxNodes": 4, "startupSeconds": 10, "clusterAPI": {
        "class": { "name": CLASS, "workers": WORKERS }, "version": VERSION,
        "variables": { "zone": zone }, "namespace": namespace,
    } })
}

/// Waits until Cluster API, the provider and Kubernetes have deleted everything.
async fn wait_until_deleted(provider: &Provider<'_>) -> Result<()> {
    let mut left = Vec::new();
    let deleted = async {
        loop {
            left = provider.leftovers().await?;
            if left.is_empty() {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let outcome = with_timeout(deleted).await;
    outcome.and_then(|it| it).with_context(|| format!("{left:?} are left"))
}

/// What Cluster API's webhook refuses is shown, and is not taken for a missing right.
async fn expect_refusal(home: &TestNamespace, away: &TestNamespace) -> Result<()> {
    let spec = json!({ "cluster": "primary", "nodes": 1, "target": target("c", &away.namespace) });
    home.create_burst("refused", spec).await?;
    let controller = home.start_burst_controller().await?;
    let burst = wait_for_condition(home, "refused", "Prepared", "False", "ClusterRefused").await?;
    let conditions = burst.status.unwrap_or_default().conditions;
    let prepared = conditions.iter().find(|it| it.type_ == "Prepared").context("Prepared")?;
    ensure!(prepared.message.contains("zone"), "{}", prepared.message);
    home.api::<Burst>().delete("refused", &DeleteParams::default()).await?;
    home.wait_until_deleted::<Burst>("refused").await?;
    drop(controller);
    Ok(())
}

/// The whole way, while the burst controller is killed after every write. The provider fails if Cluster
/// API's order is not kept when the cluster is deleted.
async fn live(home: &TestNamespace, away: &TestNamespace, provider: &Provider<'_>) -> Result<()> {
    let count = AtomicUsize::new(0);
    live_through(home, away, crash_after_every_write(home, &count)).await?;
    wait_until_nothing_is_left(home).await?;
    wait_until_deleted(provider).await?;
    let made = provider.provisioned();
    ensure!(made.zones == BTreeSet::from(["a".to_owned()]), "{made:?}");
    ensure!(made.versions == BTreeSet::from([VERSION.to_owned()]), "{made:?}");
    ensure!(made.machines.len() == 2, "{made:?}");
    let count = count.into_inner();
    ensure!(count >= 11, "only {count} controllers were killed");
    Ok(())
}

/// One test, because one manager can run at a time.
#[tokio::test(flavor = "multi_thread")]
async fn b26_cluster_api_makes_a_cluster_and_deletes_it() -> Result<()> {
    with_target(async |home, away| {
        home.burst_clusters = ALLOWED;
        install_provider(home).await?;
        let mut manager = start_core(home).await?;
        create_class(home).await?;
        // As the kubeconfig that Cluster API's providers write, it is that of an administrator.
        let kubeconfig = std::fs::read_to_string(away.testbed.kubeconfig())?;
        let provider = Provider::new(home, kubeconfig);
        let test = async {
            let targets = json!({ "targets": [target("a", &away.namespace)] });
            home.create_policy("burst", targets).await?;
            start_primary(home, "primary").await?;
            expect_refusal(home, away).await?;
            live(home, away, &provider).await
        };
        tokio::select! {
            ended = provider.run() => ended?,
            ended = manager.failed() => ended?,
            ended = test => ended?,
        }
        manager.stop(home).await
    })
    .await
}
