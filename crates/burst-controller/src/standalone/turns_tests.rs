//! The whole way of a Burst of an instance outside Kubernetes, with a target in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use flux_operator_api::view::{InstanceJob, InstanceJobs, RunningInstanceJob};
use flux_operator_api::{Burst, BurstPolicy};
use flux_operator_flux::{Certificate, IdSet, Metadata, SecretKey};
use flux_operator_plan::bursting::{
    InstanceState, NewInstance, Presence, StandaloneInstance, TargetFailure, TargetView, leased,
    object_name,
};
use flux_operator_service::lock::lock;
use flux_operator_wire::BrokerFacts;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::instance::Observation;
use super::records::{RecordError, Records, bursts_in};
use super::targets::Targets;
use super::turns::Turns;
use crate::target::{Pool, Target};

/// What exists at the target: nodes by the name of their objects; and all names that ever did.
type Objects = (BTreeMap<String, i32>, BTreeSet<String>);

/// A target in memory.
#[derive(Clone, Default)]
struct Away(Arc<Mutex<Objects>>);

impl Targets for Away {
    fn of<'a>(
        &'a self,
        _burst: &'a Burst,
    ) -> BoxFuture<'a, Result<Box<dyn Target + 'a>, TargetFailure>> {
        let target: Box<dyn Target> = Box::new(self.clone());
        std::future::ready(Ok(target)).boxed()
    }
}

impl Target for Away {
    fn observe<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<TargetView, TargetFailure>> {
        let nodes = lock(&self.0).0.get(&object_name(pool.burst)).copied();
        let presence = if nodes.is_some() { Presence::Complete } else { Presence::Nothing };
        let view = TargetView {
            presence,
            nodes: nodes.unwrap_or_default(),
            present: nodes,
            place: "away".into(),
            ..TargetView::default()
        };
        std::future::ready(Ok(view)).boxed()
    }

    fn create<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        self.scale(pool, pool.burst.spec.nodes)
    }

    fn scale<'a>(&'a self, pool: Pool<'a>, nodes: i32) -> BoxFuture<'a, Result<(), TargetFailure>> {
        let name = object_name(pool.burst);
        let mut away = lock(&self.0);
        away.1.insert(name.clone());
        away.0.insert(name, nodes);
        std::future::ready(Ok(())).boxed()
    }

    fn delete<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        lock(&self.0).0.remove(&object_name(pool.burst));
        std::future::ready(Ok(())).boxed()
    }
}

pub(super) fn instance() -> StandaloneInstance {
    let new = NewInstance {
        host: "laptop".into(),
        address: "192.0.2.7".into(),
        bind: Ipv4Addr::UNSPECIFIED.into(),
        port: 8050,
        certificate: "/curve.cert".into(),
        spare_ranks: 4,
        cores: 2,
        spare_cores: 2,
        spare_gpus: 0,
    };
    let key = SecretKey::from_bytes([7; 32]);
    let certificate = Certificate::new(key, Metadata::new("x").unwrap());
    StandaloneInstance::of(&new.config().unwrap(), &certificate, BrokerFacts::default()).unwrap()
}

fn policy() -> BurstPolicy {
    let target = json!({ "name": "away", "maxNodes": 4, "kubeconfig": { "secret": "away" } });
    let policy = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
        "metadata": { "name": "p", "namespace": "laptop", "uid": "u" },
        "spec": { "selector": {}, "limits": { "nodes": 4 }, "targets": [target],
            "when": { "stabilizationSeconds": 0 }, "giveBack": { "idleSeconds": 5, "graceSeconds": 20 } } });
    serde_json::from_value(policy).unwrap()
}

/// A laptop, on which a job of three nodes waits.
struct Laptop {
    turns: Turns<Away>,
    away: Away,
    now: Timestamp,
    /// Turns for which the job runs on, once it has started.
    job_turns: u32,
    /// The ranks on which it runs.
    job_ranks: IdSet,
    /// Flux is gone.
    has_exited: bool,
}

impl Laptop {
    fn start(directory: &Path, away: &Away, now: Timestamp) -> Laptop {
        let records = Records::open(directory).unwrap();
        let turns = Turns::new(instance(), vec![policy()], away.clone(), records);
        Laptop {
            turns,
            away: away.clone(),
            now,
            job_turns: 3,
            job_ranks: IdSet::new(),
            has_exited: false,
        }
    }

    /// What Flux shows: brokers of pods are online at once, and drained ranks have no jobs.
    fn observation(&mut self) -> Observation {
        if self.has_exited {
            let state = InstanceState { has_exited: true, ..InstanceState::default() };
            return Observation { state, jobs: None };
        }
        let away = lock(&self.away.0).0.clone();
        let bursts = self.turns.records.bursts();
        let mut online: IdSet = "0".parse().unwrap();
        for burst in &bursts {
            let nodes = away.get(&object_name(burst)).copied().unwrap_or_default();
            let nodes = usize::try_from(nodes).unwrap();
            online = online.union(&leased(burst).split_at(nodes).0.to_set());
        }
        let leaving = self.turns.ranks_to_drain();
        let usable = online.difference(&leaving);
        if self.job_turns == 0 || !self.job_ranks.is_subset(&online) {
            self.job_ranks = IdSet::new();
        } else if self.job_ranks.is_empty() && usable.len() >= 3 {
            self.job_ranks = usable;
        }
        let runs = !self.job_ranks.is_empty();
        self.job_turns -= u32::from(runs);
        let busy = self.job_ranks.to_string();
        let drained = leaving.difference(&self.job_ranks);
        let running: Vec<RunningInstanceJob> =
            runs.then(|| RunningInstanceJob { id: 7, ranks: busy.clone() }).into_iter().collect();
        let waits = !runs && self.job_turns > 0;
        let attributes = BTreeMap::from([("burstable".to_owned(), Value::from(1))]);
        let job = InstanceJob {
            id: 7,
            nodes: Some(3),
            tasks: 3,
            attributes: attributes.into(),
            ..InstanceJob::default()
        };
        let jobs = InstanceJobs {
            listed: true,
            online: Some(online.to_string()),
            busy: Some(busy),
            drained: Some(drained.to_string()),
            slots: instance().slots(&online),
            lead_cores: 2,
            running,
            items: waits.then_some(job).into_iter().collect(),
            ..InstanceJobs::default()
        };
        Observation {
            state: InstanceState { online, drained, has_exited: false },
            jobs: Some(jobs),
        }
    }

