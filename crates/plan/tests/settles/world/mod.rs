//! A simulated Kubernetes for one MiniCluster: how it applies steps, and what its Job
//! controller and garbage collector do then.
//!
//! Objects have uids and resource versions, the watches may lag behind the
//! stored state, and a step may fail. A write whose preconditions are not met any more is
//! refused, as by the API server.

mod controllers;
mod operator;
mod server;

use std::collections::BTreeMap;

use flux_operator_api::MiniCluster;
use flux_operator_flux::IdSet;
use flux_operator_plan::{FailureKind, LastReport};
use flux_operator_queue::{WaitReason, WaitStatus};
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_wire::{Drain, Drained, InstanceState};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The state of the pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PodState {
    /// They have reached this: `Pending`, `Running`, or `Ready`.
    Is(&'static str),
    /// The lead's command finished with this exit code.
    Ended(i32),
}

/// The objects of the API server, or an older state of them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Objects {
    minicluster: Option<Value>,
    has_keys: bool,
    config_map: Option<ConfigMap>,
    services: BTreeMap<String, Service>,
    job: Option<Job>,
    pods: BTreeMap<String, Pod>,
}

/// The whole state.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    stored: Objects,
    /// What the watches show, while they lag behind.
    shown: Option<Objects>,
    /// The MiniCluster as its watch shows it, while that one alone lags behind.
    shown_minicluster: Option<Value>,
    /// The operator has written something that the watches do not show yet.
    has_unobserved_writes: bool,
    /// The index of the step that fails in the next reconciliation with steps, and how.
    next_failure: Option<(usize, FailureKind)>,
    /// Whether a status is refused if it was computed from another version of the object.
    strict: bool,
    /// What the lead was asked to do.
    work: Option<Drain>,
    /// Why it waits in its queue.
    waiting: Option<WaitStatus>,
    /// The last report, and the uid of the pod that sent it.
    report: Option<(String, LastReport)>,
    lead: PodState,
    jobs_created: u32,
    pods_created: u32,
    version: u64,
    start: Timestamp,
    now: Timestamp,
}

impl World {
    /// The number of rounds within which every history settles.
    pub const MAX_ROUNDS: usize = 12;

    pub fn new(spec: &Value) -> World {
        World::named("fs", spec)
    }

    pub fn named(name: &str, spec: &Value) -> World {
        let mut minicluster = smallest_minicluster(name);
        let metadata = json!({ "namespace": "hpc", "uid": "0000-1111", "generation": 1,
            "resourceVersion": "1" });
        merge(&mut minicluster, &json!({ "metadata": metadata, "spec": spec }));
        assert_eq!(flux_operator_api::validate::check_schema_and_rules(&minicluster), []);
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        World {
            stored: Objects { minicluster: Some(minicluster), ..Objects::default() },
            shown: None,
            shown_minicluster: None,
            has_unobserved_writes: false,
            next_failure: None,
            strict: true,
            work: None,
            waiting: None,
            report: None,
            lead: PodState::Is("Pending"),
            jobs_created: 0,
            pods_created: 0,
            version: 1,
            start,
            now: start,
        }
    }

    /// The same, but a status is accepted whatever it was computed from.
    pub fn lenient(spec: &Value) -> World {
        World { strict: false, ..World::new(spec) }
    }

    /// A reconciliation, and then the controllers. Returns whether anything has changed.
    pub fn round(&mut self) -> bool {
        let before = self.clone();
        self.reconcile();
        self.control();
        *self != before
    }

    /// Repeats rounds until nothing changes any more. The watches catch up.
    pub fn settle(&mut self) {
        self.catch_up();
        self.next_failure = None;
        for _ in 0..World::MAX_ROUNDS {
            if !self.round() {
                return;
            }
        }
        panic!("it never settles: {self:#?}");
    }

    /// The state without what depends on the number of writes.
    pub fn without_versions(&self) -> World {
        let mut world = World { version: 0, has_unobserved_writes: false, ..self.clone() };
        let Objects { minicluster, has_keys: _, config_map, services, job, pods } =
            &mut world.stored;
        if let Some(minicluster) = minicluster {
            minicluster["metadata"]["resourceVersion"] = Value::Null;
        }
        let metadata = (config_map.iter_mut().map(|it| &mut it.metadata))
            .chain(services.values_mut().map(|it| &mut it.metadata))
            .chain(job.iter_mut().map(|it| &mut it.metadata))
            .chain(pods.values_mut().map(|it| &mut it.metadata));
        metadata.for_each(|metadata| (metadata.uid, metadata.resource_version) = (None, None));
        world
    }

    // What others do.

