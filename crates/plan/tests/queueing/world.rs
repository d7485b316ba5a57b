//! A simulated Kubernetes for one job: how it applies steps, and what the job's MiniCluster and
//! its queue do.
//!
//! Objects have uids and resource versions, the watches may lag behind the
//! stored state, and a step may fail.

use std::collections::BTreeSet;

use flux_operator_api::{FluxJob, FluxJobStatus, FluxSetupSpec, MiniCluster};
use flux_operator_plan::queueing::admission;
use flux_operator_plan::queueing::job::{ObservedJob, decide, needs_cluster_query};
use flux_operator_plan::queueing::merge_patch;
use flux_operator_plan::queueing::workload::{JobContext, of_job};
use flux_operator_plan::status::Urgency;
use flux_operator_plan::{Conclusion, Failure, FailureKind, Object, Outcome, Step, TargetKind};
use flux_operator_queue::{EvictionReason, SetupName, WaitStatus, Workload};
use flux_operator_testkit::merge;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::objects::{admit, after, job, setup};

/// The result of one reconciliation.
#[derive(Clone, Debug)]
pub struct Reconciliation {
    /// The decided steps.
    pub steps: Vec<Step>,
    /// Everything, for the recording.
    pub recording: Value,
}

/// A decision of the operator, and the outcome of its steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecidedJob {
    pub steps: Vec<Step>,
    outcome: Outcome,
    conclusion: Option<Conclusion<FluxJobStatus>>,
}

impl DecidedJob {
    pub fn status(&self) -> Option<&FluxJobStatus> {
        self.conclusion.as_ref()?.status.as_ref()
    }

    pub fn requeue_at(&self) -> Option<Timestamp> {
        self.conclusion.as_ref()?.requeue_at
    }
}

/// The whole state.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    job: Option<Value>,
    minicluster: Option<Value>,
    /// The job and its MiniCluster as the watches show them, while they lag behind.
    shown: Option<(Option<Value>, Option<Value>)>,
    /// The operator has written something that the watches do not show yet.
    has_unobserved_writes: bool,
    /// How the first step of the next reconciliation fails.
    next_failure: Option<FailureKind>,
    /// Whether a status is refused if it was computed from another version of the job.
    strict: bool,
    version: u64,
    setup: FluxSetupSpec,
    /// The setup that has replaced the one that admitted the job.
    record: Option<SetupName>,
    waiting: Option<WaitStatus>,
    evicted: Option<EvictionReason>,
    /// How often a MiniCluster was created.
    pub clusters_created: u32,
    /// The MiniClusters in which the command was started.
    started_in: BTreeSet<u32>,
    /// How often a reconciliation wrote the status.
    pub writes: u32,
    now: Timestamp,
}

impl World {
    /// The number of rounds within which every history settles.
    pub const MAX_ROUNDS: usize = 8;

    /// A job that was just created.
    pub fn new(spec: Value) -> World {
        World {
            job: Some(serde_json::to_value(job(spec)).unwrap()),
            minicluster: None,
            shown: None,
            has_unobserved_writes: false,
            next_failure: None,
            strict: true,
            version: 1,
            setup: setup(json!({})).spec,
            record: None,
            waiting: None,
            evicted: None,
            clusters_created: 0,
            started_in: BTreeSet::new(),
            writes: 0,
            now: after(0),
        }
    }

    /// The same, but a status is accepted whatever it was computed from.
    pub fn lenient(spec: Value) -> World {
        World { strict: false, ..World::new(spec) }
    }

    /// A job that is admitted, and whose MiniCluster is created.
    pub fn admitted(spec: Value) -> World {
        let mut world = World::new(spec);
        world.admit(2);
        world.settle();
        world
    }

    // What the operator does.

    /// What the operator would decide now, if all steps are applied.
    pub fn decided(&self) -> DecidedJob {
        self.decide(Outcome::all).unwrap_or_default()
    }

