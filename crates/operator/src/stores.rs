//! What the operator sees of the cluster, kept up to date by watches.

use std::net::IpAddr;
use std::sync::Arc;

use flux_operator_api::MiniCluster;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};

use flux_operator_plan::kubernetes::CLUSTER_LABEL;

/// Jobs and pods that carry our label.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) miniclusters: Store<MiniCluster>,
    pub(crate) jobs: Store<Job>,
    pub(crate) pods: Store<Pod>,
}

impl Stores {
    /// The Job of a MiniCluster.
    pub(crate) fn job(&self, minicluster: &MiniCluster) -> Option<Arc<Job>> {
        let namespace = minicluster.namespace().unwrap_or_default();
        let job = self.jobs.get(&ObjectRef::new(&minicluster.name_any()).within(&namespace))?;
        job.metadata.deletion_timestamp.is_none().then_some(job)
    }

    /// The pods of a MiniCluster.
    pub(crate) fn pods(&self, minicluster: &MiniCluster) -> Vec<Arc<Pod>> {
        let (name, namespace) = (minicluster.name_any(), minicluster.namespace());
        self.pods
            .state()
            .into_iter()
            .filter(|pod| pod.namespace() == namespace)
            .filter(|pod| pod.labels().get(CLUSTER_LABEL) == Some(&name))
            .collect()
    }

    /// The address of a cluster's lead, once its pod has one.
    pub(crate) fn lead_address(&self, minicluster: &MiniCluster) -> Option<IpAddr> {
        let pods = self.pods(minicluster);
        let lead = pods.iter().find(|pod| {
            let index = pod.annotations().get("batch.kubernetes.io/job-completion-index");
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            index.is_some_and(|index| index == "0")
                && pod.metadata.deletion_timestamp.is_none()
                && !matches!(phase, Some("Succeeded" | "Failed"))
        })?;
        lead.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
    }

    /// The MiniCluster with this uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<MiniCluster>> {
        self.miniclusters.find(|minicluster| minicluster.metadata.uid.as_deref() == Some(uid))
    }
}

/// Which MiniCluster a labelled object belongs to.
pub(crate) fn owner_of<K: ResourceExt>(object: &K) -> Option<ObjectRef<MiniCluster>> {
    let name = object.labels().get(CLUSTER_LABEL)?;
    Some(ObjectRef::new(name).within(&object.namespace()?))
}
