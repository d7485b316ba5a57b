//! Targets that have failed, or whose last burst was of no use.

use crate::testing::{at, decided, instance, nodes, policy, pool, reasons, target};
use crate::{Action, AnswerReason, Decision, Memory, PolicyState, Pool, PoolState, decide};

/// The status of its Burst says some seconds after an attempt whether that has succeeded.
#[test]
fn a_target_that_has_failed_is_skipped_until_an_attempt_succeeds() {
    let mut policy = policy("p", target("a"));
    policy.spec.targets.push(target("b"));
    let jobs = [nodes(1, 2)];
    let with = |policy: &PolicyState, state| {
        let pool = Pool { state, ..pool("x", "p", target("a"), 2) };
        decided(&instance(2, 0), std::slice::from_ref(policy), &[pool], &jobs)
    };
    let failed = |until| PoolState::Failed { until };
    for until in [at(130), at(100), at(92)] {
        let decision = with(&policy, failed(until));
        let [Action::Create { target, .. }] = &decision.actions[..] else {
            panic!("{until}: {decision:?}")
        };
        assert_eq!(target.name, "b", "{until}");
    }
    assert_eq!(reasons(&with(&policy, PoolState::Active)), [AnswerReason::WaitsForBurst]);
    policy.spec.targets.pop();
    for (until, requeue_at) in [(at(130), Some(at(130))), (at(100), None), (at(92), None)] {
        let decision = with(&policy, failed(until));
        assert_eq!(reasons(&decision), [AnswerReason::TargetFailed], "{until}");
        assert_eq!((decision.actions, decision.requeue_at), (vec![], requeue_at), "{until}");
    }
}

#[test]
fn a_job_waits_once_for_the_next_target_while_the_first_one_is_tried_again() {
    let mut policy = policy("p", target("a"));
    policy.spec.targets.push(target("b"));
    policy.spec.when.stabilization_seconds = Some(5);
    let failed = PoolState::Failed { until: at(103) };
    let pools = [Pool { state: failed, ..pool("x", "p", target("a"), 2) }];
    let mut memory = Memory::default();
    for seconds in [100, 103, 105] {
        let jobs = [nodes(1, 2)];
        let policies = [policy.clone()];
        let decision = decide(&instance(2, 0), &policies, &pools, &jobs, &memory, at(seconds));
        assert_eq!(decision.actions.len(), usize::from(seconds == 105), "{seconds}");
        memory = decision.memory;
    }
}

#[test]
fn a_target_whose_last_burst_was_of_no_use_is_tried_again_later() {
    let policies = [policy("p", target("a"))];
    let jobs = [nodes(1, 2)];
    let mut useless = pool("x", "p", target("a"), 2);
    (useless.state, useless.paused_until) = (PoolState::GivingBack, Some(at(700)));
    let decision = decided(&instance(2, 0), &policies, &[useless], &jobs);
    assert_eq!(reasons(&decision), [AnswerReason::TargetFailed]);
    // It is remembered when the burst no longer exists.
    let at_time = |memory, time| decide(&instance(2, 0), &policies, &[], &jobs, memory, at(time));
    let next = at_time(&decision.memory, 699);
    assert_eq!(
        (reasons(&next), next.requeue_at),
        (vec![AnswerReason::TargetFailed], Some(at(700)))
    );
    let next = at_time(&next.memory, 700);
    assert_eq!((reasons(&next), next.memory.paused.len()), (vec![AnswerReason::Requested], 0));
}

/// Without a finalizer it is deleted at once: the target has never answered.
#[test]
fn a_burst_that_is_deleted_before_it_was_of_use_does_not_get_a_successor() {
    let mut policy = policy("p", target("dead"));
    policy.spec.targets.push(target("alive"));
    policy.spec.limits.nodes = 8;
    let jobs = [nodes(1, 8)];
    let decide = |pools: &[Pool], memory: &Memory, time| {
        let mut policy = policy.clone();
        policy.used.nodes = pools.iter().map(|pool| pool.nodes).sum();
        decide(&instance(2, 0), &[policy], pools, &jobs, memory, at(time))
    };
    let target_of = |decision: &Decision| match &decision.actions[..] {
        [Action::Create { target, .. }] => target.name.clone(),
        actions => panic!("{actions:?}"),
    };
    let first = decide(&[], &Memory::default(), 0);
    assert_eq!(target_of(&first), "dead");
    let failed = PoolState::Failed { until: at(105) };
    let burst = Pool { state: failed, ..pool("b", "p", target("dead"), 8) };
    let waits = decide(std::slice::from_ref(&burst), &first.memory, 100);
    assert_eq!(reasons(&waits), [AnswerReason::LimitNodes]);
    let next = decide(&[], &waits.memory, 480);
    assert_eq!(target_of(&next), "alive");
    assert_eq!(next.memory.paused[&("p".to_owned(), "dead".to_owned())], at(1080));
    // One that has been of use may be followed by another.
    let burst = Pool { has_joined: true, ..burst };
    let waits = decide(&[burst], &first.memory, 100);
    assert_eq!(target_of(&decide(&[], &waits.memory, 480)), "dead");
}

#[test]
fn a_pause_begins_once() {
    let policies = [policy("p", target("a"))];
    let mut burst = pool("b", "p", target("a"), 2);
    let (instance, jobs) = (instance(2, 0), [nodes(1, 2)]);
    let mut memory = Memory::default();
    // It says that it is given back, is shown like that for a while, and is deleted.
    for (time, until) in [(0, None), (100, Some(at(700))), (300, Some(at(700))), (400, None)] {
        (burst.paused_until, burst.state) = (until, PoolState::GivingBack);
        let pools = if time < 400 { vec![burst.clone()] } else { vec![] };
        memory = decide(&instance, &policies, &pools, &jobs, &memory, at(time)).memory;
    }
    assert_eq!(memory.paused.into_values().collect::<Vec<_>>(), [at(700)]);
}

#[test]
fn a_target_is_tried_again_ten_minutes_later_if_the_clock_was_wrong() {
    let policies = [policy("p", target("a"))];
    let key = ("p".to_owned(), "a".to_owned());
    let memory = Memory { paused: [(key, at(90_000))].into(), ..Memory::default() };
    let at_time =
        |memory, time| decide(&instance(2, 0), &policies, &[], &[nodes(1, 2)], memory, at(time));
    let first = at_time(&memory, 100);
    assert_eq!(first.requeue_at, Some(at(700)));
    assert_eq!(reasons(&at_time(&first.memory, 700)), [AnswerReason::Requested]);
}
