//! Two Bursts for one job: one of them runs it, whatever the controller has of the other.

use std::sync::Arc;

use flux_operator_api::Burst;
use flux_operator_api::burst::RunState;
use flux_operator_plan::bursting::{
    BURST_FINALIZER, BurstDecision, BurstObserved, BurstStep, HomeAnswer, HomeJob,
    ObservedMiniCluster, Presence, TargetView, decide_burst, field_manager, home_order,
};
use flux_operator_plan::status::{RunEnd, RunView};
use flux_operator_wire::{HomeJobState, JobGoal, JobspecText};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use super::run::JOBSPEC;
use super::world::{World, burst, start};

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The controller receives the next change.
    Watch,
    /// It decides about a Burst.
    Decide(usize),
    /// It writes the status, and makes the step.
    Commit(usize),
    /// A user deletes a Burst.
    Delete(usize),
}

/// Two Bursts, of which the second is created later, and the job at home.
struct Duel {
    /// What was written, in this order; `None`: the Burst was removed.
    log: Vec<(usize, Option<Burst>)>,
    /// How much of it the controller has.
    received: usize,
    /// What is decided and not done yet, and for which version.
    decided: [Option<(usize, BurstDecision, bool)>; 2],
    /// When the Job of each was created at its target.
    created: [Option<Timestamp>; 2],
    /// Whether it still exists.
    exists: [bool; 2],
    home: HomeJobState,
    world: World,
    now: Timestamp,
}

impl Duel {
    /// The first one, with the second created after some changes of the first.
    fn new(uids: [&str; 2]) -> Duel {
        let mut world = World::new(json!({}));
        let cluster = world.cluster.as_mut().unwrap();
        let bursts = uids.map(|uid| {
            let spec = json!({ "isolatedJob": "f2b", "nodes": 9, "target": { "maxNodes": 9 } });
            let mut burst = burst(&spec);
            burst.metadata.uid = Some(uid.into());
            burst.metadata.name = Some(format!("b-{uid}"));
            burst
        });
        // Both have their claim: that is not what this is about.
        cluster.metadata.finalizers = Some(vec![BURST_FINALIZER.to_owned()]);
        let fields = bursts.iter().map(|burst| {
            let manager = Some(field_manager(burst));
            ManagedFieldsEntry { manager, ..ManagedFieldsEntry::default() }
        });
        cluster.metadata.managed_fields = Some(fields.collect());
        let log = (0..).zip(bursts.map(Some)).collect();
        Duel {
            log,
            received: 1,
            decided: [None, None],
            created: [None, None],
            exists: [false, false],
            home: HomeJobState::Pending,
            world,
            now: start(),
        }
    }

    /// A Burst and its version, of the first so many changes.
    fn version(&self, index: usize, of: usize) -> Option<(usize, &Burst)> {
        let mut log = self.log[..of].iter().enumerate().rev();
        let (version, (_, burst)) = log.find(|(_, (it, _))| *it == index)?;
        Some((version, burst.as_ref()?))
    }

    fn latest(&self, index: usize) -> Option<(usize, &Burst)> {
        self.version(index, self.log.len())
    }

