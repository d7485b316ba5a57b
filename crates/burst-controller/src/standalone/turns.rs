//! What is done again and again: decide for which jobs nodes are requested, and make the next step of
//! every Burst.

use std::collections::HashMap;

use flux_operator_api::{Burst, BurstPolicy, BurstSpec, MiniCluster};
use flux_operator_burst::{
    Action, Answer, AnswerReason, IdleRanks, Memory, PolicyState, Situation, decide,
};
use flux_operator_flux::{IdSet, JobId};
use flux_operator_plan::bursting::{
    BURST_FINALIZER, BurstDecision, BurstObserved, BurstStep, HomeAnswer, ObservedMiniCluster,
    StandaloneInstance, after_failure, burst_events, decide_burst, must_ask_target, policy_burst,
    ranks_to_drain, running_ranks, standalone_lender, with_claim, with_finished, with_ranks,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use super::instance::Observation;
use super::records::{RecordError, Records};
use super::targets::Targets;
use crate::policy_state::policy_state;
use crate::target::{Pool, make_at_target};

/// How many answers are logged: those of the jobs at the front of the queue.
const MAX_LOGGED: usize = 50;

/// How soon it is decided again after a step: the next one follows at once.
const AFTER_STEP: SignedDuration = SignedDuration::from_millis(100);

/// How soon it is decided again if nothing is expected. Jobs are listed once a second at most, those of a long
/// queue less often.
pub(super) const INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// The longest time until a Burst is due. One that is later is of a clock that was wrong.
const MAX_DUE: SignedDuration = SignedDuration::from_secs(60);

/// An instance with its policies and Bursts.
pub(super) struct Turns<T> {
    pub(super) instance: StandaloneInstance,
    pub(super) policies: Vec<BurstPolicy>,
    pub(super) targets: T,
    pub(super) records: Records,
    /// Everything is to be given back, and nothing is requested any more.
    pub(super) is_closing: bool,
    memory: Memory,
    idle: IdleRanks,
    /// The answers that were logged.
    logged: HashMap<u64, AnswerReason>,
    /// When each Burst is due, and for what it was decided last.
    decided: HashMap<String, Decided>,
}

struct Decided {
    due: Timestamp,
    of: DecidedOf,
}

/// What a decision about a Burst depends on, besides its target and its own status.
#[derive(PartialEq)]
struct DecidedOf {
    metadata: ObjectMeta,
    spec: BurstSpec,
    cluster: MiniCluster,
    running: Option<Vec<IdSet>>,
}

impl<T: Targets> Turns<T> {
    pub(super) fn new(
        instance: StandaloneInstance,
        policies: Vec<BurstPolicy>,
        targets: T,
        records: Records,
    ) -> Turns<T> {
        Turns {
            instance,
            policies,
            targets,
            records,
            is_closing: false,
            memory: Memory::default(),
            idle: IdleRanks::default(),
            logged: HashMap::new(),
            decided: HashMap::new(),
        }
    }

    /// The ranks on which no job should start any more.
    pub(super) fn ranks_to_drain(&self) -> IdSet {
        let bursts = self.records.bursts();
        ranks_to_drain(&bursts.iter().collect::<Vec<_>>())
    }

    /// Decides once, for what was observed. Returns when to do it again.
    pub(super) async fn turn(
        &mut self,
        observation: &Observation,
        now: Timestamp,
    ) -> Result<Timestamp, RecordError> {
        let is_closing = self.is_closing || observation.state.has_exited;
        self.give_back_unwanted(now)?;
        let mut next = now + INTERVAL;
        if let Some(jobs) = observation.jobs.as_ref().filter(|_| !is_closing) {
            let bursts = self.records.bursts();
            let bursts: Vec<&Burst> = bursts.iter().collect();
            let cluster = standalone_lender(&self.instance, &bursts, &observation.state);
            let situation = Situation::of(&cluster, jobs, &bursts, &mut self.idle, now);
            let policies: Vec<PolicyState> = (self.policies.iter())
                .map(|policy| {
                    let usage = self.records.usage(&policy.name_any());
                    policy_state(policy, bursts.iter().copied(), usage, now)
                })
                .collect();
            let Situation { instance, pools, jobs } = &situation;
            let decision = decide(instance, &policies, pools, jobs, &self.memory, now);
            self.memory = decision.memory;
            self.log_answers(&decision.answers);
            for action in decision.actions {
                self.act(&cluster, action, now)?;
                next = now;
            }
        }
        for burst in self.records.bursts() {
            next = next.min(self.reconcile(burst, observation, now).await?);
        }
        Ok(next)
    }

    /// Has those given back that are not wanted any more: all, or those of policies that were removed.
    fn give_back_unwanted(&mut self, now: Timestamp) -> Result<(), RecordError> {
        let is_kept = |burst: &Burst| {
            let has_policy = self.policies.iter().any(|it| it.name_any() == burst.spec.policy);
            burst.metadata.deletion_timestamp.is_some() || (has_policy && !self.is_closing)
        };
        let unwanted: Vec<Burst> =
            self.records.bursts().into_iter().filter(|burst| !is_kept(burst)).collect();
        for burst in unwanted {
            self.delete(burst, now)?;
        }
        Ok(())
    }

    /// What deleting a Burst does in Kubernetes: it is given back first, if it has a finalizer.
    fn delete(&mut self, mut burst: Burst, now: Timestamp) -> Result<(), RecordError> {
        if burst.finalizers().is_empty() {
            return self.records.remove(&burst.name_any());
        }
        burst.metadata.deletion_timestamp = Some(Time(now));
        self.records.save(burst)
    }

    fn act(
        &mut self,
        cluster: &MiniCluster,
        action: Action,
        now: Timestamp,
    ) -> Result<(), RecordError> {
        match action {
            Action::Create { policy, target, nodes, jobs } => {
                let Some(policy) = self.policies.iter().find(|it| it.name_any() == policy) else {
                    return Ok(());
                };
                let is_free = |name: &str| self.records.get(name).is_none();
                let mut burst = policy_burst(policy, cluster, &target, nodes, &jobs, is_free);
                let name = burst.name_any();
                let text = format!("{}\n{name}\n{}", self.instance.uid, now.as_nanosecond());
                let digest = Sha256::digest(text.as_bytes());
                let uid = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
                burst.metadata.uid = Some(uid.collect());
                burst.metadata.generation = Some(1);
                burst.metadata.creation_timestamp = Some(Time(now));
                tracing::info!(burst = name, nodes, target = target.name, "nodes are requested");
                self.records.save(burst)
            }
            Action::Resize { burst, nodes } => {
                tracing::info!(burst, nodes, "a Burst is resized");
                self.change(&burst, |burst| burst.spec.nodes = nodes)
            }
            Action::Drain { burst, why } => {
                tracing::info!(burst, ?why, "a Burst is drained");
                self.change(&burst, |burst| burst.spec.drain = true)
            }
            // Its policies were checked: none runs jobs in an instance of their own.
            Action::RunIsolated { .. } => Ok(()),
        }
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Burst)) -> Result<(), RecordError> {
        let Some(mut burst) = self.records.get(name).cloned() else { return Ok(()) };
        change(&mut burst);
        // One whose specification has changed gets new times for idleness and for joining.
        burst.metadata.generation = burst.metadata.generation.map(|it| it.saturating_add(1));
        self.records.save(burst)
    }

    /// Logs answers that have changed, of jobs that need nodes: there is nothing else to ask.
    fn log_answers(&mut self, answers: &[Answer]) {
        self.logged.retain(|job, _| answers.iter().any(|answer| answer.job == *job));
        let waiting = answers.iter().filter(|answer| answer.reason != AnswerReason::StartsHere);
        for answer in waiting.take(MAX_LOGGED) {
            if self.logged.insert(answer.job, answer.reason) != Some(answer.reason) {
                let (job, reason) = (JobId::from(answer.job), answer.reason);
                tracing::info!(%job, %reason, "{}", answer.message);
            }
        }
    }

    /// Makes the next step of a Burst. Returns when to do it again.
    async fn reconcile(
        &mut self,
        burst: Burst,
        observation: &Observation,
        now: Timestamp,
    ) -> Result<Timestamp, RecordError> {
        let burst = self.with_ranks(burst, observation)?;
        let bursts = self.records.bursts();
        let bursts: Vec<&Burst> = bursts.iter().collect();
        let cluster = standalone_lender(&self.instance, &bursts, &observation.state);
        let running = observation.jobs.as_ref().and_then(running_ranks);
        let name = burst.name_any();
        let of = DecidedOf {
            metadata: burst.metadata.clone(),
            spec: burst.spec.clone(),
            cluster: cluster.clone(),
            running: running.clone(),
        };
        if let Some(before) = self.decided.get(&name)
            && now < before.due
            && before.due <= now + MAX_DUE
            && before.of == of
        {
            return Ok(before.due);
        }
        let pool = Pool { burst: &burst, cluster: Some(&cluster), jobspec: None };
        let target = match must_ask_target(&burst, now) {
            true => Some(self.targets.of(&burst).await),
            false => None,
        };
        let view = match &target {
            Some(Ok(target)) => Some(target.observe(pool).await),
            Some(Err(failure)) => Some(Err(failure.clone())),
            None => None,
        };
        let observed = BurstObserved {
            cluster: ObservedMiniCluster::Readable(&cluster),
            target: view,
            running,
            home: HomeAnswer::NotAsked,
            others: &[],
            now,
        };
        let BurstDecision { status, step, requeue_at } = decide_burst(&burst, &observed);
        log_events(&burst, &status);
        let burst = Burst { status: Some(status), ..burst.clone() };
        self.records.save(burst.clone())?;
        let mut due = requeue_at.unwrap_or(now + INTERVAL).min(now + MAX_DUE);
        if let Some(step) = step {
            due = now + AFTER_STEP;
            let target = target.and_then(Result::ok);
            let pool = Pool { burst: &burst, cluster: Some(&cluster), jobspec: None };
            if let Err(failure) = make_at_target(target.as_deref(), pool, &step).await {
                drop(target);
                let status = after_failure(&burst, &observed, failure);
                log_events(&burst, &status);
                self.records.save(Burst { status: Some(status), ..burst })?;
            } else {
                drop(target);
                self.make(burst, step, now)?;
            }
        }
        match self.records.get(&name) {
            Some(_) => drop(self.decided.insert(name, Decided { due, of })),
            None => drop(self.decided.remove(&name)),
        }
        Ok(due)
    }

    /// Leases ranks to a Burst that asks for some.
    fn with_ranks(
        &mut self,
        burst: Burst,
        observation: &Observation,
    ) -> Result<Burst, RecordError> {
        let bursts = self.records.bursts();
        let bursts: Vec<&Burst> = bursts.iter().collect();
        // Without a look at the brokers, ranks may have some.
        let is_known = !observation.state.online.is_empty();
        let leased = with_ranks(&burst, &self.instance, &bursts, &observation.state.online);
        let Some(leased) = leased.filter(|_| is_known) else { return Ok(burst) };
        self.records.save(leased.clone())?;
        Ok(leased)
    }

    /// The part of a step that is made here, after that at the target.
    fn make(
        &mut self,
        mut burst: Burst,
        step: BurstStep,
        now: Timestamp,
    ) -> Result<(), RecordError> {
        match step {
            BurstStep::AddFinalizer => {
                burst.finalizers_mut().push(BURST_FINALIZER.to_owned());
                self.records.save(burst)
            }
            BurstStep::ClaimCluster(claim) => self.records.save(with_claim(&burst, &claim)),
            BurstStep::DeleteSelf(why) => {
                tracing::info!(burst = burst.name_any(), why, "a Burst is given back");
                self.delete(burst, now)
            }
            BurstStep::Finish => {
                // What was used is recorded before the Burst, which says it, is gone.
                if let Some(policy) = burst.owning_policy() {
                    let usage = with_finished(self.records.usage(policy), &burst, now);
                    let policy = policy.to_owned();
                    self.records.save_usage(&policy, usage)?;
                }
                let name = burst.name_any();
                tracing::info!(burst = name, "nothing is left of a Burst");
                self.records.remove(&name)
            }
            BurstStep::Create
            | BurstStep::Scale(_)
            | BurstStep::SaveOutput(_)
            | BurstStep::DeleteObjects => Ok(()),
        }
    }
}

/// Logs what would be an Event in Kubernetes.
fn log_events(burst: &Burst, status: &flux_operator_api::BurstStatus) {
    let name = burst.name_any();
    for event in burst_events(burst.status.as_ref(), status) {
        match event.is_normal {
            true => tracing::info!(burst = name, reason = event.reason, "{}", event.note),
            false => tracing::warn!(burst = name, reason = event.reason, "{}", event.note),
        }
    }
}
