//! A simulated Kubernetes with one lender, some joiners, and two operators.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_flux::IdSet;
use flux_operator_plan::kubernetes::{DeliveryMethod, HOLDER_LABEL, Settings, TABLE_LABEL};
use flux_operator_plan::queueing::merge_patch;
use flux_operator_plan::{
    ExistingPod, JoinerView, LastReport, LenderView, Object, Observed, Outcome, Permission,
    QueryAnswer, ServerReply, Step, Subject, decide, permission, queries,
};
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_wire::{BrokerFacts, Drain, Drained, InstanceState, JoinRequest};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

const LENDER: &str = "lender";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

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
    pods: BTreeMap<String, JoinerPod>,
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
    terminating: bool,
    /// The rank of its broker, once it has the permission to start.
    broker: Option<u32>,
    /// The lead knows the broker.
    is_online: bool,
}

/// One replica of the operator.
#[derive(Clone, Debug, Default)]
struct Operator {
    view: Objects,
    report: Option<LastReport>,
}

#[derive(Clone, Debug)]
pub struct World {
    stored: Objects,
    operators: [Operator; 2],
    /// What the lead was asked to drain.
    work: Drain,
    made: u32,
    now: Timestamp,
}

impl World {
    pub fn new(joiners: usize) -> World {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut world = World {
            stored: Objects::default(),
            operators: Default::default(),
            work: Drain::default(),
            made: 0,
            now,
        };
        let flux = json!({ "bursting": { "spareRanks": 3 } });
        world.add(LENDER, json!({ "size": 2, "maxSize": 3, "interactive": true, "flux": flux }));
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

    /// The lender's Job exists, as the operator has created it.
    fn start_lender(&mut self) {
        let lender = self.read(&self.stored, LENDER).unwrap();
        let nothing = Observed::empty(self.now);
        let decision = decide(&lender, &nothing, &settings());
        let job = decision.steps.into_iter().find_map(|step| match step {
            Step::Create(Object::Job(job)) => Some(*job),
            _ => None,
        });
        let mut job = job.unwrap();
        job.metadata.uid = Some("lender-job".into());
        let status = json!({ "startTime": self.now.to_string(), "active": 2 });
        job.status = Some(serde_json::from_value(status).unwrap());
        self.stored.jobs.insert(LENDER.into(), job);
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "Quorum", "message": "",
            "lastTransitionTime": self.now.to_string() }]);
        self.stored.miniclusters.get_mut(LENDER).unwrap()["status"] =
            json!({ "conditions": ready });
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.made += 1;
        format!("{prefix}{}", self.made)
    }

    fn read(&self, objects: &Objects, name: &str) -> Option<MiniCluster> {
        let minicluster = objects.miniclusters.get(name)?;
        Some(serde_json::from_value(minicluster.clone()).unwrap())
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

    fn edit(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let version = self.fresh("");
        if let Some(minicluster) = self.stored.miniclusters.get_mut(name) {
            change(minicluster);
            minicluster["metadata"]["resourceVersion"] = version.into();
        }
    }

    fn remove_finalized(&mut self) {
        self.stored.miniclusters.retain(|_, it| {
            let metadata = &it["metadata"];
            let finalizers = metadata["finalizers"].as_array().is_some_and(|it| !it.is_empty());
            metadata["deletionTimestamp"].is_null() || finalizers
        });
    }

    pub fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    // What the operators do.

    pub fn catch_up(&mut self, operator: usize, kind: Kind) {
        let (view, stored) = (&mut self.operators[operator].view, &self.stored);
        match kind {
            Kind::MiniClusters => view.miniclusters.clone_from(&stored.miniclusters),
            Kind::Jobs => view.jobs.clone_from(&stored.jobs),
            Kind::Pods => view.pods.clone_from(&stored.pods),
        }
    }

    fn catch_up_all(&mut self) {
        for operator in 0..self.operators.len() {
            Kind::ALL.into_iter().for_each(|kind| self.catch_up(operator, kind));
        }
    }

    /// An operator whose watches are current reconciles everything, and the Job controller acts.
    pub fn round(&mut self, operator: usize) {
        let catch_up = |world: &mut World| {
            Kind::ALL.into_iter().for_each(|kind| world.catch_up(operator, kind));
        };
        catch_up(self);
        self.reconcile_lender(operator, 99);
        for joiner in 0..self.stored.miniclusters.len() {
            catch_up(self);
            self.reconcile_joiner(operator, joiner, 99);
        }
        self.control();
    }

    /// Every agent asks an operator that knows their pods.
    pub fn ask_all(&mut self, operator: usize) {
        self.catch_up(operator, Kind::Pods);
        self.report(operator, false);
        for pod in 0..self.stored.pods.len() {
            self.ask(operator, pod);
        }
    }

    /// The lead reports to an operator; it has done what it was asked to.
    pub fn report(&mut self, operator: usize, busy: bool) {
        let own = self.stored.jobs.get(LENDER).map_or(0, wanted);
        let pods = self.stored.pods.values().filter(|pod| pod.is_online);
        let ranks: IdSet = pods.filter_map(|pod| pod.broker).collect();
        let drained = Drained {
            asked: self.work.clone(),
            busy: if busy { self.work.ranks.intersection(&ranks) } else { IdSet::new() },
        };
        let state = InstanceState {
            online: Some(IdSet::first_n(own).union(&ranks)),
            drained: Some(drained).filter(|drained| !drained.asked.since.is_empty()),
            lead: Some(facts()),
            ..InstanceState::default()
        };
        self.operators[operator].report = Some(LastReport { state, received: self.now });
    }

    pub fn reconcile_lender(&mut self, operator: usize, crash_after: usize) {
        let view = &self.operators[operator].view;
        let Some(lender) = self.read(view, LENDER) else { return };
        let names = view.miniclusters.keys().filter(|name| *name != LENDER);
        let joiners = names.map(|name| JoinerView {
            minicluster: Arc::new(self.read(view, name).unwrap()),
            job: view.jobs.get(name).cloned().map(Arc::new),
        });
        let observed = Observed {
            job: view.jobs.get(LENDER).cloned().map(Arc::new),
            pods: vec![Arc::new(lead_pod())],
            joiners: joiners.collect(),
            report: self.operators[operator].report.clone(),
            watching_since: "2025-01-01T00:00:00Z".parse().unwrap(),
            ..Observed::empty(self.now)
        };
        if let Some(work) = self.reconcile(&lender, observed, crash_after) {
            self.work = work;
        }
    }

    pub fn reconcile_joiner(&mut self, operator: usize, joiner: usize, crash_after: usize) {
        let view = &self.operators[operator].view;
        let name = name(joiner);
        let Some(minicluster) = self.read(view, &name) else { return };
        let observed = Observed {
            job: view.jobs.get(&name).cloned().map(Arc::new),
            lender: self.lender(operator),
            watching_since: "2025-01-01T00:00:00Z".parse().unwrap(),
            ..Observed::empty(self.now)
        };
        self.reconcile(&minicluster, observed, crash_after);
    }

    fn lender(&self, operator: usize) -> Option<LenderView> {
        let view = &self.operators[operator].view;
        Some(LenderView {
            minicluster: Arc::new(self.read(view, LENDER)?),
            job: view.jobs.get(LENDER).cloned().map(Arc::new),
            report: self.operators[operator].report.clone(),
        })
    }

    fn reconcile(
        &mut self,
        minicluster: &MiniCluster,
        mut observed: Observed,
        crash_after: usize,
    ) -> Option<Drain> {
        for query in queries(minicluster, &observed) {
            let reply = match &query.subject {
                // The API server answers with the current state.
                Subject::JoinerPods { .. } => {
                    let pods = self.stored.pods.values();
                    let existing = pods.map(|pod| existing(&pod.holder, &pod.table, pod.index));
                    ServerReply::Pods(existing.collect())
                }
                Subject::OwnPods { .. } => {
                    let own = self.stored.jobs.get(LENDER).map_or(0, wanted);
                    ServerReply::Pods((0..own).map(|index| existing("", "", index)).collect())
                }
                Subject::MiniCluster => {
                    let name = minicluster.name_any();
                    let there = self.stored.miniclusters.get(&name);
                    match there.map(|it| it["metadata"]["uid"].as_str()) {
                        Some(uid) if uid == minicluster.uid().as_deref() => ServerReply::Exists,
                        _ => ServerReply::Deleted,
                    }
                }
                Subject::Namespace | Subject::Keys { .. } => ServerReply::Exists,
                Subject::Job { .. } | Subject::Pod { .. } => ServerReply::Events(Vec::new()),
            };
            observed.add_answer(QueryAnswer::new(minicluster, query, Some(reply), self.now));
        }
        let decision = decide(minicluster, &observed, &settings());
        for (done, step) in decision.steps.iter().enumerate() {
            if done >= crash_after {
                return None;
            }
            self.apply(minicluster, step);
            if step.changes_self() {
                return decision.lead_work.clone();
            }
        }
        if crash_after < decision.steps.len() + 1 {
            return None;
        }
        let status = decision.conclude(&Outcome::all(&decision.steps)).status;
        let before = minicluster.status.clone().unwrap_or_default();
        let patch = status.and_then(|status| merge_patch(&before, &status));
        if let Some(patch) = patch.filter(|_| self.is_current(minicluster)) {
            self.edit(&minicluster.name_any(), |it| merge(&mut it["status"], &patch));
        }
        decision.lead_work
    }

    /// Whether a write for exactly this version is accepted.
    fn is_current(&self, minicluster: &MiniCluster) -> bool {
        let there = self.stored.miniclusters.get(&minicluster.name_any());
        there.is_some_and(|it| {
            it["metadata"]["resourceVersion"].as_str() == minicluster.resource_version().as_deref()
        })
    }

    fn apply(&mut self, minicluster: &MiniCluster, step: &Step) {
        let name = minicluster.name_any();
        match step {
            Step::Create(Object::Job(job)) => {
                let owner = self.stored.miniclusters.get(&name);
                let owner = owner.and_then(|it| it["metadata"]["uid"].as_str());
                // The garbage collector deletes one whose owner is deleted at once.
                if owner == minicluster.uid().as_deref() && !self.stored.jobs.contains_key(&name) {
                    let mut job = (**job).clone();
                    job.metadata.uid = Some(self.fresh("job"));
                    self.stored.jobs.insert(name, job);
                }
            }
            // An operator waits until it observes its own writes, a new leader lists everything
            // first, and a former one writes nothing: it never resizes a lender whose leases it has
            // not observed. That two are active at once is tested for leases only.
            Step::Patch { target, .. }
                if target.name == LENDER && !self.is_current(minicluster) => {}
            Step::Patch { target, patch } => {
                let there = self.stored.jobs.get_mut(&target.name);
                if let Some(job) = there.filter(|job| job.uid() == target.uid) {
                    let mut value = json!(job);
                    merge(&mut value, patch);
                    *job = serde_json::from_value(value).unwrap();
                }
            }
            Step::Delete(target) => {
                let is_same =
                    self.stored.jobs.get(&target.name).map(Job::uid) == Some(target.uid.clone());
                if is_same {
                    self.stored.jobs.remove(&target.name);
                }
            }
            Step::PatchSelf(patch) => {
                if self.is_current(minicluster) {
                    let finalizers = patch["metadata"]["finalizers"].clone();
                    self.edit(&name, |it| it["metadata"]["finalizers"] = finalizers);
                    self.remove_finalized();
                }
            }
            Step::DeleteSelf => panic!("nothing is cleaned up here"),
            Step::CreateKeys(_)
            | Step::CopyCertificate(_)
            | Step::Create(_)
            | Step::CreateOrApply(_)
            | Step::Apply { .. } => {}
        }
    }

    /// The agent of a pod asks an operator, which reads the lender from the API server.
    pub fn ask(&mut self, operator: usize, pod: usize) {
        let Some((name, pod)) = self.nth_pod(pod) else { return };
        let is_known = self.operators[operator]
            .view
            .pods
            .get(&name)
            .is_some_and(|known| known.uid == pod.uid && !known.terminating);
        // An agent that was asked to stop asks no more.
        if !is_known || pod.terminating || pod.broker.is_some() {
            return;
        }
        let Some(joiner) = self.read(&self.operators[operator].view, &pod.owner) else { return };
        let Some(cached) = self.lender(operator) else { return };
        let Some(lender) = self.read(&self.stored, LENDER) else { return };
        let fresh = LenderView { minicluster: Arc::new(lender), ..cached };
        // Its boot plan has the ranks that its Job notes, or those of an earlier lease.
        let noted = self.stored.jobs.get(&pod.owner).map(|job| job.annotations().clone());
        let note = noted.and_then(|it| it.get("flux-framework.org/lease").cloned());
        let Some(note) = note else { return };
        let note: Value = serde_json::from_str(&note).unwrap();
        let ranks: flux_operator_flux::RankList = note["ranks"].as_str().unwrap().parse().unwrap();
        let Some(rank) = ranks.nth(pod.index as usize) else { return };
        let table = note["table"].as_str().unwrap().to_owned();
        let request = JoinRequest {
            index: pod.index,
            rank,
            table,
            facts: facts(),
            last_error: String::new(),
        };
        if joiner.uid().as_ref() == Some(&pod.holder)
            && permission(&joiner, Some(&fresh), &request) == Permission::Granted
        {
            self.stored.pods.get_mut(&name).unwrap().broker = Some(rank);
        }
    }

    /// A broker that was allowed to start has joined the instance.
    pub fn go_online(&mut self, pod: usize) {
        if let Some((name, _)) = self.nth_pod(pod) {
            self.stored.pods.get_mut(&name).unwrap().is_online = true;
        }
    }

    // What Kubernetes does.

    /// The Job controller and the garbage collector.
    pub fn control(&mut self) {
        let uids: BTreeSet<String> = self
            .stored
            .miniclusters
            .values()
            .map(|it| it["metadata"]["uid"].as_str().unwrap().to_owned())
            .collect();
        self.stored
            .jobs
            .retain(|_, job| job.owner_references().iter().any(|owner| uids.contains(&owner.uid)));
        let jobs = self.stored.jobs.clone();
        for pod in self.stored.pods.values_mut() {
            let job = jobs.get(&pod.owner).filter(|job| job.uid().as_ref() == Some(&pod.job));
            pod.terminating |= job.is_none_or(|job| pod.index >= wanted(job));
        }
        for (owner, job) in jobs.iter().filter(|(name, _)| *name != LENDER) {
            let uid = job.uid().unwrap();
            for index in 0..wanted(job) {
                let is_there =
                    self.stored.pods.values().any(|pod| pod.job == uid && pod.index == index);
                if !is_there {
                    let name = self.fresh("pod");
                    let labels = job.spec.as_ref().and_then(|it| it.template.metadata.as_ref());
                    let labels = labels.and_then(|it| it.labels.clone()).unwrap();
                    let holder = labels[HOLDER_LABEL].clone();
                    let pod = JoinerPod {
                        uid: name.clone(),
                        holder,
                        owner: owner.clone(),
                        job: uid.clone(),
                        table: labels[TABLE_LABEL].clone(),
                        index,
                        terminating: false,
                        broker: None,
                        is_online: false,
                    };
                    self.stored.pods.insert(name, pod);
                }
            }
        }
    }

    fn nth_pod(&self, number: usize) -> Option<(String, JoinerPod)> {
        let pods: Vec<_> = self.stored.pods.iter().collect();
        let (name, pod) = pods.get(number.checked_rem(pods.len())?)?;
        Some(((*name).clone(), (*pod).clone()))
    }

    pub fn stop_terminating(&mut self, pod: usize) {
        if let Some((name, pod)) = self.nth_pod(pod)
            && pod.terminating
        {
            self.stored.pods.remove(&name);
        }
    }

    pub fn kill(&mut self, pod: usize) {
        if let Some((name, _)) = self.nth_pod(pod) {
            self.stored.pods.remove(&name);
        }
    }

    // What must hold.

    /// The rank and the holder of every broker.
    pub fn brokers(&self) -> Vec<(u32, String)> {
        let pods = self.stored.pods.values();
        pods.filter_map(|pod| Some((pod.broker?, pod.holder.clone()))).collect()
    }

    pub fn assert_one_holder_for_each_rank(&self, after: &impl Debug) {
        let mut holders: BTreeMap<u32, String> = BTreeMap::new();
        let own = self.stored.jobs.get(LENDER).map_or(0, wanted);
        for (rank, holder) in self.brokers() {
            assert!(rank >= own, "rank {rank} is the lender's own, after {after:?}");
            let before = holders.insert(rank, holder.clone());
            assert!(
                before.is_none_or(|before| before == holder),
                "rank {rank} has two holders after {after:?}: {}",
                self.shown()
            );
        }
    }

    /// Everything works, and nothing happens any more.
    pub fn settle(&mut self) {
        let (mut before, mut unchanged) = (String::new(), 0);
        for _ in 0..60 {
            self.catch_up_all();
            self.control();
            self.stored.pods.retain(|_, pod| !pod.terminating);
            self.catch_up_all();
            for pod in 0..self.stored.pods.len() {
                self.ask(0, pod);
                self.go_online(pod);
            }
            self.report(0, false);
            self.operators[1].report = self.operators[0].report.clone();
            self.catch_up_all();
            self.reconcile_lender(0, 99);
            self.catch_up_all();
            let names: Vec<String> = self.stored.miniclusters.keys().cloned().collect();
            for joiner in (0..9).filter(|joiner| names.contains(&name(*joiner))) {
                self.reconcile_joiner(0, joiner, 99);
                self.catch_up_all();
            }
            self.pass_time(1);
            let now = self.shown();
            // A step of one operator may be visible only to the next.
            unchanged = if now == before { unchanged + 1 } else { 0 };
            if unchanged == 3 {
                return;
            }
            before = now;
        }
        panic!("it never settles: {before}");
    }

    /// What does not depend on time and versions.
    pub fn shown(&self) -> String {
        let leases = &self.stored.miniclusters[LENDER]["status"]["leases"];
        let pods: Vec<_> = self.stored.pods.iter().map(|(name, pod)| (name, pod.broker)).collect();
        let sizes: Vec<_> =
            self.stored.jobs.iter().map(|(name, job)| (name, wanted(job))).collect();
        let specs = self.stored.miniclusters.iter().map(|(name, it)| {
            format!("{name} {} {}", it["spec"]["size"], it["metadata"]["finalizers"])
        });
        format!("{leases} {pods:?} {sizes:?} {:?}", specs.collect::<Vec<_>>())
    }

    /// Every lease is that of a joiner that has brokers on exactly its ranks, and no joiner waits
    /// while there are enough ranks for it.
    pub fn assert_nothing_is_lost(&self) {
        let lender = self.read(&self.stored, LENDER).unwrap();
        let leases = lender.status.clone().unwrap_or_default().leases;
        let mut leased = IdSet::new();
        for lease in &leases {
            let ranks: flux_operator_flux::RankList = lease.ranks.parse().unwrap();
            let brokers: IdSet = self
                .brokers()
                .into_iter()
                .filter(|(_, holder)| *holder == lease.holder)
                .map(|(rank, _)| rank)
                .collect();
            assert_eq!(ranks.to_set(), brokers, "{lease:?} in {}", self.shown());
            leased = leased.union(&ranks.to_set());
        }
        // A host that the lender wants is not lent, although it cannot have it yet while one before
        // it is leased.
        let wanted = u32::try_from(lender.spec.size).unwrap();
        let own = self.stored.jobs.get(LENDER).map_or(0, self::wanted).max(wanted);
        let free = IdSet::first_n(6).difference(&IdSet::first_n(own)).difference(&leased);
        for (name, minicluster) in
            self.stored.miniclusters.iter().filter(|(name, _)| *name != LENDER)
        {
            let joiner: MiniCluster = serde_json::from_value(minicluster.clone()).unwrap();
            let uid = joiner.uid().unwrap();
            let has = leases.iter().filter(|lease| lease.holder == uid);
            let has: usize = has
                .map(|lease| lease.ranks.parse::<flux_operator_flux::RankList>().unwrap().len())
                .sum();
            let wants = match joiner.spec.suspend {
                true => 0,
                false => usize::try_from(joiner.spec.size).unwrap(),
            };
            let missing = wants.saturating_sub(has) as u64;
            assert!(has <= wants, "{name} has {has} of {wants}: {}", self.shown());
            assert!(
                missing == 0 || missing > free.len(),
                "{name} waits for {missing}: {}",
                self.shown()
            );
        }
    }
}

