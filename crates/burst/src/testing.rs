//! Builders for tests.

use std::collections::BTreeMap;

use flux_operator_api::BurstPolicySpec;
use flux_operator_api::burst::{BurstLimits, BurstTarget, BurstWhen, JobSelection, Scaling};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::{
    Action, AnswerReason, Decision, Instance, Job, Memory, Node, PolicyState, Pool, PoolMember,
    PoolState, decide,
};

/// 2026-05-04T10:00:00Z and so many seconds.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_777_888_800 + seconds).unwrap()
}

/// A job without `nodes` and with one task, submitted at 0 with the attribute burstable.
pub(crate) fn job(id: u64) -> Job {
    Job {
        id,
        nodes: None,
        tasks: 1,
        cores: None,
        gpus: 0,
        submitted: at(0),
        user: 1000,
        queue: String::new(),
        attributes: BTreeMap::from([("burstable".into(), json!(1))]).into(),
        estimate: None,
        is_held: false,
        is_on_hold: false,
    }
}

/// A job of so many nodes.
pub(crate) fn nodes(id: u64, count: u32) -> Job {
    Job { nodes: Some(count), tasks: count, ..job(id) }
}

/// An instance of nodes with 4 cores, of which the first `free` are free, with 16 spare ranks.
pub(crate) fn instance(size: u32, free: u32) -> Instance {
    let node = |rank| Node {
        rank,
        host: format!("fs-{rank}"),
        property: "home".into(),
        cores: 4,
        is_free: rank < free,
        ..Node::default()
    };
    Instance {
        is_exposed: true,
        name: "fs".into(),
        nodes: (0..size).map(node).collect(),
        lendable: BTreeMap::from([("spare".into(), 16)]),
        leasable: BTreeMap::from([("spare".into(), 16)]),
        shapes: BTreeMap::new(),
        lead_cores: 4,
        lead_gpus: 0,
        skips_blocked: true,
        table_size: size + 16,
        isolated: Vec::new(),
    }
}

/// A target of at most 16 nodes.
pub(crate) fn target(name: &str) -> BurstTarget {
    BurstTarget { name: name.into(), max_nodes: 16, ..BurstTarget::default() }
}

/// A target whose bursts grow and shrink.
pub(crate) fn scaling(name: &str, min_nodes: i32, max_nodes: i32) -> BurstTarget {
    BurstTarget { scaling: Some(Scaling { min_nodes, max_nodes }), ..target(name) }
}

/// A policy with one target, 16 nodes and no stabilization.
pub(crate) fn policy(name: &str, target: BurstTarget) -> PolicyState {
    let spec = BurstPolicySpec {
        jobs: JobSelection::default(),
        when: BurstWhen { stabilization_seconds: Some(0), ..BurstWhen::default() },
        limits: BurstLimits { nodes: 16, ..BurstLimits::default() },
        targets: vec![target],
        ..BurstPolicySpec::default()
    };
    PolicyState { name: name.into(), spec, ..PolicyState::default() }
}

/// A burst of a policy.
pub(crate) fn pool(name: &str, policy: &str, target: BurstTarget, nodes: i32) -> Pool {
    let policy = Some(policy.into());
    Pool {
        name: name.into(),
        policy,
        target,
        nodes,
        state: PoolState::Active,
        trouble: None,
        has_joined: false,
        paused_until: None,
    }
}

/// A node of a burst that has been free since a time; busy if there is none.
pub(crate) fn member(burst: &str, pod: u32, idle_since: Option<Timestamp>) -> Node {
    Node {
        rank: 100 + pod,
        host: format!("fs-spare-{pod}"),
        property: "spare".into(),
        cores: 4,
        is_free: idle_since.is_some(),
        idle_since,
        member: Some(PoolMember { burst: burst.into(), pod }),
        ..Node::default()
    }
}

/// A decision at 100 s, without memory.
pub(crate) fn decided(
    instance: &Instance,
    policies: &[PolicyState],
    pools: &[Pool],
    jobs: &[Job],
) -> Decision {
    decide(instance, policies, pools, jobs, &Memory::default(), at(100))
}

/// The reason of each answer.
pub(crate) fn reasons(decision: &Decision) -> Vec<AnswerReason> {
    decision.answers.iter().map(|answer| answer.reason).collect()
}

/// Policy or burst, nodes, of each action that requests or gives back nodes.
pub(crate) fn sizes(decision: &Decision) -> Vec<(&str, i32)> {
    (decision.actions.iter())
        .map(|action| match action {
            Action::Create { policy, nodes, .. } => (policy.as_str(), *nodes),
            Action::RunIsolated { policy, nodes, .. } => (policy.as_str(), *nodes),
            Action::Resize { burst, nodes } => (burst.as_str(), *nodes),
            Action::Drain { burst, .. } => (burst.as_str(), 0),
        })
        .collect()
}
