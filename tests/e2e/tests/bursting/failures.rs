//! What may go wrong at a target, and the condition that says so.

use anyhow::{Context, Result, ensure};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{Burst, BurstPolicy};
use flux_operator_plan::bursting::{BURST_LABEL, object_name, remote_secret_name};
use flux_operator_testkit::images::import_other_release_to;
use flux_operator_testkit::samples;
use flux_operator_tests_e2e::with_operator;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::steps::{
    FLUX, expect_released, give_back, has_condition, other_cluster, output, start_primary, status,
    submit, wait_for_burst, wait_for_condition, wait_for_no_bursts, wait_until_nothing_is_left,
    with_target,
};

/// Credentials that are missing, refused by name, unreachable, then right, then revoked, then right
/// again: each is a condition, and the Burst recovers without being created again.
#[tokio::test]
async fn b27_credentials_and_reachability_are_conditions() -> Result<()> {
    with_target(async |home, away| {
        home.delete_and_wait::<Secret>("away").await?;
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let spec = json!({ "cluster": "primary", "nodes": 1, "target": other_cluster() });
        let created = home.create_burst("b", spec).await?;
        let wait = async |kind: &str, is: &str, reason: &str| {
            wait_for_condition(home, "b", kind, is, reason).await
        };
        wait("CredentialsAccepted", "False", "CredentialsMissing").await?;

        let good = away.target_kubeconfig().await?;
        let set = async |kubeconfig: Value| home.set_target_secret("away", &kubeconfig).await;
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
        // Also when it is tried again.
        let found = home.wait_for_object("b", |it: &Burst| status(it).failures > 1).await?;
        ensure!(has_condition(&found, "Ready", "True", ""), "its brokers are fine: {found:?}");
        let renewed = away.target_kubeconfig().await?;
        set(renewed).await?;
        wait("CredentialsAccepted", "True", "").await?;
        ensure!(home.api::<Burst>().get("b").await?.uid() == created.uid());

        // The same token for another place.
        let mut elsewhere = away.target_kubeconfig().await?;
        elsewhere["contexts"][0]["context"]["namespace"] = json!("default");
        set(elsewhere).await?;
        wait("CredentialsAccepted", "False", "TargetChanged").await?;
        set(away.target_kubeconfig().await?).await?;
        wait("CredentialsAccepted", "True", "").await?;
        give_back(home, away, "b").await
    })
    .await
}