fn existing(holder: &str, table: &str, index: u32) -> ExistingPod {
    ExistingPod { namespace: "hpc".into(), holder: holder.into(), table: table.into(), index }
}

fn wanted(job: &Job) -> u32 {
    let spec = job.spec.as_ref().unwrap();
    match spec.suspend {
        Some(true) => 0,
        _ => u32::try_from(spec.completions.unwrap()).unwrap(),
    }
}

fn name(joiner: usize) -> String {
    format!("joiner-{joiner}")
}

fn facts() -> BrokerFacts {
    BrokerFacts { version: "0.88.0".into(), uid: 0, cores: 2 }
}

fn lead_pod() -> Pod {
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": LENDER, "uid": "lender-job" });
    serde_json::from_value(json!({
        "metadata": { "name": "lender-0", "uid": "lead", "ownerReferences": [owner],
            "annotations": { INDEX: "0" }, "labels": { "job-index": "0" } },
        "status": { "phase": "Running",
            "containerStatuses": [{ "name": LENDER, "image": "a", "imageID": "", "ready": true,
                "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } }],
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
    }))
    .unwrap()
}

fn settings() -> Settings {
    Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        report_url: Some("http://10.0.0.1:8080".into()),
        delivery: DeliveryMethod::ImageVolume,
    }
}
