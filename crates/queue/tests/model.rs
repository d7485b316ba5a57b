//! Properties of every history (Q39): no job is lost, none is admitted twice, no quota is
//! exceeded, every job that can ever fit finishes, quota in use is counted whichever setup
//! replaces which, and a restart changes nothing.
//!
//! Histories consist of actions of users and administrators, and of failures. The [`World`]
//! beside this file is the state that survives a crash.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use flux_operator_queue::{
    Inactive, Kind, Millis, OverQuota, Resource, Resources, ServedNamespaces, Setup, SetupProblem,
    Stop, Strategy as Order, Uid, Workload,
};
use proptest::prelude::*;
use proptest::sample::select;
use world::World;

/// How many histories are tried.
const HISTORIES: u32 = 2000;

/// The length of the longest of them.
const LONGEST: usize = 48;

/// A transition. A number selects one of the objects to which it can apply.
#[derive(Clone, Debug)]
enum Transition {
    Created(JobRequest),
    Changed(usize, JobRequest),
    Deleted(usize),
    Suspended(usize, bool),
    /// Its pods exist.
    Started(usize),
    Finished(usize),
    /// Quota is taken back, because the scheduler decided so or for a reason that it does not
    /// know, and the job backs off for this long.
    LosesQuota(usize, Millis),
    Setup(Box<Setup>),
    /// A setup replaces no other any more.
    ReplacesCleared(usize),
    /// A user deletes a setup, and the operator's finalizer keeps it as long as necessary.
    SetupDeleted(usize),
    /// A setup is removed, whether or not it is needed.
    SetupRemoved(usize),
    /// The operator deletes the setups that have a successor or are to be deleted.
    SetupsReconciled,
    /// The record of an admission is rewritten.
    Rewritten(usize),
    NamespaceQuota(&'static str, Option<i64>),
    /// Time passes, and a cycle decides.
    Cycle(Millis),
    /// The write of a decision succeeds.
    Written(usize),
    WriteFails(usize),
    /// The operator exits with some decisions written (by the bits of the first number), and a
    /// new one reads everything, in this order.
    Crash(u8, Vec<usize>),
}

/// The fields of a job that a user sets.
#[derive(Clone, Debug)]
struct JobRequest {
    namespace: &'static str,
    queue: &'static str,
    size: Option<u32>,
    min_size: Option<u32>,
    gpus: i64,
    once: i64,
    priority: i32,
    max_runtime: Option<Millis>,
}

impl JobRequest {
    fn job(&self, uid: &str, since: Millis) -> Workload {
        let JobRequest { namespace, queue, size, min_size, gpus, once, priority, max_runtime } =
            *self;
        Workload {
            uid: uid.into(),
            kind: Kind::FluxJob,
            namespace: namespace.into(),
            name: uid.into(),
            queue: queue.into(),
            priority,
            waiting_since: since,
            not_before: None,
            suspended: false,
            size,
            min_size,
            per_node: Resources::of([(Resource::Nodes, 1), (Resource::Gpus, gpus)]),
            per_job: Resources::of([(Resource::Gpus, once)]),
            max_runtime,
            admission: None,
            pods_exist: false,
            finished: false,
        }
    }
}

impl Transition {
    fn apply(self, world: &mut World, number: usize) {
        match self {
            Transition::Created(request) => {
                // As in Kubernetes, in whole seconds.
                let since = world.now / 1000 * 1000;
                world.record(request.job(&format!("{:03}", number * 37 % 101), since));
            }
            Transition::Changed(which, wish) => {
                let waits = |job: &Workload| job.admission.is_none() && !job.finished;
                if let Some(job) = select_job(world, which, waits) {
                    let changed = wish.job(&job.uid.0, job.waiting_since);
                    let Workload { not_before, suspended, namespace, .. } = job;
                    world.record(Workload { not_before, suspended, namespace, ..changed });
                }
            }
            Transition::Deleted(which) => {
                if let Some(job) = select_job(world, which, |_| true) {
                    world.delete(&job.uid);
                }
            }
            Transition::Suspended(which, suspended) => {
                if let Some(job) = select_job(world, which, |job| !job.finished) {
                    world.record(Workload { suspended, ..job });
                }
            }
            Transition::Started(which) => {
                if let Some(job) = select_job(world, which, has_quota) {
                    world.record(Workload { pods_exist: true, ..job });
                }
            }
            Transition::Finished(which) => {
                if let Some(job) = select_job(world, which, has_quota) {
                    world.record(Workload { finished: true, ..job });
                }
            }
            Transition::LosesQuota(which, back_off) => {
                if let Some(job) = select_job(world, which, has_quota) {
                    let (since, not_before) = (world.now, Some(world.now + back_off));
                    let (admission, started) = (None, false);
                    world.record(Workload {
                        waiting_since: since,
                        not_before,
                        admission,
                        pods_exist: started,
                        ..job
                    });
                }
            }
            Transition::Setup(setup) => {
                // An existing setup keeps its creation time, and its deletion is not undone.
                let before = world.setups.get(&setup.name);
                let created = before.map_or(world.now, |before| before.created);
                let terminating =
                    setup.terminating || before.is_some_and(|before| before.terminating);
                world.put_setup(Setup { created, terminating, ..*setup });
            }
            Transition::ReplacesCleared(which) => {
                if let Some(setup) = select_setup(world, which, |setup| !setup.replaces.is_empty())
                {
                    world.put_setup(Setup { replaces: Vec::new(), ..setup });
                }
            }
            Transition::SetupDeleted(which) => {
                if let Some(setup) = select_setup(world, which, |_| true) {
                    world.put_setup(Setup { terminating: true, ..setup });
                }
            }
            Transition::SetupRemoved(which) => {
                if let Some(Setup { name, .. }) = select_setup(world, which, |_| true) {
                    world.forced = true;
                    world.setups.remove(&name);
                    world.scheduler.remove_setup(&name);
                }
            }
            Transition::SetupsReconciled => {
                world.reconcile_setups(world.setups.keys().cloned().collect());
            }
            Transition::Rewritten(which) => world.rewrite(which),
            Transition::NamespaceQuota(namespace, nodes) => {
                let quota = nodes.map(|nodes| Resources::of([(Resource::Nodes, nodes)]));
                world.put_quota(namespace, quota);
            }
            Transition::Cycle(time) => {
                world.now += time;
                world.cycle();
            }
            Transition::Written(which) => {
                if let Some(uid) = select_decision(world, which) {
                    world.write(&uid);
                }
            }
            Transition::WriteFails(which) => {
                if let Some(uid) = select_decision(world, which) {
                    world.write_fails(&uid);
                }
            }
            Transition::Crash(written, order) => {
                world.crash(|number| written >> (number % 8) & 1 == 1, &order);
            }
        }
    }
}

fn has_quota(job: &Workload) -> bool {
    job.admission.is_some() && !job.finished
}

fn select_job(world: &World, which: usize, of: impl Fn(&Workload) -> bool) -> Option<Workload> {
    let all: Vec<&Workload> = world.jobs.values().filter(|job| of(job)).collect();
    all.get(which % all.len().max(1)).copied().cloned()
}

fn select_setup(world: &World, which: usize, of: impl Fn(&Setup) -> bool) -> Option<Setup> {
    let all: Vec<&Setup> = world.setups.values().filter(|setup| of(setup)).collect();
    all.get(which % all.len().max(1)).copied().cloned()
}

fn select_decision(world: &World, which: usize) -> Option<Uid> {
    world.decided.keys().nth(which % world.decided.len().max(1)).cloned()
}

fn job_request() -> impl Strategy<Value = JobRequest> {
    let queue = select(vec!["", "", "", "one", "two", "shared", "operator/shared", "nowhere"]);
    let what = (prop::option::weighted(0.9, 1..6_u32), prop::option::weighted(0.3, 1..4_u32));
    let kind = (0..2_i64, 0..2_i64, 0..3_i32, prop::option::of(500..4000_i64));
    (select(vec!["a", "b"]), queue, what, kind).prop_map(
        |(namespace, queue, (size, min_size), (gpus, once, priority, max_runtime))| JobRequest {
            namespace,
            queue,
            size,
            min_size,
            gpus,
            once,
            priority,
            max_runtime,
        },
    )
}

fn setup() -> impl Strategy<Value = Setup> {
    let names = vec!["a/one", "a/two", "a/default", "b/one", "operator/shared", "operator/new"];
    let order = select(vec![
        (Order::BestEffort, Millis::MAX),
        (Order::BestEffort, Millis::MAX),
        (Order::BestEffort, 2000),
        (Order::Strict, 0),
        (Order::Backfill, 0),
    ]);
    // Sometimes themselves, each other, or what another setup replaces too.
    let replaces = prop_oneof![
        4 => Just(Vec::new()),
        3 => prop::collection::vec(select(names.clone()), 1..3),
    ];
    let is_unusable = prop::bool::weighted(0.1);
    let serves = select(vec![
        ServedNamespaces::All,
        ServedNamespaces::All,
        ServedNamespaces::None,
        ServedNamespaces::Some(["b".into()].into()),
    ]);
    let stop = select(vec![Stop::No, Stop::No, Stop::No, Stop::Hold, Stop::HoldAndDrain]);
    let over_quota = select(vec![OverQuota::Drain, OverQuota::Evict]);
    let sizes = (prop::option::weighted(0.2, 1..6_u32), 1..4_u32);
    let limits = (0..9_i64, prop::option::of(0..4_i64), sizes);
    let rules = (order, stop, over_quota, prop::bool::weighted(0.1), is_unusable);
    (select(names), limits, rules, serves, replaces).prop_map(
        |(name, (nodes, gpus, (max_size, default_size)), rules, serves, replaces)| {
            let ((strategy, patience), stop, over_quota, terminating, mistake) = rules;
            let mistake =
                mistake.then(|| Inactive::unusable(SetupProblem::NodesUnknown, "no nodes"));
            let gpus = gpus.map(|gpus| (Resource::Gpus, gpus));
            Setup {
                name: name.parse().unwrap(),
                created: 0,
                quota: Resources::of([(Resource::Nodes, nodes)].into_iter().chain(gpus)),
                max_size,
                default_size,
                serves,
                strategy,
                patience,
                stop,
                over_quota,
                replaces: replaces.into_iter().map(|name| name.parse().unwrap()).collect(),
                terminating,
                problem: mistake,
            }
        },
    )
}

fn order() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..64_usize, 16)
}

