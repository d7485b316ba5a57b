//! What the pods of a MiniCluster request.

use std::collections::BTreeMap;

use flux_operator_api::MiniCluster;
use flux_operator_queue::{Resource, Resources};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::quantity;
use crate::gpus;
use crate::kubernetes::{DeliveryMethod, Rendering, Settings, job, services_pod};
use crate::{Cluster, Valid};

/// What a MiniCluster uses of a quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// For each node: the node and the pod themselves, and the requests of its containers.
    pub per_node: Resources,
    /// Once: the pod of the services.
    pub per_job: Resources,
}

/// What a MiniCluster's pods request, as the scheduler of Kubernetes counts it: requests,
/// or limits if there are no requests, including sidecars; GPUs also as `gpus`. A MiniCluster
/// that is not valid has no pods but requests its nodes.
pub fn requests(minicluster: &MiniCluster) -> Requests {
    of_pods(minicluster).unwrap_or_else(|| Requests {
        per_node: of_pod(&PodSpec::default(), 1),
        per_job: Resources::default(),
    })
}

/// Computed from the rendered pods, so that the two cannot differ.
fn of_pods(minicluster: &MiniCluster) -> Option<Requests> {
    let valid = Valid::check_planned(minicluster.clone()).ok()?;
    let cluster = Cluster::of(&valid).ok()?;
    let settings = Settings {
        agent_image: String::new(),
        cluster_domain: String::new(),
        // Init containers that copy may request more than the others; with image volumes the
        // result is a little too large, and never too small.
        delivery: DeliveryMethod::Init,
        report_url: None,
    };
    let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings: &settings };
    let services = services_pod(&rendering).and_then(|pod| pod.spec);
    Some(Requests {
        per_node: of_pod(&job(&rendering).spec?.template.spec?, 1),
        per_job: services.map(|pod| of_pod(&pod, 0)).unwrap_or_default(),
    })
}

/// What a pod requests, and the pod itself.
pub(super) fn of_pod(pod: &PodSpec, nodes: i64) -> Resources {
    let mut amounts = containers(pod);
    add(&mut amounts, &pod.overhead);
    let gpus = gpus_of(&amounts);
    amounts.extend([(Resource::Gpus, gpus), (Resource::Pods, 1), (Resource::Nodes, nodes)]);
    Resources::of(amounts.into_iter().filter(|(_, amount)| *amount != 0))
}

/// GPUs of all vendors.
pub(super) fn gpus_of(amounts: &Amounts) -> i64 {
    let gpus = gpus::NAMES.iter().filter_map(|name| amounts.get(&Resource::Other((*name).into())));
    // They are counted in thousandths, and allocated as a whole.
    gpus.fold(0, |sum: i64, count| sum.saturating_add(count / 1000))
}

type Amounts = BTreeMap<Resource, i64>;

/// Init containers run one after the other and before the rest, except for native sidecars,
/// which run beside all containers that start after them.
fn containers(pod: &PodSpec) -> Amounts {
    let (mut running, mut most) = (Amounts::new(), Amounts::new());
    for container in pod.init_containers.iter().flatten() {
        let mut with_container = running.clone();
        add_container(&mut with_container, container);
        if container.restart_policy.as_deref() == Some("Always") {
            running = with_container;
        } else {
            raise(&mut most, with_container);
        }
    }
    pod.containers.iter().for_each(|container| add_container(&mut running, container));
    raise(&mut most, running);
    most
}

/// A limit without a request is also the request.
fn add_container(amounts: &mut Amounts, container: &Container) {
    let resources = container.resources.clone().unwrap_or_default();
    let mut requested = resources.limits.unwrap_or_default();
    requested.extend(resources.requests.unwrap_or_default());
    add(amounts, &Some(requested));
}

pub(super) fn add(amounts: &mut Amounts, quantities: &Option<BTreeMap<String, Quantity>>) {
    for (name, text) in quantities.iter().flatten() {
        // Resources that no quota counts, such as huge pages, are ignored.
        let Ok(resource) = name.parse() else { continue };
        let amount = quantity::amount(&resource, text).unwrap_or_default();
        let sum = amounts.entry(resource).or_default();
        *sum = sum.saturating_add(amount);
    }
}

fn raise(most: &mut Amounts, amounts: Amounts) {
    for (resource, amount) in amounts {
        let known = most.entry(resource).or_default();
        *known = amount.max(*known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};

    fn of(spec: Value) -> Requests {
        let mut manifest = smallest_minicluster("fs");
        merge(&mut manifest, &json!({ "spec": spec }));
        requests(&serde_json::from_value(manifest).unwrap())
    }

    /// What is requested, as Kubernetes quantities.
    fn written(resources: &Resources) -> Value {
        json!(quantity::quantities(resources))
    }

    #[test]
    fn a_node_is_a_node_and_a_pod() {
        let requests = of(json!({ "size": 4 }));
        assert_eq!(written(&requests.per_node), json!({ "nodes": "1", "pods": "1" }));
        assert_eq!(requests.per_job, Resources::default());
    }

    #[test]
    fn requests_count_and_limits_where_there_are_none() {
        let requests = json!({ "cpu": "500m" });
        let limits = json!({ "cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2" });
        let resources = json!({ "requests": requests, "limits": limits });
        let each = of(json!({ "containers": [{ "resources": resources }] })).per_node;
        let expected = json!({ "nodes": "1", "pods": "1", "cpu": "500m", "memory": "1Gi",
            "gpus": "2", "nvidia.com/gpu": "2" });
        assert_eq!(written(&each), expected);
    }

    #[test]
    fn sidecars_add_up_and_init_containers_only_raise_the_maximum() {
        let cpu = |amount: &str| json!({ "requests": { "cpu": amount } });
        let containers = json!([
            { "runFlux": true, "resources": cpu("1") },
            { "name": "a", "resources": cpu("2") },
            { "name": "b", "resources": cpu("500m") },
        ]);
        let cores = |copies: &str| {
            let flux = json!({ "container": { "resources": cpu(copies) } });
            of(json!({ "containers": containers, "flux": flux })).per_node.amount(&Resource::Cpu)
        };
        assert_eq!(cores("1"), 3500);
        assert_eq!(cores("8"), 8000);
    }

    #[test]
    fn init_containers_count_as_kubernetes_counts_them() {
        let cpu = |amount: &str| json!({ "requests": { "cpu": amount } });
        let pod = json!({
            "initContainers": [
                { "name": "a", "resources": cpu("2"), "restartPolicy": "Always" },
                { "name": "b", "resources": cpu("5") },
                { "name": "c", "resources": cpu("1"), "restartPolicy": "Always" },
            ],
            "containers": [{ "name": "d", "resources": cpu("3") }],
            "overhead": { "cpu": "250m" },
        });
        let pod: PodSpec = serde_json::from_value(pod).unwrap();
        assert_eq!(of_pod(&pod, 1).amount(&Resource::Cpu), 7250, "b runs beside a: 2 + 5");
    }

    #[test]
    fn services_are_requested_once() {
        let service = json!({ "name": "db", "resources": { "limits": { "memory": "1Gi" } } });
        let requests = of(json!({ "services": [service], "size": 3 }));
        assert_eq!(written(&requests.per_job), json!({ "pods": "1", "memory": "1Gi" }));
        assert_eq!(written(&requests.per_node), json!({ "nodes": "1", "pods": "1" }));
    }
}
