//! What is kept of an object. Users of one namespace must not fill the memory of all with what is not needed.

use std::collections::BTreeMap;

use flux_operator_api::burst::BurstTarget;
use flux_operator_api::{
    Burst, BurstPolicy, BurstPolicySpec, BurstSpec, MiniCluster, MiniClusterSpec,
};
use flux_operator_plan::bursting::BURST_FINALIZER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};
use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;

/// The most labels of a MiniCluster, and the most finalizers of a Burst. The API server limits only their
/// size; usual objects have fewer than ten.
const MAX_LABELS: usize = 256;
const MAX_FINALIZERS: usize = 32;

/// An object of a store.
pub(crate) trait Kept:
    Resource<DynamicType = ()> + DeserializeOwned + Clone + 'static
{
    /// Removes what is not needed of an object whose namespace is served. Fails if there is too much of what
    /// is needed, with what that is.
    fn shrink(&mut self) -> Result<(), String>;

    /// Removes what is not needed of an object whose namespace is not served: only its status is written.
    fn shrink_unserved(&mut self);
}

impl Kept for BurstPolicy {
    fn shrink(&mut self) -> Result<(), String> {
        self.metadata = identity(&mut self.metadata);
        Ok(())
    }

    fn shrink_unserved(&mut self) {
        self.metadata = identity(&mut self.metadata);
        self.spec = BurstPolicySpec::default();
    }
}

impl Kept for Burst {
    /// Keeps finalizers of others: they are written again when ours is removed.
    fn shrink(&mut self) -> Result<(), String> {
        check_count(
            self.metadata.finalizers.as_ref().map_or(0, Vec::len),
            MAX_FINALIZERS,
            "finalizers",
        )?;
        let finalizers = self.metadata.finalizers.take();
        let owner = policy_owner(self);
        let metadata = identity(&mut self.metadata);
        self.metadata = ObjectMeta { finalizers, owner_references: owner, ..metadata };
        Ok(())
    }

    fn shrink_unserved(&mut self) {
        let owner = policy_owner(self);
        let finalizers = own_finalizer(&self.metadata);
        let metadata = identity(&mut self.metadata);
        self.metadata = ObjectMeta { finalizers, owner_references: owner, ..metadata };
        let BurstSpec {
            cluster,
            policy,
            target,
            nodes,
            lifetime_seconds,
            idle_seconds,
            grace_seconds,
            drain,
            isolated_job,
            jobs: _,
        } = std::mem::take(&mut self.spec);
        self.spec = BurstSpec {
            cluster,
            policy,
            target: without_details(target),
            nodes,
            lifetime_seconds,
            idle_seconds,
            grace_seconds,
            drain,
            isolated_job,
            jobs: Vec::new(),
        };
    }
}

impl Kept for MiniCluster {
    /// Keeps the labels, by which policies select it, and the names of the managers of its fields, which show
    /// which Bursts claim it.
    fn shrink(&mut self) -> Result<(), String> {
        check_count(self.metadata.labels.as_ref().map_or(0, BTreeMap::len), MAX_LABELS, "labels")?;
        let finalizers = own_finalizer(&self.metadata);
        let labels = self.metadata.labels.take();
        let managers = self.metadata.managed_fields.take().into_iter().flatten();
        let managers = managers.map(|ManagedFieldsEntry { manager, .. }| ManagedFieldsEntry {
            manager,
            ..ManagedFieldsEntry::default()
        });
        let managed_fields = Some(managers.collect());
        let metadata = identity(&mut self.metadata);
        self.metadata = ObjectMeta { labels, finalizers, managed_fields, ..metadata };
        Ok(())
    }

    fn shrink_unserved(&mut self) {
        self.metadata = identity(&mut self.metadata);
        self.spec = MiniClusterSpec::default();
    }
}

fn check_count(count: usize, most: usize, what: &str) -> Result<(), String> {
    match count > most {
        true => Err(format!("it has {count} {what}: at most {most} are allowed")),
        false => Ok(()),
    }
}

/// Which object it is, which version of it, and since when it exists. The API server keeps the rest of an
/// object whose status is written without it.
fn identity(metadata: &mut ObjectMeta) -> ObjectMeta {
    let metadata = std::mem::take(metadata);
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        creation_timestamp: metadata.creation_timestamp,
        deletion_timestamp: metadata.deletion_timestamp,
        ..ObjectMeta::default()
    }
}