/// How setups are removed: by deletion with a finalizer, or by force.
#[derive(Clone, Copy, Debug)]
enum Removal {
    WithFinalizer,
    Forced,
}

fn transition(removal: Removal) -> impl Strategy<Value = Transition> {
    let removed = move |which| match removal {
        Removal::WithFinalizer => Transition::SetupDeleted(which),
        Removal::Forced => Transition::SetupRemoved(which),
    };
    prop_oneof![
        8 => job_request().prop_map(Transition::Created),
        2 => (any::<usize>(), job_request()).prop_map(|(which, wish)| Transition::Changed(which, wish)),
        1 => any::<usize>().prop_map(Transition::Deleted),
        1 => any::<(usize, bool)>().prop_map(|(which, on)| Transition::Suspended(which, on)),
        2 => any::<usize>().prop_map(Transition::Started),
        4 => any::<usize>().prop_map(Transition::Finished),
        2 => (any::<usize>(), 0..3000_i64).prop_map(|(which, time)| Transition::LosesQuota(which, time)),
        4 => setup().prop_map(|setup| Transition::Setup(Box::new(setup))),
        1 => any::<usize>().prop_map(removed),
        2 => any::<usize>().prop_map(Transition::ReplacesCleared),
        3 => Just(Transition::SetupsReconciled),
        3 => any::<usize>().prop_map(Transition::Rewritten),
        1 => (select(vec!["a", "b"]), prop::option::of(0..8_i64))
            .prop_map(|(namespace, nodes)| Transition::NamespaceQuota(namespace, nodes)),
        8 => (0..1500_i64).prop_map(Transition::Cycle),
        6 => any::<usize>().prop_map(Transition::Written),
        1 => any::<usize>().prop_map(Transition::WriteFails),
        2 => (any::<u8>(), order()).prop_map(|(written, order)| Transition::Crash(written, order)),
    ]
}

