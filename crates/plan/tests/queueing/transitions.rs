//! Transitions of a job.

use flux_operator_plan::FailureKind;
use flux_operator_queue::{EvictionReason, WaitReason};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::objects::{no_quota, waits};
use crate::world::World;

/// A transition of a job.
#[derive(Clone, Debug)]
pub enum Transition {
    Change(Value),
    Admit,
    Evict(EvictionReason),
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

impl Transition {
    pub fn apply(&self, world: &mut World) {
        match self {
            Transition::Change(patch) => world.change(patch),
            Transition::Admit => world.admit(2),
            Transition::Evict(reason) => world.evict(*reason),
            Transition::Waits(missing) => world.wait(no_quota(*missing)),
            Transition::Behind => world.wait(waits(WaitReason::BehindOthers { job: "a".into() })),
            Transition::Cluster(reason) => world.cluster(reason),
            Transition::Ends(code) => world.finish(*code),
            Transition::LosesItsCluster => world.lose_cluster(),
            Transition::Replaced(name) => world.replace_setup(name),
            Transition::Seconds(seconds) => world.pass_time(*seconds),
            Transition::Setup(patch) => world.change_setup(patch),
            Transition::Stalls => world.stall(),
            Transition::CatchesUp => world.catch_up(),
            Transition::Fails(failure) => world.fail(*failure),
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

fn transitions() -> impl Strategy<Value = Transition> {
    let reasons = vec![EvictionReason::OverQuota, EvictionReason::QueueStopped];
    prop_oneof![
        3 => changes().prop_map(Transition::Change),
        5 => Just(Transition::Admit),
        2 => proptest::sample::select(reasons).prop_map(Transition::Evict),
        1 => (1_i64..4).prop_map(Transition::Waits),
        1 => Just(Transition::Behind),
        4 => proptest::sample::select(&["PodsPending", "ReadyTimeout", "Quorum"][..])
            .prop_map(Transition::Cluster),
        1 => proptest::sample::select(&[0, 7][..]).prop_map(Transition::Ends),
        1 => Just(Transition::LosesItsCluster),
        2 => proptest::sample::select(&[1, 6, 70][..]).prop_map(Transition::Seconds),
    ]
}

/// A spec, and a history.
pub fn histories() -> impl Strategy<Value = (Value, Vec<Transition>)> {
    let replaced = proptest::sample::select(&["new", "newer"][..]).prop_map(Transition::Replaced);
    let transition = prop_oneof![20 => transitions(), 1 => replaced];
    (specs(), proptest::collection::vec(transition, 0..10))
}

/// Longer histories, in which the watches may lag behind and steps may fail.
pub fn hard_histories() -> impl Strategy<Value = (Value, Vec<Transition>)> {
    let failures = proptest::sample::select(
        &[FailureKind::Transient, FailureKind::NotOurs, FailureKind::Refused, FailureKind::Unknown]
            [..],
    );
    let hard = prop_oneof![
        3 => failures.prop_map(Transition::Fails),
        2 => Just(Transition::Stalls),
        2 => Just(Transition::CatchesUp),
        1 => (0..2).prop_map(|limit| {
            Transition::Setup(json!({ "requeue": { "limit": limit, "baseSeconds": 1 } }))
        }),
    ];
    let happenings = prop_oneof![5 => transitions(), 2 => hard];
    (specs(), proptest::collection::vec(happenings, 1..20))
}
