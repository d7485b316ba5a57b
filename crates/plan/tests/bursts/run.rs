//! A job at home, a target, and a Burst that runs the one at the other in an instance of its own.

use flux_operator_api::Burst;
use flux_operator_api::burst::RunState;
use flux_operator_plan::bursting::{
    BURST_FINALIZER, BurstDecision, BurstObserved, BurstStep, HomeAnswer, HomeJob,
    ObservedMiniCluster, Presence, TargetFailure, TargetView, Unreadable, WhileUnreadable,
    after_failure, after_output, asks_inside, creates_inside, decide_burst, field_manager,
    home_order, keeps_cluster, must_ask_target, while_unreadable,
};
use flux_operator_plan::status::{RunEnd, RunView};
use flux_operator_wire::{HomeJobState, JobGoal, JobRefusal, JobspecText};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::world::{World, burst, start};

pub const JOBSPEC: &str = r#"{"version": 1, "resources": [{"type": "node", "count": 9, "with": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}]}], "tasks": [{"command": ["sh", "-c", "exit 7"], "slot": "task", "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 0, "environment": {"TOKEN": "hunter2"}, "cwd": "/tmp"}}}"#;

/// A job at home, a target, and a Burst that runs the one at the other.
pub struct Run {
    pub burst: Option<Burst>,
    pub world: World,
    /// The job at home.
    pub home: HomeJobState,
    pub urgency: u32,
    pub message: String,
    pub jobspec: String,
    /// Why the lead refuses to hold it.
    pub refusal: Option<JobRefusal>,
    /// What the operator says instead, if the lead does not answer.
    pub silence: Option<HomeAnswer>,
    /// The lead executes orders all the same, and only its answers are lost.
    pub loses_answers: bool,
    /// The MiniCluster exists, and cannot be read.
    pub is_unreadable: bool,
    /// At the target.
    pub presence: Presence,
    pub failure: Option<TargetFailure>,
    /// Why the output cannot be read or saved.
    pub no_output: Option<TargetFailure>,
    /// How often a pod of the lead was started, and how long it runs, in seconds.
    pub started: usize,
    pub started_at: Option<Timestamp>,
    pub takes: i64,
    pub exit: RunEnd,
    /// Pods do not start.
    pub has_no_nodes: bool,
    /// The lead is lost before its runner is started, with which the Job fails.
    pub never_starts: bool,
    /// The lead starts just before its Job is deleted.
    pub starts_late: bool,
    /// Pods that are being deleted are there for a while.
    pub lingers: bool,
    /// Its cluster is made for it.
    pub is_made: bool,
    /// That cluster answers also when the Burst is deleted.
    pub inside_answers: bool,
    /// Its kubeconfig does not exist for a moment.
    pub lapses: bool,
    pub saved: usize,
    pub finished: usize,
    pub now: Timestamp,
}

impl Run {
    pub fn new(urgency: u32) -> Run {
        let spec = json!({ "isolatedJob": "f2b", "nodes": 9, "target": { "maxNodes": 9 } });
        let mut burst = burst(&spec);
        burst.metadata.owner_references = serde_json::from_value(json!([{ "kind": "BurstPolicy",
            "apiVersion": "flux-framework.org/v1alpha2", "name": "p", "uid": "u" }]))
        .unwrap();
        burst.spec.policy = "p".into();
        Run {
            burst: Some(burst),
            world: World::new(json!({})),
            home: if urgency == 0 { HomeJobState::Held } else { HomeJobState::Pending },
            urgency,
            message: String::new(),
            jobspec: JOBSPEC.into(),
            refusal: None,
            silence: None,
            loses_answers: false,
            is_unreadable: false,
            presence: Presence::Nothing,
            failure: None,
            no_output: None,
            started: 0,
            started_at: None,
            takes: 3,
            exit: RunEnd { exit_code: Some(7), message: String::new() },
            has_no_nodes: false,
            never_starts: false,
            starts_late: false,
            lingers: false,
            is_made: false,
            inside_answers: false,
            lapses: false,
            saved: 0,
            finished: 0,
            now: start(),
        }
    }

    pub fn burst(&self) -> &Burst {
        self.burst.as_ref().unwrap()
    }

    pub fn run(&self) -> flux_operator_api::burst::BurstRun {
        self.burst().run().cloned().unwrap_or_default()
    }

    pub fn reason(&self, kind: &str) -> String {
        let conditions = self.burst().status.clone().unwrap_or_default().conditions;
        let found = conditions.iter().find(|it| it.type_ == kind);
        found.map(|it| format!("{} {}", it.status, it.reason)).unwrap_or_default()
    }

    /// A Burst whose cluster is made in Google Kubernetes Engine.
    pub fn with_made_cluster() -> Run {
        let gke = json!({ "name": "gke", "maxNodes": 9, "gke": { "project": "science",
            "location": "us-central1-a", "machineType": "c3-standard-8",
            "serviceAccount": "maker" } });
        let mut run = Run { is_made: true, ..Run::new(16) };
        run.burst.as_mut().unwrap().spec.target = serde_json::from_value(gke).unwrap();
        run
    }

