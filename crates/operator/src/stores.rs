//! The observed objects of MiniClusters, kept up to date by watches.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use flux_operator_api::burst::BurstPolicy;
use flux_operator_api::{MiniCluster, MiniClusterStatus};
use flux_operator_plan::bursting::burst_ranks;
use flux_operator_plan::{
    JoinerView, LastReport, LenderView, Observed, lead_address, lender_of, may_join, must_consider,
};
use flux_operator_service::guarded::Guarded;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use crate::cache_sync::SyncedStore;
use crate::gateway::Gateway;
use crate::index::{Index, OwnerKey};
use crate::joins::Joins;
use crate::lease::Term;
use crate::reconciler::WrittenObject;
use crate::reports::Reports;

/// A MiniCluster, or the error if it cannot be deserialized. An invalid object must not affect
/// other objects.
pub(crate) type GuardedMiniCluster = Guarded<MiniCluster>;

/// A BurstPolicy, or the error if it cannot be deserialized.
pub(crate) type GuardedPolicy = Guarded<BurstPolicy>;

/// All watched objects. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) miniclusters: SyncedStore<GuardedMiniCluster>,
    pub(crate) jobs: Index<Job>,
    pub(crate) pods: Index<Pod>,
    pub(crate) config_maps: Index<ConfigMap>,
    pub(crate) services: Index<Service>,
    pub(crate) endpoint_slices: Index<EndpointSlice>,
    /// By namespace. It stays empty while the operator cannot list them.
    pub(crate) policies: Index<GuardedPolicy>,
    pub(crate) joins: Joins,
    pub(crate) gateway: Gateway,
}

impl Stores {
    /// Waits until all objects have been listed in this term.
    pub(crate) async fn wait_until_synced(&self, term: Term) {
        self.miniclusters.wait_until_synced(term).await;
        self.jobs.wait_until_synced(term).await;
        self.pods.wait_until_synced(term).await;
        self.config_maps.wait_until_synced(term).await;
        self.services.wait_until_synced(term).await;
        self.endpoint_slices.wait_until_synced(term).await;
        self.policies.wait_until_synced(term).await;
        self.gateway.wait_until_looked_up().await;
    }

    /// The current observed state of a MiniCluster, from memory.
    pub(crate) fn observe(
        &self,
        minicluster: &MiniCluster,
        reports: &Reports,
        now: Timestamp,
    ) -> Observed {
        let owner = owner(minicluster);
        let map = format!("{}-entrypoint", owner.1);
        let pods = self.pods.owned_by(&owner);
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        Observed {
            job: self.job(&owner),
            pods,
            config_map: self.config_maps.owned_by(&owner).into_iter().find(|m| m.name_any() == map),
            services: self.services.owned_by(&owner),
            report: self.report_of(minicluster, reports),
            lender: self.lender_of(minicluster, reports),
            joiners: self.joiners_of(minicluster),
            undecodable: self.undecodable_partners(minicluster),
            join_requests: reports.join_requests(uid, &self.live_pods(minicluster)),
            invited: reports.invited(uid),
            burst_ranks: self.burst_ranks(minicluster),
            gateway: self.gateway.view(minicluster),
            endpoint_slices: self.endpoint_slices.owned_by(&owner),
            watching_since: reports.since(),
            keys_lost: reports.has_lost_key(uid),
            waiting: None,
            read_panic: None,
            answers: Vec::new(),
            now,
        }
    }

