//! Connected MiniClusters: the brokers of one join the Flux instance of another.

use std::collections::BTreeSet;

use anyhow::Result;
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::first_match;
use flux_operator_tests_e2e::{TestNamespace, WAIT_FOR_FILE, index_of, with_operator};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

const FLUX: &str = ". /mnt/flux/flux-view.sh && flux proxy $fluxsocket flux";

/// The first manifest of seed 000.
fn first() -> Value {
    json!({ "size": 2, "interactive": true, "jobSelector": "connected-service" })
}

/// The second: it names the lead of the first.
fn second(boot_server: &str) -> Value {
    json!({ "size": 2, "interactive": true, "jobSelector": "connected-service",
        "flux": { "bootServer": boot_server, "bootServerSize": 2 } })
}

/// Runs `flux` in a pod, and returns its output.
async fn flux(stage: &TestNamespace, name: &str, words: &str) -> Result<String> {
    stage.exec(name, 0, &format!("{FLUX} {words}")).await
}

/// How many nodes are free, as seen from a pod of this cluster.
async fn free_nodes(stage: &TestNamespace, name: &str) -> Result<String> {
    let nodes = flux(stage, name, "resource list -s free -no {nnodes}").await?;
    Ok(nodes.trim().to_owned())
}

/// Four nodes are free from either side, and a job runs on all of them.
async fn assert_connected(stage: &TestNamespace, lender: &str, joiner: &str) -> Result<()> {
    stage.wait_for_reason(joiner, ConditionType::Joined, "Joined").await?;
    for name in [lender, joiner] {
        // The scheduler learns of a broker a moment after the broker is online.
        let job = flux(stage, name, "submit -N4 hostname").await?;
        let hosts = flux(stage, name, &format!("job attach {job}")).await?;
        let hosts: BTreeSet<&str> = hosts.lines().collect();
        assert_eq!(hosts.len(), 4, "{hosts:?}");
        flux(stage, name, &format!("job wait-event -t 60 {} clean", job.trim())).await?;
        assert_eq!(free_nodes(stage, name).await?, "4", "from {name}");
        // The way of the experiment.
        let proxy = ". /mnt/flux/flux-view.sh && flux proxy local:///run/flux/local";
        let size = stage.exec(name, 0, &format!("{proxy} flux getattr size")).await?;
        assert_eq!(size.trim(), "10", "with eight spare ranks");
    }
    Ok(())
}

/// Waits until a lender has no joined brokers and no leases.
async fn wait_until_alone(stage: &TestNamespace, lender: &str) -> Result<()> {
    stage
        .wait_for_object(lender, |it: &MiniCluster| {
            it.status.as_ref().is_some_and(|it| it.leases.is_empty() && it.joined == 0)
        })
        .await?;
    Ok(())
}

fn has(ready: &'static str, joined: i32) -> impl Fn(&MiniCluster) -> bool {
    move |it| it.status.as_ref().is_some_and(|it| it.ready == ready && it.joined == joined)
}

