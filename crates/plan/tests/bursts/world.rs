//! A MiniCluster, its operator, a target and a controller, as values.

use flux_operator_api::burst::TargetKind;
use flux_operator_api::minicluster::{InvitationLease, InvitationRefusal, Lease, LeaseState};
use flux_operator_api::{Burst, MiniCluster, Reason};
use flux_operator_flux::{IdSet, RankList};
use flux_operator_plan::bursting::{
    BURST_FINALIZER, BurstDecision, BurstObserved, BurstStep, HomeAnswer, ObservedMiniCluster,
    Presence, TargetFailure, TargetView, after_failure, decide_burst, field_manager,
    must_ask_target, object_name,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The first of the ranks that are leased.
const FIRST_RANK: u32 = 2;

pub struct World {
    pub burst: Option<Burst>,
    pub cluster: Option<MiniCluster>,
    pub target: TargetView,
    /// A Kubernetes cluster is made first.
    pub makes_cluster: bool,
    /// That cluster is ready as soon as it is asked for.
    pub is_made: bool,
    /// Pods that the target does not delete yet.
    pub lingers: bool,
    pub failure: Option<TargetFailure>,
    /// The target does not say how many pods there are.
    pub hides_pods: bool,
    /// The API server refuses to change the MiniCluster.
    pub refuses_claims: bool,
    /// Ranks of running jobs.
    pub running: Vec<IdSet>,
    /// The same of jobs that only the lead knows: they have just started.
    pub started: Vec<IdSet>,
    /// Brokers do not reach the lead, although their pods run.
    pub is_cut_off: bool,
    /// Why the lender refuses brokers.
    pub refusal: Option<InvitationRefusal>,
    pub now: Timestamp,
    /// The names of the steps that were made.
    pub steps: Vec<&'static str>,
    /// Why the Burst is given back by itself.
    pub deleted_for: Option<String>,
}

pub fn start() -> Timestamp {
    "2026-05-04T10:00:00Z".parse().unwrap()
}

/// A Burst at another cluster, with `spec` merged into its own.
pub fn burst(spec: &Value) -> Burst {
    let mut burst = json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "Burst",
        "metadata": { "name": "b", "namespace": "ns", "uid": "burst-uid", "generation": 1,
            "creationTimestamp": start().to_string() },
        "spec": { "cluster": "fs", "nodes": 2, "lifetimeSeconds": 3600, "graceSeconds": 60,
            "target": { "name": "away", "maxNodes": 4, "kubeconfig": { "secret": "s" } } },
    });
    flux_operator_testkit::merge(&mut burst, &json!({ "spec": spec }));
    serde_json::from_value(burst).unwrap()
}

impl World {
    pub fn new(spec: Value) -> World {
        let cluster = json!({
            "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "metadata": { "name": "fs", "namespace": "ns", "uid": "fs-uid" },
            "spec": { "size": 2, "containers": [{ "image": "i" }],
                "flux": { "bursting": { "spareRanks": 4, "expose": { "type": "NodePort" } } } },
        });
        World {
            burst: Some(burst(&spec)),
            cluster: Some(serde_json::from_value(cluster).unwrap()),
            target: TargetView::default(),
            makes_cluster: false,
            is_made: true,
            lingers: false,
            failure: None,
            hides_pods: false,
            refuses_claims: false,
            running: Vec::new(),
            started: Vec::new(),
            is_cut_off: false,
            refusal: None,
            now: start(),
            steps: Vec::new(),
            deleted_for: None,
        }
    }

    pub fn burst(&self) -> &Burst {
        self.burst.as_ref().unwrap()
    }

    pub fn status(&self) -> flux_operator_api::BurstStatus {
        self.burst().status.clone().unwrap_or_default()
    }

    /// Whether something exists at the target.
    pub fn has_any(&self) -> bool {
        self.target.presence != Presence::Nothing
    }

    /// The reason of a condition.
    pub fn reason(&self, kind: &str) -> String {
        let status = self.status();
        let condition = status.conditions.iter().find(|it| it.type_ == kind);
        condition.map(|it| format!("{} {}", it.status, it.reason)).unwrap_or_default()
    }

