//! A cluster that Cluster API makes: one Cluster object, whose topology names a ClusterClass.

use flux_operator_api::burst::{ClusterApiTarget, ClusterClassReference};
use flux_operator_api::{Burst, Reason};
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::super::names::object_name;
use super::super::observed::{MAX_MESSAGE, Presence, TargetFailure};
use super::metadata;

/// The API group of Cluster API.
const CLUSTER_API_GROUP: &str = "cluster.x-k8s.io";

/// Its version that is written and read.
const CLUSTER_API_VERSION: &str = "v1beta2";

/// The annotation with the number of nodes for which a Cluster was made.
const NODES_ANNOTATION: &str = "flux-framework.org/burst-nodes";

/// The name of the MachineDeployment of a Burst's nodes.
const WORKERS: &str = "burst";

/// The conditions of a Cluster that say how far it is, in the order in which it reaches them.
const CONDITIONS: [&str; 5] = [
    "TopologyReconciled",
    "InfrastructureReady",
    "ControlPlaneInitialized",
    "ControlPlaneAvailable",
    "Available",
];

/// The kind Cluster of Cluster API.
pub fn cluster_api_kind() -> ApiResource {
    let kind = GroupVersionKind::gvk(CLUSTER_API_GROUP, CLUSTER_API_VERSION, "Cluster");
    ApiResource::from_gvk_with_plural(&kind, "clusters")
}

/// The Cluster of a Burst, with this many nodes. `template` is the text of the user's template, if the
/// target names one.
pub fn cluster_api_cluster(
    burst: &Burst,
    target: &ClusterApiTarget,
    template: Option<&str>,
    nodes: i32,
) -> Result<DynamicObject, TargetFailure> {
    let name = object_name(burst);
    let (spec, labels, annotations) = match (&target.class, template) {
        (_, Some(template)) => from_template(burst, &name, template, nodes)?,
        (Some(class), None) => (of_class(target, class, nodes), json!({}), json!({})),
        (None, None) => return Err(refused("it has neither class nor template")),
    };
    let mut metadata = metadata(burst, &name);
    let users = |value: Value| -> Vec<(String, String)> {
        let map: serde_json::Map<String, Value> = value.as_object().cloned().unwrap_or_default();
        map.into_iter().filter_map(|(key, it)| Some((key, it.as_str()?.to_owned()))).collect()
    };
    // Ours win: leftovers are found by them.
    let with_ours = |ours: &mut std::collections::BTreeMap<String, String>, theirs: Value| {
        for (key, value) in users(theirs) {
            ours.entry(key).or_insert(value);
        }
    };
    with_ours(metadata.labels.get_or_insert_default(), labels);
    let own = metadata.annotations.get_or_insert_default();
    own.insert(NODES_ANNOTATION.to_owned(), nodes.to_string());
    with_ours(own, annotations);
    serde_json::from_value(json!({
        "apiVersion": format!("{CLUSTER_API_GROUP}/{CLUSTER_API_VERSION}"),
        "kind": "Cluster",
        "metadata": metadata,
        "spec": spec,
    }))
    .map_err(|error| refused(&error.to_string()))
}

/// For how many nodes an existing Cluster was made.
pub fn cluster_nodes(cluster: &DynamicObject) -> Option<i32> {
    cluster.annotations().get(NODES_ANNOTATION)?.parse().ok()
}

fn of_class(target: &ClusterApiTarget, class: &ClusterClassReference, nodes: i32) -> Value {
    let mut reference = json!({ "name": class.name });
    if !class.namespace.is_empty() {
        reference["namespace"] = json!(class.namespace);
    }
    let variables = target.variables.iter();
    let variables: Vec<Value> =
        variables.map(|(name, value)| json!({ "name": name, "value": value })).collect();
    json!({ "topology": {
        "classRef": reference,
        "version": target.version,
        "controlPlane": { "replicas": class.control_plane_machines.unwrap_or(1) },
        "workers": { "machineDeployments": [
            { "class": class.workers, "name": WORKERS, "replicas": nodes },
        ] },
        "variables": variables,
    } })
}

/// `spec`, labels and annotations of the user's template.
fn from_template(
    burst: &Burst,
    name: &str,
    template: &str,
    nodes: i32,
) -> Result<(Value, Value, Value), TargetFailure> {
    let text = template
        .replace("${NAME}", name)
        .replace("${NAMESPACE}", &burst.namespace().unwrap_or_default())
        .replace("${NODES}", &nodes.to_string());
    // The parser's message may contain a part of the text.
    let cluster: Value = serde_saphyr::from_str(&text)
        .map_err(|_error| refused("it is not one document of YAML"))?;
    let group = cluster["apiVersion"].as_str().unwrap_or_default();
    let expected = format!("{CLUSTER_API_GROUP}/{CLUSTER_API_VERSION}");
    if group != expected || cluster["kind"] != "Cluster" {
        return Err(refused(&format!("it is not a Cluster of {expected}")));
    }
    if cluster["metadata"]["name"] != name {
        return Err(refused("metadata.name is not ${NAME}: the name is that of the Burst"));
    }
    let namespace = &cluster["metadata"]["namespace"];
    if !namespace.is_null() && namespace.as_str() != burst.namespace().as_deref() {
        return Err(refused("metadata.namespace is not ${NAMESPACE}, nor left out"));
    }
    let metadata = &cluster["metadata"];
    Ok((cluster["spec"].clone(), metadata["labels"].clone(), metadata["annotations"].clone()))
}

fn refused(why: &str) -> TargetFailure {
    TargetFailure::new(Reason::ClusterFailed, format!("the Cluster cannot be made: {why}"))
}

/// How far Cluster API is with a Cluster.
pub fn cluster_api_presence(cluster: &DynamicObject) -> Presence {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Presence::Leaving;
    }
    let status = &cluster.data["status"];
    if status["initialization"]["controlPlaneInitialized"] == true {
        return Presence::ClusterReady;
    }
    let none = Vec::new();
    let conditions = status["conditions"].as_array().unwrap_or(&none);
    let first = CONDITIONS.iter().find_map(|kind| {
        conditions.iter().find(|it| it["type"] == *kind && it["status"] != "True")
    });
    let why = first.and_then(|it| it["message"].as_str()).unwrap_or_default();
    let phase = status["phase"].as_str().unwrap_or("Pending");
    let name = cluster.name_any();
    let text = format!("Cluster {name} is {phase}{}{why}", if why.is_empty() { "" } else { ": " });
    Presence::ClusterComing(text.replace('\n', " ").chars().take(MAX_MESSAGE).collect())
}