#[tokio::test]
async fn b13_the_seeds_manifests_are_one_instance() -> Result<()> {
    with_operator(async |stage| {
        stage.create("flux-sample-1", first()).await?;
        let server = format!("flux-sample-1-0.flux-service.{}.svc.cluster.local", stage.namespace);
        stage.create("flux-sample-2", second(&server)).await?;
        assert_connected(stage, "flux-sample-1", "flux-sample-2").await?;
        stage.wait_for_object("flux-sample-1", has("2/2", 2)).await?;
        stage.wait_for_object("flux-sample-2", has("2/2", 0)).await?;
        stage.delete("flux-sample-2").await?;
        wait_until_alone(stage, "flux-sample-1").await?;
        assert_eq!(free_nodes(stage, "flux-sample-1").await?, "2");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn b13_the_order_of_creation_does_not_matter() -> Result<()> {
    with_operator(async |stage| {
        stage.create("flux-sample-2", second("flux-sample-1-0")).await?;
        stage.wait_for_reason("flux-sample-2", ConditionType::Joined, "LenderMissing").await?;
        assert!(stage.pods("flux-sample-2").await?.is_empty(), "a waiting joiner has no pods");
        stage.create("flux-sample-1", first()).await?;
        assert_connected(stage, "flux-sample-1", "flux-sample-2").await
    })
    .await
}

/// Deleted in the other order: first the lender, then the joiner. Nothing is left.
#[tokio::test]
async fn a_lender_that_is_deleted_is_waited_for_and_joined_again() -> Result<()> {
    with_operator(async |stage| {
        stage.create("flux-sample-1", first()).await?;
        stage.create("flux-sample-2", second("flux-sample-1-0")).await?;
        assert_connected(stage, "flux-sample-1", "flux-sample-2").await?;
        stage.delete("flux-sample-1").await?;
        stage.wait_for_reason("flux-sample-2", ConditionType::Joined, "LenderMissing").await?;
        stage.wait_for_no_pods("flux-sample-2").await?;
        stage.wait_until_deleted::<MiniCluster>("flux-sample-1").await?;
        // Another cluster of the same name, with another certificate.
        stage.create("flux-sample-1", first()).await?;
        assert_connected(stage, "flux-sample-1", "flux-sample-2").await?;
        stage.delete("flux-sample-1").await?;
        stage.wait_for_reason("flux-sample-2", ConditionType::Joined, "LenderMissing").await?;
        stage.delete_and_wait::<MiniCluster>("flux-sample-2").await?;
        stage.wait_until_nothing_is_left("flux-sample-1").await?;
        stage.wait_until_nothing_is_left("flux-sample-2").await
    })
    .await
}

/// B35: ranks go down, and pods come back into the same ranks.
#[tokio::test]
async fn b35_killed_brokers_and_a_restarted_lead_are_joined_again() -> Result<()> {
    with_operator(async |stage| {
        stage.create("flux-sample-1", first()).await?;
        stage.create("flux-sample-2", second("flux-sample-1-0")).await?;
        assert_connected(stage, "flux-sample-1", "flux-sample-2").await?;
        let ranks = |it: &MiniCluster| it.status.as_ref().map(|it| it.ranks.clone());
        let before = ranks(&stage.miniclusters().get("flux-sample-2").await?);
        let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        for (cluster, index) in [("flux-sample-2", 1), ("flux-sample-1", 0)] {
            let pod = stage.pod(cluster, index).await?;
            stage.pod_api().delete(&pod.name_any(), &force).await?;
            let replaced =
                |it: &Pod| it.uid() != pod.uid() && index_of(it) == Some(index) && is_ready(it);
            let of_cluster = format!("job-name={cluster}");
            let pods = watcher(stage.pod_api(), watcher::Config::default().labels(&of_cluster));
            first_match(pods.applied_objects(), |it| replaced(&it).then_some(())).await?;
            stage.wait_for_object("flux-sample-1", has("2/2", 2)).await?;
            assert_connected(stage, "flux-sample-1", "flux-sample-2").await?;
        }
        assert_eq!(ranks(&stage.miniclusters().get("flux-sample-2").await?), before);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lender_that_finishes_ends_its_joiners() -> Result<()> {
    with_operator(async |stage| {
        let containers = json!([{ "command": WAIT_FOR_FILE }]);
        let bursting = json!({ "bursting": { "spareRanks": 1 } });
        stage.create("lender", json!({ "containers": containers, "flux": bursting })).await?;
        stage.create("joiner", json!({ "flux": { "join": { "name": "lender" } } })).await?;
        stage.wait_for_reason("joiner", ConditionType::Joined, "Joined").await?;
        stage.let_finish("lender").await?;
        stage.wait_until_finished("lender").await?;
        stage.wait_for_reason("joiner", ConditionType::Joined, "LenderFinished").await?;
        stage.wait_for_no_pods("joiner").await?;
        wait_until_alone(stage, "lender").await
    })
    .await
}

fn is_ready(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.is_some_and(|all| all.iter().all(|container| container.ready))
}
