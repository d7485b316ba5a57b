//! Shared by tests: valid and invalid manifests, and the cluster under test.
//!
//! A dev-dependency only; no product crate may use it.

pub mod bad;
pub mod cluster;
pub mod corpus;
pub mod images;
pub mod limits;
pub mod samples;

use serde_json::{Value, json};

/// The smallest MiniCluster: one container with an image.
pub fn smallest_minicluster(name: &str) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": name },
        "spec": { "containers": [{ "image": "busybox" }] },
    })
}

/// The smallest FluxJob: everything comes from the setup.
pub fn fluxjob(name: &str) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "FluxJob",
        "metadata": { "name": name },
        "spec": {},
    })
}

/// A FluxSetup with a quota of this many nodes.
pub fn fluxsetup(name: &str, nodes: u32) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "FluxSetup",
        "metadata": { "name": name },
        "spec": { "quota": { "nodes": nodes } },
    })
}

/// The smallest object of one of our kinds; for a MiniCluster see [`smallest_minicluster`].
pub fn smallest_of(kind: &str, name: &str) -> Value {
    let mut object = smallest_minicluster(name);
    let target = json!({ "name": "away", "maxNodes": 4, "kubeconfig": { "secret": "away" } });
    let spec = match kind {
        "MiniCluster" => return object,
        "BurstPolicy" => json!({ "selector": {}, "limits": { "nodes": 4 }, "targets": [target] }),
        "Burst" => json!({ "cluster": "fs", "nodes": 2, "target": target }),
        _ => json!({}),
    };
    object["kind"] = kind.into();
    object["spec"] = spec;
    object
}

/// A target of a Burst of every kind, of four nodes.
pub fn targets_of_every_kind() -> Vec<Value> {
    let command =
        json!({ "image": "maker", "serviceAccount": "maker", "up": ["up"], "down": ["down"] });
    let gke = json!({ "project": "science", "location": "us-central1-a",
        "machineType": "c3-standard-8", "serviceAccount": "maker" });
    let kinds = json!([
        { "cluster": {} },
        { "kubeconfig": { "secret": "away" } },
        { "clusterAPI": { "template": { "configMap": "cluster" } } },
        { "command": command },
        { "gke": gke },
        { "mock": {} },
    ]);
    let kinds = kinds.as_array().expect("it is written above").iter();
    let target = |kind: &Value| {
        let mut target = json!({ "name": "t", "maxNodes": 4 });
        merge(&mut target, kind);
        target
    };
    kinds.map(target).collect()
}

/// A Burst that runs a job in an instance of its own at a target.
pub fn isolated_burst(target: Value) -> Value {
    let mut burst = smallest_of("Burst", "isolated");
    burst["spec"]["target"] = target;
    burst["spec"]["isolatedJob"] = "f1".into();
    burst
}

/// Changes `target` by a JSON merge patch (RFC 7386): maps are merged, null removes a field, and
/// everything else replaces it.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, change) in changes {
        if change.is_null() {
            target.as_object_mut().expect("it was made a map above").remove(name);
        } else {
            merge(&mut target[name], change);
        }
    }
}
