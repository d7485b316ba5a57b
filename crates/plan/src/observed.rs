//! What was observed of a MiniCluster's objects: the input of every decision.

use std::net::IpAddr;
use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_queue::WaitStatus;
use flux_operator_wire::JoinRequest;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::exposing::GatewayView;
use crate::joining::{InvitedCluster, JoinerView, LenderView};
use crate::last_report::LastReport;
use crate::query::QueryAnswer;

/// Where Kubernetes keeps the index of a Job's pod.
pub(crate) const INDEX_ANNOTATION: &str = "batch.kubernetes.io/job-completion-index";

/// What was observed, and when.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The Job with the MiniCluster's name, if there is one. It may be terminating, or have
    /// another owner.
    pub job: Option<Arc<Job>>,
    /// The Job's pods, and the pod of the services.
    pub pods: Vec<Arc<Pod>>,
    /// The ConfigMap with the boot plan.
    pub config_map: Option<Arc<ConfigMap>>,
    /// Services that belong to the MiniCluster.
    pub services: Vec<Arc<Service>>,
    /// The lead's last report, as long as the pod that sent it exists.
    pub report: Option<LastReport>,
    /// The lender, if this is a joiner and the lender exists.
    pub lender: Option<LenderView>,
    /// The joiners that name this MiniCluster.
    pub joiners: Vec<JoinerView>,
    /// The uids of its lender, or of joiners with a lease, that exist and cannot be decoded.
    pub undecodable: Vec<String>,
    /// What agents of this joiner found on their machines, of pods that exist.
    pub join_requests: Vec<JoinRequest>,
    /// Clusters elsewhere that have asked for permission with an invitation of this one.
    pub invited: Vec<InvitedCluster>,
    /// How many spare ranks the BurstPolicies that select this MiniCluster give it, if it is started
    /// now: see [`burst_ranks`](crate::bursting::burst_ranks).
    pub burst_ranks: i32,
    /// The gateway, for brokers of other Kubernetes clusters.
    pub gateway: GatewayView,
    /// Endpoints of the Service by which others reach this MiniCluster.
    pub endpoint_slices: Vec<Arc<EndpointSlice>>,
    /// Since when the operator accepts reports.
    pub watching_since: Timestamp,
    /// A report could not be verified, because the Secret with its key was deleted.
    pub keys_lost: bool,
    /// Why it waits in its queue, if it does.
    pub waiting: Option<WaitStatus>,
    /// The message of a panic while it was read for its queue, if there was one.
    pub read_panic: Option<String>,
    /// The API server's answers to [`queries`](crate::queries()).
    pub answers: Vec<QueryAnswer>,
    /// The time.
    pub now: Timestamp,
}

impl Observed {
    /// Nothing but the time.
    pub fn empty(now: Timestamp) -> Observed {
        Observed {
            job: None,
            pods: Vec::new(),
            config_map: None,
            services: Vec::new(),
            report: None,
            lender: None,
            joiners: Vec::new(),
            undecodable: Vec::new(),
            join_requests: Vec::new(),
            invited: Vec::new(),
            burst_ranks: 0,
            gateway: GatewayView::default(),
            endpoint_slices: Vec::new(),
            watching_since: now,
            keys_lost: false,
            waiting: None,
            read_panic: None,
            answers: Vec::new(),
            now,
        }
    }

    /// The pods of the Job. Those of a Job that it has replaced, or of a MiniCluster
    /// that was deleted and created again, have the same labels for a while.
    pub(crate) fn job_pods(&self) -> impl Iterator<Item = &Pod> {
        pods_of(self.job.as_deref(), &self.pods)
    }
}

/// The address of a MiniCluster's lead, once its pod has one. `job` and `pods` are those
/// of its name, which may belong to a former MiniCluster of that name.
pub fn lead_address(minicluster: &MiniCluster, job: &Job, pods: &[Arc<Pod>]) -> Option<IpAddr> {
    let uid = minicluster.metadata.uid.as_deref()?;
    job.owner_references().iter().find(|owner| owner.uid == uid)?;
    let lead = pods_of(Some(job), pods)
        .find(|pod| is_lead(pod) && !is_terminating(pod) && !has_finished(pod))?;
    lead.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

fn pods_of<'a>(job: Option<&Job>, pods: &'a [Arc<Pod>]) -> impl Iterator<Item = &'a Pod> {
    let uid = job.and_then(Job::uid);
    pods.iter().map(Arc::as_ref).filter(move |pod| {
        let mut owners = pod.owner_references().iter();
        index(pod).is_some() && owners.any(|owner| Some(&owner.uid) == uid.as_ref())
    })
}

