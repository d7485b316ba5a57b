//! The objects to create: MiniClusters, and the same objects without an operator.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use flux_operator_testkit::images::{AGENT_IMAGE, with_flux};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::under_test::{documents, our_program};

/// The placeholder for the cluster's name in a template.
const PLACEHOLDER: &str = "bench-template";

/// A MiniCluster for any operator: only fields that all operators have.
pub(crate) fn minicluster(name: &str, namespace: &str, size: u32, command: &str) -> Value {
    let mut manifest = json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "size": size, "tasks": size, "logging": { "quiet": true },
            "containers": [{ "image": "busybox", "command": command }],
        },
    });
    with_flux(&mut manifest);
    // The Go operator starts this image even if Flux is in the user's image.
    if manifest["spec"]["flux"]["container"]["disable"] == true {
        let image = manifest["spec"]["containers"][0]["image"].clone();
        manifest["spec"]["flux"]["container"]["image"] = image;
    }
    manifest
}

/// The MiniClusters of a namespace, with any CRD.
pub(crate) fn miniclusters(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("flux-framework.org", "v1alpha2", "MiniCluster");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// Creates a MiniCluster.
pub(crate) async fn create(client: &Client, manifest: &Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(manifest.clone())?;
    let namespace = object.namespace().unwrap_or_default();
    let created = miniclusters(client, &namespace).create(&PostParams::default(), &object).await;
    created.with_context(|| format!("failed to create MiniCluster {:?}", object.name_any()))
}

/// The objects that our operator creates for a MiniCluster, as `flux-operator render` prints them,
/// to be created without an operator.
#[derive(Clone)]
pub(crate) struct RenderedObjects {
    json: String,
}

impl RenderedObjects {
    /// Renders once, so that a bare client only spends time on creating objects.
    pub(crate) fn render(manifest: &Value) -> Result<RenderedObjects> {
        let mut manifest = manifest.clone();
        manifest["metadata"]["name"] = PLACEHOLDER.into();
        // As the operator does on a current Kubernetes. `render` is offline and cannot know that.
        manifest["spec"]["flux"]["container"]["delivery"] = "imageVolume".into();
        let mut child = Command::new(our_program()?)
            .args(["render", "--agent-image", AGENT_IMAGE, "--filename", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("failed to start flux-operator render")?;
        let mut input = child.stdin.take().context("flux-operator render has no standard input")?;
        input.write_all(manifest.to_string().as_bytes())?;
        drop(input);
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "flux-operator render refused the manifest");
        let objects = documents(&String::from_utf8(output.stdout)?)?;
        Ok(RenderedObjects { json: serde_json::to_string(&objects)? })
    }

    /// The objects of a MiniCluster as the operator creates them, the Job last.
    pub(crate) fn objects(&self, owner: &DynamicObject) -> Result<Vec<Value>> {
        let name = owner.name_any();
        let mut objects = self.without_owner(&name, &owner.namespace().unwrap_or_default())?;
        for object in &mut objects {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
                "name": name, "uid": owner.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }]);
        }
        Ok(objects)
    }

    /// The objects of a cluster without a MiniCluster.
    pub(crate) fn without_owner(&self, name: &str, namespace: &str) -> Result<Vec<Value>> {
        let mut objects: Vec<Value> = serde_json::from_str(&self.json.replace(PLACEHOLDER, name))?;
        for object in &mut objects {
            object["metadata"]["namespace"] = namespace.into();
        }
        objects.sort_by_key(|object| object["kind"] == "Job");
        Ok(objects)
    }
}

/// Creates objects one after the other.
pub(crate) async fn create_all(client: &Client, objects: &[Value]) -> Result<()> {
    for object in objects {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let types = object.types.clone().context("an object has no kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("failed to create {} {:?}", types.kind, object.name_any()))?;
    }
    Ok(())
}
