//! A cluster that Cluster API makes: one Cluster object, whose topology names a ClusterClass.

use std::collections::BTreeMap;

use flux_operator_api::burst::{ClusterApiTarget, ClusterClassReference};
use flux_operator_api::{Burst, Reason};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, NotUsed, Object};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::names::object_name;
use super::super::observed::{MAX_MESSAGE, Presence, TargetFailure};
use super::{cluster_secret, metadata};
use crate::bursting::life::was_prepared;

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

/// A Cluster as far as it is read. Its users choose how large its spec is.
pub type ApiCluster = Object<NotUsed, Box<RawValue>>;

/// The kind Cluster of Cluster API.
pub fn cluster_api_kind() -> ApiResource {
    let kind = GroupVersionKind::gvk(CLUSTER_API_GROUP, CLUSTER_API_VERSION, "Cluster");
    ApiResource::from_gvk_with_plural(&kind, "clusters")
}

/// What is taken from the user's template.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Template {
    api_version: String,
    kind: String,
    metadata: TemplateMetadata,
    #[serde(default)]
    spec: Value,
}

#[derive(Deserialize)]
struct TemplateMetadata {
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// What is read from the status of a Cluster.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ClusterStatus {
    phase: Option<String>,
    initialization: Initialization,
    conditions: Vec<ClusterCondition>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Initialization {
    control_plane_initialized: bool,
}

#[derive(Deserialize)]
struct ClusterCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    message: String,
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
    let mut metadata = metadata(burst, &name);
    // It does not outlive a Burst that is removed by force.
    metadata.owner_references = burst.owner_ref(&()).map(|owner| vec![owner]);
    let own = metadata.annotations.get_or_insert_default();
    own.insert(NODES_ANNOTATION.to_owned(), nodes.to_string());
    let spec = match (template, &target.class) {
        (Some(template), _) => {
            let users = parse_template(burst, &name, template, nodes)?;
            // Ours win: leftovers are found by them.
            let add = |ours: &mut BTreeMap<String, String>, users: BTreeMap<String, String>| {
                for (key, value) in users {
                    ours.entry(key).or_insert(value);
                }
            };
            add(metadata.labels.get_or_insert_default(), users.metadata.labels);
            add(own, users.metadata.annotations);
            users.spec
        }
        (None, Some(class)) => of_class(target, class, nodes)?,
        (None, None) => return Err(refused("it has neither class nor template")),
    };
    let mut cluster = DynamicObject::new(&name, &cluster_api_kind());
    cluster.metadata = metadata;
    cluster.data = json!({ "spec": spec });
    Ok(cluster)
}

/// For how many nodes an existing Cluster was made.
pub fn cluster_nodes(cluster: &ApiCluster) -> Option<i32> {
    cluster.annotations().get(NODES_ANNOTATION)?.parse().ok()
}

fn of_class(
    target: &ClusterApiTarget,
    class: &ClusterClassReference,
    nodes: i32,
) -> Result<Value, TargetFailure> {
    let mut topology = Map::from_iter(
        [
            ("classRef", json!({ "name": class.name })),
            ("version", json!(target.version)),
            (
                "workers",
                json!({ "machineDeployments": [
                    { "class": class.workers, "name": WORKERS, "replicas": nodes },
                ] }),
            ),
        ]
        .map(|(field, value)| (field.to_owned(), value)),
    );
    // Cluster API refuses what is empty.
    if let Some(machines) = class.control_plane_machines {
        topology.insert("controlPlane".to_owned(), json!({ "replicas": machines }));
    }
    let variables = target.variable_values();
    let variables = variables.map_err(|error| refused(&format!("its variables {error}")))?;
    if !variables.is_empty() {
        let variables = variables.into_iter();
        let variables = variables.map(|(name, value)| json!({ "name": name, "value": value }));
        topology.insert("variables".to_owned(), variables.collect());
    }
    Ok(json!({ "topology": topology }))
}

/// The user's template, for this Burst.
fn parse_template(
    burst: &Burst,
    name: &str,
    template: &str,
    nodes: i32,
) -> Result<Template, TargetFailure> {
    let most = ClusterApiTarget::MAX_TEXT;
    if template.len() > most {
        return Err(refused(&format!(
            "its template has {} bytes: at most {most} are allowed",
            template.len()
        )));
    }
    let text = template
        .replace("${NAME}", name)
        .replace("${NAMESPACE}", &burst.namespace().unwrap_or_default())
        .replace("${NODES}", &nodes.to_string());
    let expected = format!("{CLUSTER_API_GROUP}/{CLUSTER_API_VERSION}");
    // The parser's message may contain a part of the text.
    let template: Template = serde_saphyr::from_str(&text)
        .map_err(|_error| refused(&format!("it is not one Cluster of {expected}, as YAML")))?;
    if template.api_version != expected || template.kind != "Cluster" {
        return Err(refused(&format!("it is not a Cluster of {expected}")));
    }
    if template.metadata.name != name {
        return Err(refused("metadata.name is not ${NAME}: the name is that of the Burst"));
    }
    if template.metadata.namespace.is_some() && template.metadata.namespace != burst.namespace() {
        return Err(refused("metadata.namespace is not ${NAMESPACE}, nor left out"));
    }
    let class = template.spec.pointer("/topology/classRef/namespace").and_then(Value::as_str);
    // Its templates may hold secrets, and who gets the machines can read them.
    if class.is_some() && class != burst.namespace().as_deref() {
        return Err(refused(
            "its class is of another namespace: copy the ClusterClass into this one",
        ));
    }
    Ok(template)
}

fn refused(why: &str) -> TargetFailure {
    TargetFailure::new(Reason::ClusterRefused, format!("the Cluster cannot be made: {why}"))
}

/// How far Cluster API is with the Cluster of a Burst. `has_secret`: it has written the kubeconfig.
pub fn cluster_api_presence(burst: &Burst, cluster: &ApiCluster, has_secret: bool) -> Presence {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Presence::Leaving;
    }
    // Without a status, or with one of another form, it is not ready.
    let status = cluster.status.as_ref().and_then(|it| serde_json::from_str(it.get()).ok());
    let status: ClusterStatus = status.unwrap_or_default();
    if status.initialization.control_plane_initialized {
        // If it was there before, credentials are missing, and brokers may be fine.
        return match has_secret || was_prepared(burst) {
            true => Presence::ClusterReady,
            false => {
                let secret = cluster_secret(burst);
                Presence::ClusterComing(format!("Cluster API has not written Secret {secret} yet"))
            }
        };
    }
    let first = CONDITIONS.iter().find_map(|kind| {
        status.conditions.iter().find(|it| it.kind == *kind && it.status != "True")
    });
    let why = first.map(|it| it.message.as_str()).unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or("Pending");
    let name = cluster.name_any();
    let text = format!("Cluster {name} is {phase}{}{why}", if why.is_empty() { "" } else { ": " });
    Presence::ClusterComing(text.replace('\n', " ").chars().take(MAX_MESSAGE).collect())
}
