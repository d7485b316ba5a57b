//! Cluster API, played: its Cluster kind, and a controller that says a cluster is ready at once and writes
//! a kubeconfig that it was given. What real providers do is not tested with it.

use anyhow::{Context, Result, ensure};
use flux_operator_plan::bursting::cluster_api_kind;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::TestNamespace;
use crate::access::apply;

/// The finalizer of Cluster API's own controller.
const FINALIZER: &str = "cluster.cluster.x-k8s.io";

/// The resource of Clusters.
pub fn clusters(namespace: &TestNamespace) -> Api<DynamicObject> {
    Api::namespaced_with(namespace.client.clone(), &namespace.namespace, &cluster_api_kind())
}

/// Installs the Cluster kind, without its schema.
pub async fn install_cluster_api(namespace: &TestNamespace) -> Result<()> {
    let kind = cluster_api_kind();
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("clusters.{}", kind.group), "annotations":
            { "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/cluster-api" } },
        "spec": {
            "group": kind.group,
            "names": { "kind": "Cluster", "plural": "clusters", "singular": "cluster" },
            "scope": "Namespaced",
            "versions": [{ "name": kind.version, "served": true, "storage": true,
                "subresources": { "status": {} }, "schema": { "openAPIV3Schema": schema } }],
        },
    });
    apply(&namespace.client, &[crd]).await?;
    let served = async {
        while clusters(namespace).list(&Default::default()).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    flux_operator_testkit::cluster::with_timeout(served).await.context("Clusters are not served")
}

/// Makes every Cluster of a namespace ready, with this kubeconfig, and lets it go when it is deleted.
pub async fn play_cluster_api(namespace: &TestNamespace, kubeconfig: &str) -> Result<()> {
    let all = watcher(clusters(namespace), watcher::Config::default()).applied_objects();
    all.map_err(anyhow::Error::from)
        .try_for_each(async |cluster| make_ready_or_delete(namespace, &cluster, kubeconfig).await)
        .await
}

async fn make_ready_or_delete(
    namespace: &TestNamespace,
    cluster: &DynamicObject,
    kubeconfig: &str,
) -> Result<()> {
    let (clusters, name) = (clusters(namespace), cluster.name_any());
    let manager = PatchParams::default();
    let secret = format!("{name}-kubeconfig");
    if cluster.metadata.deletion_timestamp.is_some() {
        // Another event of the same Cluster may have done both.
        let _gone = namespace.api::<Secret>().delete(&secret, &DeleteParams::default()).await;
        let none = json!({ "metadata": { "finalizers": null } });
        let _gone = clusters.patch(&name, &manager, &Patch::Merge(&none)).await;
        return Ok(());
    }
    if cluster.data["status"]["initialization"]["controlPlaneInitialized"] == true {
        return Ok(());
    }
    let topology = &cluster.data["spec"]["topology"];
    let workers = &topology["workers"]["machineDeployments"][0];
    ensure!(workers["replicas"] == 2 && workers["class"] == "worker", "{topology}");
    ensure!(topology["variables"] == json!([{ "name": "zone", "value": "a" }]), "{topology}");
    let finalizer = json!({ "metadata": { "finalizers": [FINALIZER] } });
    clusters.patch(&name, &manager, &Patch::Merge(&finalizer)).await?;
    let written = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret },
        "stringData": { "value": kubeconfig } });
    let apply = PatchParams::apply("cluster-api").force();
    namespace.api::<Secret>().patch(&secret, &apply, &Patch::Apply(&written)).await?;
    let ready = json!({ "status": { "phase": "Provisioned",
        "initialization": { "infrastructureProvisioned": true, "controlPlaneInitialized": true } } });
    clusters.patch_status(&name, &manager, &Patch::Merge(&ready)).await?;
    Ok(())
}