fn history(removal: Removal) -> impl Strategy<Value = Vec<Transition>> {
    prop::collection::vec(transition(removal), 1..LONGEST)
}

fn replay(history: Vec<Transition>) -> World {
    let mut world = World::new();
    for (number, transition) in history.into_iter().enumerate() {
        transition.apply(&mut world, number);
        world.check();
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(HISTORIES)
    })]

    #[test]
    fn q39_no_job_is_lost_or_admitted_twice_and_all_finish(
        history in history(Removal::Forced),
    ) {
        replay(history).run_to_completion();
    }

    #[test]
    fn q19_quota_in_use_is_counted_whatever_happens_to_the_setups(
        history in history(Removal::WithFinalizer),
    ) {
        replay(history).run_to_completion();
    }

    #[test]
    fn q4_the_order_of_the_input_changes_neither_state_nor_decisions(
        history in history(Removal::Forced), one in order(), other in order(),
    ) {
        let world = replay(history);
        let (mut one, mut other) = (world.rebuilt(&one), world.rebuilt(&other));
        prop_assert_eq!(world.snapshot(&one), world.snapshot(&other));
        prop_assert_eq!(one.cycle(world.now), other.cycle(world.now));
        prop_assert_eq!(world.snapshot(&one), world.snapshot(&other));
    }
}
