//! Objects, the scheduler and the records together: what was written is what the
//! scheduler reads after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use flux_operator_api::{FluxJob, FluxSetup, Reason};
use flux_operator_plan::queueing::admission;
use flux_operator_plan::queueing::setup::{SetupContext, read};
use flux_operator_plan::queueing::workload::{JobContext, of_job};
use flux_operator_plan::reason::{of_inactive, of_waiting};
use flux_operator_queue::{Resource, Scheduler, SetupName, Usage};
use flux_operator_testkit::merge;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::objects::{after, job_with, setup};

/// Jobs by their names, setups, and a scheduler with all of them.
struct ScheduledObjects {
    scheduler: Scheduler,
    setups: Vec<Arc<FluxSetup>>,
    jobs: BTreeMap<String, Value>,
    now: Timestamp,
}

impl ScheduledObjects {
    fn new(setups: &[FluxSetup], jobs: &[(&str, Value)]) -> ScheduledObjects {
        let created = |second: usize| after(i64::try_from(second).unwrap()).to_string();
        let job = |(second, (name, spec)): (usize, &(&str, Value))| {
            let metadata = json!({ "name": name, "uid": format!("uid-of-{name}"),
                "creationTimestamp": created(second) });
            let job = job_with(json!({ "metadata": metadata, "spec": spec }));
            ((*name).to_owned(), serde_json::to_value(job).unwrap())
        };
        let mut cluster = ScheduledObjects {
            scheduler: Scheduler::new("flux-operator"),
            setups: setups.iter().cloned().map(Arc::new).collect(),
            jobs: jobs.iter().enumerate().map(job).collect(),
            now: after(60),
        };
        cluster.restart();
        cluster
    }

    /// Replaces the scheduler by one that has read everything.
    fn restart(&mut self) {
        self.scheduler = Scheduler::new("flux-operator");
        let namespaces = BTreeMap::new();
        for setup in &self.setups {
            let around = SetupContext {
                operator_namespace: "flux-operator",
                namespaces: &namespaces,
                node_capacity: None,
            };
            self.scheduler.put_setup(read(setup, around));
        }
        self.put_jobs();
    }

    fn put_jobs(&mut self) {
        for job in self.jobs.values() {
            let job: FluxJob = serde_json::from_value(job.clone()).unwrap();
            self.scheduler.put(of_job(&job, JobContext::default()).unwrap().unwrap());
        }
    }

    /// Runs a cycle, writes its decisions and reads them back. Returns the admitted jobs.
    fn cycle(&mut self) -> Vec<String> {
        let admit = self.scheduler.cycle(self.now.as_millisecond()).admit;
        for admit in &admit {
            let value = self.jobs.get_mut(&*admit.name).unwrap();
            let job: FluxJob = serde_json::from_value(value.clone()).unwrap();
            let patch = admission::job_write(&job, admit, self.now);
            merge(&mut value["status"], &patch["status"]);
        }
        self.put_jobs();
        admit.iter().map(|admit| format!("{} {}", admit.name, admit.admission.size)).collect()
    }

    fn finish(&mut self, name: &str) {
        merge(
            &mut self.jobs.get_mut(name).unwrap()["status"],
            &json!({ "finishTime": self.now.to_string() }),
        );
        self.put_jobs();
    }

    fn why(&self, name: &str) -> (&'static str, String) {
        let uid = format!("uid-of-{name}").as_str().into();
        let reason = self.scheduler.explain(&uid, self.now.as_millisecond()).unwrap().reason;
        (of_waiting(&reason).as_str(), reason.to_string())
    }

    fn usage(&self) -> Usage {
        self.scheduler.usage(&SetupName::new("hpc", "batch")).unwrap()
    }
}

fn setup_with(patch: Value) -> FluxSetup {
    setup(json!({ "spec": patch }))
}

#[test]
fn q8_three_jobs_for_quota_of_two() {
    let jobs = ["a", "b", "c"].map(|name| (name, json!({ "size": 1 })));
    let mut cluster =
        ScheduledObjects::new(&[setup_with(json!({ "quota": { "nodes": 2 } }))], &jobs);
    assert_eq!(cluster.cycle(), ["a 1", "b 1"]);
    assert_eq!(cluster.cycle(), [""; 0]);
    assert_eq!(cluster.why("c"), ("WaitingForQuota", "missing 1 node".into()));
    cluster.finish("a");
    assert_eq!(cluster.cycle(), ["c 1"]);
    let usage = cluster.usage();
    assert_eq!((usage.used.amount(&Resource::Nodes), usage.admitted), (2, 2));
}

