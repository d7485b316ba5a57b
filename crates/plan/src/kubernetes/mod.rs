//! A cluster as Kubernetes objects, one file per kind.
//!
//! Names are the Go operator's where users depend on them: the Job and the runner
//! container have the name of the MiniCluster, the ConfigMap is called `<name>-entrypoint`.

mod cluster_service;
mod config_map;
mod container;
mod delivery;
mod exposed_service;
mod job;
mod labels;
mod pod_template;
mod secret;
mod security;
mod services_pod;
mod sidecar_service;
mod volume;

use flux_operator_api::MiniCluster;
use flux_operator_wire::{BootPlan, FluxHome, ReportTarget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::boot::{RunLocation, boot_plan};
use crate::cluster::Cluster;
use crate::valid::Valid;

pub use cluster_service::cluster_service;
pub use config_map::config_map;
pub(crate) use config_map::config_map_with_ranks;
pub use delivery::{DeliveryMethod, NodeVersions, decide as decide_delivery};
pub(crate) use exposed_service::{
    BROKER_PORT_NAME, OWN_ANNOTATIONS, exposed_endpoints, exposed_name, exposed_service,
};
pub use job::job;
pub use labels::{
    CLUSTER_LABEL, HOLDER_LABEL, LENDER_LABEL, TABLE_LABEL, belongs_to_kueue, has_kueue_label,
    is_services_pod, selector,
};
pub(crate) use secret::mounted_secret;
pub use secret::{
    CertificateCopy, Keys, NewCertificate, NewKeys, secret_name, user_secret, with_keys_only,
};
pub use services_pod::services_pod;
pub use sidecar_service::sidecar_services;

/// The view image that is the Go operator's default.
pub const DEFAULT_VIEW_IMAGE: &str = "ghcr.io/converged-computing/flux-view-ubuntu:tag-noble";

/// What rendering needs besides the MiniCluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Image that contains the agent.
    pub agent_image: String,
    /// Domain of the Kubernetes cluster's names.
    pub cluster_domain: String,
    /// How the agent and Flux are delivered to the pods of clusters that do not set it.
    pub delivery: DeliveryMethod,
    /// Where agents report to, as `http://host:port`.
    pub report_url: Option<String>,
}

/// A cluster and everything its objects are rendered from.
#[derive(Clone, Debug)]
pub struct Rendering<'a> {
    /// The MiniCluster.
    pub minicluster: &'a Valid,
    /// The cluster that it describes.
    pub cluster: &'a Cluster,
    /// The operator's settings.
    pub settings: &'a Settings,
}

/// Where the agent is in the pods.
pub(crate) fn agent_path() -> String {
    format!("{}/{}", volume::AGENT, delivery::AGENT_NAME)
}

/// Where the cluster's keys are in the runner.
pub(crate) fn keys_path() -> &'static str {
    volume::KEYS
}

/// Name of a MiniCluster's Service and subdomain of its pods.
fn headless_name(minicluster: &MiniCluster) -> &str {
    let spec = &minicluster.spec;
    let network = spec.network.as_ref().map(|network| network.headless_name.as_str());
    let own = minicluster.metadata.name.as_deref().unwrap_or_default();
    [network.unwrap_or_default(), &spec.service_name, own]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_default()
}

/// Whether an object is one of a MiniCluster's own, and of no other.
pub(crate) fn is_owned_by(metadata: &ObjectMeta, minicluster: &MiniCluster) -> bool {
    let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// Domain of the names of a MiniCluster's pods.
pub(crate) fn domain(minicluster: &MiniCluster, cluster_domain: &str) -> String {
    let namespace = minicluster.metadata.namespace.as_deref().unwrap_or("default");
    format!("{}.{namespace}.svc.{cluster_domain}", headless_name(minicluster))
}

impl Rendering<'_> {
    /// The MiniCluster's name, which is the Job's too.
    pub fn name(&self) -> &str {
        &self.cluster.name
    }

    /// Name of the Secret with the cluster's keys.
    pub fn secret_name(&self) -> String {
        secret_name(self.minicluster, None)
    }

    /// Whether the certificate is in another Secret than the other keys: the user's, or a copy of
    /// the lender's.
    fn has_certificate_elsewhere(&self) -> bool {
        let copies = self.cluster.joining.as_ref().is_some_and(|it| it.remote.is_none());
        copies || user_secret(self.minicluster).is_some()
    }

    /// Name of the ConfigMap with the boot plan.
    pub fn config_map_name(&self) -> String {
        format!("{}-entrypoint", self.name())
    }

    /// Name of the pod with the cluster's services.
    pub fn services_pod_name(&self) -> String {
        format!("{}-services", self.name())
    }

    /// Name of the cluster's Service and subdomain of the pods.
    pub fn headless_name(&self) -> &str {
        headless_name(self.minicluster)
    }

    /// Whether other clusters may use the cluster's Service too: its name is not the
    /// cluster's own. Each cluster then applies it under a field manager of its own.
    pub fn shares_service(&self) -> bool {
        self.headless_name() != self.name()
    }

    /// The boot plan of the agents.
    pub fn boot_plan(&self) -> BootPlan {
        let domain = domain(self.minicluster, &self.settings.cluster_domain);
        let uid = self.minicluster.metadata.uid.clone().unwrap_or_default();
        let report =
            self.settings.report_url.clone().map(|url| ReportTarget { url, uid: uid.clone() });
        boot_plan(self.cluster, &RunLocation::Pods { uid, domain, flux: self.flux_home(), report })
    }

    fn flux(&self) -> Option<&flux_operator_api::minicluster::Flux> {
        self.minicluster.spec.flux.as_ref()
    }

    fn flux_container(&self) -> Option<&flux_operator_api::minicluster::FluxContainer> {
        self.flux().and_then(|flux| flux.container.as_ref())
    }

    /// Whether Flux comes from a view image.
    fn has_view(&self) -> bool {
        !self.flux_container().is_some_and(|container| container.disable)
    }

    fn flux_home(&self) -> FluxHome {
        match self.has_view() {
            true => FluxHome::View(volume::VIEWS.into()),
            false => FluxHome::Path,
        }
    }

    /// Metadata of an object of the cluster: its name, labels and owner.
    fn metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: self.minicluster.metadata.namespace.clone(),
            labels: Some(labels::of_objects(self)),
            owner_references: self.owner().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }

    /// The MiniCluster as owner; none offline, where it has no uid.
    fn owner(&self) -> Option<OwnerReference> {
        let minicluster: &MiniCluster = self.minicluster;
        minicluster.controller_owner_ref(&())
    }

    /// The MiniCluster as one of several owners.
    fn plain_owner(&self) -> Option<OwnerReference> {
        let minicluster: &MiniCluster = self.minicluster;
        minicluster.owner_ref(&())
    }
}
