//! The state of queues, computed with the operator's ledger and from the same objects.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_plan::queueing::ledger::{Ledger, setup_name};
use flux_operator_plan::queueing::namespace_quota;
use flux_operator_plan::queueing::quantity::amounts;
use flux_operator_plan::view::{QueueView, TentativeAdmissions};
use flux_operator_queue::{Millis, Resources, SetupName};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The objects that the user may list.
#[derive(Default)]
pub(super) struct ListedObjects {
    pub(super) setups: Vec<Arc<FluxSetup>>,
    pub(super) jobs: Vec<FluxJob>,
    pub(super) miniclusters: Vec<MiniCluster>,
    /// The labels of namespaces.
    pub(super) namespaces: BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// The values of PriorityClasses.
    pub(super) classes: BTreeMap<String, i32>,
    /// Kubernetes' own ResourceQuotas.
    pub(super) quotas: Vec<ResourceQuota>,
    /// What is missing from them; `None` if nothing is.
    pub(super) missing: Option<Missing>,
}

/// Why objects are missing, so that what is computed from the others may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The user may list one namespace only.
    OtherNamespaces,
    /// Some could not be decoded.
    Undecodable,
}

impl Missing {
    /// What is not counted, and why.
    pub(super) fn explanation(self) -> &'static str {
        match self {
            Missing::OtherNamespaces => {
                "jobs and queues of other namespaces are not counted: you may not list them"
            }
            Missing::Undecodable => "objects that could not be decoded are not counted",
        }
    }
}

/// The state of all queues at one moment, as the operator would compute it.
pub(super) struct QueueSnapshot {
    ledger: Ledger,
    tentative_admissions: TentativeAdmissions,
    now: Millis,
}

impl QueueSnapshot {
    /// Puts all objects into a ledger, and runs one scheduler cycle. Setups in `home` may serve
    /// other namespaces.
    pub(super) fn compute(
        objects: &ListedObjects,
        operator_namespace: &str,
        now: Timestamp,
    ) -> QueueSnapshot {
        let now = now.as_millisecond();
        let mut ledger = Ledger::new(operator_namespace);
        for (name, labels) in &objects.namespaces {
            ledger.put_namespace(name, Some(labels.clone()));
        }
        for (name, value) in &objects.classes {
            ledger.put_priority_class(name, Some(*value));
        }
        for (namespace, quotas) in by_namespace(&objects.quotas) {
            ledger.put_namespace_quota(namespace, namespace_quota(quotas.into_iter()));
        }
        for setup in &objects.setups {
            ledger.put_setup(setup);
        }
        ledger.put_node_capacity(node_capacity(objects));
        for minicluster in &objects.miniclusters {
            ledger.put_minicluster(minicluster, now);
        }
        let named: HashMap<(Option<&String>, Option<&String>), &MiniCluster> =
            objects.miniclusters.iter().map(|named| (key(&named.metadata), named)).collect();
        for job in &objects.jobs {
            ledger.put_job(job, named.get(&key(&job.metadata)).copied(), now);
        }
        let about_to_start = TentativeAdmissions::decide(&mut ledger, now);
        QueueSnapshot { ledger, tentative_admissions: about_to_start, now }
    }

    /// The view of the queues.
    pub(super) fn view(&self) -> QueueView<'_> {
        QueueView::new(&self.ledger, &self.tentative_admissions, self.now)
    }
}

fn by_namespace(quotas: &[ResourceQuota]) -> BTreeMap<&str, Vec<&ResourceQuota>> {
    let mut sorted: BTreeMap<&str, Vec<&ResourceQuota>> = BTreeMap::new();
    for quota in quotas {
        sorted
            .entry(quota.metadata.namespace.as_deref().unwrap_or_default())
            .or_default()
            .push(quota);
    }
    sorted
}

/// The namespace and name of an object.
fn key(metadata: &ObjectMeta) -> (Option<&String>, Option<&String>) {
    (metadata.namespace.as_ref(), metadata.name.as_ref())
}