    fn state(&self, index: usize) -> RunState {
        let burst = self.latest(index).unwrap().1;
        burst.run().map(|run| run.state).unwrap_or_default()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Watch => self.received = self.log.len().min(self.received + 1),
            Event::Decide(index) => self.decide(index),
            Event::Commit(index) => self.commit(index),
            Event::Delete(index) => self.delete(index),
        }
        self.now += SignedDuration::from_secs(1);
        assert!(self.created.iter().flatten().count() <= 1, "it runs twice after {event:?}");
    }

    fn decide(&mut self, index: usize) {
        let Some((version, burst)) = self.version(index, self.received) else { return };
        let (burst, other) = (burst.clone(), self.version(1 - index, self.received));
        let others: Vec<Arc<Burst>> =
            other.into_iter().map(|(_, it)| Arc::new(it.clone())).collect();
        let home = match home_order(&burst, &others, self.world.cluster.as_ref()) {
            Some(goal) => self.turn(index, &goal),
            None => HomeAnswer::NotAsked,
        };
        let observed = BurstObserved {
            cluster: self
                .world
                .cluster
                .as_ref()
                .map_or(ObservedMiniCluster::Missing, ObservedMiniCluster::Readable),
            others: &others,
            target: Some(Ok(self.view(index))),
            running: None,
            home,
            now: self.now,
        };
        let decision = decide_burst(&burst, &observed);
        let has_job = matches!(observed.home, HomeAnswer::Job(_));
        self.decided[index] = Some((version, decision, has_job));
    }

    fn turn(&mut self, index: usize, goal: &JobGoal) -> HomeAnswer {
        match (goal, self.home) {
            (_, HomeJobState::Finished) => {}
            (JobGoal::Held, _) => self.home = HomeJobState::Held,
            (JobGoal::Released(_), _) => {
                assert_eq!(self.created[1 - index], None, "it is released while it runs");
                self.home = HomeJobState::Pending;
            }
            (JobGoal::Canceled(_), _) => self.home = HomeJobState::Finished,
        }
        HomeAnswer::Job(HomeJob {
            state: self.home,
            urgency: Some(16),
            refusal: None,
            jobspec: JobspecText::new(JOBSPEC.into()),
            is_too_large: false,
        })
    }

    fn view(&self, index: usize) -> TargetView {
        let created = self.created[index].filter(|_| self.exists[index]);
        let is_over = created.is_some_and(|at| self.now >= at + SignedDuration::from_secs(8));
        let end = RunEnd { exit_code: Some(0), message: String::new() };
        let run = RunView {
            lead_pod: created.map(|_| "pod".to_owned()),
            started: created,
            end: is_over.then_some(end),
            never_started: false,
        };
        let presence = if created.is_some() { Presence::Complete } else { Presence::Nothing };
        TargetView { presence, run: Some(run), ..TargetView::default() }
    }

    fn commit(&mut self, index: usize) {
        let Some((version, decision, has_job)) = self.decided[index].take() else { return };
        // It has changed since.
        let Some((_, burst)) = self.latest(index).filter(|(latest, _)| *latest == version) else {
            return;
        };
        let mut burst = burst.clone();
        burst.status = Some(decision.status);
        self.log.push((index, Some(burst.clone())));
        match decision.step {
            Some(BurstStep::AddFinalizer) => {
                burst.metadata.finalizers = Some(vec![BURST_FINALIZER.to_owned()]);
                self.log.push((index, Some(burst)));
            }
            Some(BurstStep::Create) => {
                assert!(has_job && self.home == HomeJobState::Held);
                self.created[index] = Some(self.now);
                self.exists[index] = true;
            }
            Some(BurstStep::SaveOutput(_)) => {
                burst.status.as_mut().unwrap().run.as_mut().unwrap().output_settled = true;
                self.log.push((index, Some(burst)));
            }
            Some(BurstStep::DeleteObjects) => self.exists[index] = false,
            Some(BurstStep::Finish) => {
                burst.metadata.finalizers = None;
                let is_deleting = burst.metadata.deletion_timestamp.is_some();
                self.log.push((index, (!is_deleting).then_some(burst)));
            }
            Some(BurstStep::DeleteSelf(_)) => self.delete(index),
            Some(BurstStep::ClaimCluster(_) | BurstStep::Scale(_)) | None => {}
        }
    }

    fn delete(&mut self, index: usize) {
        let Some((_, burst)) = self.latest(index) else { return };
        let mut burst = burst.clone();
        burst.metadata.deletion_timestamp.get_or_insert(Time(self.now));
        let has_finalizer = burst.metadata.finalizers.is_some();
        self.log.push((index, has_finalizer.then_some(burst)));
    }

    fn settle(&mut self) {
        for _ in 0..60 {
            self.received = self.log.len();
            for index in [0, 1] {
                self.happen(Event::Decide(index));
                self.happen(Event::Commit(index));
            }
        }
    }
}

