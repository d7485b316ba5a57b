//! What is true of every plan, tried on made-up histories: a settled job is quiet, a crash
//! after any step heals, and no command is run twice.

use flux_operator_queue::{EvictReason, Reason};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::objects::{no_quota, waits};
use crate::world::World;

/// As many as take a few seconds together without optimization.
const CASES: u32 = 40;

/// Something that happens to a job.
#[derive(Clone, Debug)]
enum Happening {
    Change(Value),
    Admit,
    Evict(EvictReason),
    Waits(i64),
    Behind,
    Cluster(&'static str),
    Ends(i32),
    LosesItsCluster,
    Replaced(&'static str),
    Seconds(i64),
}

impl Happening {
    fn happen(&self, world: &mut World) {
        match self {
            Happening::Change(patch) => world.change(patch),
            Happening::Admit => world.admit(2),
            Happening::Evict(reason) => world.evict(*reason),
            Happening::Waits(missing) => world.wait(no_quota(*missing)),
            Happening::Behind => world.wait(waits(Reason::BehindOthers { job: "a".into() })),
            Happening::Cluster(reason) => world.cluster(reason),
            Happening::Ends(code) => world.end(*code),
            Happening::LosesItsCluster => world.lose_cluster(),
            Happening::Replaced(name) => world.replace_setup(name),
            Happening::Seconds(seconds) => world.pass_time(*seconds),
        }
    }
}

fn specs() -> impl Strategy<Value = Value> {
    let parts = vec![
        json!({ "command": "" }),
        json!({ "suspend": true }),
        json!({ "keepCluster": true }),
        json!({ "ttlSecondsAfterFinished": 30 }),
        json!({ "template": { "spec": { "containers": [{}], "services": [{ "name": "db" }] } } }),
    ];
    proptest::sample::subsequence(parts, 0..3).prop_map(|parts| {
        let mut spec = json!({ "size": 2 });
        parts.iter().for_each(|part| flux_operator_testkit::merge(&mut spec, part));
        spec
    })
}

fn changes() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(|suspend| json!({ "suspend": suspend })),
        any::<bool>().prop_map(|keep| json!({ "keepCluster": keep })),
        (1..4).prop_map(|size| json!({ "size": size })),
        Just(json!({ "image": "other" })),
        Just(json!({ "ttlSecondsAfterFinished": 5 })),
    ]
}

fn happenings() -> impl Strategy<Value = Happening> {
    let reasons = vec![EvictReason::OverQuota, EvictReason::QueueStopped];
    prop_oneof![
        3 => changes().prop_map(Happening::Change),
        5 => Just(Happening::Admit),
        2 => proptest::sample::select(reasons).prop_map(Happening::Evict),
        1 => (1_i64..4).prop_map(Happening::Waits),
        1 => Just(Happening::Behind),
        4 => proptest::sample::select(&["PodsPending", "ReadyTimeout", "Quorum"][..])
            .prop_map(Happening::Cluster),
        1 => proptest::sample::select(&[0, 7][..]).prop_map(Happening::Ends),
        1 => Just(Happening::LosesItsCluster),
        1 => proptest::sample::select(&["new", "newer"][..]).prop_map(Happening::Replaced),
        2 => proptest::sample::select(&[1, 6, 70][..]).prop_map(Happening::Seconds),
    ]
}

