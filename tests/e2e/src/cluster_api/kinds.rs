//! The kinds of a provider, and a ClusterClass that uses them. Their control plane is one that a cloud
//! manages: as with EKS and GKE it has no number of machines.

use anyhow::{Context, Result};
use flux_operator_testkit::cluster::{first_match, install};
use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use crate::TestNamespace;
use crate::access::apply;

/// The ClusterClass.
pub const CLASS: &str = "small";

/// Its class of workers.
pub const WORKERS: &str = "worker";

const GROUP: &str = "cloud.flux-operator.test";
const VERSION: &str = "v1";

/// The kinds of one Cluster.
pub(super) const CLUSTER: &str = "CloudCluster";
pub(super) const CONTROL_PLANE: &str = "CloudControlPlane";
pub(super) const MACHINE: &str = "CloudMachine";
pub(super) const BOOTSTRAP: &str = "CloudConfig";

/// An API of the provider.
pub(super) fn api(namespace: &TestNamespace, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, kind));
    Api::namespaced_with(namespace.client.clone(), &namespace.namespace, &resource)
}

/// An API of Cluster API's core.
pub(super) fn core_api(namespace: &TestNamespace, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", kind);
    let resource = ApiResource::from_gvk(&kind);
    Api::namespaced_with(namespace.client.clone(), &namespace.namespace, &resource)
}

/// The API version of the provider's objects.
pub(super) fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

/// Installs the provider's CRDs.
pub async fn install_provider(namespace: &TestNamespace) -> Result<()> {
    let text = json!({ "type": "string" });
    let endpoint = object(json!({ "host": text, "port": { "type": "integer" } }));
    let specs = [
        (CLUSTER, json!({ "zone": text, "controlPlaneEndpoint": endpoint })),
        (CONTROL_PLANE, json!({ "version": text, "controlPlaneEndpoint": endpoint })),
        (MACHINE, json!({ "providerID": text })),
        (BOOTSTRAP, json!({})),
    ];
    let mut crds = Vec::new();
    for (kind, spec) in specs {
        let template = object(json!({ "spec": object(spec.clone()) }));
        crds.push(serde_json::from_value(crd(kind, spec))?);
        let kind = format!("{kind}Template");
        crds.push(serde_json::from_value(crd(&kind, json!({ "template": template })))?);
    }
    install(&namespace.client, crds).await
}

/// A schema of which every field is known, as those of real providers: others are refused.
fn object(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

fn crd(kind: &str, spec: Value) -> Value {
    let singular = kind.to_lowercase();
    let status = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        // The version in which it fulfils the contract of Cluster API's v1beta2.
        "metadata": { "name": format!("{singular}s.{GROUP}"),
            "labels": { "cluster.x-k8s.io/v1beta2": VERSION } },
        "spec": {
            "group": GROUP,
            "names": { "kind": kind, "plural": format!("{singular}s"), "singular": singular },
            "scope": "Namespaced",
            "versions": [{ "name": VERSION, "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": object(json!({
                    "spec": object(spec), "status": status })) } }],
        },
    })
}

/// Creates the ClusterClass and its templates, and waits until Cluster API knows its variable: `zone` is
/// `a` or `b`.
pub async fn create_class(namespace: &TestNamespace) -> Result<()> {
    let template = |kind: &str, spec: Value| {
        json!({ "apiVersion": api_version(), "kind": format!("{kind}Template"),
            "metadata": { "name": CLASS, "namespace": namespace.namespace },
            "spec": { "template": { "spec": spec } } })
    };
    let templates = [
        template(CLUSTER, json!({ "zone": "unset" })),
        template(CONTROL_PLANE, json!({})),
        template(MACHINE, json!({})),
        template(BOOTSTRAP, json!({})),
    ];
    apply(&namespace.client, &templates).await?;
    let reference = |kind: &str| {
        json!({ "templateRef": { "apiVersion": api_version(), "kind": format!("{kind}Template"),
            "name": CLASS } })
    };
    let patch = json!({ "name": "zone", "definitions": [{
        "selector": { "apiVersion": api_version(), "kind": format!("{CLUSTER}Template"),
            "matchResources": { "infrastructureCluster": true } },
        "jsonPatches": [{ "op": "replace", "path": "/spec/template/spec/zone",
            "valueFrom": { "variable": "zone" } }],
    }] });
    let class = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass",
        "metadata": { "name": CLASS, "namespace": namespace.namespace },
        "spec": {
            "infrastructure": reference(CLUSTER),
            "controlPlane": reference(CONTROL_PLANE),
            "workers": { "machineDeployments": [{ "class": WORKERS,
                "bootstrap": reference(BOOTSTRAP), "infrastructure": reference(MACHINE) }] },
            "variables": [{ "name": "zone", "required": true, "schema": { "openAPIV3Schema":
                { "type": "string", "enum": ["a", "b"] } } }],
            "patches": [patch],
        },
    });
    apply(&namespace.client, &[class]).await?;
    let classes = watcher(core_api(namespace, "ClusterClass"), watcher::Config::default());
    let reconciled = first_match(classes.applied_objects(), |class| {
        let conditions = class.data["status"]["conditions"].as_array()?;
        conditions
            .iter()
            .any(|it| it["type"] == "VariablesReady" && it["status"] == "True")
            .then_some(())
    });
    reconciled.await.context("the ClusterClass is never reconciled")
}
