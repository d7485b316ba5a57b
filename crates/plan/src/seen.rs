//! What was seen of a MiniCluster's objects: the input of every decision.

use std::sync::Arc;

use flux_operator_wire::Report;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::status::Trouble;

/// Where Kubernetes keeps the index of a Job's pod.
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What was seen, and when.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The Job, if there is one that is not being deleted.
    pub job: Option<Arc<Job>>,
    /// The Job's pods, and the pod of the services.
    pub pods: Vec<Arc<Pod>>,
    /// The ConfigMap with the boot plan.
    pub config_map: Option<Arc<ConfigMap>>,
    /// Services that belong to the MiniCluster.
    pub services: Vec<Arc<Service>>,
    /// The lead's last report, while the pod that sent it is there.
    pub report: Option<Report>,
    /// Since when reports have been taken: before, nobody could tell us anything.
    pub watching_since: Timestamp,
    /// The namespace is being deleted.
    pub namespace_is_going: bool,
    /// What the API server answered to a [`Question`](crate::Question).
    pub told: Option<Trouble>,
    /// The time.
    pub now: Timestamp,
}

impl Seen {
    /// Nothing but the time.
    pub fn nothing(now: Timestamp) -> Seen {
        Seen {
            job: None,
            pods: Vec::new(),
            config_map: None,
            services: Vec::new(),
            report: None,
            watching_since: now,
            namespace_is_going: false,
            told: None,
            now,
        }
    }

    /// Whether it matters that the namespace might be going: Kubernetes deletes its
    /// pods first, so a pod that goes may be a sign of it.
    pub fn may_lose_its_namespace(&self) -> bool {
        self.job.is_some() && self.pods.iter().any(|pod| is_going(pod))
    }

    /// The pods of the Job. Those of a Job that it has replaced, or of a MiniCluster
    /// that was deleted and made again, have the same labels for a while.
    pub(crate) fn job_pods(&self) -> impl Iterator<Item = &Pod> {
        let uid = self.job.as_ref().and_then(|job| job.uid());
        self.pods.iter().map(Arc::as_ref).filter(move |pod| {
            let mut owners = pod.owner_references().iter();
            index(pod).is_some() && owners.any(|owner| Some(&owner.uid) == uid.as_ref())
        })
    }
}

/// A pod's index in its Job.
pub(crate) fn index(pod: &Pod) -> Option<&str> {
    pod.annotations().get(INDEX).map(String::as_str)
}

/// Whether a pod is being deleted.
pub(crate) fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}
