//! A Kubernetes for one MiniCluster, in memory: what it does with steps, and what
//! its Job controller and garbage collector do then.

use std::collections::BTreeMap;
use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{CLUSTER_LABEL, DeliveryMethod, Rendering, Settings};
use flux_operator_plan::status::{Outcome, status};
use flux_operator_plan::{Cluster, Plan, Seen, Step, Valid, as_booted, plan};
use flux_operator_testkit::{merge, smallest};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What the pods do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lead {
    /// They get as far as this: `Pending`, `Running`, or `Ready`.
    Is(&'static str),
    /// The lead's command ended with this code.
    Ended(i32),
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    minicluster: Option<Value>,
    has_keys: bool,
    config_map: Option<ConfigMap>,
    services: BTreeMap<String, Service>,
    job: Option<Job>,
    pods: BTreeMap<String, Pod>,
    lead: Lead,
    jobs_made: u32,
    pods_made: u32,
    now: Timestamp,
}

impl World {
    /// More turns than any history needs to settle.
    pub const LONG: usize = 12;

    pub fn new(spec: &Value) -> World {
        World::named("fs", spec)
    }

    pub fn named(name: &str, spec: &Value) -> World {
        let mut minicluster = smallest(name);
        let metadata = json!({ "namespace": "hpc", "uid": "0000-1111", "generation": 1 });
        merge(&mut minicluster, &json!({ "metadata": metadata, "spec": spec }));
        assert_eq!(flux_operator_api::validate::schema_and_rules(&minicluster), []);
        World {
            minicluster: Some(minicluster),
            has_keys: false,
            config_map: None,
            services: BTreeMap::new(),
            job: None,
            pods: BTreeMap::new(),
            lead: Lead::Is("Pending"),
            jobs_made: 0,
            pods_made: 0,
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    // What the operator does.

    /// One pass of the operator. Returns the steps it took.
    pub fn pass(&mut self) -> Vec<Step> {
        let Some(minicluster) = self.parsed() else { return Vec::new() };
        let seen = self.seen();
        let plan = self.plan();
        self.carry_out(&plan.steps);
        let outcome = Outcome {
            hold: plan.hold.as_ref(),
            created: plan.steps.iter().any(|step| matches!(step, Step::CreateJob(_))),
            ..Outcome::default()
        };
        let status = status(&minicluster, &seen, &outcome);
        if let Some(minicluster) = &mut self.minicluster {
            minicluster["status"] = serde_json::to_value(status).unwrap();
        }
        plan.steps
    }

    /// What the operator would do now.
    pub fn plan(&self) -> Plan {
        let Some(minicluster) = self.parsed() else { return Plan::default() };
        let seen = self.seen();
        let valid = as_booted(Valid::check(minicluster.clone()).unwrap(), &seen);
        let cluster = Cluster::of(&valid).unwrap();
        let settings = Settings {
            agent_image: "example.org/flux-operator:1".into(),
            cluster_domain: "cluster.local".into(),
            report_url: Some("http://10.0.0.1:8080".into()),
            delivery: DeliveryMethod::ImageVolume,
        };
        let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings: &settings };
        plan(&minicluster, &rendering, &seen)
    }

    fn parsed(&self) -> Option<MiniCluster> {
        Some(serde_json::from_value(self.minicluster.clone()?).unwrap())
    }

    /// What the watches show: only what carries the label.
    fn seen(&self) -> Seen {
        let services = self.services.values().filter(|service| is_labelled(*service));
        Seen {
            job: self.job.clone().map(Arc::new),
            pods: self.pods.values().cloned().map(Arc::new).collect(),
            config_map: self.config_map.clone().filter(is_labelled).map(Arc::new),
            services: services.cloned().map(Arc::new).collect(),
            ..Seen::nothing(self.now)
        }
    }

    // What the API server does.

    /// Carries steps out. A step that Kubernetes would refuse is a failure.
    pub fn carry_out(&mut self, steps: &[Step]) {
        for step in steps {
            self.take(step);
        }
    }

    /// A new kind of step must be given a meaning here.
    fn take(&mut self, step: &Step) {
        match step {
            Step::CreateKeys => self.has_keys = true,
            Step::CreateConfigMap(map) | Step::ApplyConfigMap(map) => {
                self.config_map = Some(applied(self.config_map.as_ref(), &**map));
            }
            Step::CreateService(service) | Step::ApplyService { service, .. } => {
                let name = service.name_any();
                let service = applied(self.services.get(&name), &**service);
                self.services.insert(name, service);
            }
            Step::CreatePod(pod) => {
                self.pods.entry(pod.name_any()).or_insert_with(|| (**pod).clone());
            }
            Step::CreateJob(job) => self.create_job(job),
            Step::PatchJob(patch) => self.patch_job(patch),
            Step::LabelPod { pod, index } => {
                let pod = self.pods.get_mut(pod).expect("a pod that is labelled was seen");
                pod.labels_mut().insert("job-index".into(), index.clone());
            }
            Step::DeleteJob => self.delete_job(),
            Step::DeleteService(name) => drop(self.services.remove(name)),
            Step::DeleteMiniCluster => self.minicluster = None,
        }
    }

    fn create_job(&mut self, job: &Job) {
        assert!(self.has_keys || job_names_secret(job), "a Job before its keys");
        assert!(self.config_map.is_some(), "a Job before its ConfigMap");
        assert!(!self.services.is_empty(), "a Job before its Service");
        // One that is there stays as it is.
        if self.job.is_none() {
            self.jobs_made += 1;
            let mut job = job.clone();
            job.metadata.uid = Some(format!("job-{}", self.jobs_made));
            let spec = job.spec.as_mut().unwrap();
            spec.suspend.get_or_insert(false);
            self.job = Some(job);
        }
    }

    fn patch_job(&mut self, patch: &Value) {
        let changeable = ["parallelism", "completions", "suspend", "activeDeadlineSeconds"];
        for field in patch["spec"].as_object().into_iter().flatten().map(|(name, _)| name) {
            assert!(changeable.contains(&field.as_str()), "spec.{field} of a Job is immutable");
        }
        let Some(job) = &mut self.job else { return };
        let kueue = job.labels().contains_key("kueue.x-k8s.io/queue-name");
        for field in ["suspend", "parallelism", "completions"] {
            assert!(!kueue || patch["spec"][field].is_null(), "spec.{field} is Kueue's");
        }
        let mut value = serde_json::to_value(&*job).unwrap();
        merge(&mut value, patch);
        *job = serde_json::from_value(value).unwrap();
        let spec = job.spec.as_ref().unwrap();
        assert_eq!(spec.parallelism, spec.completions, "an elastic Job takes both together");
    }

    /// In the background: its pods are still there for a while.
    fn delete_job(&mut self) {
        self.job = None;
        for pod in self.pods.values_mut().filter(|pod| pod.annotations().contains_key(INDEX)) {
            pod.metadata.deletion_timestamp = Some(Time(self.now));
        }
    }

    // What the controllers do.

    /// Everything that Kubernetes' own controllers have to do.
    pub fn control(&mut self) {
        if self.minicluster.is_none() {
            // The garbage collector.
            (self.has_keys, self.config_map, self.job) = (false, None, None);
            self.services.clear();
            self.pods.clear();
        }
        self.pods.retain(|_, pod| pod.metadata.deletion_timestamp.is_none());
        let Some(mut job) = self.job.clone() else { return };
        self.run(&mut job);
        self.job = Some(job);
    }

    fn run(&mut self, job: &mut Job) {
        let mut status = serde_json::to_value(&job.status).unwrap();
        let spec = job.spec.clone().unwrap();
        let ended = has(&status, "Complete") || has(&status, "Failed");
        if ended {
            self.pods.retain(|_, pod| pod.annotations()[INDEX] == "0");
            return;
        }
        if spec.suspend == Some(true) {
            merge(&mut status, &json!({ "conditions": [condition("Suspended")] }));
            self.pods.clear();
        } else {
            // The start counts from the last resumption, and only once it is noticed.
            if status["startTime"].is_null() || has(&status, "Suspended") {
                let resumed = json!({ "conditions": [], "startTime": self.now.to_string() });
                merge(&mut status, &resumed);
            }
            let count = usize::try_from(spec.parallelism.unwrap()).unwrap();
            self.pods.retain(|_, pod| pod.annotations()[INDEX].parse::<usize>().unwrap() < count);
            for index in 0..count {
                self.start_pod(job, index);
            }
            if let Lead::Ended(code) = self.lead {
                let pod = self.pod_of_index(0).expect("made above");
                let end = json!({ "terminated": { "exitCode": code } });
                pod.status = serde_json::from_value(json!({
                    "phase": if code == 0 { "Succeeded" } else { "Failed" },
                    "containerStatuses": [{ "name": "fs", "state": end, "image": "", "imageID": "", "ready": false, "restartCount": 0 }],
                }))
                .unwrap();
                let condition = condition(if code == 0 { "Complete" } else { "Failed" });
                merge(&mut status, &json!({ "conditions": [condition] }));
            }
        }
        job.status = serde_json::from_value(status).unwrap();
    }

    /// A pod of the Job, unless it is there.
    fn start_pod(&mut self, job: &Job, index: usize) {
        if self.pod_of_index(index).is_none() {
            self.pods_made += 1;
            let name = format!("{}-{index}-{}", job.name_any(), self.pods_made);
            let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "controller": true,
                "name": job.name_any(), "uid": job.uid() });
            let template = job.spec.as_ref().unwrap().template.metadata.clone().unwrap();
            let pod = json!({ "metadata": {
                "name": name,
                "labels": template.labels,
                "annotations": { INDEX: index.to_string() },
                "ownerReferences": [owner],
                "creationTimestamp": self.now.to_string(),
            } });
            self.pods.insert(name, serde_json::from_value(pod).unwrap());
        }
        let now = self.now;
        if let Lead::Is(phase) = self.lead {
            let pod = self.pod_of_index(index).expect("made above");
            pod.status = serde_json::from_value(pod_status(pod, phase, now)).unwrap();
        }
    }

    fn pod_of_index(&mut self, index: usize) -> Option<&mut Pod> {
        let index = index.to_string();
        self.pods.values_mut().find(|pod| pod.annotations().get(INDEX) == Some(&index))
    }

    /// A pass, and then the controllers. Returns whether anything has moved.
    pub fn turn(&mut self) -> bool {
        let before = self.clone();
        self.pass();
        self.control();
        *self != before
    }

    /// Lets everybody work until nothing moves any more.
    pub fn settle(&mut self) {
        for _ in 0..World::LONG {
            if !self.turn() {
                return;
            }
        }
        panic!("it never settles; next would be {:?} of {self:#?}", self.plan());
    }

    // What others do.

    /// Changes the spec, unless the API server refuses that.
    pub fn change(&mut self, patch: &Value) {
        let Some(minicluster) = &mut self.minicluster else { return };
        let mut changed = minicluster.clone();
        merge(&mut changed["spec"], patch);
        if changed["spec"] != minicluster["spec"]
            && flux_operator_api::validate::schema_and_rules(&changed).is_empty()
        {
            changed["metadata"]["generation"] =
                (changed["metadata"]["generation"].as_i64().unwrap() + 1).into();
            *minicluster = changed;
        }
    }

    pub fn lead(&mut self, lead: Lead) {
        self.lead = lead;
        self.control();
    }

    pub fn lose_lead(&mut self) {
        let Some(name) = self.pod_of_index(0).map(|pod| pod.name_any()) else { return };
        self.pods.remove(&name);
        let Some(job) = &mut self.job else { return };
        let status = job.status.get_or_insert_default();
        status.failed = Some(status.failed.unwrap_or_default() + 1);
    }

    pub fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Somebody deletes an object.
    pub fn lose(&mut self, kind: &str) {
        match kind {
            "ConfigMap" => self.config_map = None,
            "Service" => self.services.clear(),
            "Job" => self.delete_job(),
            other => panic!("no {other} to lose"),
        }
    }

    /// Somebody changes an object.
    pub fn spoil(&mut self, kind: &str) {
        match kind {
            "ConfigMap" => {
                let theirs = [("boot.json", "{}"), ("theirs", "1")];
                let theirs = theirs.map(|(key, value)| (key.to_owned(), value.to_owned()));
                if let Some(map) = &mut self.config_map {
                    map.data.get_or_insert_default().extend(theirs);
                }
            }
            "Service" => {
                let port = json!({ "port": 8080, "name": "theirs" });
                for spec in self.services.values_mut().filter_map(|service| service.spec.as_mut()) {
                    spec.selector = None;
                    spec.ports = Some(vec![serde_json::from_value(port.clone()).unwrap()]);
                }
            }
            "labels" => {
                if let Some(map) = &mut self.config_map {
                    map.labels_mut().clear();
                }
                for service in self.services.values_mut() {
                    service.labels_mut().clear();
                }
            }
            other => panic!("no {other} to spoil"),
        }
    }

    /// The queue writes a status: a merge patch, as the API server takes it.
    pub fn write_status(&mut self, patch: &Value) {
        if let Some(minicluster) = &mut self.minicluster {
            merge(&mut minicluster["status"], patch);
        }
    }

    /// The queue wants the room back, if it has given any.
    pub fn take_room(&mut self) {
        let status = self.minicluster.as_ref().map(|minicluster| &minicluster["status"]);
        if status.is_some_and(|status| status["admission"].is_object()) {
            self.write_status(&json!({ "admission": { "leaving": "OverQuota" } }));
        }
    }

    // What tests ask.

    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub fn jobs_made(&self) -> u32 {
        self.jobs_made
    }

    /// The names of everything, and the host names of pods.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.services.keys().cloned().collect();
        names.extend(self.config_map.iter().map(|map| map.name_any()));
        if let Some(job) = &self.job {
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
        self.pods.len()
    }

    pub fn is_suspended(&self) -> bool {
        self.job.as_ref().unwrap().spec.as_ref().unwrap().suspend == Some(true)
    }

    pub fn status(&self) -> &Value {
        &self.minicluster.as_ref().unwrap()["status"]
    }

    pub fn condition(&self, kind: &str) -> Condition {
        let conditions = self.parsed().unwrap().status.unwrap().conditions;
        conditions.into_iter().find(|condition| condition.type_ == kind).unwrap()
    }
}

