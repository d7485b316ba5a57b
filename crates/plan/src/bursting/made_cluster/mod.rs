//! Kubernetes clusters that are made for a Burst: by Cluster API, or by a program of the user's. Either
//! way a Secret with a kubeconfig appears, and brokers are started there as at any other cluster.

mod cluster_api;
mod command;
mod gke;

use flux_operator_api::Burst;
use flux_operator_api::burst::TargetKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::names::{burst_annotations, burst_labels, object_name};

pub use cluster_api::{cluster_api_cluster, cluster_api_kind, cluster_api_presence, cluster_nodes};
pub use command::{CommandJobs, Deletion, Growth, command_presence, down_job, may_exist, up_job};
pub use gke::{gke_command, gke_job};

/// The name of the Secret with the kubeconfig of the cluster that is made for a Burst. Cluster API
/// chooses it by the name of the Cluster.
pub fn cluster_secret(burst: &Burst) -> String {
    format!("{}-kubeconfig", object_name(burst))
}

/// Whether a cluster is made first at a target.
pub(super) fn is_made(burst: &Burst) -> bool {
    match burst.spec.target.kind() {
        TargetKind::ClusterApi(_) | TargetKind::Command(_) | TargetKind::Gke(_) => true,
        TargetKind::Cluster | TargetKind::Kubeconfig(_) | TargetKind::Mock(_) => false,
    }
}

/// The metadata of an object that makes a cluster. The Burst owns it, so that it does not outlive a Burst
/// that is removed by force.
fn metadata(burst: &Burst, name: &str) -> ObjectMeta {
    let cluster_uid = burst.status.as_ref().map(|it| it.cluster_uid.as_str()).unwrap_or_default();
    let owner: Option<OwnerReference> = burst.owner_ref(&());
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: burst.namespace(),
        labels: Some(burst_labels(burst, cluster_uid)),
        annotations: Some(burst_annotations(burst)),
        owner_references: owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}