fn histories() -> impl Strategy<Value = (Value, Vec<Happening>)> {
    (specs(), proptest::collection::vec(happenings(), 0..10))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn q4_a_settled_job_is_quiet((spec, happenings) in histories()) {
        let mut world = World::new(spec);
        world.settle();
        for happening in happenings {
            happening.happen(&mut world);
            world.settle();
            let settled = world.clone();
            prop_assert_eq!(world.pass(), []);
            prop_assert_eq!(&world, &settled, "somebody still moves after {:?}", happening);
        }
    }

    /// Also where the operator is away while things happen, and sees them together.
    #[test]
    fn q4_a_crash_after_any_step_heals((spec, happenings) in histories(), away in any::<bool>()) {
        let mut world = World::new(spec);
        for happening in happenings {
            if !away {
                settle_in_spite_of_crashes(&mut world);
            }
            happening.happen(&mut world);
        }
        settle_in_spite_of_crashes(&mut world);
    }

    #[test]
    fn q10_a_command_runs_again_only_after_its_room_was_lost((spec, happenings) in histories()) {
        let mut world = World::new(spec);
        let mut lost = 0;
        for happening in happenings {
            world.settle();
            let before = world.status();
            happening.happen(&mut world);
            world.settle();
            let started = before.start_time.is_some() && before.finish_time.is_none();
            lost += u32::from(started && world.status().start_time.is_none());
            prop_assert!(world.runs <= lost + 1, "{} runs, {} lost", world.runs, lost);
        }
    }

    #[test]
    fn q13_nothing_is_left_of_a_job_that_has_ended((spec, happenings) in histories()) {
        let mut world = World::new(spec);
        for happening in happenings {
            world.settle();
            happening.happen(&mut world);
        }
        world.settle();
        let Some(job) = world.job() else {
            prop_assert_eq!(world.minicluster(), None);
            return Ok(());
        };
        let ended = job.status.clone().unwrap_or_default().finish_time.is_some();
        if ended && !job.spec.keep_cluster {
            prop_assert_eq!(world.minicluster(), None);
        }
        let workload = world.workload().unwrap();
        prop_assert_eq!(workload.finished, ended);
        prop_assert!(workload.admission.is_some() || ended || world.minicluster().is_none());
    }

    #[test]
    fn q7_time_alone_changes_nothing_that_was_not_announced(
        (spec, happenings) in histories(),
        seconds in 1_i64..200,
    ) {
        let mut world = World::new(spec);
        for happening in happenings {
            world.settle();
            happening.happen(&mut world);
        }
        world.settle();
        let announced = world.plan().look_again;
        let before = world.now();
        let settled = world.plan();
        world.pass_time(seconds);
        if announced.is_none_or(|announced| announced > world.now()) {
            prop_assert_eq!(world.plan(), settled);
        }
        prop_assert!(announced.is_none_or(|announced| announced > before));
    }
}

/// What chance seldom makes: whole lives.
#[test]
fn q4_a_crash_at_any_time_of_a_whole_life_heals() {
    let suspend = |suspend: bool| Happening::Change(json!({ "suspend": suspend }));
    let runs = [Happening::Admit, Happening::Cluster("PodsPending"), Happening::Cluster("Quorum")];
    let evicted = Happening::Evict(EvictReason::OverQuota);
    for rest in [
        vec![Happening::Ends(0), Happening::Seconds(60)],
        vec![evicted, Happening::Seconds(70), Happening::Admit, Happening::Ends(7)],
        vec![suspend(true), suspend(false), Happening::Admit, Happening::Cluster("Quorum")],
        vec![Happening::LosesItsCluster],
        vec![Happening::Cluster("ReadyTimeout"), Happening::Seconds(70), Happening::Admit],
    ] {
        let mut world = World::new(json!({ "ttlSecondsAfterFinished": 30 }));
        settle_in_spite_of_crashes(&mut world);
        for happening in runs.iter().chain(&rest) {
            happening.happen(&mut world);
            settle_in_spite_of_crashes(&mut world);
        }
    }
}

/// Settles, and at every step of the way also a world in which the operator ended right
/// after it: it must come to the same.
fn settle_in_spite_of_crashes(world: &mut World) {
    let mut crashed = Vec::new();
    for _ in 0..World::LONG {
        let steps = world.plan().steps;
        for count in 0..=steps.len() {
            let mut other = world.clone();
            other.carry_out(&steps[..count]);
            crashed.push((steps[..count].to_vec(), other.clone()));
            other.control();
            crashed.push((steps[..count].to_vec(), other));
        }
        if !world.turn() {
            break;
        }
    }
    world.settle();
    for (done, mut other) in crashed {
        other.settle();
        other.writes = world.writes;
        assert_eq!(other, *world, "a crash after {done:?} left something else");
    }
}