#[test]
fn the_older_one_runs_the_job_and_the_other_is_refused() {
    for (uids, older) in [(["a", "b"], 0), (["b", "a"], 1)] {
        let mut duel = Duel::new(uids);
        duel.settle();
        let states = [duel.state(older), duel.state(1 - older)];
        assert_eq!(states, [RunState::Completed, RunState::Yielded]);
        let status = duel.latest(1 - older).unwrap().1.status.clone().unwrap();
        assert_eq!(status.run.unwrap().message, "Burst b-a runs this job");
        let prepared = status.conditions.iter().find(|it| it.type_ == "Prepared").unwrap();
        assert_eq!(prepared.reason, "GivingBack");
        assert_eq!(duel.home, HomeJobState::Finished);
    }
}

#[test]
fn one_that_has_taken_the_job_keeps_it_although_the_other_is_older() {
    let mut duel = Duel::new(["b", "a"]);
    for _ in 0..3 {
        duel.happen(Event::Decide(0));
        duel.happen(Event::Commit(0));
        duel.received = duel.log.len();
        // The second one is not known yet.
        let second = duel.log.iter().position(|(index, _)| *index == 1).unwrap();
        let second = duel.log.remove(second);
        duel.log.push(second);
        duel.received = duel.log.len() - 1;
    }
    assert_eq!(duel.state(0), RunState::Starting);
    duel.settle();
    assert_eq!([0, 1].map(|it| duel.state(it)), [RunState::Completed, RunState::Yielded]);
}

/// It may have been held by the first one, and the second would not release it.
#[test]
fn one_without_a_finalizer_does_not_come_before_one_that_may_have_held_the_job() {
    let mut duel = Duel::new(["b", "a"]);
    duel.happen(Event::Decide(0));
    duel.happen(Event::Commit(0));
    duel.received = duel.log.len();
    duel.happen(Event::Decide(0));
    duel.delete(1);
    duel.received = duel.log.len();
    duel.settle();
    assert_eq!((duel.state(0), duel.home), (RunState::Completed, HomeJobState::Finished));
}

/// Its job runs elsewhere: it must not be released at home.
#[test]
fn a_second_one_that_is_deleted_does_not_release_the_job() {
    let mut duel = Duel::new(["a", "b"]);
    for _ in 0..8 {
        for index in [0, 1] {
            duel.received = duel.log.len();
            duel.happen(Event::Decide(index));
            duel.happen(Event::Commit(index));
        }
        if duel.latest(1).unwrap().1.metadata.finalizers.is_some() {
            break;
        }
    }
    duel.delete(1);
    duel.settle();
    assert!(duel.latest(1).is_none());
    assert_eq!((duel.state(0), duel.home), (RunState::Completed, HomeJobState::Finished));
}

#[test]
fn a_record_of_a_refused_one_does_not_keep_the_next_from_running() {
    let mut duel = Duel::new(["a", "b"]);
    duel.received = duel.log.len();
    let mut refused = duel.latest(0).unwrap().1.clone();
    let run = json!({ "run": { "state": "Refused" } });
    refused.status = Some(serde_json::from_value(run).unwrap());
    duel.log.push((0, Some(refused)));
    duel.settle();
    assert_eq!(duel.state(1), RunState::Completed);
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => Just(Event::Watch),
        4 => (0usize..2).prop_map(Event::Decide),
        4 => (0usize..2).prop_map(Event::Commit),
        1 => (0usize..2).prop_map(Event::Delete),
    ];
    prop::collection::vec(event, 0..80)
}

proptest! {
    /// Whatever the controller has of them, and whenever they are deleted: at most one creates anything,
    /// and the job is not left held.
    #[test]
    fn at_most_one_runs_the_job(events in events(), is_first_older in any::<bool>()) {
        let mut duel = Duel::new(if is_first_older { ["a", "b"] } else { ["b", "a"] });
        let mut was_deleted = false;
        for event in events {
            was_deleted |= matches!(event, Event::Delete(_));
            duel.happen(event);
        }
        duel.settle();
        let runs = duel.created.iter().flatten().count();
        prop_assert!(runs == 1 || was_deleted);
        let expected = if runs == 1 { HomeJobState::Finished } else { HomeJobState::Pending };
        prop_assert_eq!(duel.home, expected);
    }
}