/// No nodes at the target: the condition says so. The policy is edited meanwhile, so that it would not
/// create such a Burst any more, which does not change this one, and then deleted, which gives it back.
#[tokio::test]
async fn a_target_without_nodes_and_a_policy_that_is_deleted() -> Result<()> {
    with_operator(async |home| {
        let target = json!({ "name": "here", "maxNodes": 2, "startupSeconds": 1, "cluster": {},
            "pods": { "nodeSelector": { "no-node": "has-this" } } });
        home.create_policy("burst", json!({ "targets": [target] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        submit(home, "primary", "-N4 --setattr=burstable hostname").await?;
        let name = wait_for_burst(home).await?.name_any();
        wait_for_condition(home, &name, "Joined", "False", "OutOfCapacity").await?;
        home.edit::<BurstPolicy>("burst", json!({ "spec": { "limits": { "nodes": 1 } } })).await?;
        let edited = home.api::<BurstPolicy>().get("burst").await?.metadata.generation;
        let is_applied = |it: &BurstPolicy| {
            it.status.as_ref().and_then(|status| status.observed_generation) >= edited
        };
        home.wait_for_object("burst", is_applied).await.context("the policy is never applied")?;
        let burst = home.api::<Burst>().get(&name).await?;
        ensure!(burst.spec.nodes == 2 && burst.metadata.deletion_timestamp.is_none());
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
    with_target(async |home, away| {
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let spec = json!({ "cluster": "primary", "nodes": 2, "target": other_cluster() });
        home.create_burst("b", spec).await?;
        wait_for_condition(home, "b", "Ready", "True", "").await?;
        let lead = home.pod("primary", 0).await?;
        home.pod_api().delete(&lead.name_any(), &DeleteParams::default()).await?;
        wait_for_condition(home, "b", "Joined", "False", "").await?;
        wait_for_condition(home, "b", "Ready", "True", "").await?;
        let job = submit(home, "primary", "-N4 hostname").await?;
        ensure!(output(home, "primary", &job).await?.len() == 4);
        home.delete("primary").await?;
        home.wait_until_deleted::<Burst>("b").await?;
        wait_until_nothing_is_left(away).await?;
        home.wait_until_deleted::<flux_operator_api::MiniCluster>("primary").await
    })
    .await
}

/// Brokers that have another key, or another release of Flux, than the lender: the condition says which.
#[tokio::test]
async fn b40_brokers_with_a_wrong_key_or_version_do_not_join() -> Result<()> {
    with_target(async |home, away| {
        samples::import_to(&home.testbed)?;
        let (own, other) = (samples::IMAGE, import_other_release_to(&away.testbed)?);
        samples::import_to(&away.testbed)?;
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let _controller = home.start_burst_controller().await?;
        let spec = json!({ "size": 2, "interactive": true, "containers": [{ "image": own }],
            "flux": { "container": { "disable": true },
                "bursting": { "expose": { "type": "NodePort" } } } });
        home.create("primary", spec).await?;
        home.wait_for_status("primary", ConditionType::Ready, "True").await?;

        let mut target = other_cluster();
        target["pods"] = json!({ "image": other });
        let spec = json!({ "cluster": "primary", "nodes": 1, "target": target });
        home.create_burst("version", spec).await?;
        let refused =
            wait_for_condition(home, "version", "Joined", "False", "VersionMismatch").await?;
        ensure!(format!("{refused:?}").contains("0.70.0"), "{refused:?}");
        give_back(home, away, "version").await?;

        let spec = json!({ "cluster": "primary", "nodes": 1, "target": other_cluster() });
        let burst = home.create_burst("key", spec).await?;
        wait_for_condition(home, "key", "Ready", "True", "").await?;
        let secret = remote_secret_name(&object_name(&burst));
        let key = json!({ "stringData": { "invitation.key": "0".repeat(64) } });
        let parameters = PatchParams::default();
        away.api::<Secret>().patch(&secret, &parameters, &Patch::Merge(key)).await?;
        let pods = ListParams::default().labels(&format!("{BURST_LABEL}={}", object_name(&burst)));
        let at_once = DeleteParams::default().grace_period(0);
        away.pod_api().delete_collection(&at_once, &pods).await?;
        wait_for_condition(home, "key", "Joined", "False", "WrongKey").await?;
        give_back(home, away, "key").await
    })
    .await
}

/// The lifetime of a burst is over while a job runs on it: no other job starts there, and this one is
/// lost after the grace period.
#[tokio::test]
async fn b34_a_burst_ends_with_its_lifetime_although_a_job_runs() -> Result<()> {
    with_target(async |home, away| {
        home.create_policy("burst", json!({ "targets": [other_cluster()] })).await?;
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let spec = json!({ "cluster": "primary", "nodes": 1, "target": other_cluster(),
            "lifetimeSeconds": 60, "graceSeconds": 3 });
        home.create_burst("b", spec).await?;
        wait_for_condition(home, "b", "Ready", "True", "").await?;
        let job = submit(home, "primary", "-N3 sleep inf").await?;
        home.wait_for_object("b", |it: &Burst| status(it).jobs == 1).await?;
        wait_for_condition(home, "b", "GivingBack", "True", "Draining").await?;
        home.wait_until_deleted::<Burst>("b").await?;
        wait_until_nothing_is_left(away).await?;
        expect_released(home, "primary").await?;
        let lost = format!(
            "{FLUX} job wait-event -t 60 {job} clean >/dev/null; {FLUX} jobs -no {{state}} {job}"
        );
        let state = home.exec("primary", 0, &lost).await?;
        ensure!(state.trim() == "INACTIVE", "the job is {state}");
        Ok(())
    })
    .await
}