/// The finalizer of Bursts, if there is one.
fn own_finalizer(metadata: &ObjectMeta) -> Option<Vec<String>> {
    let mut finalizers = metadata.finalizers.iter().flatten();
    finalizers.any(|it| it == BURST_FINALIZER).then(|| vec![BURST_FINALIZER.to_owned()])
}

/// The policy that has created a Burst, as its owner.
fn policy_owner(burst: &Burst) -> Option<Vec<OwnerReference>> {
    let mut owners = burst.metadata.owner_references.iter().flatten();
    let policy = owners.find(|it| it.kind == "BurstPolicy" && it.name == burst.spec.policy)?;
    let (kind, name) = (policy.kind.clone(), policy.name.clone());
    Some(vec![OwnerReference { kind, name, ..OwnerReference::default() }])
}

/// A target with which the status of its Burst is the same: its kind, its sizes and its price.
fn without_details(target: BurstTarget) -> BurstTarget {
    let BurstTarget {
        name,
        max_nodes,
        scaling,
        cores,
        gpus,
        ranks,
        price_per_node_hour,
        startup_seconds,
        labels: _,
        pods: _,
        cluster,
        kubeconfig,
        cluster_api,
        command,
        gke,
        mock,
    } = target;
    BurstTarget {
        name,
        max_nodes,
        scaling,
        cores,
        gpus,
        ranks,
        price_per_node_hour,
        startup_seconds,
        labels: BTreeMap::new(),
        pods: None,
        cluster,
        kubeconfig: kubeconfig.map(|_| Default::default()),
        cluster_api: cluster_api.map(|_| Default::default()),
        command: command.map(|_| Default::default()),
        gke: gke.map(|_| Default::default()),
        mock,
    }
}

#[cfg(test)]
mod tests {
    use flux_operator_plan::bursting::unserved_status;
    use k8s_openapi::jiff::Timestamp;
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;