    /// How many spare ranks BurstPolicies give a MiniCluster that is started now.
    fn burst_ranks(&self, minicluster: &MiniCluster) -> i32 {
        let namespace = minicluster.namespace().unwrap_or_default();
        let policies = self.policies.owned_by(&(namespace, String::new()));
        burst_ranks(minicluster, policies.iter().filter_map(|policy| policy.0.as_ref().ok()))
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
            "EndpointSlice" => version(&self.endpoint_slices, &owner, &written.name),
            _ => None,
        }
    }

    /// The last report of a cluster's lead. It does not outlive its pod: an operator that never
    /// received it must come to the same result.
    fn report_of(&self, minicluster: &MiniCluster, reports: &Reports) -> Option<LastReport> {
        let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
        let (pod, report) = reports.last(uid)?;
        self.live_pods(minicluster).contains(&pod).then_some(report)
    }

    /// The uids of a MiniCluster's pods that are not being deleted.
    pub(crate) fn live_pods(&self, minicluster: &MiniCluster) -> HashSet<String> {
        let pods = self.pods.owned_by(&owner(minicluster)).into_iter();
        pods.filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .filter_map(|pod| pod.uid())
            .collect()
    }

    /// The lender that a MiniCluster names, if it exists.
    pub(crate) fn lender_of(
        &self,
        minicluster: &MiniCluster,
        reports: &Reports,
    ) -> Option<LenderView> {
        let name = lender_of(minicluster)?;
        let key = (name.namespace, name.name);
        let lender = self.minicluster(&key)?;
        Some(self.as_lender(&lender, reports))
    }

    /// A MiniCluster as those who join it observe it.
    pub(crate) fn as_lender(&self, minicluster: &MiniCluster, reports: &Reports) -> LenderView {
        LenderView {
            job: self.job(&owner(minicluster)),
            report: self.report_of(minicluster, reports),
            minicluster: Arc::new(minicluster.clone()),
        }
    }

    /// The joiners that name a MiniCluster, if it allows them or still lends them ranks.
    fn joiners_of(&self, lender: &MiniCluster) -> Vec<JoinerView> {
        let joiners = self.joins.joiners_of(&owner(lender)).into_iter();
        joiners
            .filter_map(|key| {
                let stored = self.miniclusters.get(&reference(&key))?;
                let joiner =
                    stored.0.as_ref().ok().filter(|joiner| must_consider(lender, joiner))?;
                Some(JoinerView { minicluster: Arc::new(joiner.clone()), job: self.job(&key) })
            })
            .collect()
    }

    /// The uids of a MiniCluster's lender, or of joiners that it lends ranks, that cannot be decoded.
    fn undecodable_partners(&self, minicluster: &MiniCluster) -> Vec<String> {
        let lender = lender_of(minicluster).map(|name| (name.namespace, name.name));
        let leases = minicluster.status.iter().flat_map(|status| &status.leases);
        let holders = leases.map(|lease| (lease.namespace.clone(), lease.name.clone()));
        let partners = lender.into_iter().chain(holders);
        let stored = partners.filter_map(|key| self.miniclusters.get(&reference(&key)));
        stored.filter_map(|stored| stored.0.as_ref().err()?.metadata.uid.clone()).collect()
    }

    fn minicluster(&self, key: &OwnerKey) -> Option<MiniCluster> {
        let stored = self.miniclusters.get(&reference(key))?;
        stored.0.as_ref().ok().cloned()
    }

    /// The Job of a MiniCluster.
    pub(crate) fn job_of(&self, minicluster: &MiniCluster) -> Option<Arc<Job>> {
        self.job(&owner(minicluster))
    }

    fn job(&self, owner: &OwnerKey) -> Option<Arc<Job>> {
        self.jobs.owned_by(owner).into_iter().find(|job| job.name_any() == owner.1)
    }

    /// The address of the lead of a cluster's instance, once its pod has one. The lead of a joiner is
    /// its lender's, and not known if that is in another Kubernetes cluster.
    pub(crate) fn lead_address(&self, minicluster: &MiniCluster) -> Option<IpAddr> {
        if let Some(name) = lender_of(minicluster) {
            let lender = self.minicluster(&(name.namespace, name.name))?;
            return may_join(&lender, minicluster).then(|| self.lead_address(&lender)).flatten();
        }
        if minicluster.spec.remote_lead().is_some() {
            return None;
        }
        let owner = owner(minicluster);
        let job = self.job(&owner)?;
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
            && self.endpoint_slices.has_synced()
            && self.policies.has_synced()
    }

    /// The statuses of all MiniClusters.
    pub(crate) fn statuses(&self) -> Vec<MiniClusterStatus> {
        let state = self.miniclusters.state();
        let statuses = state.iter().filter_map(|guarded| guarded.0.as_ref().ok()?.status.clone());
        statuses.collect()
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
