//! The Kubernetes objects that install the operator in a cluster, from settings.
//!
//! Pure: no client, no clock. `flux-operator manifests` prints these objects, and tests run the
//! operator with exactly these roles.
//!
//! Names are those of the Go operator's manifests (`operator-system`,
//! `operator-controller-manager`), so that an existing installation can be replaced in place.

mod burst;
mod deployment;
mod gateway;
mod namespace;
mod network;
mod roles;

use std::collections::BTreeMap;

use flux_operator_api::crd;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

pub use burst::burst_objects;
pub use gateway::gateway_objects;

/// The port of the operator: reports, metrics, health.
pub const PORT: u16 = 8080;

/// Name of the Deployment and its ServiceAccount.
pub const OPERATOR: &str = "operator-controller-manager";

/// Name of the Service that agents report to.
pub const REPORTS: &str = "operator-reports";

/// Name of the gateway's Deployment, Service and ServiceAccount.
pub const GATEWAY: &str = "operator-gateway";

/// Name of the burst controller's Deployment and ServiceAccount.
pub const BURST_CONTROLLER: &str = "operator-burst-controller";

/// Name of the Lease that the leader holds.
pub const LEASE: &str = "flux-operator";

/// The settings of an installation.
#[derive(Clone, Debug)]
pub struct InstallSettings {
    /// Namespace of the operator itself.
    pub namespace: String,
    /// Image with the operator and the agent.
    pub image: String,
    /// DNS domain of the Kubernetes cluster.
    pub cluster_domain: String,
    /// The only namespace whose MiniClusters it manages; all namespaces if unset.
    pub watched_namespace: Option<String>,
    /// The number of replicas, of which one is the leader.
    pub replicas: u16,
    /// Whether to add a NetworkPolicy that closes all ports except the operator's own.
    pub network_policy: bool,
    /// Whether to install the gateway, by which brokers of other Kubernetes clusters join.
    pub gateway: bool,
    /// The namespaces that the burst controller serves. It is not installed if there are none.
    pub burst_namespaces: Vec<String>,
    /// In which ways it may have Kubernetes clusters made in these namespaces.
    pub burst_clusters: BurstClusters,
    /// The image of the program with which it has clusters of Google Kubernetes Engine made. Unset: none
    /// are made.
    pub gke_image: Option<String>,
}

/// In which ways the burst controller may have Kubernetes clusters made, besides using those that exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BurstClusters {
    /// By Cluster API: Clusters are created.
    pub cluster_api: bool,
    /// By programs of users: Jobs are created, with any ServiceAccount of the namespace.
    pub commands: bool,
}

impl InstallSettings {
    /// The URL to which agents report.
    pub fn report_url(&self) -> String {
        format!("http://{REPORTS}.{}.svc.{}:{PORT}", self.namespace, self.cluster_domain)
    }

    /// The name of a cluster-scoped object: `operator-<name>` for an installation in
    /// `operator-system`. Installations in `a` and in `a-system` would have the same names; all
    /// others have different ones.
    fn cluster_scoped_name(&self, name: &str) -> String {
        let prefix = self.namespace.strip_suffix("-system").unwrap_or(&self.namespace);
        format!("{prefix}-{name}")
    }

    fn metadata(&self, name: &str) -> ObjectMeta {
        ObjectMeta {
            namespace: Some(self.namespace.clone()),
            ..cluster_scoped_metadata(name.to_owned())
        }
    }
}

/// All objects except the CRDs, in an order in which they can be created.
pub fn operator_objects(settings: &InstallSettings) -> Vec<Value> {
    let mut objects = vec![value(&namespace::namespace(settings))];
    objects.extend(access_objects(settings));
    objects.push(value(&network::reports_service(settings)));
    objects.push(value(&deployment::operator_deployment(settings)));
    if settings.network_policy {
        objects.push(value(&network::network_policy(settings)));
    }
    if settings.gateway {
        objects.extend(gateway_objects(settings));
    }
    if !settings.burst_namespaces.is_empty() {
        objects.extend(burst_objects(settings));
    }
    objects
}

/// The operator's ServiceAccount and its roles.
pub fn access_objects(settings: &InstallSettings) -> Vec<Value> {
    let mut objects = vec![value(&namespace::service_account(settings))];
    objects.extend(roles::roles(settings));
    objects
}

/// The CRDs.
pub fn crds() -> Vec<Value> {
    crd::all().iter().map(value).collect()
}

fn cluster_scoped_metadata(name: String) -> ObjectMeta {
    ObjectMeta { name: Some(name), labels: Some(labels()), ..ObjectMeta::default() }
}

/// The labels of all objects of an installation.
fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("app.kubernetes.io/name".to_owned(), "flux-operator".to_owned())])
}

/// The labels of the operator's pods. They are the Go operator's, because a Deployment's selector
/// cannot change.
fn selector() -> BTreeMap<String, String> {
    BTreeMap::from([("control-plane".to_owned(), "controller-manager".to_owned())])
}

fn value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("Kubernetes objects can be serialized")
}
