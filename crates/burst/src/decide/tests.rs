//! Table tests of whole decisions.

use std::collections::BTreeMap;

use flux_operator_api::view::Attributes;
use serde_json::{Value, json};

use super::*;
use crate::testing::{
    at, decided, instance, job, member, nodes, policy, pool, reasons, scaling, sizes, target,
};
use crate::{AnswerReason, Node, PoolState};

fn with(mut job: Job, key: &str, value: Value) -> Job {
    job.attributes = BTreeMap::from([("burstable".into(), json!(1)), (key.into(), value)]).into();
    job
}

#[test]
fn nodes_of_jobs_that_would_run_at_the_same_time_add_up() {
    let policies = [policy("p", target("t"))];
    let decision = decided(&instance(4, 2), &policies, &[], &[nodes(1, 4), nodes(2, 4)]);
    assert_eq!(
        decision.actions,
        [Action::Create {
            policy: "p".into(),
            target: Box::new(BurstTarget { ranks: "spare".into(), ..target("t") }),
            nodes: 6,
            jobs: vec![1, 2],
        }]
    );
    assert_eq!(reasons(&decision), [AnswerReason::Requested; 2]);
}

#[test]
fn a_job_that_can_start_is_not_burst() {
    let policies = [policy("p", target("t"))];
    let decision = decided(&instance(4, 4), &policies, &[], &[nodes(1, 3), job(2), nodes(3, 1)]);
    assert_eq!(
        reasons(&decision),
        [AnswerReason::StartsHere, AnswerReason::StartsHere, AnswerReason::Requested]
    );
    assert_eq!(sizes(&decision), [("p", 1)]);
}

#[test]
fn jobs_of_cores_share_the_nodes_that_are_requested() {
    let policies = [policy("p", target("t"))];
    let jobs: Vec<Job> = (0..9).map(job).collect();
    assert_eq!(sizes(&decided(&instance(1, 0), &policies, &[], &jobs)), [("p", 3)]);
}

#[test]
fn a_burst_that_is_coming_up_is_waited_for() {
    let policies = [policy("p", target("t"))];
    let pools = [pool("b", "p", target("t"), 2)];
    let decision = decided(&instance(2, 2), &policies, &pools, &[nodes(1, 4)]);
    assert_eq!(decision.actions, []);
    assert_eq!(reasons(&decision), [AnswerReason::WaitsForBurst]);
    assert_eq!(decision.answers[0].burst.as_deref(), Some("b"));
    assert_eq!(decision.answers[0].policy.as_deref(), Some("p"));
}

#[test]
fn nodes_that_are_coming_up_are_for_jobs_that_the_policy_selects() {
    let policies = [policy("p", target("t"))];
    let pools = [pool("b", "p", target("t"), 2)];
    let other = Job { attributes: Attributes::default(), ..nodes(1, 2) };
    let decision = decided(&instance(2, 0), &policies, &pools, &[other, nodes(2, 2)]);
    assert_eq!(reasons(&decision), [AnswerReason::NotSelected, AnswerReason::WaitsForBurst]);
}

#[test]
fn a_scheduler_that_starts_jobs_in_order_blocks_those_behind() {
    let policies = [policy("p", target("t"))];
    let jobs = [
        Job { is_held: true, ..nodes(1, 9) },
        Job { attributes: Attributes::default(), ..nodes(2, 9) },
        nodes(3, 9),
        nodes(4, 1),
    ];
    let mut instance = instance(4, 2);
    let skipping = decided(&instance, &policies, &[], &jobs);
    assert_eq!(reasons(&skipping)[2..], [AnswerReason::Requested, AnswerReason::Requested]);
    instance.skips_blocked = false;
    let blocked = decided(&instance, &policies, &[], &jobs);
    assert_eq!(blocked.actions, []);
    assert_eq!(
        reasons(&blocked),
        [
            AnswerReason::Held,
            AnswerReason::NotSelected,
            AnswerReason::BlockedByJob,
            AnswerReason::BlockedByJob
        ]
    );
}