/// The capacity of nodes. Only the operator computes it; its result is in the status.
fn node_capacity(objects: &ListedObjects) -> HashMap<SetupName, Resources> {
    let from_nodes = objects.setups.iter().filter(|setup| setup.spec.quota_from_nodes.is_some());
    let counted = from_nodes.filter_map(|setup| {
        let capacity = setup.status.as_ref().and_then(|status| amounts(&status.room).ok())?;
        Some((setup_name(&**setup), capacity))
    });
    counted.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flux_operator_api::validate;
    use flux_operator_plan::view::AdmissionStatus;
    use flux_operator_queue::{Resource, WaitReason};
    use serde_json::{Value, json};

    /// Objects in the namespace `team`, created in this order, one second apart.
    pub(in crate::kubectl) fn objects(manifests: &[Value]) -> ListedObjects {
        let mut objects = ListedObjects::default();
        objects.namespaces.insert("team".into(), BTreeMap::new());
        for (place, manifest) in manifests.iter().enumerate() {
            let mut manifest = manifest.clone();
            let metadata = &mut manifest["metadata"];
            metadata["namespace"] = "team".into();
            metadata["uid"] = metadata["name"].clone();
            metadata["creationTimestamp"] = format!("2026-01-01T00:00:{place:02}Z").into();
            match manifest["kind"].as_str().unwrap() {
                "FluxSetup" => {
                    objects.setups.push(Arc::new(validate::read(&manifest).unwrap()));
                }
                "FluxJob" => objects.jobs.push(validate::read(&manifest).unwrap()),
                _ => objects.miniclusters.push(validate::read(&manifest).unwrap()),
            }
        }
        objects
    }

    pub(in crate::kubectl) fn snapshot(manifests: &[Value]) -> QueueSnapshot {
        QueueSnapshot::compute(&objects(manifests), "operator-system", now())
    }

    /// Five minutes after the first object.
    pub(in crate::kubectl) fn now() -> Timestamp {
        "2026-01-01T00:05:00Z".parse().unwrap()
    }

    /// A queue with a quota of this many nodes.
    pub(in crate::kubectl) fn setup(nodes: u32) -> Value {
        object("FluxSetup", "main", json!({ "quota": { "nodes": nodes } }))
    }

    /// A waiting job.
    pub(in crate::kubectl) fn job(name: &str, spec: Value) -> Value {
        object("FluxJob", name, spec)
    }

    /// A job that has had quota for this many nodes since the first minute.
    pub(in crate::kubectl) fn admitted(name: &str, nodes: u32, spec: Value) -> Value {
        let mut job = job(name, spec);
        job["spec"]["size"] = nodes.into();
        job["status"]["admission"] = json!({
            "queue": "team/main", "size": nodes, "time": "2026-01-01T00:01:00Z",
            "resources": { "nodes": nodes.to_string(), "pods": nodes.to_string() },
        });
        job
    }

    fn object(kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": kind,
            "metadata": { "name": name },
            "spec": spec,
        })
    }

    #[test]
    fn a_job_about_to_be_admitted_still_waits() {
        let jobs = [setup(3), admitted("a", 2, json!({})), job("b", json!({ "size": 1 }))];
        let decided = snapshot(&jobs);
        let view = decided.view();
        let queue = SetupName::new("team", "main");
        let usage = view.usage(&queue);
        assert_eq!((usage.admitted, usage.pending), (1, 1));
        assert_eq!(usage.used.amount(&Resource::Nodes), 2);
        assert!(matches!(view.admission_status(&"b".into()), AdmissionStatus::Admissible(_)));
        assert_eq!(view.position(&"b".into()), Some(0));
    }

    #[test]
    fn the_resource_quota_of_the_namespace_is_respected() {
        let mut objects = objects(&[setup(4), job("a", json!({ "size": 3 }))]);
        objects.quotas = serde_json::from_value(json!([{
            "metadata": { "name": "few", "namespace": "team" },
            "spec": { "hard": { "pods": "2" } },
        }]))
        .unwrap();
        let decided = QueueSnapshot::compute(&objects, "operator-system", now());
        let view = decided.view();
        let AdmissionStatus::Waiting(waiting) = view.admission_status(&"a".into()) else {
            panic!("it has quota")
        };
        assert!(matches!(waiting.reason, WaitReason::NamespaceQuota { .. }), "{waiting:?}");
    }

    #[test]
    fn the_capacity_of_nodes_is_read_from_the_status() {
        let mut setup = object("FluxSetup", "main", json!({ "quotaFromNodes": {} }));
        setup["status"] = json!({ "room": { "nodes": "2", "cpu": "4" } });
        let decided = snapshot(&[setup, job("a", json!({ "size": 3 }))]);
        let view = decided.view();
        let AdmissionStatus::Waiting(waiting) = view.admission_status(&"a".into()) else {
            panic!("it has quota")
        };
        assert!(matches!(waiting.reason, WaitReason::ExceedsQuota { .. }), "{waiting:?}");
    }
}
