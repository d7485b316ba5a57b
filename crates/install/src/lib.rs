//! What installs the operator in a cluster: Kubernetes objects from settings.
//!
//! Pure: no client, no clock. `flux-operator manifests` prints what is made here,
//! and tests run the operator with exactly these roles.
//!
//! Names are those of the Go operator's install (`operator-system`,
//! `operator-controller-manager`), so that this one can be applied over it.

mod deployment;
mod namespace;
mod network;
mod roles;

use std::collections::BTreeMap;

use flux_operator_api::crd;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

/// Where the operator listens: reports, metrics, health.
pub const PORT: u16 = 8080;

/// Name of the Deployment and its ServiceAccount.
pub const OPERATOR: &str = "operator-controller-manager";

/// Name of the Service that agents report to.
pub const REPORTS: &str = "operator-reports";

/// Name of the Lease that the leading replica holds.
pub const LEASE: &str = "flux-operator";

/// How the operator is installed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the operator itself.
    pub namespace: String,
    /// Image with the operator and the agent.
    pub image: String,
    /// Domain of the Kubernetes cluster's names.
    pub cluster_domain: String,
    /// The only namespace whose MiniClusters it sees to; all of them if unset.
    pub watched: Option<String>,
    /// How many replicas wait to lead.
    pub replicas: u16,
    /// Whether a NetworkPolicy closes every port but the operator's own.
    pub network_policy: bool,
}

impl Settings {
    /// Where agents report to.
    pub fn report_url(&self) -> String {
        format!("http://{REPORTS}.{}.svc.{}:{PORT}", self.namespace, self.cluster_domain)
    }

    /// The name of an object that belongs to no namespace: `operator-<name>` for an
    /// install in `operator-system`. Two installs never share one.
    fn cluster_wide(&self, name: &str) -> String {
        let prefix = self.namespace.strip_suffix("-system").unwrap_or(&self.namespace);
        format!("{prefix}-{name}")
    }

    fn metadata(&self, name: &str) -> ObjectMeta {
        ObjectMeta { namespace: Some(self.namespace.clone()), ..unnamespaced(name.to_owned()) }
    }
}

/// Every object but the CRDs, in an order that they can be created in.
pub fn operator(settings: &Settings) -> Vec<Value> {
    let mut objects = vec![value(&namespace::namespace(settings))];
    objects.extend(access(settings));
    objects.push(value(&network::reports(settings)));
    objects.push(value(&deployment::deployment(settings)));
    if settings.network_policy {
        objects.push(value(&network::policy(settings)));
    }
    objects
}

/// Who the operator is and what it may do.
pub fn access(settings: &Settings) -> Vec<Value> {
    let mut objects = vec![value(&namespace::service_account(settings))];
    objects.extend(roles::roles(settings));
    objects
}

/// The CRDs.
pub fn crds() -> Vec<Value> {
    crd::all().iter().map(value).collect()
}

fn unnamespaced(name: String) -> ObjectMeta {
    ObjectMeta { name: Some(name), labels: Some(labels()), ..ObjectMeta::default() }
}

/// What everything of an install carries.
fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("app.kubernetes.io/name".to_owned(), "flux-operator".to_owned())])
}

/// What the operator's pods carry. It is the Go operator's, because a Deployment's
/// selector cannot change.
fn selector() -> BTreeMap<String, String> {
    BTreeMap::from([("control-plane".to_owned(), "controller-manager".to_owned())])
}

fn value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("Kubernetes' objects are JSON")
}
