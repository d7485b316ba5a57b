//! What is true of every plan, tried on made-up histories: a settled cluster is
//! quiet, a crash after any step heals, and nothing is made twice.
//!
//! The [`World`] beside this file carries steps out as the API server would, with a Job
//! controller reduced to what plans can see of it. What the API server really does
//! is asked of the API server, in `tests/e2e/tests/crash.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod patience;
mod queued;
mod world;

use flux_operator_plan::{Hold, Step};
use proptest::prelude::*;
use serde_json::{Value, json};
use world::{Lead, World};

/// As many as take a few seconds together without optimization.
const CASES: u32 = 48;

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Happening {
    /// The user changes the spec.
    Change(Value),
    /// The pods get as far as this.
    Pods(&'static str),
    /// The lead ends with this code.
    Ends(i32),
    /// The lead is lost.
    LosesItsLead,
    /// Time passes.
    Seconds(i64),
    /// Somebody deletes an object.
    Deletes(&'static str),
    /// Somebody changes an object.
    Spoils(&'static str),
    /// The queue gives it room for so many nodes, or takes it back.
    Queue(Option<i32>),
}

impl Happening {
    fn happen(&self, world: &mut World) {
        match self {
            Happening::Change(patch) => world.change(patch),
            Happening::Pods(phase) => world.lead(Lead::Is(phase)),
            Happening::Ends(code) => world.lead(Lead::Ended(*code)),
            Happening::LosesItsLead => world.lose_lead(),
            Happening::Seconds(seconds) => world.pass_time(*seconds),
            Happening::Deletes(kind) => world.lose(kind),
            Happening::Spoils(kind) => world.spoil(kind),
            Happening::Queue(Some(room)) => world.write_status(&queued::admission(*room)),
            Happening::Queue(None) => world.take_room(),
        }
    }
}

/// A spec to begin with: a few of everything that steps depend on.
fn specs() -> impl Strategy<Value = Value> {
    let sizes = prop_oneof![
        (1..4).prop_map(|size| json!({ "size": size })),
        (1..3, 3..5).prop_map(|(size, most)| json!({ "size": size, "maxSize": most })),
    ];
    let program = prop_oneof![
        Just(json!({ "interactive": true })),
        Just(json!({ "containers": [{ "image": "busybox", "command": "hostname" }] })),
    ];
    let more = proptest::sample::subsequence(
        vec![
            json!({ "suspend": true }),
            json!({ "readyTimeoutSeconds": 60 }),
            json!({ "cleanup": true }),
            json!({ "ttlSecondsAfterFinished": 30 }),
            json!({ "deadlineSeconds": 600 }),
            json!({ "jobLabels": { "team": "a" } }),
            json!({ "jobLabels": { "kueue.x-k8s.io/queue-name": "batch" } }),
            json!({ "queue": "batch" }),
            json!({ "network": { "headlessName": "net" } }),
            json!({ "flux": { "curveCertSecret": "mine" } }),
        ],
        0..3,
    );
    (sizes, program, more).prop_map(|(sizes, program, more)| {
        let mut spec = json!({});
        for part in [sizes, program].iter().chain(&more) {
            flux_operator_testkit::merge(&mut spec, part);
        }
        if !spec["jobLabels"]["kueue.x-k8s.io/queue-name"].is_null() {
            // A cluster waits in one queue.
            spec["queue"] = Value::Null;
        }
        spec
    })
}

/// Changes that a running cluster follows, and changes that it cannot.
fn changes() -> impl Strategy<Value = Value> {
    prop_oneof![
        (1..5).prop_map(|size| json!({ "size": size })),
        any::<bool>().prop_map(|suspend| json!({ "suspend": suspend })),
        Just(json!({ "jobLabels": { "team": "b" } })),
        Just(json!({ "deadlineSeconds": 900 })),
        Just(json!({ "readyTimeoutSeconds": 20 })),
        Just(json!({ "readyTimeoutSeconds": 0 })),
        Just(json!({ "restart": { "limit": 2 } })),
        Just(json!({ "cleanup": true })),
        Just(json!({ "tasks": 3 })),
        Just(json!({ "network": { "headlessName": "other" } })),
    ]
}

fn happenings() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => changes().prop_map(Happening::Change),
        4 => proptest::sample::select(&["Pending", "Running", "Ready"][..])
            .prop_map(Happening::Pods),
        1 => proptest::sample::select(&[0, 1, 7][..]).prop_map(Happening::Ends),
        1 => Just(Happening::LosesItsLead),
        2 => proptest::sample::select(&[1, 15, 31, 100][..]).prop_map(Happening::Seconds),
        1 => proptest::sample::select(&["ConfigMap", "Service", "Job"][..])
            .prop_map(Happening::Deletes),
        2 => proptest::sample::select(&["ConfigMap", "Service", "labels"][..])
            .prop_map(Happening::Spoils),
        2 => proptest::option::weighted(0.8, 1..5).prop_map(Happening::Queue),
    ]
}

fn histories() -> impl Strategy<Value = (Value, Vec<Happening>)> {
    (specs(), proptest::collection::vec(happenings(), 0..6))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn a_settled_cluster_is_quiet((spec, happenings) in histories()) {
        let mut world = World::new(&spec);
        world.settle();
        for happening in happenings {
            happening.happen(&mut world);
            world.settle();
            let settled = world.clone();
            prop_assert_eq!(world.pass(), []);
            world.control();
            prop_assert_eq!(&world, &settled, "somebody still moves after {:?}", happening);
        }
    }

    /// Also where the operator is away while things happen, and sees them together.
    #[test]
    fn a_crash_after_any_step_heals((spec, happenings) in histories(), away in any::<bool>()) {
        let mut world = World::new(&spec);
        for happening in happenings {
            if !away {
                settle_in_spite_of_crashes(&mut world);
            }
            happening.happen(&mut world);
        }
        settle_in_spite_of_crashes(&mut world);
    }

    #[test]
    fn the_same_input_gives_the_same_plan((spec, happenings) in histories()) {
        let mut world = World::new(&spec);
        for happening in happenings {
            prop_assert_eq!(world.plan(), world.clone().plan());
            world.pass();
            world.control();
            happening.happen(&mut world);
        }
        prop_assert_eq!(world.plan(), world.clone().plan());
    }

    #[test]
    fn no_write_is_one_that_kubernetes_refuses((spec, happenings) in histories()) {
        let mut world = World::new(&spec);
        for happening in happenings {
            // Without settling: steps must be right in the middle of things too.
            world.pass();
            happening.happen(&mut world);
            world.control();
        }
        world.settle();
    }

    #[test]
    fn time_alone_changes_nothing_that_was_not_announced(
        (spec, happenings) in histories(),
        seconds in 1_i64..200,
    ) {
        let mut world = World::new(&spec);
        for happening in happenings {
            world.settle();
            happening.happen(&mut world);
        }
        world.settle();
        let announced = world.plan().look_again;
        let before = world.now();
        world.pass_time(seconds);
        if announced.is_none_or(|announced| announced > world.now()) {
            prop_assert_eq!(world.plan().steps, []);
        }
        prop_assert!(announced.is_none_or(|announced| announced > before));
    }

    #[test]
    fn names_are_legal(
        name in "[a-z]([-a-z0-9]{0,40}[a-z0-9])?",
        (spec, happenings) in histories(),
    ) {
        let mut world = World::named(&name, &spec);
        for happening in happenings {
            world.settle();
            happening.happen(&mut world);
        }
        world.settle();
        for name in world.names() {
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            prop_assert!(name.len() <= 63, "{} is too long", name);
            prop_assert!(name.chars().all(legal), "{} has other characters", name);
            prop_assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{}", name);
            prop_assert!(!name.ends_with('-'), "{}", name);
        }
    }

    #[test]
    fn what_cannot_change_is_replaced_before_the_start_and_refused_after(
        spec in specs(),
        (field, patch) in fixed_fields(),
        phase in proptest::sample::select(&["Pending", "Running", "Ready"][..]),
    ) {
        let mut world = World::new(&spec);
        world.change(&json!({ "suspend": false, "jobLabels": null, "queue": null }));
        world.settle();
        world.lead(Lead::Is(phase));
        world.settle();
        world.change(&patch);
        let (plan, jobs) = (world.plan(), world.jobs_made());
        if phase == "Pending" {
            prop_assert_eq!(plan.steps, [Step::DeleteJob]);
            prop_assert_eq!(plan.hold, None);
            world.settle();
            prop_assert_eq!(world.jobs_made(), jobs + 1);
        } else {
            prop_assert_eq!(plan.steps, []);
            let Some(Hold::Immutable(fields)) = plan.hold else { panic!("{:?}", plan.hold) };
            prop_assert!(fields.iter().any(|named| named == field), "{:?}", fields);
            world.settle();
            prop_assert_eq!(world.jobs_made(), jobs);
            let told = world.condition("Accepted");
            prop_assert_eq!(told.status, "False");
            prop_assert!(told.message.contains(field), "{}", told.message);
        }
    }
}

#[test]
fn more_hosts_than_were_listed_are_a_new_job_before_the_start_and_refused_after() {
    for (phase, jobs) in [("Pending", 2), ("Running", 1)] {
        let mut world = World::new(&json!({ "size": 1, "interactive": true }));
        world.settle();
        world.lead(Lead::Is(phase));
        world.change(&json!({ "size": 2 }));
        world.settle();
        assert_eq!(world.jobs_made(), jobs, "{phase}");
        assert_eq!(world.condition("Accepted").reason == "TooLarge", jobs == 1, "{phase}");
    }
}

#[test]
fn pods_of_a_job_that_was_replaced_are_not_the_new_ones() {
    let mut world = World::new(&json!({ "size": 1, "interactive": true }));
    world.settle();
    world.lead(Lead::Is("Ready"));
    world.settle();
    world.lose("Job");
    world.pass();
    world.pass();
    assert_eq!(world.jobs_made(), 2);
    assert_eq!(world.condition("Ready").reason, "PodsPending");
}

/// Fields that go into a Job's template, each with another value.
fn fixed_fields() -> impl Strategy<Value = (&'static str, Value)> {
    proptest::sample::select(vec![
        ("spec.containers[0].image", json!({ "containers": [{ "image": "other" }] })),
        (
            "spec.containers[0].command",
            json!({ "containers": [{ "image": "busybox", "command": "other" }] }),
        ),
        ("spec.network.headlessName", json!({ "network": { "headlessName": "elsewhere" } })),
        ("spec.tasks", json!({ "tasks": 9 })),
        ("spec.maxSize", json!({ "maxSize": 9 })),
        ("spec.pod.nodeSelector", json!({ "pod": { "nodeSelector": { "a": "b" } } })),
    ])
}

/// Settles, and at every step of the way also a world in which the operator ended
/// right after it: it must come to the same.
fn settle_in_spite_of_crashes(world: &mut World) {
    let mut crashed = Vec::new();
    for _ in 0..World::LONG {
        let steps = world.plan().steps;
        for count in 0..=steps.len() {
            let mut other = world.clone();
            other.carry_out(&steps[..count]);
            crashed.push((steps[..count].to_vec(), other));
        }
        if !world.turn() {
            break;
        }
    }
    world.settle();
    for (done, mut other) in crashed {
        other.settle();
        assert_eq!(other, *world, "a crash after {done:?} left something else");
    }
}
