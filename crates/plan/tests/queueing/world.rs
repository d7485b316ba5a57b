//! A Kubernetes for one job, in memory: what it does with steps, and what the job's
//! MiniCluster and its queue do.

use flux_operator_api::{FluxJob, FluxJobStatus, FluxSetupSpec, MiniCluster};
use flux_operator_plan::queueing::admission;
use flux_operator_plan::queueing::job::{JobPlan, JobSeen, JobStep, plan};
use flux_operator_plan::queueing::merge_patch;
use flux_operator_plan::queueing::workload::{Beside, of_job};
use flux_operator_queue::{EvictReason, SetupName, Waiting, Workload};
use flux_operator_testkit::merge;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::objects::{admit, after, job, setup};

/// Everything there is.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    job: Option<Value>,
    minicluster: Option<Value>,
    setup: FluxSetupSpec,
    /// What has replaced the setup that admitted the job.
    record: Option<SetupName>,
    waiting: Option<Waiting>,
    evicted: Option<EvictReason>,
    failure: Option<String>,
    /// How often a MiniCluster was made.
    pub made: u32,
    /// How often a command was started.
    pub runs: u32,
    /// How often the status was written by a pass.
    pub writes: u32,
    now: Timestamp,
}

impl World {
    /// More turns than any history needs to settle.
    pub const LONG: usize = 8;

    /// A job that was just created.
    pub fn new(spec: Value) -> World {
        World {
            job: Some(serde_json::to_value(job(spec)).unwrap()),
            minicluster: None,
            setup: setup(json!({})).spec,
            record: None,
            waiting: None,
            evicted: None,
            failure: None,
            made: 0,
            runs: 0,
            writes: 0,
            now: after(0),
        }
    }

    /// A job with room, whose MiniCluster is made.
    pub fn admitted(spec: Value) -> World {
        let mut world = World::new(spec);
        world.admit(2);
        world.settle();
        world
    }

    // What the operator does.

    /// What the operator would do now.
    pub fn plan(&self) -> JobPlan {
        let Some(job) = self.job() else { return JobPlan::default() };
        let minicluster = self.minicluster();
        let beside = Beside { minicluster: minicluster.as_ref(), class_value: None };
        let mistake = of_job(&job, beside).err();
        plan(&JobSeen {
            job: &job,
            minicluster: minicluster.as_ref(),
            setup: Some(&self.setup),
            record: self.record.as_ref(),
            mistake: mistake.as_ref(),
            waiting: self.waiting.as_ref(),
            evicted: self.evicted,
            failure: self.failure.as_deref(),
            chance: 0.0,
            now: self.now,
        })
    }

    /// One pass of the operator. Returns the steps it took.
    pub fn pass(&mut self) -> Vec<JobStep> {
        let plan = self.plan();
        self.carry_out(&plan.steps);
        self.write(plan.status.as_ref());
        plan.steps
    }

    /// Writes a status as the operator does: only what has changed.
    fn write(&mut self, status: Option<&FluxJobStatus>) {
        let Some((job, status)) = self.job().zip(status) else { return };
        if let Some(patch) = merge_patch(&job.status.unwrap_or_default(), status) {
            merge(&mut self.job.as_mut().unwrap()["status"], &patch);
            self.writes += 1;
        }
    }

