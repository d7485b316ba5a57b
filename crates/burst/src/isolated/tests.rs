//! Table tests of decisions about runs in instances of their own.

use std::collections::BTreeMap;

use flux_operator_api::burst::{ClusterTarget, KubeconfigTarget};
use flux_operator_api::view::Attributes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::testing::{at, instance, job, nodes, policy, target};
use crate::{AnswerReason, Decision, Instance, Job, Memory, decide};

fn away(name: &str) -> BurstTarget {
    BurstTarget { kubeconfig: Some(KubeconfigTarget::default()), max_nodes: 64, ..target(name) }
}

/// A policy with a target elsewhere, and limits beyond the rank table of 20.
fn elsewhere(isolated: Option<bool>) -> PolicyState {
    let mut policy = policy("p", away("t"));
    policy.spec.isolated = isolated;
    policy.spec.limits.nodes = 64;
    policy
}

fn decided(instance: &Instance, policies: &[PolicyState], jobs: &[Job]) -> Decision {
    decide(instance, policies, &[], jobs, &Memory::default(), at(100))
}

fn reasons(decision: &Decision) -> Vec<AnswerReason> {
    decision.answers.iter().map(|answer| answer.reason).collect()
}

fn held(job: Job) -> Job {
    Job { is_held: true, is_on_hold: true, ..job }
}

fn run(job: u64) -> IsolatedRun {
    IsolatedRun {
        job,
        burst: "b".into(),
        policy: Some("p".into()),
        target: "t".into(),
        phase: "Running".into(),
        refusal: None,
        has_started: false,
        paused_until: None,
    }
}

#[test]
fn a_job_beyond_the_rank_table_runs_in_an_instance_of_its_own() {
    for job in [nodes(1, 30), held(nodes(1, 30))] {
        let decision = decided(&instance(4, 4), &[elsewhere(None)], &[job]);
        let target = Box::new(away("t"));
        let expected = Action::RunIsolated { policy: "p".into(), target, nodes: 30, job: 1 };
        assert_eq!(decision.actions, [expected]);
        assert_eq!(reasons(&decision), [AnswerReason::Requested]);
    }
}

#[test]
fn other_jobs_get_nodes_of_the_instance_unless_all_are_isolated() {
    let jobs = [nodes(1, 8), held(nodes(2, 8)), nodes(3, 2)];
    let decision = decided(&instance(4, 4), &[elsewhere(None)], &jobs);
    assert!(matches!(decision.actions[..], [Action::Create { .. }]), "{:?}", decision.actions);
    let decision = decided(&instance(4, 4), &[elsewhere(Some(true))], &jobs);
    assert!(matches!(decision.actions[..], [Action::RunIsolated { nodes: 8, job: 1, .. }]));
    let expected = [AnswerReason::Requested, AnswerReason::Held, AnswerReason::StartsHere];
    assert_eq!(reasons(&decision), expected, "the second is held by its user");
}

#[test]
fn a_job_that_waits_for_another_one_is_not_run() {
    let waits = Job { is_held: true, ..nodes(1, 30) };
    let decision = decided(&instance(4, 4), &[elsewhere(Some(true))], &[waits]);
    assert_eq!((reasons(&decision), decision.actions.len()), (vec![AnswerReason::Held], 0));
}

#[test]
fn a_job_that_runs_elsewhere_is_requested_once_and_takes_no_nodes() {
    let mut instance = instance(4, 4);
    instance.isolated = vec![run(1), run(2)];
    instance.isolated[1].refusal = Some("it waits for a debugger".into());
    let jobs = [held(nodes(1, 30)), nodes(2, 30), nodes(3, 4)];
    let decision = decided(&instance, &[elsewhere(None)], &jobs);
    assert_eq!(decision.actions, []);
    let expected =
        [AnswerReason::RunsIsolated, AnswerReason::NotPortable, AnswerReason::StartsHere];
    assert_eq!(reasons(&decision), expected);
    assert_eq!(decision.answers[0].burst.as_deref(), Some("b"));
    assert!(decision.answers[1].message.starts_with("it waits for a debugger"));
}

/// Its jobspec cannot run elsewhere, so that it is a job of this instance.
#[test]
fn a_job_that_was_refused_elsewhere_starts_here_or_blocks_those_behind_it() {
    let mut instance = Instance { skips_blocked: false, ..instance(4, 2) };
    instance.isolated = vec![IsolatedRun { refusal: Some("why".into()), ..run(1) }];
    let policies = [elsewhere(Some(false))];
    let decision = decided(&instance, &policies, &[nodes(1, 4), nodes(2, 4)]);
    assert_eq!(reasons(&decision), [AnswerReason::NotPortable, AnswerReason::BlockedByJob]);
    assert_eq!(decision.actions, []);
    let decision = decided(&instance, &policies, &[nodes(1, 2), nodes(2, 2)]);
    assert_eq!(reasons(&decision), [AnswerReason::StartsHere, AnswerReason::Requested]);
    // Its user holds it.
    let decision = decided(&instance, &policies, &[held(nodes(1, 2)), nodes(2, 2)]);
    assert_eq!(reasons(&decision), [AnswerReason::NotPortable, AnswerReason::StartsHere]);
}

/// It would keep the policy from running the job for a day.
#[test]
fn a_burst_that_yields_or_was_given_back_says_nothing_about_the_job() {
    let cases =
        [("Refused", false, Some("why")), ("Refused", true, None), ("Yielded", false, None)];
    for (state, is_deleting, refusal) in cases {
        let mut burst = Burst::new("b", Default::default());
        burst.spec.isolated_job = "f2b".into();
        burst.metadata.deletion_timestamp = is_deleting.then(|| Time(at(0)));
        let status = json!({ "run": { "state": state, "message": "why" } });
        burst.status = Some(serde_json::from_value(status).unwrap());
        let found = IsolatedRun::of(&burst, &HashSet::new());
        assert_eq!(found.and_then(|it| it.refusal).as_deref(), refusal, "{state}");
    }
}