    /// What a target says whose cluster is made for the run.
    fn view_outside(&self) -> Option<TargetView> {
        let is_inside = matches!(
            self.presence,
            Presence::Complete | Presence::ClusterReady | Presence::Leaving
        );
        if self.lapses && is_inside {
            let presence = Presence::ClusterComing("there is no kubeconfig".into());
            return Some(TargetView { presence, ..TargetView::default() });
        }
        let is_deleting = self.burst().metadata.deletion_timestamp.is_some();
        let answers = self.inside_answers || !is_deleting;
        let is_asked = is_inside && answers && asks_inside(self.burst());
        let presence = if is_inside { Presence::ClusterReady } else { self.presence.clone() };
        (self.is_made && !is_asked).then(|| TargetView { presence, ..TargetView::default() })
    }

    fn view(&self) -> TargetView {
        if let Some(view) = self.view_outside() {
            return view;
        }
        let has_pods = matches!(self.presence, Presence::Complete | Presence::Leaving);
        let is_over = self
            .started_at
            .is_some_and(|at| self.now >= at + SignedDuration::from_secs(self.takes));
        let run = RunView {
            lead_pod: (has_pods && self.started > 0).then(|| "pod".to_owned()),
            started: self.started_at.filter(|_| has_pods),
            end: ((is_over || self.never_starts) && self.presence == Presence::Complete)
                .then(|| self.exit.clone()),
            never_started: self.never_starts && has_pods,
        };
        let nodes = if self.presence == Presence::Complete && !is_over { 9 } else { 0 };
        TargetView {
            presence: self.presence.clone(),
            nodes,
            present: Some(nodes),
            run: Some(run),
            ..TargetView::default()
        }
    }

    /// What the operator and the lead do with an order.
    fn turn(&mut self) -> HomeAnswer {
        let cluster = self.world.cluster.as_ref().filter(|_| !self.is_unreadable);
        let order = home_order(self.burst(), &[], cluster);
        let Some(goal) = order else { return HomeAnswer::NotAsked };
        if let (Some(silence), false) = (&self.silence, self.loses_answers) {
            return silence.clone();
        }
        if goal == JobGoal::Held {
            assert!(self.run().hold_ordered, "it is recorded first");
        }
        let before = (self.urgency > 0).then_some(self.urgency);
        let is_waiting = matches!(self.home, HomeJobState::Pending | HomeJobState::Held);
        match goal {
            JobGoal::Held if is_waiting && self.refusal.is_none() => self.home = HomeJobState::Held,
            JobGoal::Canceled(message) if self.home != HomeJobState::Finished => {
                self.home = HomeJobState::Finished;
                self.message = message;
            }
            JobGoal::Released(urgency) if is_waiting => {
                assert!(urgency.is_none() || urgency == before);
                self.home = match self.urgency {
                    0 => HomeJobState::Held,
                    _ => HomeJobState::Pending,
                };
            }
            _ => {}
        }
        let jobspec = JobspecText::new(self.jobspec.clone());
        let (state, refusal) = (self.home, self.refusal.filter(|_| is_waiting));
        let job = HomeJob { state, urgency: before, refusal, jobspec, is_too_large: false };
        self.silence.clone().unwrap_or(HomeAnswer::Job(job))
    }

    /// One reconciliation. It may be killed before the status is written, or before the step is made.
    pub fn reconcile(&mut self, killed: Option<bool>) {
        if self.burst.is_none() {
            return;
        }
        let unreadable = Unreadable { cluster: self.is_unreadable, bursts: false };
        if while_unreadable(self.burst(), unreadable, self.now) == WhileUnreadable::Wait {
            self.pass();
            return;
        }
        let home = self.turn();
        let asks = must_ask_target(self.burst(), self.now);
        let target = asks.then(|| self.failure.clone().map_or_else(|| Ok(self.view()), Err));
        let world = std::mem::replace(&mut self.world, World::new(json!({})));
        let observed = BurstObserved {
            cluster: match &world.cluster {
                Some(_) if self.is_unreadable => ObservedMiniCluster::Unreadable,
                Some(cluster) => ObservedMiniCluster::Readable(cluster),
                None => ObservedMiniCluster::Missing,
            },
            others: &[],
            target,
            running: None,
            home,
            now: self.now,
        };
        let BurstDecision { status, step, requeue_at } = decide_burst(self.burst(), &observed);
        assert!(requeue_at.is_none_or(|at| at > self.now), "it would be asked again at once");
        let text = serde_json::to_string(&status).unwrap();
        assert!(!text.contains("hunter2"), "the environment is in the status");
        if killed != Some(true) {
            self.burst.as_mut().unwrap().status = Some(status);
            if killed.is_none()
                && let Some(step) = step
            {
                let is_output = matches!(step, BurstStep::SaveOutput(_));
                let failure = self.failure.clone().filter(|_| is_at_target(&step));
                match failure.or(self.no_output.clone().filter(|_| is_output)) {
                    Some(failure) => {
                        let status = after_failure(self.burst(), &observed, failure);
                        self.burst.as_mut().unwrap().status = Some(status);
                    }
                    None => {
                        let has_job = matches!(observed.home, HomeAnswer::Job(_));
                        self.world = world;
                        self.make(&step, has_job);
                        self.pass();
                        return;
                    }
                }
            }
        }
        self.world = world;
        self.pass();
    }

