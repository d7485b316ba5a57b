//! A run in an instance of its own: what becomes of it and of the job at home, also if the controller
//! is killed before any step.

use flux_operator_api::Burst;
use flux_operator_api::burst::RunState;
use flux_operator_plan::bursting::{
    BURST_FINALIZER, BurstDecision, BurstObserved, BurstStep, HomeJob, HomeTurn, Presence,
    RECORD_SECONDS, TargetFailure, TargetView, after_failure, after_output, decide_burst,
    field_manager, home_order, must_ask_target, output_name,
};
use flux_operator_plan::status::{RunEnd, RunView};
use flux_operator_wire::{HomeJobState, JobGoal, JobspecText};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{World, burst, failure, start};

const JOBSPEC: &str = r#"{"version": 1, "resources": [{"type": "node", "count": 9, "with": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}]}], "tasks": [{"command": ["sh", "-c", "exit 7"], "slot": "task", "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 0, "environment": {"TOKEN": "hunter2"}, "cwd": "/tmp"}}}"#;

/// A job at home, a target, and a Burst that runs the one at the other.
struct Run {
    burst: Option<Burst>,
    world: World,
    /// The job at home.
    home: HomeJobState,
    urgency: u32,
    message: String,
    jobspec: String,
    /// The lead does not answer.
    is_silent: bool,
    /// At the target.
    presence: Presence,
    failure: Option<TargetFailure>,
    /// How often a pod of the lead was started, and how long it runs, in seconds.
    started: usize,
    started_at: Option<Timestamp>,
    takes: i64,
    exit: RunEnd,
    /// Pods do not start.
    has_no_nodes: bool,
    /// The lead starts just before its Job is deleted.
    starts_late: bool,
    /// Pods that are being deleted are there for a while.
    lingers: bool,
    /// Its cluster is made for it, and does not answer any more once the Burst is deleted.
    is_made: bool,
    saved: usize,
    finished: usize,
    now: Timestamp,
}