#[test]
fn the_first_target_that_can_have_the_nodes_is_used() {
    let small = BurstTarget { max_nodes: 2, ranks: "spare".into(), ..target("small") };
    let wide = BurstTarget { cores: 8, ranks: "cloud".into(), ..target("wide") };
    let cloud = json!({"properties": ["cloud"]});
    let mut policy = policy("p", small);
    policy.spec.targets.push(wide);
    let mut instance = instance(1, 0);
    instance.lendable.insert("cloud".into(), 8);
    instance.table_size = 64;
    let cases = [
        (nodes(1, 2), Ok("small")),
        (nodes(1, 3), Ok("wide")),
        (Job { cores: Some(8), ..nodes(1, 1) }, Ok("wide")),
        (with(nodes(1, 1), "constraints", cloud), Ok("wide")),
        (Job { cores: Some(9), ..nodes(1, 1) }, Err(AnswerReason::NoTargetFits)),
        (Job { gpus: 1, ..nodes(1, 1) }, Err(AnswerReason::NoTargetFits)),
        (nodes(1, 9), Err(AnswerReason::NoRanks)),
        (nodes(1, 18), Err(AnswerReason::TooLargeForTargets)),
        (nodes(1, 65), Err(AnswerReason::TooLargeForTable)),
        (
            with(nodes(1, 1), "constraints", json!({"ranks": ["7"]})),
            Err(AnswerReason::NoTargetFits),
        ),
        (
            with(nodes(1, 1), "constraints", json!({"near": []})),
            Err(AnswerReason::UnknownConstraint),
        ),
    ];
    for (job, expected) in cases {
        let decision = decided(&instance, &[policy.clone()], &[], std::slice::from_ref(&job));
        let result = match decision.actions.as_slice() {
            [Action::Create { target, .. }] => Ok(target.name.as_str()),
            _ => Err(decision.answers[0].reason),
        };
        assert_eq!(result, expected, "{job:?}");
    }
}

#[test]
fn ranks_of_a_target_that_names_none_match_the_constraint() {
    let mut instance = instance(1, 0);
    instance.lendable.insert("cloud".into(), 8);
    let cases = [(json!({}), "spare"), (json!({"properties": ["cloud"]}), "cloud")];
    for (constraint, property) in cases {
        let job = with(nodes(1, 2), "constraints", constraint);
        let decision = decided(&instance, &[policy("p", target("t"))], &[], &[job]);
        let Action::Create { target, .. } = &decision.actions[0] else { panic!("{decision:?}") };
        assert_eq!(target.ranks, property);
    }
}

#[test]
fn a_job_beyond_a_limit_waits_and_a_smaller_one_is_served() {
    let jobs = [nodes(1, 4), nodes(2, 4), nodes(3, 2)];
    let limited = |change: fn(&mut PolicyState)| {
        let mut policy = policy("p", target("t"));
        change(&mut policy);
        reasons(&decided(&instance(4, 0), &[policy], &[], &jobs))
    };
    let requested = AnswerReason::Requested;
    assert_eq!(
        limited(|policy| policy.spec.limits.nodes = 7),
        [requested, AnswerReason::LimitNodes, requested]
    );
    assert_eq!(
        limited(|policy| policy.spec.targets[0].max_nodes = 7),
        [requested, AnswerReason::TargetFull, requested]
    );
    let scaled = |policy: &mut PolicyState| {
        policy.spec.targets[0] = scaling("t", 1, 4);
        policy.spec.limits.bursts = Some(1);
    };
    assert_eq!(limited(scaled), [requested, AnswerReason::LimitBursts, AnswerReason::LimitBursts]);
    assert_eq!(limited(|policy| policy.spec.suspend = true), [AnswerReason::Suspended; 3]);
    assert_eq!(
        limited(|policy| policy.rejected = Some("no".into())),
        [AnswerReason::PolicyRejected; 3]
    );
    assert_eq!(
        limited(|policy| policy.blocked = Some("no".into())),
        [AnswerReason::CannotRequest; 3]
    );
}

#[test]
fn a_job_for_which_a_request_was_refused_has_that_answer() {
    let policies = [policy("p", target("t"))];
    let mut decision = decided(&instance(2, 1), &policies, &[], &[job(1), nodes(2, 2)]);
    decision.record_refusal("other", "no");
    assert_eq!(reasons(&decision), [AnswerReason::StartsHere, AnswerReason::Requested]);
    decision.record_refusal("p", "exceeded quota");
    assert_eq!(reasons(&decision), [AnswerReason::StartsHere, AnswerReason::CannotRequest]);
    assert!(decision.answers[1].message.contains("exceeded quota"), "{decision:?}");
}