    fn make(&mut self, step: &BurstStep, has_job: bool) {
        match step {
            BurstStep::AddFinalizer => {
                let finalizers = Some(vec![BURST_FINALIZER.to_owned()]);
                self.burst.as_mut().unwrap().metadata.finalizers = finalizers;
            }
            BurstStep::ClaimCluster(claim) => {
                assert_eq!(claim["spec"], Value::Null, "there is no invitation");
                let manager = Some(field_manager(self.burst()));
                let cluster = self.world.cluster.as_mut().unwrap();
                cluster.metadata.finalizers = Some(vec![BURST_FINALIZER.to_owned()]);
                cluster.metadata.managed_fields =
                    Some(vec![ManagedFieldsEntry { manager, ..Default::default() }]);
            }
            BurstStep::Create => {
                assert!(has_job, "there is no jobspec");
                assert_eq!(self.run().state, RunState::Starting, "it is recorded first");
                let has_cluster = !self.is_made || self.presence == Presence::ClusterReady;
                assert_eq!(self.run().may_have_run, has_cluster, "it is recorded first");
                assert_eq!(self.burst().status.as_ref().unwrap().cluster_made, self.is_made);
                let goes_inside = creates_inside(self.burst());
                self.presence = match (&self.presence, self.is_made) {
                    (Presence::Nothing, true) => Presence::ClusterComing("it comes".into()),
                    (Presence::Nothing, false) => Presence::Complete,
                    (Presence::ClusterReady, _) if goes_inside => Presence::Complete,
                    (presence, _) => presence.clone(),
                };
            }
            BurstStep::SaveOutput(pod) => {
                let is_stopped = self.run().message == "its lifetime is over";
                let expected = self.exit.exit_code.filter(|_| !is_stopped);
                assert_eq!((pod.as_str(), self.run().exit_code), ("pod", expected));
                self.saved += 1;
                let status = after_output(self.burst());
                self.burst.as_mut().unwrap().status = Some(status);
            }
            BurstStep::DeleteObjects => {
                if self.starts_late && self.started == 0 {
                    self.started = 1;
                    self.started_at = Some(self.now);
                }
                self.presence = match (&self.presence, self.lingers) {
                    (Presence::ClusterDeleted, _) => Presence::Nothing,
                    _ if self.is_made && !keeps_cluster(self.burst()) => Presence::ClusterDeleted,
                    (_, true) => Presence::Leaving,
                    (_, false) => self.empty(),
                };
            }
            BurstStep::Finish => {
                assert_eq!(self.presence, Presence::Nothing);
                self.finished += 1;
                let cluster = self.world.cluster.as_mut().unwrap();
                cluster.metadata.finalizers = None;
                cluster.metadata.managed_fields = None;
                let burst = self.burst.as_mut().unwrap();
                burst.metadata.finalizers = None;
                if burst.metadata.deletion_timestamp.is_some() {
                    self.burst = None;
                }
            }
            BurstStep::DeleteSelf(_) => self.delete(),
            BurstStep::Scale(_) => panic!("it has a constant size"),
        }
    }

    /// What is there without its Job.
    fn empty(&self) -> Presence {
        if self.is_made { Presence::ClusterReady } else { Presence::Nothing }
    }

    pub fn delete(&mut self) {
        let burst = self.burst.as_mut().unwrap();
        burst.metadata.deletion_timestamp = Some(Time(self.now));
        if burst.metadata.finalizers.is_none() {
            self.burst = None;
        }
    }

    /// A second passes, and pods start.
    fn pass(&mut self) {
        self.now += SignedDuration::from_secs(1);
        if matches!(self.presence, Presence::ClusterComing(_)) {
            self.presence = Presence::ClusterReady;
        }
        if self.presence == Presence::Complete
            && self.started_at.is_none()
            && !self.has_no_nodes
            && !self.never_starts
        {
            self.started += 1;
            self.started_at = Some(self.now);
        }
        if self.presence == Presence::Leaving && !self.lingers {
            self.presence = self.empty();
        }
    }

    pub fn settle(&mut self) {
        for _ in 0..40 {
            self.reconcile(None);
        }
    }
}

fn is_at_target(step: &BurstStep) -> bool {
    matches!(step, BurstStep::Create | BurstStep::DeleteObjects | BurstStep::SaveOutput(_))
}