    /// The real decision, with the outcome that `apply` returns for its steps.
    fn decide(&self, apply: impl FnOnce(&[Step]) -> Outcome) -> Option<DecidedJob> {
        let (job, minicluster) = self.watched();
        let job = job?;
        let context = JobContext { minicluster: minicluster.as_ref(), class_value: None };
        let refusal = of_job(&job, context).err();
        let decision = decide(ObservedJob {
            job: &job,
            minicluster: minicluster.as_ref(),
            has_unobserved_cluster: needs_cluster_query(&job, minicluster.as_ref())
                && self.has_own_cluster(),
            setup: Some(&self.setup),
            recorded_setup: self.record.as_ref(),
            refusal: refusal.as_ref(),
            waiting: self.waiting.as_ref(),
            evicted: self.evicted,
            runs_jobs: true,
            jitter: 0.0,
            now: self.now,
        });
        let outcome = apply(&decision.steps);
        let conclusion = Some(decision.conclude(&outcome));
        Some(DecidedJob { steps: decision.steps, outcome, conclusion })
    }

    /// Whether the API server has a MiniCluster of the job's own.
    fn has_own_cluster(&self) -> bool {
        let own = self.minicluster();
        let owners = own.and_then(|own| own.metadata.owner_references);
        let uid = self.job().and_then(|job| job.uid());
        owners.into_iter().flatten().any(|owner| Some(owner.uid) == uid)
    }

    /// Reconciles once.
    pub fn reconcile(&mut self) -> Reconciliation {
        if std::mem::take(&mut self.has_unobserved_writes) {
            // Nothing is decided before the watches show what was written.
            self.catch_up();
        }
        let Some(job) = self.watched().0 else {
            return Reconciliation { steps: Vec::new(), recording: nothing_said() };
        };
        let mut world = self.clone();
        let decided = self.decide(|steps| world.apply(steps)).unwrap();
        *self = world;
        let DecidedJob { steps, outcome, conclusion } = decided;
        let conclusion = conclusion.unwrap();
        let has_changed_self = steps.iter().take(outcome.done).any(Step::changes_self);
        let failure = outcome.failure.filter(|failure| !failure.kind.is_transient());
        let events = conclusion.events.iter();
        let events = events.map(|it| format!("{} {} {}", it.is_normal, it.reason, it.note));
        let said = json!({
            "steps": steps.iter().map(shown).collect::<Vec<_>>(),
            "failure": failure.map(|failure| failure.message),
            "status": conclusion.status,
            "urgency": format!("{:?}", conclusion.urgency),
            "events": events.collect::<Vec<_>>(),
            "again": conclusion.requeue_at.map(|again| again.to_string()),
        });
        if !has_changed_self && conclusion.urgency != Urgency::None {
            self.write(&job, conclusion.status.as_ref());
        }
        Reconciliation { steps, recording: said }
    }

    /// Applies steps until one fails.
    fn apply(&mut self, steps: &[Step]) -> Outcome {
        let failing = self.next_failure.take_if(|_| !steps.is_empty());
        for (done, step) in steps.iter().enumerate() {
            let result = match failing.filter(|how| done == 0 && can_fail(step, *how)) {
                None => {
                    self.apply_step(step);
                    Ok(())
                }
                Some(FailureKind::Unknown) => {
                    self.apply_step(step);
                    Err(FailureKind::Unknown)
                }
                Some(how) => Err(how),
            };
            match result {
                Ok(()) => self.has_unobserved_writes = true,
                Err(kind) => {
                    let failure = Some(Failure { kind, message: format!("{kind:?}") });
                    return Outcome { done, failure };
                }
            }
        }
        Outcome::all(steps)
    }