#[test]
fn the_oldest_policy_that_can_serve_a_job_does() {
    let mut first = policy("first", target("t"));
    first.spec.limits.nodes = 2;
    let policies = [first, policy("second", target("t"))];
    let jobs = [nodes(1, 2), nodes(2, 2)];
    let decision = decided(&instance(2, 0), &policies, &[], &jobs);
    assert_eq!(sizes(&decision), [("first", 2), ("second", 2)]);
}

#[test]
fn nodes_must_be_missing_for_some_time() {
    let mut policy = policy("p", target("t"));
    policy.spec.when.stabilization_seconds = Some(5);
    let (instance, jobs) = (instance(2, 0), [nodes(1, 2)]);
    let at_time = |memory: &Memory, seconds, jobs: &[Job]| {
        decide(&instance, &[policy.clone()], &[], jobs, memory, at(seconds))
    };
    let first = at_time(&Memory::default(), 100, &jobs);
    assert_eq!(first.actions, []);
    assert_eq!(reasons(&first), [AnswerReason::Stabilizing]);
    assert_eq!(first.requeue_at, Some(at(105)));
    assert_eq!(at_time(&first.memory, 104, &jobs).actions, []);
    assert_eq!(sizes(&at_time(&first.memory, 105, &jobs)), [("p", 2)]);
    // If the nodes were not missing meanwhile, the time starts anew.
    let without = at_time(&first.memory, 104, &[]);
    assert_eq!(at_time(&without.memory, 105, &jobs).actions, []);
}

/// Constraints are the users'. Each of 50,000 nodes would be compared with each of 10,000.
#[test]
fn a_decision_is_not_made_arbitrarily_long() {
    let ranks = |id: u64| {
        let value = json!({ "ranks": [(200_000 + id).to_string()] });
        with(nodes(id, 2), "constraints", value)
    };
    let jobs: Vec<Job> = (0..10_000).map(ranks).collect();
    let instance = instance(50_000, 50_000);
    let decision = decided(&instance, &[policy("p", target("t"))], &[], &jobs);
    let reasons = reasons(&decision);
    assert_eq!(reasons[0], AnswerReason::NoTargetFits);
    let considered = reasons.iter().filter(|it| **it != AnswerReason::NotConsidered).count();
    assert!((100..1000).contains(&considered), "{considered}");
}

#[test]
fn a_job_that_is_expected_to_start_soon_is_not_burst() {
    let cases = [
        (Some(at(100)), AnswerReason::StartsSoon),
        (Some(at(160)), AnswerReason::StartsSoon),
        (Some(at(161)), AnswerReason::Requested),
        (None, AnswerReason::Requested),
        // It should have started a minute ago.
        (Some(at(40)), AnswerReason::StartsSoon),
        (Some(at(39)), AnswerReason::Requested),
    ];
    let mut policy = policy("p", target("t"));
    for (estimate, reason) in cases {
        let job = Job { estimate, ..nodes(1, 2) };
        let decision = decided(&instance(2, 0), &[policy.clone()], &[], &[job]);
        assert_eq!(reasons(&decision), [reason], "{estimate:?}");
    }
    policy.spec.when.ignore_estimate = true;
    let job = Job { estimate: Some(at(100)), ..nodes(1, 2) };
    let decision = decided(&instance(2, 0), &[policy], &[], &[job]);
    assert_eq!(reasons(&decision), [AnswerReason::Requested]);
}

#[test]
fn a_job_that_must_wait_longer_is_decided_about_when_it_has() {
    let mut policy = policy("p", target("t"));
    policy.spec.jobs.all.waiting_seconds = Some(120);
    let decision = decided(&instance(2, 0), &[policy], &[], &[nodes(1, 2)]);
    assert_eq!(reasons(&decision), [AnswerReason::TooYoung]);
    assert_eq!(decision.requeue_at, Some(at(120)));
}

