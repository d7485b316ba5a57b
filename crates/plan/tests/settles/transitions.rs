//! Transitions of a cluster.

use flux_operator_plan::FailureKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::queued;
use crate::world::{PodState, World};

/// A transition of a cluster.
#[derive(Clone, Debug)]
pub enum Transition {
    /// The user changes the spec.
    Change(Value),
    /// The pods reach this state.
    Pods(&'static str),
    /// The lead's command finishes with this exit code.
    Ends(i32),
    /// The lead is lost.
    LosesItsLead,
    /// Time passes.
    Seconds(i64),
    /// A user deletes an object.
    Deletes(&'static str),
    /// A user changes an object.
    Spoils(&'static str),
    /// The queue grants this many nodes, or evicts the cluster.
    Queue(Option<i32>),
    /// The lead reports, with or without jobs on the ranks that are to be removed.
    Reports { busy: bool },
    /// The watches stall.
    Stalls,
    /// The watches catch up.
    CatchesUp,
    /// A step of the next reconciliation with steps fails.
    Fails(usize, FailureKind),
}

impl Transition {
    pub fn apply(&self, world: &mut World) {
        match self {
            Transition::Change(patch) => world.change(patch),
            Transition::Pods(phase) => world.set_pods(PodState::Is(phase)),
            Transition::Ends(code) => world.set_pods(PodState::Ended(*code)),
            Transition::LosesItsLead => world.lose_lead(),
            Transition::Seconds(seconds) => world.pass_time(*seconds),
            Transition::Deletes(kind) => world.delete_by_user(kind),
            Transition::Spoils(kind) => world.change_by_user(kind),
            Transition::Queue(Some(granted)) => world.write_status(&queued::admission(*granted)),
            Transition::Queue(None) => world.evict(),
            Transition::Reports { busy } => world.send_report(*busy),
            Transition::Stalls => world.stall(),
            Transition::CatchesUp => world.catch_up(),
            Transition::Fails(step, failure) => world.fail(*step, *failure),
        }
    }
}

/// An initial spec: some of everything that steps depend on.
pub fn specs() -> impl Strategy<Value = Value> {
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

fn transitions() -> impl Strategy<Value = Transition> {
    prop_oneof![
        2 => any::<bool>().prop_map(|busy| Transition::Reports { busy }),
        4 => changes().prop_map(Transition::Change),
        4 => proptest::sample::select(&["Pending", "Running", "Ready"][..])
            .prop_map(Transition::Pods),
        1 => proptest::sample::select(&[0, 1, 7][..]).prop_map(Transition::Ends),
        1 => Just(Transition::LosesItsLead),
        2 => proptest::sample::select(&[1, 15, 31, 100][..]).prop_map(Transition::Seconds),
        1 => proptest::sample::select(&["ConfigMap", "Service", "Job"][..])
            .prop_map(Transition::Deletes),
        2 => proptest::sample::select(&["ConfigMap", "Service", "labels"][..])
            .prop_map(Transition::Spoils),
        2 => proptest::option::weighted(0.8, 1..5).prop_map(Transition::Queue),
    ]
}

/// A spec, and a history.
pub fn histories() -> impl Strategy<Value = (Value, Vec<Transition>)> {
    (specs(), proptest::collection::vec(transitions(), 0..6))
}

/// Longer histories, in which the watches may lag behind and steps may fail.
pub fn hard_histories() -> impl Strategy<Value = (Value, Vec<Transition>)> {
    let failures = proptest::sample::select(
        &[
            FailureKind::Transient,
            FailureKind::Conflict,
            FailureKind::NotOurs,
            FailureKind::Refused,
            FailureKind::Unknown,
        ][..],
    );
    let hard = prop_oneof![
        3 => (0_usize..4, failures).prop_map(|(step, how)| Transition::Fails(step, how)),
        2 => Just(Transition::Stalls),
        2 => Just(Transition::CatchesUp),
        1 => Just(Transition::Deletes("MiniCluster")),
    ];
    // Transitions that make a cluster run and shrink, which takes several in a row.
    let life = prop_oneof![
        4 => Just(Transition::Pods("Ready")),
        2 => (1..3).prop_map(|size| Transition::Change(json!({ "size": size }))),
        2 => any::<bool>().prop_map(|busy| Transition::Reports { busy }),
        1 => Just(Transition::Seconds(300)),
    ];
    let transition = prop_oneof![5 => transitions(), 3 => life, 3 => hard];
    (specs(), proptest::collection::vec(transition, 1..16))
}
