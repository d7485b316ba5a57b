//! Bursts, policies and MiniClusters for unit tests.

use flux_operator_api::{Burst, BurstPolicy, MiniCluster};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

/// Half an hour after everything was created.
pub(super) fn now() -> Timestamp {
    "2026-01-01T00:30:00Z".parse().unwrap()
}

const CREATED: &str = "2026-01-01T00:00:00Z";

pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    serde_json::from_value(json!({ "type": kind, "status": status, "reason": reason,
        "message": message, "lastTransitionTime": CREATED }))
    .unwrap()
}

/// The MiniCluster `fs` of namespace `team`, with this `spec.flux.bursting`.
pub(super) fn cluster(bursting: Value) -> MiniCluster {
    serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": "fs", "namespace": "team", "uid": "fs-uid",
            "creationTimestamp": CREATED, "resourceVersion": "7" },
        "spec": { "size": 2, "containers": [{ "image": "busybox" }],
            "flux": { "bursting": bursting } },
    }))
    .unwrap()
}

/// The policy `cloud`, which is accepted, with the targets `gke` (elsewhere, up to 4 nodes) and
/// `pool` (the same Kubernetes cluster, 2 to 3 nodes).
pub(super) fn policy() -> BurstPolicy {
    serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "BurstPolicy",
        "metadata": { "name": "cloud", "namespace": "team", "uid": "p-uid",
            "creationTimestamp": CREATED },
        "spec": {
            "selector": {},
            "limits": { "nodes": 8, "lifetimeSeconds": 7200 },
            "giveBack": { "graceSeconds": 30 },
            "targets": [
                { "name": "gke", "maxNodes": 4, "kubeconfig": { "secret": "gke" } },
                { "name": "pool", "maxNodes": 8, "cluster": {},
                    "scaling": { "minNodes": 2, "maxNodes": 3 } },
            ],
        },
        "status": { "clusters": 1, "pendingJobs": 2, "bursts": 1, "nodes": 2,
            "usage": { "day": "2026-01-01", "nodeHours": "1.50", "cost": "0.54" },
            "conditions": [condition("Accepted", "True", "Accepted", "the policy is applied")] },
    }))
    .unwrap()
}

/// A Burst of `fs` at the target `gke`.
pub(super) fn burst(name: &str, policy: &str, status: Value) -> Burst {
    let owner = json!([{ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
        "name": policy, "uid": "p-uid" }]);
    serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "Burst",
        "metadata": { "name": name, "namespace": "team", "uid": format!("{name}-uid"),
            "creationTimestamp": CREATED, "ownerReferences": owner },
        "spec": { "cluster": "fs", "policy": policy, "nodes": 2,
            "target": { "name": "gke", "maxNodes": 4, "startupSeconds": 1800, "kubeconfig": { "secret": "gke" } } },
        "status": status,
    }))
    .unwrap()
}