#[test]
fn a_burst_grows_up_to_its_largest_size() {
    let policies = [policy("p", scaling("t", 1, 4))];
    let pools = [pool("b", "p", scaling("t", 1, 4), 2)];
    let mut instance = instance(2, 0);
    instance.nodes.extend([member("b", 0, None), member("b", 1, None)]);
    let grown = decided(&instance, &policies, &pools, &[nodes(1, 2)]);
    assert_eq!(sizes(&grown), [("b", 4)]);
    assert_eq!(grown.answers[0].burst.as_deref(), Some("b"));
    let created = decided(&instance, &policies, &pools, &[nodes(1, 3)]);
    assert_eq!(sizes(&created), [("p", 3)]);
    // Ranks are leased for the largest size.
    instance.lendable.insert("spare".into(), 3);
    let refused = decided(&instance, &policies, &pools, &[nodes(1, 3)]);
    assert_eq!(reasons(&refused), [AnswerReason::NoRanks]);
}

#[test]
fn a_burst_is_created_with_at_least_its_smallest_size() {
    let policies = [policy("p", scaling("t", 3, 4))];
    let decision = decided(&instance(2, 0), &policies, &[], &[nodes(1, 1), nodes(2, 2)]);
    assert_eq!(sizes(&decision), [("p", 3)]);
    assert_eq!(reasons(&decision), [AnswerReason::Requested; 2]);
}

#[test]
fn nodes_that_are_not_expected_any_more_are_requested_elsewhere() {
    let mut policy = policy("p", target("a"));
    policy.spec.targets.push(target("b"));
    let stuck = Pool { state: PoolState::Stuck, ..pool("x", "p", target("a"), 2) };
    let decision = decided(&instance(2, 0), &[policy], &[stuck], &[nodes(1, 2)]);
    assert!(matches!(&decision.actions[..], [Action::Create { .. }]), "{:?}", decision.actions);
}

/// What Flux knows of a rank is what counts, not what the node has.
#[test]
fn a_target_with_more_cores_than_its_ranks_does_not_help() {
    let wide = Job { nodes: Some(1), tasks: 1, cores: Some(64), ..job(1) };
    let large = BurstTarget { cores: 64, ..target("t") };
    let mut instance = instance(2, 2);
    instance.shapes.insert("spare".into(), (4, 0));
    let jobs = [wide];
    let decision = decided(&instance, &[policy("p", large.clone())], &[], &jobs);
    assert_eq!(reasons(&decision), [AnswerReason::NoTargetFits]);
    instance.shapes.insert("large".into(), (64, 0));
    instance.lendable.insert("large".into(), 2);
    let decision = decided(&instance, &[policy("p", large)], &[], &jobs);
    let [Action::Create { target, .. }] = &decision.actions[..] else { panic!("{decision:?}") };
    assert_eq!(target.ranks, "large");
}

/// Flux counts ranks that are not online, too.
#[test]
fn a_job_that_large_ranks_can_hold_is_not_too_large_while_they_are_down() {
    let tasks = Job { nodes: None, tasks: 256, cores: Some(256), ..job(1) };
    let mut instance = instance(2, 0);
    instance.table_size = 4;
    let decide = |instance: &Instance| {
        reasons(&decided(instance, &[policy("p", target("t"))], &[], std::slice::from_ref(&tasks)))
    };
    assert_eq!(decide(&instance), [AnswerReason::TooLargeForTable]);
    instance.shapes.insert("large".into(), (64, 0));
    assert_ne!(decide(&instance), [AnswerReason::TooLargeForTable]);
}

/// A job that can never start is not said to wait for another.
#[test]
fn a_job_that_is_too_large_is_told_so_also_behind_one_that_blocks() {
    let mut instance = instance(2, 0);
    instance.skips_blocked = false;
    let blocker = Job { attributes: Attributes::default(), ..nodes(1, 2) };
    let jobs = [blocker, nodes(2, 99), nodes(3, 1)];
    let decision = decided(&instance, &[policy("p", target("t"))], &[], &jobs);
    let expected =
        [AnswerReason::NotSelected, AnswerReason::TooLargeForTable, AnswerReason::BlockedByJob];
    assert_eq!(reasons(&decision), expected);
}