/// The number of pods that a Job should have.
pub(crate) fn completions(job: Option<&Job>) -> usize {
    let completions = job.and_then(|job| job.spec.as_ref()?.completions);
    usize::try_from(completions.unwrap_or_default()).unwrap_or_default()
}

/// Whether a Job has finished, so that it starts no pod any more.
pub(crate) fn is_finished(job: &Job) -> bool {
    let ends = ["Complete", "SuccessCriteriaMet", "Failed", "FailureTarget"];
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| ends.contains(&condition.type_.as_str()) && condition.status == "True")
}

/// A pod's index in its Job, as a number.
pub fn completion_index(pod: &impl ResourceExt) -> Option<u32> {
    pod.annotations().get(INDEX_ANNOTATION)?.parse().ok()
}

/// A pod's index in its Job. It is not its rank: the ranks of a Job need not start at 0.
pub(crate) fn index(pod: &Pod) -> Option<&str> {
    pod.annotations().get(INDEX_ANNOTATION).map(String::as_str)
}

/// The index of the lead's pod.
pub(crate) const LEAD_INDEX: &str = "0";

/// Whether a pod is the lead's.
pub(crate) fn is_lead(pod: &Pod) -> bool {
    index(pod) == Some(LEAD_INDEX)
}

/// Whether no container of a pod runs any more.
pub(crate) fn has_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a pod is being deleted.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};

    fn minicluster(uid: &str) -> MiniCluster {
        let mut manifest = smallest_minicluster("fs");
        merge(&mut manifest, &json!({ "metadata": { "uid": uid } }));
        serde_json::from_value(manifest).unwrap()
    }

    fn job(uid: &str, owner: &str) -> Job {
        let owner = json!({ "apiVersion": "a", "kind": "b", "name": "fs", "uid": owner });
        let metadata = json!({ "name": "fs", "uid": uid, "ownerReferences": [owner] });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn pod(job: &str, index: &str, ip: &str, patch: &Value) -> Arc<Pod> {
        let owner = json!({ "apiVersion": "a", "kind": "b", "name": "fs", "uid": job });
        let mut pod = json!({
            "metadata": { "annotations": { INDEX_ANNOTATION: index }, "ownerReferences": [owner] },
            "status": { "phase": "Running", "podIP": ip },
        });
        merge(&mut pod, patch);
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn the_lead_is_not_that_of_a_former_cluster_of_the_same_name() {
        let older = pod("older job", "0", "10.0.0.1", &json!({}));
        let worker = pod("job", "1", "10.0.0.2", &json!({}));
        let lead = pod("job", "0", "10.0.0.3", &json!({}));
        let (fs, created) = (minicluster("uid"), job("job", "uid"));
        let find = |pods: &[&Arc<Pod>]| {
            let pods: Vec<_> = pods.iter().map(|pod| Arc::clone(pod)).collect();
            lead_address(&fs, &created, &pods)
        };
        assert_eq!(find(&[&older, &worker]), None);
        assert_eq!(find(&[&older, &worker, &lead]), Some([10, 0, 0, 3].into()));
        let pods = [Arc::clone(&older)];
        assert_eq!(lead_address(&fs, &job("older job", "older"), &pods), None);
    }

    #[test]
    fn a_terminating_or_finished_lead_has_no_address() {
        let (fs, created) = (minicluster("uid"), job("job", "uid"));
        for patch in [
            json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
            json!({ "status": { "phase": "Failed" } }),
            json!({ "status": { "podIP": null } }),
        ] {
            let pods = [pod("job", "0", "10.0.0.3", &patch)];
            assert_eq!(lead_address(&fs, &created, &pods), None, "{patch}");
        }
    }
}
