//! Kubernetes clusters that are made for a Burst: by Cluster API, or by a program, the user's or that for
//! Google Kubernetes Engine. Either way a Secret with a kubeconfig appears, and brokers are started there as
//! at any other cluster.

mod cluster_api;
mod command;
mod gke;

use flux_operator_api::Burst;
use flux_operator_api::burst::TargetKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::names::{burst_annotations, burst_labels, object_name};

pub use cluster_api::{
    ApiCluster, cluster_api_cluster, cluster_api_kind, cluster_api_presence, cluster_nodes,
};
pub use command::{
    CommandJobs, Deletion, Growth, command_presence, down_job, is_command_job, may_exist,
    needs_permission, up_job,
};
pub use gke::{gke_command, gke_job};

/// The name of the Secret with the kubeconfig of the cluster that is made for a Burst. Cluster API
/// chooses it by the name of the Cluster.
pub fn cluster_secret(burst: &Burst) -> String {
    cluster_secret_name(&object_name(burst))
}

/// The same for the Burst with this object name.
pub fn cluster_secret_name(object_name: &str) -> String {
    format!("{object_name}-kubeconfig")
}

/// Whether a cluster is made first at a target.
pub(super) fn is_made(burst: &Burst) -> bool {
    match burst.spec.target.kind() {
        TargetKind::ClusterApi(_) | TargetKind::Command(_) | TargetKind::Gke(_) => true,
        TargetKind::Cluster | TargetKind::Kubeconfig(_) | TargetKind::Mock(_) => false,
    }
}

/// Whether what is inside the cluster of a Burst has to be asked for. It is deleted with the cluster, even
/// if that does not respond; of a run it is asked first whether the job has started.
pub fn asks_inside(burst: &Burst) -> bool {
    match burst.is_isolated() {
        true => !burst.run().is_some_and(|run| run.output_settled),
        false => burst.metadata.deletion_timestamp.is_none(),
    }
}

/// Whether objects may be created inside the cluster of a Burst, as soon as there is one. The Job of a run
/// is created only after that was recorded.
pub fn creates_inside(burst: &Burst) -> bool {
    burst.run().is_none_or(|run| run.may_have_run)
}

/// The metadata of an object that makes a cluster.
fn metadata(burst: &Burst, name: &str) -> ObjectMeta {
    let cluster_uid = burst.status.as_ref().map(|it| it.cluster_uid.as_str()).unwrap_or_default();
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: burst.namespace(),
        labels: Some(burst_labels(burst, cluster_uid)),
        annotations: Some(burst_annotations(burst)),
        ..ObjectMeta::default()
    }
}
