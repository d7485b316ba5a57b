//! Transitions of a cluster.

use flux_operator_plan::FailureKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::queued;
use crate::world::{Lead, World};

/// A transition of a cluster.
#[derive(Clone, Debug)]
pub enum Happening {
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

impl Happening {
    pub fn happen(&self, world: &mut World) {
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
            Happening::Reports { busy } => world.reports(*busy),
            Happening::Stalls => world.stall(),
            Happening::CatchesUp => world.catch_up(),
            Happening::Fails(step, failure) => world.fail(*step, *failure),
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

fn happenings() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => any::<bool>().prop_map(|busy| Happening::Reports { busy }),
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

/// A spec, and a history.
pub fn histories() -> impl Strategy<Value = (Value, Vec<Happening>)> {
    (specs(), proptest::collection::vec(happenings(), 0..6))
}

/// Longer histories, in which the watches may lag behind and steps may fail.
pub fn hard_histories() -> impl Strategy<Value = (Value, Vec<Happening>)> {
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
        3 => (0_usize..4, failures).prop_map(|(step, how)| Happening::Fails(step, how)),
        2 => Just(Happening::Stalls),
        2 => Just(Happening::CatchesUp),
        1 => Just(Happening::Deletes("MiniCluster")),
    ];
    // Transitions that make a cluster run and shrink, which takes several in a row.
    let life = prop_oneof![
        4 => Just(Happening::Pods("Ready")),
        2 => (1..3).prop_map(|size| Happening::Change(json!({ "size": size }))),
        2 => any::<bool>().prop_map(|busy| Happening::Reports { busy }),
        1 => Just(Happening::Seconds(300)),
    ];
    let happenings = prop_oneof![5 => happenings(), 3 => life, 3 => hard];
    (specs(), proptest::collection::vec(happenings, 1..16))
}
