//! Properties of decisions, over generated instances.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use flux_operator_api::BurstPolicySpec;
use flux_operator_api::burst::{
    BurstLimits, BurstTarget, BurstWhen, JobSelection, KubeconfigTarget, Scaling,
};
use flux_operator_api::view::Attributes;
use flux_operator_burst::{
    Action, AnswerReason, Decision, Instance, IsolatedRun, Job, Memory, Node, PolicyState, Pool,
    PoolMember, PoolState, Used, decide,
};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Everything that a decision is about.
#[derive(Clone, Debug)]
struct World {
    instance: Instance,
    policies: Vec<PolicyState>,
    pools: Vec<Pool>,
    jobs: Vec<Job>,
    /// Runs in instances of their own: policy, target and nodes.
    runs: Vec<(String, String, i32)>,
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_777_888_800 + seconds).unwrap()
}

impl World {
    fn decide(&self, memory: &Memory) -> Decision {
        let World { instance, policies, pools, jobs, runs: _ } = self;
        decide(instance, policies, pools, jobs, memory, at(1000))
    }

    /// What each policy uses, by what its pools request.
    fn count(&mut self) {
        for policy in &mut self.policies {
            let own: Vec<&Pool> = self
                .pools
                .iter()
                .filter(|pool| pool.policy.as_ref() == Some(&policy.name))
                .collect();
            policy.used.nodes = own.iter().map(|pool| pool.nodes).sum();
            policy.used.bursts = own.len();
            policy.used.nodes_by_target = BTreeMap::new();
            for pool in own {
                *policy.used.nodes_by_target.entry(pool.target.name.clone()).or_default() +=
                    pool.nodes;
            }
            for (_, target, nodes) in self.runs.iter().filter(|(name, ..)| *name == policy.name) {
                policy.used.nodes += nodes;
                policy.used.bursts += 1;
                *policy.used.nodes_by_target.entry(target.clone()).or_default() += nodes;
            }
        }
    }

    /// The world as soon as the actions are applied: nodes that are requested are coming up.
    fn apply(&self, actions: &[Action]) -> World {
        let mut world = self.clone();
        for (number, action) in actions.iter().enumerate() {
            match action {
                Action::Create { policy, target, nodes, .. } => {
                    let leased =
                        target.scaling.as_ref().map_or(*nodes, |it| it.max_nodes).unsigned_abs();
                    *world.instance.lendable.get_mut(&target.ranks).unwrap() -= leased;
                    world.pools.push(Pool {
                        name: format!("new-{number}"),
                        policy: Some(policy.clone()),
                        target: (**target).clone(),
                        nodes: *nodes,
                        state: PoolState::Active,
                        trouble: None,
                        has_joined: false,
                        paused_until: None,
                    });
                }
                Action::RunIsolated { policy, target, nodes, job } => {
                    assert!(target.is_elsewhere() && target.scaling.is_none());
                    world.runs.push((policy.clone(), target.name.clone(), *nodes));
                    world.instance.isolated.push(IsolatedRun {
                        job: *job,
                        burst: format!("run-{number}"),
                        policy: Some(policy.clone()),
                        target: target.name.clone(),
                        phase: String::new(),
                        refusal: None,
                        has_started: false,
                        paused_until: None,
                    });
                }
                Action::Resize { burst, nodes } => {
                    let pool = world.pools.iter_mut().find(|pool| pool.name == *burst).unwrap();
                    let scaling = pool.target.scaling.as_ref().unwrap();
                    assert!((scaling.min_nodes..=scaling.max_nodes).contains(nodes));
                    pool.nodes = *nodes;
                }
                Action::Drain { burst, .. } => {
                    let pool = world.pools.iter_mut().find(|pool| pool.name == *burst).unwrap();
                    pool.state = PoolState::GivingBack;
                }
            }
        }
        world.count();
        world
    }

