//! Clusters that are made for a Burst and deleted with it, by a program; and who may have any made. The
//! second testbed plays the cluster that is made.

use std::sync::atomic::AtomicUsize;

use anyhow::{Context, Result, ensure};
use flux_operator_api::Burst;
use flux_operator_install::BurstClusters;
use flux_operator_testkit::images::import_kubectl_to;
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::access::apply;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::crashes::{crash_after_every_write, live_through};
use super::steps::{
    start_primary, submit, wait_for_burst, wait_for_condition, wait_for_no_bursts,
    wait_until_nothing_is_left, with_target,
};

const ALLOWED: BurstClusters = BurstClusters { cluster_api: true, commands: true };

/// What a user's program does, with a ConfigMap for the cluster that it makes.
const UP: &str = r#"
kubectl create configmap "made-$BURST_NAME" --from-literal=nodes="$BURST_NODES" \
  --dry-run=client -o yaml | kubectl apply -f -
kubectl create secret generic "$BURST_SECRET" --from-literal=kubeconfig="$PREPARED" \
  --dry-run=client -o yaml | kubectl label --local -f - "flux-framework.org/burst=$BURST_NAME" -o yaml \
  | kubectl apply -f -
"#;

const DOWN: &str = r#"
kubectl delete configmap "made-$BURST_NAME" --ignore-not-found
"#;

/// A target whose program runs these scripts.
async fn command_target(home: &TestNamespace, up: &str, down: &str) -> Result<Value> {
    let image = import_kubectl_to(&home.testbed)?;
    let namespace = &home.namespace;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "maker", "namespace": namespace } });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "maker", "namespace": namespace },
        "rules": [{ "apiGroups": [""], "resources": ["secrets", "configmaps"],
            "verbs": ["create", "get", "patch", "delete"] }] });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "maker", "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maker" },
        "subjects": [{ "kind": "ServiceAccount", "name": "maker", "namespace": namespace }] });
    apply(&home.client, &[account, role, binding]).await?;
    let prepared = json!({ "secretKeyRef": { "name": "away", "key": "kubeconfig" } });
    Ok(json!({ "name": "made", "maxNodes": 4, "startupSeconds": 10, "command": {
        "image": image, "serviceAccount": "maker",
        "up": ["sh", "-euc", up], "down": ["sh", "-euc", down],
        "env": [{ "name": "PREPARED", "valueFrom": prepared }],
    } }))
}

/// The clusters that programs have made and not deleted.
async fn made(home: &TestNamespace) -> Result<Vec<String>> {
    let maps = home.api::<ConfigMap>().list(&ListParams::default()).await?;
    Ok(maps.iter().map(ResourceExt::name_any).filter(|it| it.starts_with("made-")).collect())
}

/// A program makes the cluster; the controller is killed after every write.
#[tokio::test(flavor = "multi_thread")]
async fn b26_a_program_makes_a_cluster_and_deletes_it() -> Result<()> {
    with_target(async |home, away| {
        home.burst_clusters = ALLOWED;
        let target = command_target(home, UP, DOWN).await?;
        home.create_policy("burst", json!({ "targets": [target] })).await?;
        start_primary(home, "primary").await?;
        let count = AtomicUsize::new(0);
        live_through(home, away, crash_after_every_write(home, &count)).await?;
        wait_until_nothing_is_left(home).await?;
        ensure!(made(home).await?.is_empty(), "the program has deleted nothing");
        let count = count.into_inner();
        ensure!(count >= 12, "only {count} controllers were killed");
        Ok(())
    })
    .await
}

/// A program that fails after it has made something: the burst says so, and what was made is deleted.
#[tokio::test]
async fn b26_what_a_program_has_made_is_deleted_if_it_fails() -> Result<()> {
    with_target(async |home, _away| {
        home.burst_clusters = ALLOWED;
        let up = format!("{UP}\nkubectl delete secret \"$BURST_SECRET\"");
        let target = command_target(home, &up, DOWN).await?;
        home.create_policy("burst", json!({ "targets": [target] })).await?;
        start_primary(home, "primary").await?;
        submit(home, "primary", "-N4 --setattr=burstable hostname").await?;
        let refused = async {
            let burst = wait_for_burst(home).await?.name_any();
            wait_for_condition(home, &burst, "Prepared", "False", "ClusterFailed").await
        };
        let controller = home.start_burst_controller().await?;
        let burst = refused.await?;
        let conditions = burst.status.unwrap_or_default().conditions;
        let prepared = conditions.iter().find(|it| it.type_ == "Prepared").context("Prepared")?;
        ensure!(prepared.message.contains("has not written Secret"), "{}", prepared.message);
        wait_for_no_bursts(home).await?;
        wait_until_nothing_is_left(home).await?;
        ensure!(made(home).await?.is_empty(), "what was made is left");
        drop(controller);
        Ok(())
    })
    .await
}

/// Without the administrator's permission nothing is made, and the burst says what to ask for. That for our
/// program, which needs the same rights, is none for programs of users.
#[tokio::test]
async fn b36_clusters_are_made_only_if_the_administrator_allows_it() -> Result<()> {
    with_target(async |home, _away| {
        home.gke_image = Some("registry.example.com/flux-operator-gke:1".into());
        let _controller = home.start_burst_controller().await?;
        start_primary(home, "primary").await?;
        let class = json!({ "class": { "name": "small", "workers": "w" }, "version": "v1.34.0" });
        let command = json!({ "image": "i", "serviceAccount": "a", "up": ["u"], "down": ["d"] });
        for (name, kind, how) in [("capi", "clusterAPI", class), ("command", "command", command)] {
            let target = json!({ "name": name, "maxNodes": 1, kind: how });
            let spec = json!({ "cluster": "primary", "nodes": 1, "target": target });
            home.create_burst(name, spec).await?;
            let kind = "CredentialsAccepted";
            wait_for_condition(home, name, kind, "False", "ClusterNotAllowed").await?;
            let burst = home.api::<Burst>().get(name).await?;
            ensure!(burst.finalizers().is_empty(), "something was done for {name}");
        }
        Ok(())
    })
    .await
}