    /// Goes on for some turns, of a second each.
    async fn go_on(&mut self, turns: u32) -> Result<(), RecordError> {
        for _ in 0..turns {
            let observation = self.observation();
            self.turns.turn(&observation, self.now).await?;
            self.now += SignedDuration::from_secs(1);
        }
        Ok(())
    }

    /// Goes on until there are nodes, for a job that does not finish.
    async fn run_without_end(&mut self) {
        self.job_turns = u32::MAX;
        while lock(&self.away.0).0.is_empty() {
            self.go_on(1).await.unwrap();
        }
    }

    /// Goes on until the job has run and no Burst is left; fails if that takes too long.
    async fn run_to_end(&mut self) -> Result<(), RecordError> {
        for _ in 0..200 {
            self.go_on(1).await?;
            if self.job_turns == 0 && self.turns.records.bursts().is_empty() {
                return Ok(());
            }
        }
        panic!("it does not end: {:?}", self.turns.records.bursts());
    }
}

fn start_time() -> Timestamp {
    "2026-05-04T10:00:00Z".parse().unwrap()
}

#[tokio::test]
async fn a_job_gets_nodes_and_they_are_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let away = Away::default();
    let mut laptop = Laptop::start(directory.path(), &away, start_time());
    laptop.run_to_end().await.unwrap();
    assert!(lock(&away.0).0.is_empty(), "nothing is left");
    let usage = laptop.turns.records.usage("p").unwrap();
    assert_eq!(usage.finished.len(), 1);
    assert!(usage.finished[0].node_seconds > 0);
    // The same again, by the next process.
    let later = laptop.now;
    drop(laptop);
    let mut laptop = Laptop::start(directory.path(), &away, later);
    laptop.run_to_end().await.unwrap();
    assert_eq!(lock(&away.0).1.len(), 2, "two Bursts never have the same name");
}

#[tokio::test]
async fn b40_killed_before_every_write_it_comes_to_the_same_end() {
    let mut crashes = 0;
    loop {
        let directory = tempfile::tempdir().unwrap();
        let away = Away::default();
        let mut laptop = Laptop::start(directory.path(), &away, start_time());
        laptop.turns.records.writes_left.set(Some(crashes));
        let outcome = laptop.run_to_end().await;
        let was_killed = outcome.is_err();
        let (now, job_turns) = (laptop.now, laptop.job_turns);
        drop(laptop);
        if was_killed {
            let mut successor = Laptop::start(directory.path(), &away, now);
            successor.job_turns = job_turns.max(1);
            successor.run_to_end().await.unwrap();
        }
        let (left, ever) = lock(&away.0).clone();
        assert!(left.is_empty(), "after {crashes} writes {left:?} is left");
        assert!(ever.len() <= 2, "after {crashes} writes there were {ever:?}");
        if !was_killed {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 8, "only {crashes} writes");
}

#[tokio::test]
async fn everything_is_given_back_on_request_and_when_the_instance_has_exited() {
    for has_exited in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let away = Away::default();
        let mut laptop = Laptop::start(directory.path(), &away, start_time());
        laptop.run_without_end().await;
        laptop.turns.is_closing = !has_exited;
        laptop.has_exited = has_exited;
        laptop.go_on(100).await.unwrap();
        // Though the job would run on.
        assert!(lock(&away.0).0.is_empty() && laptop.turns.records.bursts().is_empty());
    }
}

#[tokio::test]
async fn bursts_of_a_policy_that_was_removed_are_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let away = Away::default();
    let mut laptop = Laptop::start(directory.path(), &away, start_time());
    laptop.run_without_end().await;
    laptop.turns.policies.clear();
    laptop.go_on(100).await.unwrap();
    assert!(lock(&away.0).0.is_empty() && laptop.turns.records.bursts().is_empty());
}

#[tokio::test]
async fn two_processes_never_have_the_same_records() {
    let directory = tempfile::tempdir().unwrap();
    let first = Records::open(directory.path()).unwrap();
    let error = Records::open(directory.path()).unwrap_err();
    assert!(matches!(error, RecordError::Locked { .. }), "{error}");
    drop(first);
    Records::open(directory.path()).unwrap();
    std::fs::write(directory.path().join("x.burst.json"), "{").unwrap();
    let error = Records::open(directory.path()).unwrap_err();
    assert!(matches!(error, RecordError::Parse { .. }), "{error}");
}

#[tokio::test]
async fn a_record_that_is_removed_while_records_are_listed_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut laptop = Laptop::start(directory.path(), &Away::default(), start_time());
    laptop.run_without_end().await;
    // It is listed, and cannot be opened.
    let removed = directory.path().join("removed.burst.json");
    std::os::unix::fs::symlink(directory.path().join("nothing"), removed).unwrap();
    assert_eq!(bursts_in(directory.path()).unwrap().len(), 1);
}