    /// Metadata with so much of everything.
    fn metadata(count: usize) -> Value {
        let texts = || (0..count).map(|number| format!("example.com/n{number}"));
        let map: BTreeMap<String, String> = texts().map(|it| (it, "v".repeat(60))).collect();
        let owners = texts().map(
            |name| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "u" }),
        );
        let policy = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "name": "p", "uid": "u" });
        let managers =
            texts().map(|name| json!({ "manager": name, "operation": "Apply", "fieldsV1": {} }));
        json!({ "name": "b", "namespace": "ns", "uid": "uid", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": map, "annotations": map,
            "finalizers": texts().chain([BURST_FINALIZER.to_owned()]).collect::<Vec<_>>(),
            "ownerReferences": owners.chain([policy]).collect::<Vec<_>>(),
            "managedFields": managers.collect::<Vec<_>>() })
    }

    fn object<K: Kept>(count: usize, kind: &str, spec: &Value) -> K {
        let object = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": kind,
            "metadata": metadata(count), "spec": spec });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    /// Targets of every kind, with long texts.
    fn targets() -> Vec<Value> {
        let long = || "a".repeat(10_000);
        let kinds = [
            json!({ "cluster": {} }),
            json!({ "kubeconfig": { "secret": long() } }),
            json!({ "clusterAPI": { "class": { "name": long(), "workers": "w" },
                "variables": { "zone": long() } } }),
            json!({ "command": { "image": "i", "serviceAccount": "s", "up": [long()], "down": [long()],
                "env": [{ "name": "a", "value": long() }] } }),
            json!({ "gke": { "project": "p", "location": "l", "machineType": "m", "serviceAccount": "s",
                "labels": { "a": long() } } }),
            json!({ "mock": {} }),
        ];
        let common = json!({ "name": "t", "maxNodes": 4, "scaling": { "minNodes": 1, "maxNodes": 3 },
            "pricePerNodeHour": "0.5", "labels": { "a": long() },
            "pods": { "nodeSelector": { "a": long() } } });
        let with = |kind: Value| {
            let fields = common.as_object().into_iter().chain(kind.as_object());
            fields.flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        kinds.map(with).into()
    }

    fn size(object: &impl serde::Serialize) -> usize {
        serde_json::to_string(object).unwrap().len()
    }

    /// Whoever may create objects there must not fill the memory that all namespaces share.
    #[test]
    fn of_a_namespace_that_is_not_served_only_what_a_status_needs_is_kept() {
        let jobs = json!({ "queues": ["q".repeat(10_000)], "anyOf": [{ "queues": ["q".repeat(10_000)] }] });
        let values = vec![""; 10_000];
        let selector = json!({ "matchLabels": { "a": "b".repeat(10_000) },
            "matchExpressions": [{ "key": "a", "operator": "In", "values": values }] });
        let spec = json!({ "selector": selector, "jobs": jobs, "limits": { "nodes": 4 },
            "targets": targets() });
        let mut policy: BurstPolicy = object(1000, "BurstPolicy", &spec);
        policy.shrink_unserved();
        assert!(size(&policy) < 500, "{policy:?}");
        assert_eq!(policy.metadata.generation, Some(2));
        for target in targets() {
            let spec = json!({ "cluster": "fs", "policy": "p", "nodes": 2, "target": target,
                "jobs": ["f".repeat(10_000)] });
            let mut burst: Burst = object(1000, "Burst", &spec);
            let now = Timestamp::UNIX_EPOCH;
            let status = unserved_status(&burst, None, now);
            burst.shrink_unserved();
            assert!(size(&burst) < 1000, "{burst:?}");
            assert_eq!(unserved_status(&burst, None, now), status, "{target}");
            assert_eq!(burst.owning_policy(), Some("p"));
            assert!(burst.finalizers().iter().any(|it| it == BURST_FINALIZER));
        }
        let spec = json!({ "size": 1, "containers": [{ "image": "i".repeat(1000) }] });
        let mut cluster: MiniCluster = object(1000, "MiniCluster", &spec);
        cluster.shrink_unserved();
        assert!(size(&cluster) < 500, "{cluster:?}");
    }

    #[test]
    fn what_is_not_needed_of_an_object_is_not_kept() {
        let target = json!({ "name": "t", "maxNodes": 4, "mock": {} });
        let spec = json!({ "selector": {}, "limits": { "nodes": 4 }, "targets": [target] });
        let mut policy: BurstPolicy = object(1000, "BurstPolicy", &spec);
        policy.shrink().unwrap();
        assert!(size(&policy) < 1000 && policy.spec.targets.len() == 1, "{policy:?}");
        let spec = json!({ "cluster": "fs", "policy": "p", "nodes": 2, "target": target });
        let mut burst: Burst = object(31, "Burst", &spec);
        burst.shrink().unwrap();
        assert_eq!(burst.finalizers().len(), 32, "others are kept");
        assert_eq!((burst.owner_references().len(), burst.owning_policy()), (1, Some("p")));
        assert!(burst.labels().is_empty() && burst.annotations().is_empty());
        assert!(burst.metadata.managed_fields.is_none());
        let spec = json!({ "size": 1, "containers": [{ "image": "i" }] });
        let mut cluster: MiniCluster = object(256, "MiniCluster", &spec);
        cluster.shrink().unwrap();
        assert_eq!(cluster.labels().len(), 256);
        assert_eq!(cluster.finalizers(), [BURST_FINALIZER]);
        assert!(cluster.annotations().is_empty() && cluster.owner_references().is_empty());
        let managers = cluster.metadata.managed_fields.unwrap();
        assert_eq!((managers.len(), managers[0].manager.as_deref()), (256, Some("example.com/n0")));
        assert_eq!(managers[0].operation, None);
    }

    #[test]
    fn an_object_with_too_much_of_what_is_needed_is_refused() {
        let target = json!({ "name": "t", "maxNodes": 4, "mock": {} });
        let spec = json!({ "cluster": "fs", "nodes": 2, "target": target });
        let error = object::<Burst>(32, "Burst", &spec).shrink().unwrap_err();
        assert_eq!(error, "it has 33 finalizers: at most 32 are allowed");
        let spec = json!({ "size": 1, "containers": [{ "image": "i" }] });
        let error = object::<MiniCluster>(257, "MiniCluster", &spec).shrink().unwrap_err();
        assert_eq!(error, "it has 257 labels: at most 256 are allowed");
    }
}