    /// Carries steps out. A step that Kubernetes would refuse is a failure.
    pub fn carry_out(&mut self, steps: &[JobStep]) {
        for step in steps {
            match step {
                JobStep::CreateMiniCluster(made) => {
                    if self.minicluster.is_none() {
                        self.made += 1;
                        let mut made = serde_json::to_value(made).unwrap();
                        made["metadata"]["uid"] = json!(format!("mc-{}", self.made));
                        self.minicluster = Some(made);
                    }
                }
                JobStep::DeleteMiniCluster => {
                    let minicluster = self.minicluster.as_mut().expect("what is deleted was seen");
                    minicluster["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
                }
                JobStep::DeleteJob => self.job = None,
            }
        }
    }

    // What others do by themselves.

    /// The garbage collector and the queue.
    pub fn control(&mut self) {
        let going = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        self.minicluster = self.minicluster.take().filter(|it| !going(it) && self.job.is_some());
        if self.workload().is_none_or(|workload| workload.admission.is_none()) {
            self.evicted = None;
        }
    }

    /// A pass, and then the others. Returns whether anything has moved.
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

    // What happens.

    /// The queue gives room, if it may.
    pub fn admit(&mut self, size: u32) {
        let free = |workload: &Workload| {
            let rests = workload.not_before.is_some_and(|until| until > self.now.as_millisecond());
            workload.admission.is_none() && !workload.finished && !workload.suspended && !rests
        };
        if self.workload().is_some_and(|workload| free(&workload)) {
            let patch = admission::of_job(&self.job().unwrap(), &admit(size), self.now);
            merge(&mut self.job.as_mut().unwrap()["status"], &patch["status"]);
            self.waiting = None;
        }
    }

    /// The queue wants its room back.
    pub fn evict(&mut self, reason: EvictReason) {
        let has_room = |workload: &Workload| workload.admission.is_some() && !workload.finished;
        if self.workload().is_some_and(|workload| has_room(&workload)) {
            self.evicted = Some(reason);
        }
    }

    /// The queue says why the job waits.
    pub fn wait(&mut self, waiting: Waiting) {
        self.waiting = Some(waiting);
    }

    /// What was tried could not be done.
    pub fn fail(&mut self, failure: &str) {
        self.failure = Some(failure.into());
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
        }
    }

    /// The administrator changes the setup.
    pub fn change_setup(&mut self, patch: &Value) {
        let mut changed = serde_json::to_value(&self.setup).unwrap();
        merge(&mut changed, patch);
        self.setup = serde_json::from_value(changed).unwrap();
    }

    /// Another setup takes the place of the job's.
    pub fn replace_setup(&mut self, name: &str) {
        self.record = Some(SetupName::new("hpc", name));
    }

    /// The MiniCluster gets as far as this: `PodsPending`, `ReadyTimeout`, or `Quorum`.
    pub fn cluster(&mut self, reason: &str) {
        let Some(minicluster) = self.living() else { return };
        let ready = if reason == "Quorum" { "True" } else { "False" };
        let was = minicluster["status"]["conditions"][1]["status"] == "True";
        let runs = if was && reason == "LeadNotReady" { "True" } else { ready };
        minicluster["status"] = json!({ "size": 2, "conditions": [
            condition("Ready", ready, reason),
            condition("Running", runs, "CommandStarted"),
            condition("Succeeded", "Unknown", "NotFinished"),
            condition("JobFinished", "False", "NotFinished"),
        ] });
        self.runs += u32::from(runs == "True" && !was);
    }

    /// The command ends with this code.
    pub fn end(&mut self, code: i32) {
        self.end_for(code, if code == 0 { "Completed" } else { "CommandFailed" });
    }

    /// The cluster ends for this reason.
    pub fn end_for(&mut self, code: i32, reason: &str) {
        let Some(minicluster) = self.living() else { return };
        let succeeded = if code == 0 { "True" } else { "False" };
        minicluster["status"] = json!({ "size": 0, "exitCode": code, "conditions": [
            condition("Ready", "False", reason),
            condition("Running", "False", reason),
            condition("Succeeded", succeeded, reason),
            condition("JobFinished", "True", reason),
        ] });
    }

    fn living(&mut self) -> Option<&mut Value> {
        let minicluster = self.minicluster.as_mut()?;
        let ended = minicluster["status"]["conditions"][3]["status"] == "True";
        (!ended).then_some(minicluster)
    }

    /// Somebody deletes the MiniCluster.
    pub fn lose_cluster(&mut self) {
        self.minicluster = None;
    }

    /// Somebody has a MiniCluster of that name.
    pub fn take_name(&mut self) {
        self.minicluster = Some(flux_operator_testkit::smallest("lammps"));
    }

    /// The status is lost, as when an object is restored from a backup.
    pub fn forget(&mut self) {
        self.job.as_mut().unwrap()["status"] = json!(null);
    }

    /// The job is being deleted, and somebody holds it.
    pub fn go(&mut self) {
        let metadata = &mut self.job.as_mut().unwrap()["metadata"];
        metadata["deletionTimestamp"] = json!(self.now.to_string());
    }

    pub fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    // What tests ask.

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
        let beside = Beside { minicluster: minicluster.as_ref(), class_value: None };
        of_job(&self.job()?, beside).ok().flatten()
    }

    pub fn status(&self) -> FluxJobStatus {
        self.job().and_then(|job| job.status).unwrap_or_default()
    }

    /// Phase and reason.
    pub fn told(&self) -> (String, String) {
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
