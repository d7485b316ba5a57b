//! What may go wrong at a target, and the condition that says so.

use anyhow::{Context, Result, ensure};
use flux_operator_api::{Burst, BurstPolicy};
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use flux_operator_tests_e2e::with_operator;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::steps::{
    expect_released, has_condition, other_cluster, output, start_primary, status, submit,
    wait_for_no_bursts, wait_until_nothing_is_left,
};

/// Credentials that are missing, refused by name, unreachable, then right, then revoked, then right
/// again: each is a condition, and the Burst recovers without being created again.
#[tokio::test]
async fn credentials_and_reachability_are_conditions() -> Result<()> {
    with_two_clusters(async |home, away| {
        away.stop_operator();
        home.start_gateway().await?;
        home.start_operator().await?;
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let spec = json!({ "cluster": "primary", "nodes": 1, "target": other_cluster() });
        let created = home.create_burst("b", spec).await?;
        let wait = async |kind: &str, is: &str, reason: &str| {
            let found = home.wait_for_object("b", |it: &Burst| has_condition(it, kind, is, reason));
            found.await.with_context(|| format!("{kind} is never {is} {reason}"))
        };
        wait("CredentialsAccepted", "False", "CredentialsMissing").await?;

        let good = away.target_kubeconfig().await?;
        let set = async |kubeconfig: serde_json::Value| {
            let secret = json!({ "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": "away" }, "stringData": { "kubeconfig": kubeconfig.to_string() } });
            let parameters = PatchParams::apply("test").force();
            home.api::<Secret>().patch("away", &parameters, &Patch::Apply(&secret)).await
        };
        let mut runs_programs = good.clone();
        runs_programs["users"][0]["user"] =
            json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": "sh" } });
        set(runs_programs).await?;
        let found = wait("CredentialsAccepted", "False", "KubeconfigRefused").await?;
        ensure!(status(&found).phase == "KubeconfigRefused", "{:?}", status(&found));

        let mut unreachable = good.clone();
        unreachable["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
        set(unreachable).await?;
        wait("TargetReady", "False", "TargetUnreachable").await?;

        set(good).await?;
        wait("Ready", "True", "").await?;

        // The account is deleted, and with it its token.
        let account = away.api::<ServiceAccount>();
        account.delete("flux-burst", &DeleteParams::default()).await?;
        let found = wait("CredentialsAccepted", "False", "CredentialsRefused").await?;
        ensure!(has_condition(&found, "Ready", "True", ""), "its brokers are fine: {found:?}");
        let renewed = away.target_kubeconfig().await?;
        set(renewed).await?;
        wait("CredentialsAccepted", "True", "").await?;
        ensure!(home.api::<Burst>().get("b").await?.uid() == created.uid());

        home.api::<Burst>().delete("b", &DeleteParams::default()).await?;
        home.wait_until_deleted::<Burst>("b").await?;
        wait_until_nothing_is_left(away).await?;
        expect_released(home, "primary").await
    })
    .await
}

/// No nodes at the target: the condition says so. The policy is edited meanwhile, which does not change
/// the Burst, and then deleted, which gives it back.
#[tokio::test]
async fn a_target_without_nodes_and_a_policy_that_is_deleted() -> Result<()> {
    with_operator(async |home| {
        let target = json!({ "name": "here", "maxNodes": 2, "startupSeconds": 1, "cluster": {},
            "pods": { "nodeSelector": { "no-node": "has-this" } } });
        home.create_policy("burst", json!({ "targets": [target] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        submit(home, "primary", "-N3 --setattr=burstable hostname").await?;
        let is_there = |it: &BurstPolicy| it.status.as_ref().is_some_and(|it| it.bursts == 1);
        home.wait_for_object("burst", is_there).await?;
        let bursts = home.api::<Burst>().list(&ListParams::default()).await?;
        let name = bursts.iter().next().context("there is no Burst")?.name_any();
        let is_full = |it: &Burst| has_condition(it, "Joined", "False", "OutOfCapacity");
        home.wait_for_object(&name, is_full).await?;
        home.edit::<BurstPolicy>("burst", json!({ "spec": { "limits": { "nodes": 1 } } })).await?;
        let burst = home.api::<Burst>().get(&name).await?;
        ensure!(burst.spec.nodes == 1 && burst.metadata.deletion_timestamp.is_none());
        home.api::<BurstPolicy>().delete("burst", &DeleteParams::default()).await?;
        wait_for_no_bursts(home).await?;
        wait_until_nothing_is_left(home).await?;
        expect_released(home, "primary").await
    })
    .await
}

/// The lead is replaced while a burst is up, and the MiniCluster is deleted after that: what is
/// elsewhere is deleted first.
#[tokio::test]
async fn the_lead_moves_and_the_minicluster_is_deleted() -> Result<()> {
    with_two_clusters(async |home, away| {
        away.stop_operator();
        home.start_gateway().await?;
        home.start_operator().await?;
        home.create_target_secret("away", away).await?;
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let spec = json!({ "cluster": "primary", "nodes": 2, "target": other_cluster() });
        home.create_burst("b", spec).await?;
        let is_ready = |it: &Burst| has_condition(it, "Ready", "True", "");
        home.wait_for_object("b", is_ready).await?;
        let lead = home.pod("primary", 0).await?;
        home.pod_api().delete(&lead.name_any(), &DeleteParams::default()).await?;
        let is_lost = |it: &Burst| has_condition(it, "Joined", "False", "");
        home.wait_for_object("b", is_lost).await?;
        home.wait_for_object("b", is_ready).await?;
        let job = submit(home, "primary", "-N4 hostname").await?;
        ensure!(output(home, "primary", &job).await?.len() == 4);
        home.delete("primary").await?;
        home.wait_until_deleted::<Burst>("b").await?;
        wait_until_nothing_is_left(away).await?;
        home.wait_until_deleted::<flux_operator_api::MiniCluster>("primary").await
    })
    .await
}