    /// Whether an action makes a pool smaller.
    fn shrinks(&self, actions: &[Action]) -> bool {
        actions.iter().any(|action| match action {
            Action::Resize { burst, nodes } => {
                self.pools.iter().any(|pool| pool.name == *burst && pool.nodes > *nodes)
            }
            _ => false,
        })
    }

    /// Nodes of all bursts.
    fn requested(&self) -> i32 {
        let runs: i32 = self.runs.iter().map(|(_, _, nodes)| nodes).sum();
        self.pools.iter().map(|pool| pool.nodes).sum::<i32>() + runs
    }
}

fn node() -> impl Strategy<Value = (u32, u32, bool)> {
    (prop::sample::select(vec![2, 4, 8]), 0..2_u32, any::<bool>())
}

fn constraint() -> impl Strategy<Value = Option<Value>> {
    prop::sample::select(vec![
        None,
        None,
        None,
        Some(json!({"properties": ["spare"]})),
        Some(json!({"properties": ["^spare"]})),
        Some(json!({"or": [{"properties": ["cloud"]}, {"ranks": ["0-2"]}]})),
        Some(json!({"hostlist": ["fs-[0-3]"]})),
        Some(json!({"near": []})),
    ])
}

fn job() -> impl Strategy<Value = Job> {
    let size = (prop::option::of(1..6_u32), 1..12_u32, prop::option::of(1..24_u32), 0..2_u32);
    let other = (any::<bool>(), prop::option::of(900..1200_i64), 0..20_u32, 0..1000_i64);
    (size, other, constraint()).prop_map(|(size, other, constraint)| {
        let (nodes, tasks, cores, gpus) = size;
        let (is_burstable, estimate, held, submitted) = other;
        let mut attributes: BTreeMap<String, Value> = BTreeMap::new();
        if is_burstable {
            attributes.insert("burstable".into(), json!(1));
        }
        if let Some(constraint) = constraint {
            attributes.insert("constraints".into(), constraint);
        }
        let estimate = estimate.map(at);
        let submitted = at(submitted);
        Job {
            id: 0,
            nodes,
            tasks,
            cores,
            gpus: gpus / 2,
            submitted,
            user: i64::from(held % 3),
            queue: String::new(),
            attributes: attributes.into(),
            estimate,
            is_held: held < 2,
            is_on_hold: held == 1,
        }
    })
}

fn target() -> impl Strategy<Value = BurstTarget> {
    let scaling = prop::option::of((1..4_i32, 0..5_i32));
    let ranks = prop::sample::select(vec!["", "spare", "cloud"]);
    (5..12_i32, scaling, prop::sample::select(vec![0, 2, 8]), 0..2_i32, ranks).prop_map(
        |(max_nodes, scaling, cores, gpus, ranks)| BurstTarget {
            max_nodes: max_nodes.max(8),
            scaling: scaling
                .map(|(min_nodes, more)| Scaling { min_nodes, max_nodes: min_nodes + more }),
            cores,
            gpus: Some(gpus),
            ranks: ranks.into(),
            kubeconfig: (max_nodes % 2 == 0).then(KubeconfigTarget::default),
            ..BurstTarget::default()
        },
    )
}

fn policy() -> impl Strategy<Value = PolicyState> {
    let targets = prop::collection::vec(target(), 1..4);
    let selection = (any::<bool>(), prop::option::of(0..1200_i32), prop::option::of(1..4_i32));
    let limits = (1..24_i32, prop::option::of(1..4_i32), 0..12_u32);
    (targets, selection, limits).prop_map(|(mut targets, selection, limits)| {
        for (number, target) in targets.iter_mut().enumerate() {
            target.name = format!("t{number}");
        }
        let (needs_attribute, waiting_seconds, min_nodes) = selection;
        let (nodes, bursts, other) = limits;
        let attribute = if needs_attribute { "" } else { "*" }.into();
        let mut jobs = JobSelection { attribute, ..JobSelection::default() };
        jobs.all.waiting_seconds = waiting_seconds;
        jobs.all.min_nodes = min_nodes;
        let node_hours_per_day = (other == 1).then_some(1);
        let spec = BurstPolicySpec {
            jobs,
            when: BurstWhen { stabilization_seconds: Some(0), ..BurstWhen::default() },
            limits: BurstLimits { nodes, bursts, node_hours_per_day, ..BurstLimits::default() },
            targets,
            suspend: other == 0,
            isolated: [None, Some(true), Some(false)][(other % 3) as usize],
            ..BurstPolicySpec::default()
        };
        let used = Used { node_hours_today: 2.0, ..Used::default() };
        PolicyState { name: String::new(), spec, rejected: None, blocked: None, used }
    })
}

