//! The observed objects of MiniClusters, kept up to date by watches.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::{Observed, lead_address};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use crate::cache_sync::SyncedStore;
use crate::index::{Index, OwnerKey};
use crate::lease::Term;
use crate::reconciler::WrittenObject;
use crate::reports::Reports;

/// A MiniCluster, or the error if it cannot be deserialized. An invalid object must not affect
/// other objects.
pub(crate) type GuardedMiniCluster = DeserializeGuard<MiniCluster>;

/// All watched objects. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) miniclusters: SyncedStore<GuardedMiniCluster>,
    pub(crate) jobs: Index<Job>,
    pub(crate) pods: Index<Pod>,
    pub(crate) config_maps: Index<ConfigMap>,
    pub(crate) services: Index<Service>,
}

impl Stores {
    /// Waits until all objects have been listed in this term.
    pub(crate) async fn wait_until_synced(&self, term: Term) {
        self.miniclusters.wait_until_synced(term).await;
        self.jobs.wait_until_synced(term).await;
        self.pods.wait_until_synced(term).await;
        self.config_maps.wait_until_synced(term).await;
        self.services.wait_until_synced(term).await;
    }

    /// The current observed state of a MiniCluster, from memory.
    pub(crate) fn observe(
        &self,
        minicluster: &MiniCluster,
        reports: &Reports,
        now: Timestamp,
    ) -> Observed {
        let owner = owner(minicluster);
        let named = |name: &str| name == owner.1;
        let map = format!("{}-entrypoint", owner.1);
        let pods = self.pods.owned_by(&owner);
        let report = reports.last(minicluster.metadata.uid.as_deref().unwrap_or_default());
        // A report does not outlive its pod: an operator that never received it must come to the
        // same result.
        let report = report.filter(|(uid, _)| {
            pods.iter().any(|pod| {
                pod.uid().as_ref() == Some(uid) && pod.metadata.deletion_timestamp.is_none()
            })
        });
        Observed {
            job: self.jobs.owned_by(&owner).into_iter().find(|job| named(&job.name_any())),
            pods,
            config_map: self.config_maps.owned_by(&owner).into_iter().find(|m| m.name_any() == map),
            services: self.services.owned_by(&owner),
            report: report.map(|(_, report)| report),
            watching_since: reports.since(),
            keys_lost: reports
                .has_lost_key(minicluster.metadata.uid.as_deref().unwrap_or_default()),
            waiting: None,
            read_panic: None,
            answers: Vec::new(),
            now,
        }
    }

    /// The resource version of an object of a MiniCluster, if it was observed.
    pub(crate) fn observed_version(
        &self,
        minicluster: &MiniCluster,
        written: &WrittenObject,
    ) -> Option<String> {
        let owner = owner(minicluster);
        match written.kind.as_str() {
            "Job" => version(&self.jobs, &owner, &written.name),
            "Pod" => version(&self.pods, &owner, &written.name),
            "ConfigMap" => version(&self.config_maps, &owner, &written.name),
            "Service" => version(&self.services, &owner, &written.name),
            _ => None,
        }
    }

    /// The address of a cluster's lead, once its pod has one.
    pub(crate) fn lead_address(&self, minicluster: &MiniCluster) -> Option<IpAddr> {
        let owner = owner(minicluster);
        let job = self.jobs.owned_by(&owner).into_iter().find(|job| job.name_any() == owner.1)?;
        lead_address(minicluster, &job, &self.pods.owned_by(&owner))
    }

    /// The MiniCluster with this uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<GuardedMiniCluster>> {
        self.miniclusters.find(|found| found.meta().uid.as_deref() == Some(uid))
    }

    /// Whether all objects have been listed once.
    pub(crate) fn have_synced(&self) -> bool {
        self.miniclusters.has_synced()
            && self.jobs.has_synced()
            && self.pods.has_synced()
            && self.config_maps.has_synced()
            && self.services.has_synced()
    }

    /// The phase of every MiniCluster.
    pub(crate) fn phases(&self) -> Vec<String> {
        let phase = |guarded: &Arc<GuardedMiniCluster>| {
            let status =
                guarded.0.as_ref().ok().and_then(|minicluster| minicluster.status.as_ref());
            let phase = status.map(|status| status.phase.clone()).unwrap_or_default();
            if phase.is_empty() { "Unknown".to_owned() } else { phase }
        };
        self.miniclusters.state().iter().map(phase).collect()
    }

    /// The uids of all MiniClusters.
    pub(crate) fn uids(&self) -> HashSet<String> {
        self.miniclusters.state().iter().filter_map(|found| found.meta().uid.clone()).collect()
    }
}

fn version<K: ResourceExt>(index: &Index<K>, owner: &OwnerKey, name: &str) -> Option<String> {
    index.owned_by(owner).iter().find(|object| object.name_any() == name)?.resource_version()
}

fn owner(minicluster: &MiniCluster) -> OwnerKey {
    (minicluster.namespace().unwrap_or_default(), minicluster.name_any())
}

/// A reference to the MiniCluster with this namespace and name.
pub(crate) fn reference((namespace, name): &OwnerKey) -> ObjectRef<GuardedMiniCluster> {
    ObjectRef::new(name).within(namespace)
}