/// What the kubelet says of a pod that got as far as `phase`.
fn pod_status(pod: &Pod, phase: &str, now: Timestamp) -> Value {
    if phase == "Pending" {
        return json!({ "phase": phase });
    }
    let ready = phase == "Ready";
    let status = if ready { "True" } else { "False" };
    // Its time moves when it does; that of one that was never ready is the pod's start.
    let before = pod.status.as_ref().and_then(|status| status.conditions.as_ref()?.first());
    let created = pod.creation_timestamp().unwrap();
    let since = match before {
        Some(before) if before.status == status => before.last_transition_time.clone().unwrap(),
        None if !ready => created.clone(),
        Some(_) | None => Time(now),
    };
    let state = json!({ "running": { "startedAt": created } });
    json!({
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": status, "lastTransitionTime": since }],
        "containerStatuses": [{ "name": "fs", "state": state, "image": "", "imageID": "",
            "ready": ready, "restartCount": 0 }],
    })
}

/// Server-side apply, as far as plans can tell: maps are merged, what others have set
/// beside stays.
fn applied<K>(there: Option<&K>, wanted: &K) -> K
where
    K: serde::Serialize + serde::de::DeserializeOwned,
{
    let mut value = serde_json::to_value(there).unwrap();
    merge(&mut value, &serde_json::to_value(wanted).unwrap());
    serde_json::from_value(value).unwrap()
}

fn is_labelled<K: ResourceExt>(object: &K) -> bool {
    object.labels().contains_key(CLUSTER_LABEL)
}

/// Whether the keys are the user's own.
fn job_names_secret(job: &Job) -> bool {
    serde_json::to_string(job).unwrap().contains("\"mine\"")
}

fn condition(kind: &str) -> Value {
    json!({ "type": kind, "status": "True" })
}

fn has(status: &Value, kind: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind)
}