/// A pool of a policy and target, by their numbers: size, state, and for each pod whether it is
/// online, and free.
type PoolSeed = (usize, usize, i32, u32, Vec<(bool, bool)>);

fn pool() -> impl Strategy<Value = PoolSeed> {
    (0..3_usize, 0..3_usize, 1..6_i32, 0..8_u32, prop::collection::vec(any::<(bool, bool)>(), 6))
}

fn world() -> impl Strategy<Value = World> {
    let nodes = prop::collection::vec(node(), 0..8);
    let policies = prop::collection::vec(policy(), 0..3);
    let pools = prop::collection::vec(pool(), 0..3);
    let jobs = prop::collection::vec(job(), 0..12);
    let other = (0..16_u32, 0..16_u32, any::<bool>());
    (nodes, policies, pools, jobs, other).prop_map(|(nodes, policies, pools, jobs, other)| {
        let (spare, cloud, skips_blocked) = other;
        let mut world = World {
            instance: Instance {
                is_exposed: true,
                name: "fs".into(),
                lendable: BTreeMap::from([("spare".into(), spare), ("cloud".into(), cloud)]),
                shapes: BTreeMap::new(),
                lead_cores: 4,
                lead_gpus: 0,
                skips_blocked,
                table_size: 64,
                ..Instance::default()
            },
            policies,
            pools: Vec::new(),
            jobs,
            runs: Vec::new(),
        };
        for (rank, (cores, gpus, is_free)) in (0..).zip(nodes) {
            let (host, property) = (format!("fs-{rank}"), "home".into());
            world.instance.nodes.push(Node {
                rank,
                host,
                property,
                cores,
                gpus,
                is_free,
                ..Node::default()
            });
        }
        for (number, policy) in world.policies.iter_mut().enumerate() {
            policy.name = format!("p{number}");
        }
        for (id, job) in (1..).zip(&mut world.jobs) {
            job.id = id;
        }
        for seed in pools {
            add_pool(&mut world, seed);
        }
        world.count();
        // Limits were kept when the pools were created.
        for policy in &mut world.policies {
            policy.spec.limits.nodes = policy.spec.limits.nodes.max(policy.used.nodes);
            if let Some(bursts) = &mut policy.spec.limits.bursts {
                *bursts = (*bursts).max(i32::try_from(policy.used.bursts).unwrap());
            }
            for target in &mut policy.spec.targets {
                let used = policy.used.nodes_by_target.get(&target.name);
                target.max_nodes = target.max_nodes.max(used.copied().unwrap_or_default());
            }
        }
        world
    })
}

