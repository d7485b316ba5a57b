//! Where the keys of an invitation must not appear.

use anyhow::{Context, Result, ensure};
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::objects::NamespacedKind;
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{ListParams, LogParams};
use serde::Serialize;

use super::joiner::{JOINER, file, invite, set_invitations, start_lender, wait_until_joined};

/// In no object, log or metric of either cluster, except in Secrets; also not after a revocation.
#[tokio::test]
async fn the_keys_of_an_invitation_are_only_in_secrets() -> Result<()> {
    with_two_clusters(async |home, away| {
        start_lender(home, "lender").await?;
        invite(home, away, "lender", "cloud", 1).await?;
        wait_until_joined(away).await?;
        let secret = file(home, "lender", "cloud").await?.secret.data.context("no keys")?;
        let text = |key: &str| -> Result<String> {
            Ok(String::from_utf8(secret.get(key).context("a key is missing")?.0.clone())?)
        };
        let certificate = text("curve.cert")?;
        let line = certificate.lines().find(|line| line.contains("secret-key"));
        let certificate_key = line.and_then(|line| line.split('"').nth(1)).context("no key")?;
        let mut keys = vec![
            ("the certificate's key", certificate_key.to_owned()),
            ("the invitation's key", text("invitation.key")?),
        ];
        for (stage, cluster) in [(&*home, "lender"), (&*away, JOINER)] {
            let own = stage.keys(cluster).await?.and_then(|it| it.data).context("no keys")?;
            let report = own.get("report.key").context("no report key")?;
            keys.push(("a report key", String::from_utf8(report.0.clone())?));
        }
        set_invitations(home, "lender", &[]).await?;
        home.wait_for_event("Released").await?;
        let log = home.gateway_log().await?;
        ensure!(log.contains("cloud"), "the gateway's log says nothing of the invitation: {log}");
        let searched = everything(home).await?
            + &everything(away).await?
            + &home.gateway_metrics().await?
            + &log;
        for expected in ["flux_operator_gateway", "lender-external", "flux-operator-keys"] {
            ensure!(searched.contains(expected), "{expected} was not searched");
        }
        for (name, key) in &keys {
            ensure!(key.trim().len() >= 40, "{name} is too short to be searched for");
            ensure!(!searched.contains(key.trim()), "{name} was leaked");
        }
        Ok(())
    })
    .await
}

/// All objects of a namespace except Secrets, and the logs of its pods.
async fn everything(stage: &TestNamespace) -> Result<String> {
    let mut text = all::<ConfigMap>(stage).await?
        + &all::<Job>(stage).await?
        + &all::<Event>(stage).await?
        + &all::<Service>(stage).await?
        + &all::<EndpointSlice>(stage).await?
        + &all::<flux_operator_api::MiniCluster>(stage).await?
        + &all::<Pod>(stage).await?;
    for pod in stage.pod_api().list(&ListParams::default()).await? {
        let log = stage.pod_api().logs(&pod.name_any(), &LogParams::default()).await;
        // A pod that is being deleted may have none any more.
        text += &log.unwrap_or_default();
    }
    // What the operator has written about Secrets is only their metadata.
    for secret in stage.api::<Secret>().list_metadata(&ListParams::default()).await? {
        text += &serde_json::to_string(&secret.metadata)?;
    }
    Ok(text)
}

async fn all<K: NamespacedKind + Serialize>(stage: &TestNamespace) -> Result<String> {
    let objects = stage.api::<K>().list(&ListParams::default()).await?;
    Ok(serde_json::to_string(&objects.items)?)
}