impl Run {
    fn new(urgency: u32) -> Run {
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
            is_silent: false,
            presence: Presence::Nothing,
            failure: None,
            started: 0,
            started_at: None,
            takes: 3,
            exit: RunEnd { exit_code: Some(7), message: String::new() },
            has_no_nodes: false,
            starts_late: false,
            lingers: false,
            is_made: false,
            saved: 0,
            finished: 0,
            now: start(),
        }
    }

    fn burst(&self) -> &Burst {
        self.burst.as_ref().unwrap()
    }

    fn run(&self) -> flux_operator_api::burst::BurstRun {
        self.burst().run().cloned().unwrap_or_default()
    }

    fn reason(&self, kind: &str) -> String {
        let conditions = self.burst().status.clone().unwrap_or_default().conditions;
        let found = conditions.iter().find(|it| it.type_ == kind);
        found.map(|it| format!("{} {}", it.status, it.reason)).unwrap_or_default()
    }

    /// A Burst whose cluster is made in Google Kubernetes Engine.
    fn with_made_cluster() -> Run {
        let gke = json!({ "name": "gke", "maxNodes": 9, "gke": { "project": "science",
            "location": "us-central1-a", "machineType": "c3-standard-8",
            "serviceAccount": "maker" } });
        let mut run = Run { is_made: true, ..Run::new(16) };
        run.burst.as_mut().unwrap().spec.target = serde_json::from_value(gke).unwrap();
        run
    }

    /// What a target says whose cluster is made for the run.
    fn view_outside(&self) -> Option<TargetView> {
        let is_deleting = self.burst().metadata.deletion_timestamp.is_some();
        let is_inside = matches!(self.presence, Presence::Complete | Presence::ClusterReady);
        let is_asked = is_inside && !self.run().output_settled && !is_deleting;
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
            end: (is_over && self.presence == Presence::Complete).then(|| self.exit.clone()),
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
    fn turn(&mut self) -> HomeTurn {
        let Some(goal) = home_order(self.burst()) else { return HomeTurn::NotAsked };
        if self.is_silent {
            return HomeTurn::Failed("the lead does not answer".into());
        }
        let before = (self.urgency > 0).then_some(self.urgency);
        let is_waiting = matches!(self.home, HomeJobState::Pending | HomeJobState::Held);
        match goal {
            JobGoal::Held if is_waiting => self.home = HomeJobState::Held,
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
        HomeTurn::Job(HomeJob { state: self.home, urgency: before, jobspec, is_too_large: false })
    }

    /// One reconciliation. It may be killed before the status is written, or before the step is made.
    fn reconcile(&mut self, killed: Option<bool>) {
        if self.burst.is_none() {
            return;
        }
        let home = self.turn();
        let asks = must_ask_target(self.burst(), self.now);
        let target = asks.then(|| self.failure.clone().map_or_else(|| Ok(self.view()), Err));
        let world = std::mem::replace(&mut self.world, World::new(json!({})));
        let cluster = world.cluster.as_ref();
        let observed = BurstObserved { cluster, target, running: None, home, now: self.now };
        let BurstDecision { status, step, requeue_at } = decide_burst(self.burst(), &observed);
        assert!(requeue_at.is_none_or(|at| at > self.now), "it would be asked again at once");
        let text = serde_json::to_string(&status).unwrap();
        assert!(!text.contains("hunter2"), "the environment is in the status");
        if killed != Some(true) {
            self.burst.as_mut().unwrap().status = Some(status);
            if killed.is_none()
                && let Some(step) = step
            {
                match self.failure.clone().filter(|_| is_at_target(&step)) {
                    Some(failure) => {
                        let status = after_failure(self.burst(), &observed, failure);
                        self.burst.as_mut().unwrap().status = Some(status);
                    }
                    None => {
                        let has_job = matches!(observed.home, HomeTurn::Job(_));
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
                assert_eq!(self.burst().status.as_ref().unwrap().cluster_made, self.is_made);
                self.presence = match (&self.presence, self.is_made) {
                    (Presence::Nothing, true) => Presence::ClusterComing("it comes".into()),
                    (Presence::Nothing, false) | (Presence::ClusterReady, _) => Presence::Complete,
                    (presence, _) => presence.clone(),
                };
            }
            BurstStep::SaveOutput(pod) => {
                assert_eq!((pod.as_str(), self.run().exit_code), ("pod", self.exit.exit_code));
                self.saved += 1;
                let name = output_name(self.burst());
                let status = after_output(self.burst(), Ok(name));
                self.burst.as_mut().unwrap().status = Some(status);
            }
            BurstStep::DeleteObjects => {
                if self.starts_late && self.started == 0 {
                    self.started = 1;
                    self.started_at = Some(self.now);
                }
                self.presence = match (&self.presence, self.lingers) {
                    (Presence::ClusterDeleted, _) => Presence::Nothing,
                    _ if self.is_made => Presence::ClusterDeleted,
                    (_, true) => Presence::Leaving,
                    (_, false) => Presence::Nothing,
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

    fn delete(&mut self) {
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
        if self.presence == Presence::Complete && self.started_at.is_none() && !self.has_no_nodes {
            self.started += 1;
            self.started_at = Some(self.now);
        }
        if self.presence == Presence::Leaving && !self.lingers {
            self.presence = Presence::Nothing;
        }
    }

    fn settle(&mut self) {
        for _ in 0..40 {
            self.reconcile(None);
        }
    }
}

fn is_at_target(step: &BurstStep) -> bool {
    matches!(step, BurstStep::Create | BurstStep::DeleteObjects | BurstStep::SaveOutput(_))
}

#[test]
fn a_job_runs_once_and_its_exit_code_comes_back() {
    let mut run = Run::new(0);
    run.settle();
    assert_eq!((run.started, run.saved, run.finished), (1, 1, 1));
    assert_eq!(run.home, HomeJobState::Finished);
    assert_eq!(run.message, "ran as Burst b at target away: exit code 7");
    let found = run.run();
    assert_eq!((found.state, found.exit_code), (RunState::Failed, Some(7)));
    assert_eq!(found.output, output_name(run.burst()));
    assert_eq!(run.presence, Presence::Nothing);
    assert_eq!(run.burst().metadata.finalizers, None, "a record can be deleted at once");
    assert_eq!(run.reason("Finished"), "True CommandFailed");
    assert_eq!(run.burst().status.as_ref().unwrap().phase, "Failed");
}

#[test]
fn a_record_is_quiet_and_is_deleted_after_a_day() {
    let mut run = Run::new(0);
    run.exit.exit_code = Some(0);
    run.settle();
    let before = run.burst().status.clone();
    assert_eq!(run.run().state, RunState::Completed);
    run.now += SignedDuration::from_secs(RECORD_SECONDS - 100);
    run.reconcile(None);
    assert_eq!(run.burst().status, before);
    run.now += SignedDuration::from_secs(200);
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!(run.started, 1);
}

#[test]
fn a_job_that_is_not_portable_waits_at_home_with_the_reason() {
    let mut run = Run::new(16);
    run.jobspec = JOBSPEC.replace("\"duration\": 0", "\"duration\": 0, \"dw\": \"x\"");
    run.settle();
    assert_eq!(run.run().state, RunState::Refused);
    assert_eq!(run.reason("Prepared"), "False NotPortable");
    assert!(run.run().message.contains("use another file system"), "{}", run.run().message);
    assert_eq!((run.started, run.home), (0, HomeJobState::Pending), "it is not held any more");
}

#[test]
fn a_job_that_starts_or_finishes_at_home_meanwhile_is_not_run() {
    for state in [HomeJobState::Started, HomeJobState::Finished, HomeJobState::Missing] {
        let mut run = Run::new(16);
        run.home = state;
        run.settle();
        assert!(run.burst.is_none(), "{:?}", run.run());
        assert_eq!((run.started, run.home), (0, state));
    }
}

#[test]
fn a_target_that_has_no_nodes_is_given_up_and_the_job_waits_as_before() {
    for urgency in [0, 16] {
        let mut run = Run::new(urgency);
        run.has_no_nodes = true;
        run.settle();
        assert_eq!(run.run().state, RunState::Starting);
        run.now += SignedDuration::from_secs(1000);
        run.settle();
        assert!(run.burst.is_none());
        let expected = if urgency == 0 { HomeJobState::Held } else { HomeJobState::Pending };
        assert_eq!((run.started, run.home), (0, expected));
        assert_eq!(run.presence, Presence::Nothing);
    }
}

/// It starts at the very moment at which it is given up.
#[test]
fn a_job_that_starts_while_it_is_given_up_is_not_run_again() {
    let mut run = Run::new(0);
    run.has_no_nodes = true;
    run.settle();
    run.delete();
    run.lingers = true;
    run.starts_late = true;
    run.settle();
    run.lingers = false;
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!((run.started, run.home), (1, HomeJobState::Finished));
    let message = "ran as Burst b at target away: it was given back before it had finished";
    assert_eq!(run.message, message);
}

#[test]
fn a_run_that_is_lost_has_failed_and_is_not_started_again() {
    let mut run = Run::new(0);
    run.takes = 1000;
    run.settle();
    assert_eq!(run.run().state, RunState::Running);
    run.presence = Presence::Nothing;
    run.settle();
    assert_eq!((run.run().state, run.started), (RunState::Failed, 1));
    assert_eq!(run.reason("Finished"), "True JobFailed");
    assert!(run.message.contains("it was lost"), "{}", run.message);
}

#[test]
fn a_target_that_does_not_respond_does_not_end_a_run() {
    let mut run = Run::new(0);
    run.takes = 500;
    run.settle();
    run.failure = failure(flux_operator_api::Reason::TargetUnreachable);
    run.settle();
    assert_eq!((run.run().state, run.home), (RunState::Running, HomeJobState::Held));
    run.failure = None;
    run.now += SignedDuration::from_secs(500);
    run.settle();
    assert_eq!((run.run().exit_code, run.home), (Some(7), HomeJobState::Finished));
}

#[test]
fn a_result_waits_for_the_lead_to_be_there_again() {
    let mut run = Run::new(0);
    run.takes = 30;
    for _ in 0..10 {
        run.reconcile(None);
    }
    run.is_silent = true;
    run.settle();
    assert_eq!(run.run().state, RunState::Finishing);
    assert_eq!(run.burst().status.as_ref().unwrap().phase, "LenderNotReady");
    run.is_silent = false;
    run.settle();
    assert_eq!((run.run().state, run.home), (RunState::Failed, HomeJobState::Finished));
}

#[test]
fn a_cluster_that_is_made_for_a_run_is_deleted_after_it() {
    let mut run = Run::with_made_cluster();
    run.settle();
    assert_eq!((run.started, run.saved, run.finished), (1, 1, 1));
    assert_eq!((run.run().exit_code, run.home), (Some(7), HomeJobState::Finished));
    assert_eq!(run.presence, Presence::Nothing);
    assert!(!run.burst().status.as_ref().unwrap().cluster_made);
}

/// A cluster that is made for a run need not answer when it is deleted.
#[test]
fn a_run_is_not_started_again_when_its_cluster_does_not_say_whether_it_was() {
    for before in 0..20 {
        let mut run = Run::with_made_cluster();
        run.takes = 1000;
        for _ in 0..before {
            run.reconcile(None);
        }
        run.delete();
        run.settle();
        assert!(run.burst.is_none());
        assert_eq!(run.presence, Presence::Nothing, "{before}");
        let waits = run.home == HomeJobState::Pending;
        assert!(run.started == 0 || !waits, "{before}: it would run again");
        assert!(before > 2 || waits, "{before}: nothing was made yet");
    }
}

#[test]
fn a_run_that_is_to_be_drained_finishes_and_one_that_has_not_begun_does_not_begin() {
    for (before, started) in [(2, 0), (12, 1)] {
        let mut run = Run::new(16);
        run.takes = 30;
        for _ in 0..before {
            run.reconcile(None);
        }
        run.burst.as_mut().unwrap().spec.drain = true;
        run.settle();
        assert_eq!(run.started, started);
        match started {
            0 => assert!(run.burst.is_none() && run.home == HomeJobState::Pending),
            _ => assert_eq!((run.run().exit_code, run.saved), (Some(7), 1)),
        }
    }
}

#[test]
fn a_run_whose_minicluster_is_deleted_is_given_back() {
    let mut run = Run::new(0);
    run.takes = 1000;
    run.settle();
    run.world.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(run.now));
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!((run.presence, run.finished), (Presence::Nothing, 1));
}

proptest! {
    /// Whenever the controller is killed, before a write or before a step, the job runs exactly once,
    /// and its exit code comes back.
    #[test]
    fn a_controller_that_is_killed_anywhere_runs_the_job_once(
        kills in prop::collection::vec(prop_oneof![Just(None), Just(Some(true)), Just(Some(false))], 0..60),
        urgency in prop_oneof![Just(0), Just(16)],
    ) {
        let mut run = Run::new(urgency);
        for killed in kills {
            run.reconcile(killed);
        }
        run.settle();
        prop_assert_eq!((run.started, run.run().exit_code), (1, Some(7)));
        prop_assert_eq!(run.home, HomeJobState::Finished);
        prop_assert!(run.message.ends_with("exit code 7"));
        prop_assert_eq!(run.run().state, RunState::Failed);
        prop_assert_eq!(&run.presence, &Presence::Nothing);
        prop_assert!(run.run().output_settled && !run.run().output.is_empty());
    }

    /// Also if it is deleted at any time, it never runs twice, and the job at home is canceled if and only
    /// if it may have run.
    #[test]
    fn a_run_that_is_deleted_at_any_time_is_not_run_again(
        before in 0usize..20,
        kills in prop::collection::vec(prop_oneof![Just(None), Just(Some(true)), Just(Some(false))], 0..30),
        lingers in any::<bool>(),
    ) {
        let mut run = Run::new(16);
        for _ in 0..before {
            run.reconcile(None);
        }
        if run.burst.is_some() {
            run.delete();
        }
        run.lingers = lingers;
        for killed in kills {
            run.reconcile(killed);
        }
        run.lingers = false;
        run.settle();
        prop_assert!(run.burst.is_none());
        prop_assert_eq!(&run.presence, &Presence::Nothing);
        let expected = match run.started {
            0 => HomeJobState::Pending,
            _ => HomeJobState::Finished,
        };
        prop_assert!(run.started <= 1);
        prop_assert_eq!(run.home, expected);
    }
}