    /// Writes a status like the operator: only what has changed.
    fn write(&mut self, computed_from: &FluxJob, status: Option<&FluxJobStatus>) {
        let Some((job, status)) = self.job().zip(status) else { return };
        if self.strict && job.resource_version() != computed_from.resource_version() {
            return;
        }
        if let Some(patch) = merge_patch(&job.status.unwrap_or_default(), status) {
            let version = self.next_version();
            let job = self.job.as_mut().unwrap();
            merge(&mut job["status"], &patch);
            job["metadata"]["resourceVersion"] = version.into();
            self.writes += 1;
            self.has_unobserved_writes = true;
        }
    }

    /// Applies these steps, and then the operator crashes.
    pub fn crash_after(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.apply_step(step));
        self.catch_up();
    }

    /// Applies a step, like the API server.
    fn apply_step(&mut self, step: &Step) {
        match step {
            Step::Create(Object::MiniCluster(made)) => {
                if self.minicluster.is_none() {
                    self.clusters_created += 1;
                    let mut made = serde_json::to_value(made).unwrap();
                    made["metadata"]["uid"] = json!(format!("mc-{}", self.clusters_created));
                    made["metadata"]["resourceVersion"] = self.next_version().into();
                    self.minicluster = Some(made);
                }
            }
            Step::Delete(target) => {
                assert!(target.uid.is_some(), "what is deleted was observed");
                let version = self.next_version();
                // One that was deleted, or another one with its name, is left alone.
                let there = self.minicluster.as_mut();
                let there =
                    there.filter(|it| it["metadata"]["uid"].as_str() == target.uid.as_deref());
                if let Some(there) = there {
                    there["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
                    there["metadata"]["resourceVersion"] = version.into();
                }
            }
            Step::DeleteSelf => self.job = None,
            other => panic!("{other:?} is not for a FluxJob"),
        }
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// What the watches show.
    fn watched(&self) -> (Option<FluxJob>, Option<MiniCluster>) {
        match &self.shown {
            Some((job, minicluster)) => (
                job.clone().map(|job| serde_json::from_value(job).unwrap()),
                minicluster.clone().map(|it| serde_json::from_value(it).unwrap()),
            ),
            None => (self.job(), self.minicluster()),
        }
    }

    // What others do by themselves.

    /// The garbage collector and the queue.
    pub fn control(&mut self) {
        let terminating = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        self.minicluster =
            self.minicluster.take().filter(|it| !terminating(it) && self.job.is_some());
        if self.workload().is_none_or(|workload| workload.admission.is_none()) {
            self.evicted = None;
        }
    }

    /// A reconciliation, and then the others. Returns whether anything has changed.
    pub fn round(&mut self) -> bool {
        let before = self.clone();
        self.reconcile();
        self.control();
        *self != before
    }

    /// Repeats rounds until nothing changes any more. The watches catch up.
    pub fn settle(&mut self) {
        (self.shown, self.next_failure) = (None, None);
        for _ in 0..World::MAX_ROUNDS {
            if !self.round() {
                return;
            }
        }
        panic!("it never settles: {self:#?}");
    }

    /// The state without what depends on the number of writes.
    pub fn without_versions(&self) -> World {
        let mut world =
            World { version: 0, writes: 0, has_unobserved_writes: false, ..self.clone() };
        for object in [&mut world.job, &mut world.minicluster].into_iter().flatten() {
            object["metadata"]["resourceVersion"] = Value::Null;
        }
        world
    }

    // Transitions.

    /// From now on the watches show nothing new.
    pub fn stall(&mut self) {
        if self.shown.is_none() {
            self.shown = Some((self.job.clone(), self.minicluster.clone()));
        }
    }

    /// The watch of MiniClusters does not show the job's; the watch of jobs is up to date.
    pub fn hide_cluster(&mut self) {
        (self.shown, self.has_unobserved_writes) = (Some((self.job.clone(), None)), false);
    }

    /// The watches show the stored state.
    pub fn catch_up(&mut self) {
        self.shown = None;
    }

    /// The next step fails.
    pub fn fail(&mut self, failure: FailureKind) {
        self.next_failure = Some(failure);
    }

    /// Another client has written to an object.
    fn touch(&mut self) {
        let version = self.next_version();
        for object in [&mut self.job, &mut self.minicluster].into_iter().flatten() {
            object["metadata"]["resourceVersion"] = version.clone().into();
        }
    }

    /// The queue admits the job, if it may.
    pub fn admit(&mut self, size: u32) {
        let can_be_admitted = |workload: &Workload| {
            let is_backing_off =
                workload.not_before.is_some_and(|until| until > self.now.as_millisecond());
            workload.admission.is_none()
                && !workload.finished
                && !workload.suspended
                && !is_backing_off
        };
        if self.workload().is_some_and(|workload| can_be_admitted(&workload)) {
            let patch = admission::job_write(&self.job().unwrap(), &admit(size), self.now);
            merge(&mut self.job.as_mut().unwrap()["status"], &patch["status"]);
            self.waiting = None;
            self.touch();
        }
    }

    /// The queue evicts the job.
    pub fn evict(&mut self, reason: EvictionReason) {
        let has_quota = |workload: &Workload| workload.admission.is_some() && !workload.finished;
        if self.workload().is_some_and(|workload| has_quota(&workload)) {
            self.evicted = Some(reason);
        }
    }

    /// The queue says why the job waits.
    pub fn wait(&mut self, waiting: WaitStatus) {
        self.waiting = Some(waiting);
    }

    /// The user changes the job.
    pub fn change(&mut self, patch: &Value) {
        let Some(job) = &mut self.job else { return };
        let mut changed = job.clone();
        merge(&mut changed["spec"], patch);
        if changed["spec"] != job["spec"] {
            let generation = changed["metadata"]["generation"].as_i64().unwrap();
            changed["metadata"]["generation"] = json!(generation + 1);
            *job = changed;
            self.touch();
        }
    }

    /// The administrator changes the setup.
    pub fn change_setup(&mut self, patch: &Value) {
        let mut changed = serde_json::to_value(&self.setup).unwrap();
        merge(&mut changed, patch);
        self.setup = serde_json::from_value(changed).unwrap();
    }

    /// Another setup replaces the job's.
    pub fn replace_setup(&mut self, name: &str) {
        self.record = Some(SetupName::new("hpc", name));
    }

    /// In how many MiniClusters the command was started. One that restarts a lost lead counts once: that
    /// is its own `restart.limit`, and no decision of the queue.
    pub fn runs(&self) -> u32 {
        u32::try_from(self.started_in.len()).unwrap()
    }

    /// The MiniCluster reaches this state: `PodsPending`, `ReadyTimeout`, or `Quorum`.
    pub fn cluster(&mut self, reason: &str) {
        let created = self.clusters_created;
        let Some(minicluster) = self.unfinished_cluster() else { return };
        let ready = if reason == "Quorum" { "True" } else { "False" };
        let was = minicluster["status"]["conditions"][1]["status"] == "True";
        let runs = if was && reason == "LeadNotReady" { "True" } else { ready };
        minicluster["status"] = json!({ "size": 2, "conditions": [
            condition("Ready", ready, reason),
            condition("Running", runs, "CommandStarted"),
            condition("Succeeded", "Unknown", "NotFinished"),
            condition("JobFinished", "False", "NotFinished"),
        ] });
        if runs == "True" {
            self.started_in.insert(created);
        }
        self.touch();
    }

    /// The MiniCluster cannot be run, for this reason.
    pub fn refuse_cluster(&mut self, reason: &str) {
        let Some(minicluster) = self.unfinished_cluster() else { return };
        minicluster["status"] = json!({ "size": 0, "conditions": [
            condition("Ready", "False", "NotCreated"),
            condition("Running", "False", "NotStarted"),
            condition("Succeeded", "Unknown", "NotFinished"),
            condition("JobFinished", "False", "NotFinished"),
            condition("Accepted", "False", reason),
        ] });
        self.touch();
    }

    /// The command finishes with this exit code.
    pub fn finish(&mut self, code: i32) {
        self.finish_with_reason(code, if code == 0 { "Completed" } else { "CommandFailed" });
    }

    /// The cluster finishes for this reason.
    pub fn finish_with_reason(&mut self, code: i32, reason: &str) {
        let Some(minicluster) = self.unfinished_cluster() else { return };
        let succeeded = if code == 0 { "True" } else { "False" };
        minicluster["status"] = json!({ "size": 0, "exitCode": code, "conditions": [
            condition("Ready", "False", reason),
            condition("Running", "False", reason),
            condition("Succeeded", succeeded, reason),
            condition("JobFinished", "True", reason),
        ] });
        self.touch();
    }

    fn unfinished_cluster(&mut self) -> Option<&mut Value> {
        let minicluster = self.minicluster.as_mut()?;
        let finished = minicluster["status"]["conditions"][3]["status"] == "True";
        (!finished).then_some(minicluster)
    }

    /// The MiniCluster is deleted.
    pub fn lose_cluster(&mut self) {
        self.minicluster = None;
    }

    /// A MiniCluster of that name has another owner.
    pub fn take_name(&mut self) {
        self.minicluster = Some(flux_operator_testkit::smallest_minicluster("lammps"));
    }

    /// The status is lost, as when an object is restored from a backup.
    pub fn lose_status(&mut self) {
        self.job.as_mut().unwrap()["status"] = json!(null);
    }

    /// The job is being deleted, and a finalizer keeps it.
    pub fn delete_job(&mut self) {
        let metadata = &mut self.job.as_mut().unwrap()["metadata"];
        metadata["deletionTimestamp"] = json!(self.now.to_string());
    }

    pub fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    // Queries of tests.

    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub fn job(&self) -> Option<FluxJob> {
        self.job.clone().map(|job| serde_json::from_value(job).unwrap())
    }

    pub fn minicluster(&self) -> Option<MiniCluster> {
        self.minicluster.clone().map(|minicluster| serde_json::from_value(minicluster).unwrap())
    }

    pub fn workload(&self) -> Option<Workload> {
        let minicluster = self.minicluster();
        let context = JobContext { minicluster: minicluster.as_ref(), class_value: None };
        of_job(&self.job()?, context).ok().flatten()
    }

    pub fn status(&self) -> FluxJobStatus {
        self.job().and_then(|job| job.status).unwrap_or_default()
    }

    /// Phase and reason.
    pub fn phase_and_reason(&self) -> (String, String) {
        let status = self.status();
        (status.phase, status.reason)
    }

    pub fn condition(&self, kind: &str) -> Condition {
        let conditions = self.status().conditions;
        conditions.into_iter().find(|condition| condition.type_ == kind).unwrap()
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": format!("{reason} it is"),
        "lastTransitionTime": "2026-01-01T00:00:30Z" })
}

/// Whether a step can fail like this.
fn can_fail(step: &Step, how: FailureKind) -> bool {
    match how {
        FailureKind::NotOurs | FailureKind::Transient => matches!(step, Step::Create(_)),
        FailureKind::Refused | FailureKind::Invalid | FailureKind::Unknown => true,
        FailureKind::Conflict => false,
    }
}

fn shown(step: &Step) -> String {
    match step {
        Step::Create(Object::MiniCluster(made)) => format!("create MiniCluster {}", json!(made)),
        Step::Delete(_) => "delete MiniCluster".into(),
        Step::DeleteSelf => "delete FluxJob".into(),
        other => panic!("{other:?} is not for a FluxJob"),
    }
}

/// Whether these steps only delete the MiniCluster.
pub fn is_deletion(steps: &[Step]) -> bool {
    matches!(steps, [Step::Delete(target)] if target.kind == TargetKind::MiniCluster)
}

fn nothing_said() -> Value {
    json!({ "steps": [], "failure": null, "status": null, "urgency": "None", "events": [],
        "again": null })
}