#[test]
fn a_run_is_within_all_limits() {
    type Change = fn(&mut PolicyState);
    let cases: [(Change, AnswerReason); 9] = [
        (|policy| policy.spec.isolated = Some(false), AnswerReason::TooLargeForTable),
        (|policy| policy.spec.suspend = true, AnswerReason::Suspended),
        (|policy| policy.spec.limits.nodes = 29, AnswerReason::TooLargeForTargets),
        (|policy| policy.spec.targets[0].max_nodes = 29, AnswerReason::TooLargeForTargets),
        (|policy| policy.used.nodes = 40, AnswerReason::LimitNodes),
        (|policy| policy.used.bursts = 4, AnswerReason::LimitBursts),
        (
            |policy| policy.spec.targets[0].cluster = Some(ClusterTarget::default()),
            AnswerReason::TooLargeForTable,
        ),
        (
            |policy| {
                policy.spec.isolated = Some(true);
                policy.spec.targets[0].cluster = Some(ClusterTarget::default());
            },
            AnswerReason::NoIsolatedTarget,
        ),
        (|policy| policy.spec.when.stabilization_seconds = Some(5), AnswerReason::Stabilizing),
    ];
    for (change, reason) in cases {
        let mut policy = elsewhere(None);
        change(&mut policy);
        let decision = decided(&instance(4, 4), &[policy], &[nodes(1, 30)]);
        assert_eq!((reasons(&decision), decision.actions), (vec![reason], vec![]));
    }
}

#[test]
fn a_job_that_no_policy_selects_is_too_large() {
    let mut other = nodes(1, 30);
    other.attributes = Attributes::default();
    let jobs = [other.clone(), held(other)];
    let decision = decided(&instance(4, 4), &[elsewhere(None)], &jobs);
    assert_eq!(reasons(&decision), [AnswerReason::TooLargeForTable, AnswerReason::Held]);
}

#[test]
fn the_shape_and_constraint_of_a_job_must_fit_the_target() {
    let large = Job { cores: Some(30 * 8), ..nodes(1, 30) };
    let with = |id, property: &str| {
        let attributes = BTreeMap::from([
            ("burstable".to_owned(), json!(1)),
            ("constraints".to_owned(), json!({ "properties": [property] })),
        ]);
        Job { attributes: attributes.into(), ..nodes(id, 30) }
    };
    let (home, spare) = (with(2, "home"), with(3, "spare"));
    let mut policy = elsewhere(None);
    for (job, reason) in [
        (&large, AnswerReason::NoTargetFits),
        (&home, AnswerReason::NoTargetFits),
        (&spare, AnswerReason::Requested),
    ] {
        let decision = decided(&instance(4, 4), &[policy.clone()], std::slice::from_ref(job));
        assert_eq!(reasons(&decision), [reason]);
    }
    policy.spec.targets[0].cores = 8;
    let decision = decided(&instance(4, 4), &[policy], &[large]);
    assert_eq!(reasons(&decision), [AnswerReason::Requested]);
}

#[test]
fn jobs_of_cores_get_as_many_nodes_as_they_need() {
    let tasks = Job { tasks: 90, ..job(1) };
    let decision = decided(&instance(4, 4), &[elsewhere(None)], &[tasks]);
    assert!(matches!(decision.actions[..], [Action::RunIsolated { nodes: 23, .. }]));
}

#[test]
fn a_target_that_has_not_started_a_run_is_not_tried_again_at_once() {
    let mut instance = instance(4, 4);
    instance.isolated = vec![IsolatedRun { paused_until: Some(at(700)), ..run(9) }];
    let mut policy = elsewhere(None);
    let decision = decided(&instance, &[policy.clone()], &[nodes(1, 30)]);
    assert_eq!(reasons(&decision), [AnswerReason::TargetFailed]);
    assert_eq!(decision.memory.paused.len(), 1);
    policy.spec.targets.push(away("other"));
    let decision = decided(&instance, &[policy], &[nodes(1, 30)]);
    let [Action::RunIsolated { target, .. }] = &decision.actions[..] else {
        panic!("{:?}", decision.actions)
    };
    assert_eq!(target.name, "other");
}

#[test]
fn a_run_that_is_deleted_before_it_was_started_does_not_get_a_successor() {
    let other = IsolatedRun { burst: "other".into(), ..run(1) };
    let started = IsolatedRun { has_started: true, ..run(1) };
    let refused = IsolatedRun { refusal: Some("why".into()), ..run(1) };
    let (waits, gone) = (vec![nodes(1, 30)], vec![nodes(2, 30)]);
    let cases = [
        (run(1), vec![], &waits, true),
        // Its user has canceled it, or it has started at home.
        (run(1), vec![], &gone, false),
        (run(1), vec![other], &waits, false),
        (started, vec![], &waits, false),
        (refused, vec![], &waits, false),
    ];
    for (before, after, jobs, is_paused) in cases {
        let mut instance = instance(4, 4);
        instance.isolated = vec![before.clone()];
        let policies = [elsewhere(None)];
        let first = decided(&instance, &policies, &waits);
        instance.isolated = after;
        let next = decide(&instance, &policies, &[], jobs, &first.memory, at(200));
        let paused = next.memory.paused.into_values().collect::<Vec<_>>();
        assert_eq!(paused, if is_paused { vec![at(800)] } else { vec![] }, "{before:?}");
    }
}
