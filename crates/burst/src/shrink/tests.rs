//! Bursts that become smaller, and those of policies at a limit of the day.

use crate::testing::{
    at, decided, instance, member, nodes, policy, pool, reasons, scaling, sizes, target,
};
use crate::{Action, AnswerReason, DrainReason};

#[test]
fn a_burst_shrinks_by_its_last_pods_that_are_idle() {
    let policies = [policy("p", scaling("t", 1, 8))];
    let pools = [pool("b", "p", scaling("t", 1, 8), 4)];
    // Idle time is 300 s, and it is 100 s now.
    let (long, short) = (Some(at(-200)), Some(at(-100)));
    let (none, waits) = (vec![], vec![nodes(1, 2)]);
    let cases = [
        ([long, long, long, long], &none, 1),
        ([None, long, long, long], &none, 1),
        ([long, None, long, long], &none, 2),
        ([None, long, short, long], &none, 3),
        ([long, long, long, long], &waits, 2),
    ];
    for (idle, jobs, expected) in cases {
        let mut instance = instance(2, 0);
        let nodes = (0..).zip(idle).map(|(pod, since)| member("b", pod, since));
        instance.nodes.extend(nodes);
        let decision = decided(&instance, &policies, &pools, jobs);
        assert_eq!(sizes(&decision), [("b", expected)], "{idle:?}");
        let next = idle.contains(&short).then_some(at(200));
        assert_eq!(decision.requeue_at, next, "{idle:?}");
    }
}

#[test]
fn pods_that_a_smaller_burst_loses_are_not_free() {
    let policies = [policy("p", scaling("t", 1, 8))];
    let pools = [pool("b", "p", scaling("t", 1, 8), 1)];
    let mut instance = instance(2, 0);
    instance.nodes.extend((0..2).map(|pod| member("b", pod, Some(at(90)))));
    let decision = decided(&instance, &policies, &pools, &[nodes(1, 2)]);
    assert_eq!(sizes(&decision), [("b", 2)]);
}

#[test]
fn bursts_are_drained_at_a_limit_of_the_day() {
    let mut policy = policy("p", target("t"));
    policy.spec.limits.node_hours_per_day = Some(8);
    policy.used.node_hours_today = 8.0;
    let pools = [pool("busy", "p", target("t"), 1), pool("idle", "p", target("t"), 1)];
    let mut instance = instance(2, 0);
    instance.nodes.extend([member("busy", 0, None), member("idle", 0, Some(at(99)))]);
    let decision = decided(&instance, &[policy], &pools, &[nodes(1, 1)]);
    let why = DrainReason::LimitNodeHours;
    let drained = |name: &str| Action::Drain { burst: name.into(), why };
    assert_eq!(decision.actions, [drained("busy"), drained("idle")]);
    assert_eq!(reasons(&decision), [AnswerReason::LimitNodeHours]);
    assert_eq!(decision.requeue_at, Some("2026-05-05T00:00:00Z".parse().unwrap()));
}
