//! Clusters of Google Kubernetes Engine. A server of the test plays Google; the clusters that it makes are
//! the second testbed.

use std::sync::atomic::AtomicUsize;

use anyhow::{Context, Result, ensure};
use flux_operator_api::Burst;
use flux_operator_gke::testing::{FakeGoogle, Fault, Inside};
use flux_operator_testkit::cluster::busybox_image;
use flux_operator_testkit::images::import_gke_to;
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::access::apply;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::crashes::{crash_after_every_write, live_through};
use super::steps::{start_primary, wait_for_condition, wait_until_nothing_is_left, with_target};

/// Starts the server that plays Google, and lets the controller use the program with it. A token of it
/// has, in the namespace of `away`, the rights that the guide asks for.
async fn start_google(home: &mut TestNamespace, away: &TestNamespace) -> Result<FakeGoogle> {
    let kubeconfig = std::fs::read_to_string(away.testbed.kubeconfig())?;
    let kubeconfig: Value = serde_saphyr::from_str(&kubeconfig)?;
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let text = |name: &str| cluster[name].as_str().context("the kubeconfig has a cluster");
    let server = text("server")?;
    let inside = Inside::Real {
        endpoint: server.trim_start_matches("https://").to_owned(),
        authority: text("certificate-authority-data")?.to_owned(),
        token: google_token(away).await?,
    };
    add_route(home, away).await?;
    let host = home.testbed.slot().host_address();
    let google = FakeGoogle::start(&format!("{host}:0"), inside).await?;
    google.set_slowness(1);
    home.gke_image = Some(import_gke_to(&home.testbed, google.address())?);
    let namespace = &home.namespace;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "gke-maker", "namespace": namespace } });
    let secrets =
        json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "patch"] }]);
    let mut objects = vec![account];
    objects.extend(role("Role", "gke-maker", "gke-maker", namespace, secrets));
    apply(&home.client, &objects).await?;
    Ok(google)
}

/// Pods of a testbed have no route but to their own host. Those of a user reach the API servers that Google
/// makes, so the node gets a route to that of `away`, which listens on the same host.
async fn add_route(home: &TestNamespace, away: &TestNamespace) -> Result<()> {
    let (host, server) = (home.testbed.slot().host_address(), away.testbed.slot().host_address());
    let command = format!("busybox ip route replace {server} via {host}");
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "add-route", "namespace": home.namespace },
        "spec": { "hostNetwork": true, "restartPolicy": "Never", "containers": [{
            "name": "ip", "image": busybox_image(), "command": ["sh", "-c", command],
            "securityContext": { "capabilities": { "add": ["NET_ADMIN"] } } }] },
    });
    apply(&home.client, &[pod]).await?;
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    let ended = |pod: &Pod| matches!(phase(pod).as_deref(), Some("Succeeded" | "Failed"));
    let pod = home.wait_for_object("add-route", ended).await?;
    ensure!(phase(&pod).as_deref() == Some("Succeeded"), "the node has no new route");
    Ok(())
}

/// A token that may do inside a new cluster what the guide asks for.
async fn google_token(away: &TestNamespace) -> Result<String> {
    let namespace = &away.namespace;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "google", "namespace": namespace } });
    let rbac = "rbac.authorization.k8s.io";
    let rules = json!([
        { "apiGroups": [""], "resources": ["serviceaccounts", "serviceaccounts/token"],
          "verbs": ["create"] },
        { "apiGroups": [rbac], "resources": ["roles"], "verbs": ["create", "escalate", "bind"] },
        { "apiGroups": [rbac], "resources": ["rolebindings"], "verbs": ["create"] },
    ]);
    let namespaces =
        json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"] }]);
    let mut objects = vec![account];
    objects.extend(role("Role", "google", "google", namespace, rules));
    objects.extend(role(
        "ClusterRole",
        &format!("google-{namespace}"),
        "google",
        namespace,
        namespaces,
    ));
    apply(&away.client, &objects).await?;
    away.token_of("google").await
}

/// A role, and its binding to an account of a namespace.
fn role(kind: &str, name: &str, account: &str, namespace: &str, rules: Value) -> [Value; 2] {
    let version = "rbac.authorization.k8s.io/v1";
    let metadata = match kind {
        "Role" => json!({ "name": name, "namespace": namespace }),
        _ => json!({ "name": name }),
    };
    let role = json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules });
    let binding = json!({ "apiVersion": version, "kind": format!("{kind}Binding"),
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }] });
    [role, binding]
}

fn target(away: &TestNamespace) -> Value {
    json!({ "name": "gke", "maxNodes": 4, "startupSeconds": 10, "gke": {
        "project": "science", "location": "us-central1-a", "machineType": "c3-standard-8",
        "serviceAccount": "gke-maker", "namespace": away.namespace,
    } })
}

/// The program makes a cluster and deletes it; the controller is killed after every write.
#[tokio::test(flavor = "multi_thread")]
async fn b26_a_cluster_of_google_is_made_and_deleted() -> Result<()> {
    with_target(async |home, away| {
        let google = start_google(home, away).await?;
        home.create_policy("burst", json!({ "targets": [target(away)] })).await?;
        start_primary(home, "primary").await?;
        let count = AtomicUsize::new(0);
        live_through(home, away, crash_after_every_write(home, &count)).await?;
        wait_until_nothing_is_left(home).await?;
        ensure!(google.clusters().is_empty(), "{:?} are left", google.clusters());
        ensure!(google.created() == 1, "{} clusters were made", google.created());
        let count = count.into_inner();
        ensure!(count >= 12, "only {count} controllers were killed");
        Ok(())
    })
    .await
}

fn message(burst: Burst, kind: &str) -> String {
    let conditions = burst.status.unwrap_or_default().conditions;
    let condition = conditions.into_iter().find(|it| it.type_ == kind);
    condition.map(|it| it.message).unwrap_or_default()
}

/// Nothing is made without the administrator's image; with it, what Google refuses is in the condition.
#[tokio::test(flavor = "multi_thread")]
async fn b26_a_burst_says_what_google_refuses() -> Result<()> {
    with_target(async |home, away| {
        // Its spare ranks are for policies; there is no job.
        home.create_policy("burst", json!({ "targets": [target(away)] })).await?;
        start_primary(home, "primary").await?;
        let spec = json!({ "cluster": "primary", "nodes": 1, "target": target(away) });
        home.create_burst("gke", spec).await?;
        let controller = home.start_burst_controller().await?;
        let kind = "CredentialsAccepted";
        wait_for_condition(home, "gke", kind, "False", "ClusterNotAllowed").await?;
        drop(controller);
        let google = start_google(home, away).await?;
        let text = "Insufficient regional quota to satisfy request";
        google.fail("CreateCluster", Fault::Refused(403, "PERMISSION_DENIED", text.into()));
        let _controller = home.start_burst_controller().await?;
        let failed = wait_for_condition(home, "gke", "Prepared", "False", "ClusterFailed").await?;
        let message = message(failed, "Prepared");
        ensure!(message.contains("Google has no quota"), "{message}");
        Ok(())
    })
    .await
}
