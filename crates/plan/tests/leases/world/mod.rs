//! A simulated Kubernetes with one lender, some joiners, and two operators; and brokers elsewhere, which
//! use invitations.

mod controllers;
mod instance;
mod invariants;
mod operators;
mod remote_joiners;
mod server;

use std::collections::BTreeMap;

use flux_operator_api::MiniCluster;
use flux_operator_flux::RankList;
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_plan::{LastReport, Object, Observed, PermittedPods, Step, decide};
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_wire::Drain;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use remote_joiners::{KnownRemoteJoiners, RemotePod};

const LENDER: &str = "lender";

/// The uid of the lender's Job.
const LENDER_JOB: &str = "lender-job";

/// A kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    MiniClusters,
    Jobs,
    Pods,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::MiniClusters, Kind::Jobs, Kind::Pods];
}

/// The objects of the API server, or an older state of them.
#[derive(Clone, Debug, Default)]
struct Objects {
    miniclusters: BTreeMap<String, Value>,
    jobs: BTreeMap<String, Job>,
    /// The ranks in the boot plans of joiners.
    boot_plans: BTreeMap<String, RankList>,
    joiner_pods: BTreeMap<String, JoinerPod>,
    lender_pods: BTreeMap<String, LenderPod>,
}

/// A pod of a joiner.
#[derive(Clone, Debug)]
struct JoinerPod {
    uid: String,
    holder: String,
    owner: String,
    job: String,
    table: String,
    index: u32,
    /// The ranks in the boot plan that its agent reads.
    ranks: RankList,
    is_terminating: bool,
    /// The rank of its broker, once it has the permission to start.
    broker: Option<u32>,
    /// The lead knows the broker.
    is_online: bool,
}

impl JoinerPod {
    /// Whether its agent asks for permission. One that was asked to stop asks no more.
    fn asks(&self) -> bool {
        !self.is_terminating && self.broker.is_none()
    }
}

/// A pod of the lender. Its broker has its index as rank, and starts without permission.
#[derive(Clone, Debug)]
struct LenderPod {
    index: u32,
    is_terminating: bool,
    /// The lead knows the broker.
    is_online: bool,
}

/// One replica of the operator.
#[derive(Clone, Debug, Default)]
struct Operator {
    view: Objects,
    report: Option<LastReport>,
    remote_joiners: KnownRemoteJoiners,
}

#[derive(Clone, Debug)]
pub struct World {
    stored: Objects,
    operators: [Operator; 2],
    remote_pods: Vec<RemotePod>,
    /// What the operator that leads knows: only that one gives permission for invitations.
    permitted: PermittedPods,
    /// What the lead was asked to drain.
    work: Drain,
    /// The number in the last name or version that was made.
    last_number: u32,
    now: Timestamp,
}

impl World {
    pub fn new(joiners: usize) -> World {
        World::with_lender(joiners, json!({ "spareRanks": 2 }))
    }

    /// The same with a lender that can invite.
    pub fn exposed(joiners: usize) -> World {
        World::with_lender(joiners, json!({ "spareRanks": 2, "expose": {} }))
    }

    fn with_lender(joiners: usize, bursting: Value) -> World {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut world = World {
            stored: Objects::default(),
            operators: Default::default(),
            remote_pods: Vec::new(),
            permitted: PermittedPods::default(),
            work: Drain::default(),
            last_number: 0,
            now,
        };
        let flux = json!({ "bursting": bursting });
        world.add(LENDER, json!({ "size": 2, "maxSize": 4, "interactive": true, "flux": flux }));
        world.start_lender();
        for joiner in 0..joiners {
            world.create(joiner);
        }
        world.catch_up_all();
        world
    }

    fn add(&mut self, name: &str, spec: Value) {
        let mut minicluster = smallest_minicluster(name);
        let (uid, version) = (self.fresh("uid"), self.fresh(""));
        let created = self.now.to_string();
        let metadata = json!({ "namespace": "hpc", "uid": uid, "generation": 1,
            "resourceVersion": version, "creationTimestamp": created });
        merge(&mut minicluster, &json!({ "metadata": metadata, "spec": spec }));
        assert_eq!(flux_operator_api::validate::check_schema_and_rules(&minicluster), []);
        self.stored.miniclusters.insert(name.to_owned(), minicluster);
    }