#[test]
fn q4_a_restart_at_any_point_changes_nothing() {
    let cpu = json!({ "requests": { "cpu": "1500m", "memory": "300M" } });
    let template = json!({ "spec": { "containers": [{ "resources": cpu }],
        "services": [{ "name": "db", "resources": cpu }] } });
    let jobs = ["a", "b"].map(|name| (name, json!({ "size": 2, "template": template })));
    let quota = json!({ "nodes": null, "cpu": "6", "memory": "2G", "pods": 10 });
    let mut cluster = ScheduledObjects::new(&[setup_with(json!({ "quota": quota }))], &jobs);
    cluster.restart();
    assert_eq!(cluster.cycle(), ["a 2"]);
    let (usage, why) = (cluster.usage(), cluster.why("b"));
    assert_eq!(usage.used.to_string(), "nodes 2, pods 3, cpu 4500m, memory 900000000");
    assert_eq!(why, ("WaitingForQuota", "missing 3 cpu".into()));
    cluster.restart();
    assert_eq!((cluster.usage(), cluster.why("b")), (usage, why));
    assert_eq!(cluster.cycle(), [""; 0]);
}

#[test]
fn q6_jobs_that_came_before_any_setup_are_admitted_in_order() {
    let jobs = ["c", "b", "a"].map(|name| (name, json!({ "size": 1 })));
    let mut cluster = ScheduledObjects::new(&[], &jobs);
    assert_eq!(cluster.cycle(), [""; 0]);
    assert_eq!(cluster.why("a").0, "NoQueue");
    cluster.setups = vec![Arc::new(setup_with(json!({ "quota": { "nodes": 2 } })))];
    cluster.restart();
    assert_eq!(cluster.cycle(), ["c 1", "b 1"]);
}

#[test]
fn q23_a_job_with_a_minimum_size_gets_what_is_free() {
    let jobs = [("a", json!({ "size": 3 })), ("b", json!({ "size": 4, "minSize": 1 }))];
    let mut cluster = ScheduledObjects::new(&[setup_with(json!({}))], &jobs);
    assert_eq!(cluster.cycle(), ["a 3", "b 1"]);
}

#[test]
fn q2_a_job_without_a_size_gets_the_setups() {
    let jobs = [("a", json!({}))];
    let mut cluster =
        ScheduledObjects::new(&[setup_with(json!({ "miniCluster": { "size": 3 } }))], &jobs);
    assert_eq!(cluster.cycle(), ["a 3"]);
}

#[test]
fn q19_of_two_setups_that_replace_the_same_the_older_wins() {
    let named = |name: &str, second: i64, replaces: &[&str]| {
        let metadata = json!({ "name": name, "uid": name,
            "creationTimestamp": after(second).to_string() });
        setup(json!({ "metadata": metadata, "spec": { "replaces": replaces } }))
    };
    let setups = [named("old", 0, &[]), named("b", 1, &["old"]), named("a", 2, &["old"])];
    let cluster = ScheduledObjects::new(&setups, &[]);
    let reason = |name: &str| {
        let usage = cluster.scheduler.usage(&SetupName::new("hpc", name)).unwrap();
        usage.inactive.map(|inactive| of_inactive(inactive.reason).as_str())
    };
    assert_eq!(
        [reason("old"), reason("b"), reason("a")],
        [Some("Replaced"), None, Some("Conflict")]
    );
}

#[test]
fn q19_a_setup_whose_nodes_are_unknown_replaces_none() {
    let named = |name: &str, spec: Value| {
        setup(json!({ "metadata": { "name": name, "uid": name }, "spec": spec }))
    };
    let spec = json!({ "quotaFromNodes": {}, "replaces": ["old"] });
    let setups = [named("old", json!({})), named("new", spec)];
    let cluster = ScheduledObjects::new(&setups, &[("a", json!({ "queue": "old" }))]);
    let usage = |name: &str| cluster.scheduler.usage(&SetupName::new("hpc", name)).unwrap();
    assert_eq!((usage("old").pending, usage("old").inactive), (1, None));
    assert_eq!(of_inactive(usage("new").inactive.unwrap().reason), Reason::NodesUnknown);
}