/// Other than in another Kubernetes cluster, ranks are leased when they are needed.
#[test]
fn a_burst_in_the_same_cluster_leases_the_ranks_of_its_present_size() {
    let here = BurstTarget { cluster: Some(Default::default()), ..scaling("t", 1, 16) };
    let mut instance = instance(2, 0);
    instance.lendable.insert("spare".into(), 2);
    let jobs = [nodes(1, 2)];
    let decision = decided(&instance, &[policy("p", here.clone())], &[], &jobs);
    assert_eq!(reasons(&decision), [AnswerReason::Requested]);
    let decision = decided(&instance, &[policy("p", scaling("t", 1, 16))], &[], &jobs);
    assert_eq!(reasons(&decision), [AnswerReason::NoRanks]);
    let pools = [pool("b", "p", here.clone(), 2)];
    let decision = decided(&instance, &[policy("p", here)], &pools, &[nodes(1, 2), nodes(2, 3)]);
    assert_eq!(reasons(&decision), [AnswerReason::WaitsForBurst, AnswerReason::NoRanks]);
}

#[test]
fn a_job_keeps_the_burst_that_it_waits_for() {
    let only = |name: &str| json!({"properties": [name]});
    let mut policy = policy("p", BurstTarget { ranks: "spare".into(), ..scaling("t", 1, 8) });
    policy.spec.targets.push(BurstTarget { ranks: "cloud".into(), ..scaling("u", 1, 8) });
    let mut instance = instance(2, 0);
    instance.lendable.insert("cloud".into(), 8);
    let mut pools = vec![
        pool("on-t", "p", policy.spec.targets[0].clone(), 1),
        pool("on-u", "p", policy.spec.targets[1].clone(), 2),
    ];
    instance.nodes.push(member("on-t", 0, None));
    // The first job fits the nodes that are coming up at u, so t grows only for the second.
    let jobs = [nodes(1, 2), with(nodes(2, 2), "constraints", only("spare"))];
    let policies = [policy];
    let first = decided(&instance, &policies, &pools, &jobs);
    assert_eq!(sizes(&first), [("on-t", 3)]);
    pools[0].nodes = 3;
    let second = decide(&instance, &policies, &pools, &jobs, &first.memory, at(101));
    assert_eq!(second.actions, []);
    let bursts: Vec<_> = second.answers.iter().map(|it| it.burst.as_deref()).collect();
    assert_eq!(bursts, [Some("on-u"), Some("on-t")]);
}

#[test]
fn a_burst_of_a_user_serves_any_job() {
    let pools = [Pool { policy: None, ..pool("b", "", target("t"), 2) }];
    let job = Job { attributes: Attributes::default(), ..nodes(1, 2) };
    let decision = decided(&instance(2, 0), &[], &pools, &[job.clone(), Job { id: 2, ..job }]);
    assert_eq!(reasons(&decision), [AnswerReason::WaitsForBurst, AnswerReason::NoPolicy]);
}

#[test]
fn a_node_that_is_not_free_is_missing() {
    let mut instance = instance(2, 2);
    instance.nodes[1] = Node { is_free: false, ..instance.nodes[1].clone() };
    let decision = decided(&instance, &[policy("p", target("t"))], &[], &[nodes(1, 2)]);
    assert_eq!(sizes(&decision), [("p", 1)]);
}

#[test]
fn decides_over_10_000_jobs() {
    let mut policy = policy("p", scaling("t", 1, 64));
    policy.spec.targets[0].max_nodes = 512;
    policy.spec.limits.nodes = 256;
    let mut instance = instance(1000, 500);
    instance.table_size = 2000;
    instance.lendable.insert("spare".into(), 1000);
    let jobs: Vec<Job> = (0..10_000)
        .map(|id| match id % 4 {
            0 => nodes(id, 3),
            1 => job(id),
            2 => with(nodes(id, 1), "constraints", json!({"properties": ["^home"]})),
            _ => Job { attributes: Attributes::default(), ..nodes(id, 2) },
        })
        .collect();
    let decision = decided(&instance, &[policy], &[], &jobs);
    assert_eq!(decision.answers.len(), 10_000);
    let requested: i32 = sizes(&decision).iter().map(|(_, nodes)| nodes).sum();
    assert_eq!(requested, 256);
}