    /// Changes the spec, unless the API server refuses the change.
    pub fn change(&mut self, patch: &Value) {
        let Some(minicluster) = &self.stored.minicluster else { return };
        let mut changed = minicluster.clone();
        merge(&mut changed["spec"], patch);
        if changed["spec"] != minicluster["spec"]
            && flux_operator_api::validate::check_schema_and_rules(&changed).is_empty()
        {
            let generation = changed["metadata"]["generation"].as_i64().unwrap();
            changed["metadata"]["generation"] = (generation + 1).into();
            changed["metadata"]["resourceVersion"] = self.next_version().into();
            self.stored.minicluster = Some(changed);
        }
    }

    pub fn set_pods(&mut self, lead: PodState) {
        self.lead = lead;
        self.control();
    }

    pub fn lose_lead(&mut self) {
        let Some(name) = self.pod_of_index(0).map(|pod| pod.name_any()) else { return };
        self.stored.pods.remove(&name);
        let version = self.next_version();
        let Some(job) = &mut self.stored.job else { return };
        job.metadata.resource_version = Some(version);
        let status = job.status.get_or_insert_default();
        status.failed = Some(status.failed.unwrap_or_default() + 1);
    }

    /// The lead reports how many brokers are online, and the result of its work.
    pub fn send_report(&mut self, busy: bool) {
        let ready = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
        };
        let online = self.stored.pods.values().filter(|pod| ready(pod)).count();
        let online = IdSet::first_n(u32::try_from(online).unwrap());
        let drained = self.work.clone().map(|requested| {
            let busy = if busy { requested.ranks.clone() } else { Default::default() };
            Drained { asked: requested, busy }
        });
        let received = self.now;
        let Some(lead) = self.pod_of_index(0).filter(|lead| ready(lead)) else { return };
        let state = InstanceState {
            online: Some(online),
            program_started: true,
            drained,
            ..InstanceState::default()
        };
        let reported = LastReport { state, received };
        self.report = lead.uid().map(|uid| (uid, reported));
    }

    /// From now on the watches show nothing new.
    pub fn stall(&mut self) {
        if self.shown.is_none() {
            self.shown = Some(self.stored.clone());
        }
    }

    /// From now on the watch of MiniClusters shows nothing new; the others do.
    pub fn stall_minicluster(&mut self) {
        self.shown_minicluster.clone_from(&self.stored.minicluster);
    }

    /// The watches show the stored state.
    pub fn catch_up(&mut self) {
        (self.shown, self.shown_minicluster) = (None, None);
    }

    /// A step of the next reconciliation with steps fails.
    pub fn fail(&mut self, step: usize, failure: FailureKind) {
        self.next_failure = Some((step, failure));
    }

    pub fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// The queue writes a status by a merge patch.
    pub fn write_status(&mut self, patch: &Value) {
        let version = self.next_version();
        if let Some(minicluster) = &mut self.stored.minicluster {
            merge(&mut minicluster["status"], patch);
            minicluster["metadata"]["resourceVersion"] = version.into();
        }
    }

    /// The queue says why it waits.
    pub fn wait(&mut self, reason: WaitReason) {
        self.waiting = Some(WaitStatus { queue: None, position: None, reason });
    }

    /// The queue evicts the cluster, if it is admitted.
    pub fn evict(&mut self) {
        let status = self.stored.minicluster.as_ref().map(|minicluster| &minicluster["status"]);
        if status.is_some_and(|status| status["admission"].is_object()) {
            self.write_status(&json!({ "admission": { "leaving": "OverQuota" } }));
        }
    }

    // Queries of tests.

    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub fn jobs_made(&self) -> u32 {
        self.jobs_created
    }

    /// The names of all objects, and the host names of pods.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.stored.services.keys().cloned().collect();
        names.extend(self.stored.config_map.iter().map(|map| map.name_any()));
        if let Some(job) = &self.stored.job {
            let size = job.spec.as_ref().unwrap().completions.unwrap();
            names.push(format!("{}-{}", job.name_any(), size - 1));
            let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            let all = pod.containers.iter().chain(pod.init_containers.iter().flatten());
            names.extend(all.map(|container| container.name.clone()));
            names.extend(pod.volumes.iter().flatten().map(|volume| volume.name.clone()));
        }
        names
    }

    pub fn pods(&self) -> usize {
        self.stored.pods.len()
    }

    pub fn is_suspended(&self) -> bool {
        self.stored.job.as_ref().unwrap().spec.as_ref().unwrap().suspend == Some(true)
    }

    pub fn status(&self) -> &Value {
        &self.stored.minicluster.as_ref().unwrap()["status"]
    }

    pub fn condition(&self, kind: &str) -> Condition {
        let minicluster = self.stored.minicluster.clone().unwrap();
        let minicluster: MiniCluster = serde_json::from_value(minicluster).unwrap();
        let conditions = minicluster.status.unwrap().conditions;
        conditions.into_iter().find(|condition| condition.type_ == kind).unwrap()
    }
}
