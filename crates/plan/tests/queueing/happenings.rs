//! Transitions of a job.

use flux_operator_plan::FailureKind;
use flux_operator_queue::{EvictReason, Reason};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::objects::{no_quota, waits};
use crate::world::World;

/// A transition of a job.
#[derive(Clone, Debug)]
pub enum Happening {
    Change(Value),
    Admit,
    Evict(EvictReason),
    Waits(i64),
    Behind,
    Cluster(&'static str),
    Ends(i32),
    LosesItsCluster,
    /// Another setup has replaced the one that admitted it.
    Replaced(&'static str),
    Seconds(i64),
    /// The administrator changes the setup.
    Setup(Value),
    /// The watches stall.
    Stalls,
    /// The watches catch up.
    CatchesUp,
    /// The next step fails.
    Fails(FailureKind),
}

impl Happening {
    pub fn happen(&self, world: &mut World) {
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
            Happening::Setup(patch) => world.change_setup(patch),
            Happening::Stalls => world.stall(),
            Happening::CatchesUp => world.catch_up(),
            Happening::Fails(failure) => world.fail(*failure),
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
        2 => proptest::sample::select(&[1, 6, 70][..]).prop_map(Happening::Seconds),
    ]
}

/// A spec, and a history.
pub fn histories() -> impl Strategy<Value = (Value, Vec<Happening>)> {
    let replaced = proptest::sample::select(&["new", "newer"][..]).prop_map(Happening::Replaced);
    let happenings = prop_oneof![20 => happenings(), 1 => replaced];
    (specs(), proptest::collection::vec(happenings, 0..10))
}

/// Longer histories, in which the watches may lag behind and steps may fail.
pub fn hard_histories() -> impl Strategy<Value = (Value, Vec<Happening>)> {
    let failures = proptest::sample::select(
        &[FailureKind::Transient, FailureKind::NotOurs, FailureKind::Refused, FailureKind::Unknown]
            [..],
    );
    let hard = prop_oneof![
        3 => failures.prop_map(Happening::Fails),
        2 => Just(Happening::Stalls),
        2 => Just(Happening::CatchesUp),
        1 => (0..2).prop_map(|limit| {
            Happening::Setup(json!({ "requeue": { "limit": limit, "baseSeconds": 1 } }))
        }),
    ];
    let happenings = prop_oneof![5 => happenings(), 2 => hard];
    (specs(), proptest::collection::vec(happenings, 1..20))
}