fn add_pool(world: &mut World, seed: PoolSeed) {
    let (policy, target, nodes, state, pods) = seed;
    let Some(policy) = world.policies.get(policy) else { return };
    let Some(target) = policy.spec.targets.get(target) else { return };
    let mut target = target.clone();
    if target.ranks.is_empty() {
        target.ranks = "spare".into();
    }
    let nodes = match &target.scaling {
        Some(scaling) => nodes.clamp(scaling.min_nodes, scaling.max_nodes),
        None => nodes,
    };
    let name = format!("b{}", world.pools.len());
    for (pod, (is_online, is_free)) in (0..nodes.unsigned_abs()).zip(pods) {
        if is_online {
            let rank = u32::try_from(world.instance.nodes.len()).unwrap() + 100;
            let cores = if target.cores == 0 { 4 } else { target.cores.unsigned_abs() };
            world.instance.nodes.push(Node {
                rank,
                host: format!("{name}-{pod}"),
                property: target.ranks.clone(),
                cores,
                gpus: target.gpus.unwrap_or_default().unsigned_abs(),
                is_free,
                idle_since: is_free.then(|| at(i64::from(rank % 7) * 150)),
                member: Some(PoolMember { burst: name.clone(), pod }),
            });
        }
    }
    let state = match state {
        0 => PoolState::GivingBack,
        1 => PoolState::Failed { until: at(1060) },
        2 => PoolState::Failed { until: at(990) },
        _ => PoolState::Active,
    };
    world.pools.push(Pool {
        name,
        policy: Some(policy.name.clone()),
        target,
        nodes,
        state,
        trouble: None,
        has_joined: false,
        paused_until: None,
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_arguments_give_the_same_decision(world in world()) {
        let memory = Memory::default();
        prop_assert_eq!(world.decide(&memory), world.decide(&memory));
    }

    #[test]
    fn every_job_has_one_answer(world in world()) {
        let answers = world.decide(&Memory::default()).answers;
        let answered: Vec<u64> = answers.iter().map(|answer| answer.job).collect();
        let jobs: Vec<u64> = world.jobs.iter().map(|job| job.id).collect();
        prop_assert_eq!(answered, jobs);
    }

    #[test]
    fn limits_are_kept(world in world()) {
        let after = world.apply(&world.decide(&Memory::default()).actions);
        for policy in &after.policies {
            let PolicyState { spec, used, .. } = policy;
            prop_assert!(used.nodes <= spec.limits.nodes);
            prop_assert!(used.bursts <= spec.limits.bursts());
            for target in &spec.targets {
                let nodes = used.nodes_by_target.get(&target.name).copied().unwrap_or_default();
                prop_assert!(nodes <= target.max_nodes, "{}: {nodes}", target.name);
            }
        }
    }

    #[test]
    fn once_the_actions_are_applied_nothing_is_left_to_do(world in world()) {
        let mut decision = world.decide(&Memory::default());
        let mut after = world.apply(&decision.actions);
        let mut second = after.decide(&decision.memory);
        // What a Burst that has become smaller leaves of a limit may be requested elsewhere.
        if world.shrinks(&decision.actions) {
            prop_assert!(!after.shrinks(&second.actions), "{:?}", second.actions);
            after = after.apply(&second.actions);
            decision = second;
            second = after.decide(&decision.memory);
        }
        prop_assert_eq!(&second.actions, &[], "after {:?}", decision.actions);
        for (first, second) in decision.answers.iter().zip(&second.answers) {
            match first.reason {
                AnswerReason::Requested | AnswerReason::WaitsForBurst => {
                    let runs = after.instance.isolated.iter().any(|run| run.job == first.job);
                    let expected = match runs {
                        true => AnswerReason::RunsIsolated,
                        false => AnswerReason::WaitsForBurst,
                    };
                    prop_assert_eq!(second.reason, expected);
                }
                AnswerReason::StartsHere | AnswerReason::RunsIsolated => {
                    prop_assert_eq!(second.reason, first.reason);
                }
                // It may be refused for another reason: there are more nodes now.
                _ => prop_assert!(second.reason < AnswerReason::Stabilizing, "{second:?}"),
            }
        }
    }

    /// Whatever else there is: the next one would be as useless as this one.
    #[test]
    fn a_burst_that_vanishes_before_a_broker_has_joined_has_no_successor(world in world()) {
        let first = world.decide(&Memory::default());
        let mut after = world.apply(&first.actions);
        let vanished = after.decide(&first.memory);
        let gone = std::mem::take(&mut after.pools);
        after.instance.nodes.retain(|node| node.member.is_none());
        after.count();
        for action in after.decide(&vanished.memory).actions {
            if let Action::Create { policy, target, .. } = action {
                let mut at_target = gone.iter().filter(|it| it.target.name == target.name);
                prop_assert!(!at_target.any(|it| it.policy.as_ref() == Some(&policy)));
            }
        }
    }

    #[test]
    fn a_job_waits_for_one_burst(world in world()) {
        let decision = world.decide(&Memory::default());
        let mut seen = BTreeSet::new();
        for action in &decision.actions {
            if let Action::Create { jobs, .. } = action {
                prop_assert!(!jobs.is_empty());
                for job in jobs {
                    prop_assert!(seen.insert(*job), "job {job} is in two bursts");
                    let answer = decision.answers.iter().find(|answer| answer.job == *job);
                    let answer = answer.unwrap();
                    prop_assert_eq!(answer.reason, AnswerReason::Requested);
                    prop_assert_eq!(&answer.burst, &None);
                }
            }
        }
    }

    #[test]
    fn nothing_is_requested_for_others_than_the_jobs_that_say_so(world in world()) {
        let mut requested = world.clone();
        let first = world.decide(&Memory::default());
        requested.jobs.retain(|job| {
            let answer = first.answers.iter().find(|answer| answer.job == job.id).unwrap();
            let waits = [AnswerReason::Requested, AnswerReason::WaitsForBurst];
            answer.reason == AnswerReason::StartsHere || waits.contains(&answer.reason)
        });
        let second = requested.decide(&Memory::default());
        prop_assert_eq!(first.actions, second.actions);
    }

    /// Of alike nodes, and with all jobs selected and nothing at a limit: otherwise a free node may
    /// let a job start that leaves too little for another, or bring a job below a limit.
    #[test]
    fn what_is_requested_is_the_sum_beyond_free_nodes(
        sizes in prop::collection::vec(1..6_u32, 1..10),
        free in 0..20_u32,
    ) {
        let node = |rank| Node {
            rank,
            property: "home".into(),
            cores: 4,
            is_free: true,
            ..Node::default()
        };
        let target = BurstTarget { name: "t".into(), max_nodes: 64, ..BurstTarget::default() };
        let spec = BurstPolicySpec {
            jobs: JobSelection { attribute: "*".into(), ..JobSelection::default() },
            when: BurstWhen { stabilization_seconds: Some(0), ..BurstWhen::default() },
            limits: BurstLimits { nodes: 64, ..BurstLimits::default() },
            targets: vec![target],
            ..BurstPolicySpec::default()
        };
        let job = |(id, &nodes): (u64, &u32)| Job {
            id,
            nodes: Some(nodes),
            tasks: nodes,
            cores: None,
            gpus: 0,
            submitted: at(0),
            user: 0,
            queue: String::new(),
            attributes: Attributes::default(),
            estimate: None,
            is_held: false,
            is_on_hold: false,
        };
        let world = |free: u32| World {
            instance: Instance {
                is_exposed: true,
                nodes: (0..free).map(node).collect(),
                lendable: BTreeMap::from([("spare".into(), 64)]),
                shapes: BTreeMap::new(),
                lead_cores: 4,
                skips_blocked: true,
                table_size: 100,
                ..Instance::default()
            },
            policies: vec![PolicyState {
                name: "p".into(),
                spec: spec.clone(),
                ..PolicyState::default()
            }],
            pools: Vec::new(),
            runs: Vec::new(),
            jobs: (1..).zip(&sizes).map(job).collect(),
        };
        let requested = |free| {
            let world = world(free);
            world.apply(&world.decide(&Memory::default()).actions).requested()
        };
        let sum: u32 = sizes.iter().sum();
        prop_assert_eq!(requested(free), i32::try_from(sum.saturating_sub(free)).unwrap());
        prop_assert!(requested(free + 1) <= requested(free));
    }
}