    /// A policy has created the Burst.
    pub fn own(&mut self, policy: &str) {
        let owner = json!([{ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "name": policy, "uid": "uid" }]);
        let burst = self.burst.as_mut().unwrap();
        burst.metadata.owner_references = serde_json::from_value(owner).unwrap();
    }

    pub fn delete_burst(&mut self) {
        let burst = self.burst.as_mut().unwrap();
        burst.metadata.deletion_timestamp = Some(Time(self.now));
        if burst.metadata.finalizers.is_none() {
            self.burst = None;
        }
    }

    pub fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// What the controller decides now.
    pub fn decide(&self) -> BurstDecision {
        decide_burst(self.burst(), &self.observed())
    }

    pub fn observed(&self) -> BurstObserved<'_> {
        let target = must_ask_target(self.burst(), self.now).then(|| match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => {
                let present = (!self.hides_pods).then_some(self.target.nodes);
                Ok(TargetView { present, ..self.target.clone() })
            }
        });
        let running = Some(self.running.clone());
        let home = HomeAnswer::NotAsked;
        BurstObserved {
            cluster: self
                .cluster
                .as_ref()
                .map_or(ObservedMiniCluster::Missing, ObservedMiniCluster::Readable),
            others: &[],
            target,
            running,
            home,
            now: self.now,
        }
    }

    /// One reconciliation of the controller, which may be killed before it makes the step; then the
    /// others react.
    pub fn reconcile(&mut self, is_killed: bool) {
        if self.burst.is_some() {
            let BurstDecision { status, step, .. } = self.decide();
            self.burst.as_mut().unwrap().status = Some(status);
            if let Some(step) = step.filter(|_| !is_killed) {
                self.make(&step);
            }
        }
        self.react();
    }

    /// Reconciles until nothing changes for a while. A second passes each time.
    pub fn settle(&mut self) {
        for _ in 0..40 {
            self.reconcile(false);
            self.pass(1);
        }
    }

    fn make(&mut self, step: &BurstStep) {
        self.steps.push(match step {
            BurstStep::AddFinalizer => "AddFinalizer",
            BurstStep::ClaimCluster(_) => "ClaimCluster",
            BurstStep::Create => "Create",
            BurstStep::Scale(_) => "Scale",
            BurstStep::SaveOutput(_) => "SaveOutput",
            BurstStep::DeleteObjects => "DeleteObjects",
            BurstStep::Finish => "Finish",
            BurstStep::DeleteSelf(_) => "DeleteSelf",
        });
        if let Some(failure) = self.failure.clone()
            && matches!(step, BurstStep::Create | BurstStep::Scale(_) | BurstStep::DeleteObjects)
        {
            let status = after_failure(self.burst(), &self.observed(), failure);
            self.burst.as_mut().unwrap().status = Some(status);
            return;
        }
        if self.refuses_claims && matches!(step, BurstStep::ClaimCluster(_)) {
            let failure = TargetFailure::new(Reason::LenderNotReady, "it has 64 invitations");
            let status = after_failure(self.burst(), &self.observed(), failure);
            self.burst.as_mut().unwrap().status = Some(status);
            return;
        }
        match step {
            BurstStep::AddFinalizer => {
                let finalizers = Some(vec![BURST_FINALIZER.to_owned()]);
                self.burst.as_mut().unwrap().metadata.finalizers = finalizers;
            }
            BurstStep::ClaimCluster(claim) => self.apply_claim(claim),
            BurstStep::Create => {
                let is_first = self.target.presence == Presence::Nothing;
                if self.makes_cluster && is_first {
                    self.target.presence = Presence::ClusterComing("it boots".into());
                    return;
                }
                let nodes = self.burst().spec.nodes;
                let known = std::mem::take(&mut self.target);
                self.target = TargetView { presence: Presence::Complete, nodes, ..known };
            }
            BurstStep::Scale(nodes) => self.target.nodes = *nodes,
            BurstStep::SaveOutput(_) => panic!("its brokers join the instance"),
            BurstStep::DeleteObjects => {
                self.target.presence = match self.lingers {
                    true => Presence::Leaving,
                    false => Presence::Nothing,
                };
            }
            BurstStep::Finish => {
                self.release();
                self.burst = None;
            }
            BurstStep::DeleteSelf(why) => {
                self.deleted_for = Some(why.clone());
                self.delete_burst();
            }
        }
    }

    /// What the API server does with a server-side apply.
    fn apply_claim(&mut self, claim: &Value) {
        let manager = field_manager(self.burst());
        let name = object_name(self.burst());
        let Some(cluster) = self.cluster.as_mut() else { return };
        assert_eq!(claim["metadata"]["uid"], json!("fs-uid"));
        cluster.metadata.finalizers =
            serde_json::from_value(claim["metadata"]["finalizers"].clone()).unwrap();
        cluster.metadata.managed_fields =
            Some(vec![ManagedFieldsEntry { manager: Some(manager), ..Default::default() }]);
        let bursting = cluster.spec.flux.as_mut().unwrap().bursting.as_mut().unwrap();
        bursting.invitations.retain(|it| it.name != name);
        let applied = &claim["spec"]["flux"]["bursting"]["invitations"];
        let applied: Vec<_> = serde_json::from_value(applied.clone()).unwrap_or_default();
        bursting.invitations.extend::<Vec<_>>(applied);
    }

    fn release(&mut self) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        cluster.metadata.finalizers = None;
        cluster.metadata.managed_fields = None;
        let bursting = cluster.spec.flux.as_mut().unwrap().bursting.as_mut().unwrap();
        bursting.invitations.clear();
    }

    /// The operator leases ranks and drains them, and brokers join and leave.
    fn react(&mut self) {
        if matches!(self.target.presence, Presence::ClusterComing(_)) && self.is_made {
            self.target.presence = Presence::ClusterReady;
        }
        let has_any =
            self.target.presence == Presence::Complete || self.target.presence == Presence::Leaving;
        let Some(cluster) = self.cluster.as_mut() else { return };
        let invitations =
            cluster.spec.flux.as_ref().unwrap().bursting.as_ref().unwrap().invitations.clone();
        let mut status = cluster.status.clone().unwrap_or_default();
        let is_joiner = self.burst.as_ref().is_some_and(|burst| {
            matches!(burst.spec.target.kind(), TargetKind::Cluster) && has_any
        });
        let claims = invitations.iter().map(|it| (it.name.clone(), it.ranks, it.keep));
        let joiner = self.burst.as_ref().filter(|_| is_joiner);
        // A joiner that is suspended keeps its ranks as long as jobs run on them.
        let is_busy = !self.running.is_empty() || !self.started.is_empty();
        let joiner = joiner.map(|it| {
            let is_leaving = self.target.nodes == 0 && is_busy;
            let nodes = if is_leaving { it.spec.nodes } else { self.target.nodes };
            (object_name(it), nodes, None)
        });
        let joiner = joiner.filter(|(_, nodes, _)| *nodes > 0);
        status.leases = claims
            .chain(joiner)
            .map(|(name, ranks, keep)| {
                let count = u32::try_from(ranks).unwrap();
                let all: RankList = (FIRST_RANK..FIRST_RANK + count).collect();
                let kept = usize::try_from(keep.unwrap_or(ranks)).unwrap();
                let (_, left) = all.split_at(kept);
                let busy = IdSet::union_all(self.running.iter().chain(&self.started));
                let drained = left.to_set().difference(&busy).to_string();
                Lease {
                    ranks: all.to_string(),
                    holder: format!("invitation:{name}"),
                    namespace: "ns".into(),
                    name,
                    table: "t".into(),
                    since: start().to_string(),
                    state: LeaseState::Active,
                    invitation: Some(InvitationLease {
                        drained,
                        refusal: self.refusal.clone(),
                        ..InvitationLease::default()
                    }),
                }
            })
            .collect();
        let nodes = u32::try_from(self.target.nodes).unwrap();
        // A target that does not answer may have brokers that are fine.
        let is_away = self.is_cut_off || self.refusal.is_some();
        let joined = if has_any && !is_away { nodes } else { 0 };
        let has_lease = !status.leases.is_empty();
        let online: IdSet = (FIRST_RANK..FIRST_RANK + if has_lease { joined } else { 0 }).collect();
        status.online = IdSet::first_n(FIRST_RANK).union(&online).to_string();
        cluster.status = Some(status);
    }
}

/// A failure of the target.
pub fn failure(reason: Reason) -> Option<TargetFailure> {
    Some(TargetFailure::new(reason, "it has failed"))
}