    /// The lender's Job exists, as the operator has created it, and its brokers are online.
    fn start_lender(&mut self) {
        let lender = self.read(&self.stored, LENDER).unwrap();
        let nothing = Observed::empty(self.now);
        let decision = decide(&lender, &nothing, &settings());
        let job = decision.steps.into_iter().find_map(|step| match step {
            Step::Create(Object::Job(job)) => Some(*job),
            _ => None,
        });
        let mut job = job.unwrap();
        job.metadata.uid = Some(LENDER_JOB.into());
        let status = json!({ "startTime": self.now.to_string(), "active": 2 });
        job.status = Some(serde_json::from_value(status).unwrap());
        self.stored.jobs.insert(LENDER.into(), job);
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "Quorum", "message": "",
            "lastTransitionTime": self.now.to_string() }]);
        self.stored.miniclusters.get_mut(LENDER).unwrap()["status"] =
            json!({ "conditions": ready });
        self.control();
        self.stored.lender_pods.values_mut().for_each(|pod| pod.is_online = true);
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.last_number += 1;
        format!("{prefix}{}", self.last_number)
    }

    fn read(&self, objects: &Objects, name: &str) -> Option<MiniCluster> {
        let minicluster = objects.miniclusters.get(name)?;
        Some(serde_json::from_value(minicluster.clone()).unwrap())
    }

    /// The names of the joiners that exist.
    fn joiners(&self) -> Vec<String> {
        self.stored.miniclusters.keys().filter(|name| *name != LENDER).cloned().collect()
    }

    pub fn count_joiner_pods(&self) -> usize {
        self.stored.joiner_pods.len()
    }

    pub fn has_job(&self, joiner: usize) -> bool {
        self.stored.jobs.contains_key(&name(joiner))
    }

    // What users do.

    pub fn create(&mut self, joiner: usize) {
        let name = name(joiner);
        if !self.stored.miniclusters.contains_key(&name) {
            self.add(&name, json!({ "size": 1, "flux": { "join": { "name": LENDER } } }));
        }
    }

    pub fn change(&mut self, joiner: usize, field: &str, value: Value) {
        self.edit(&name(joiner), |minicluster| minicluster["spec"][field] = value);
    }

    pub fn resize_lender(&mut self, size: i32) {
        self.edit(LENDER, |minicluster| minicluster["spec"]["size"] = size.into());
    }

    pub fn delete(&mut self, joiner: usize) {
        let now = self.now.to_string();
        self.edit(&name(joiner), |it| it["metadata"]["deletionTimestamp"] = now.into());
        self.remove_finalized();
    }

    /// The lender's leases are lost.
    pub fn lose_status(&mut self) {
        self.edit(LENDER, |lender| {
            lender["status"].as_object_mut().unwrap().remove("leases");
        });
    }

    pub fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.close_connections();
    }
}

/// The name of one of the pods that `is_candidate` selects: that with this number, counted from the
/// first again after the last.
fn nth_pod<T>(
    pods: &BTreeMap<String, T>,
    number: usize,
    is_candidate: impl Fn(&T) -> bool,
) -> Option<String> {
    let names: Vec<_> = pods.iter().filter(|(_, pod)| is_candidate(pod)).collect();
    names.get(number.checked_rem(names.len())?).map(|(name, _)| (*name).clone())
}

/// The name of a joiner.
pub fn name(joiner: usize) -> String {
    format!("joiner-{joiner}")
}

/// How many pods a Job should have.
fn wanted(job: &Job) -> u32 {
    let spec = job.spec.as_ref().unwrap();
    match spec.suspend {
        Some(true) => 0,
        _ => u32::try_from(spec.completions.unwrap()).unwrap(),
    }
}

fn settings() -> Settings {
    Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        report_url: Some("http://10.0.0.1:8080".into()),
        delivery: DeliveryMethod::ImageVolume,
    }
}
