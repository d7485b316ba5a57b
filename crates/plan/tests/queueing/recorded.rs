//! Compares decisions about FluxJobs and FluxSetups with recorded ones.

use std::collections::BTreeMap;

use flux_operator_plan::queueing::setup::{
    FINALIZER, ObservedSetup, QueuedSetup, SetupContext, decide, read,
};
use flux_operator_plan::{Outcome, Step};
use flux_operator_queue::{Inactive, InactiveReason, SetupName, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::objects::{CREATED, after, nodes, setup};
use crate::record::compare;
use crate::transitions::{Transition, hard_histories};
use crate::world::World;

#[test]
fn what_is_decided_about_a_job_is_what_was_recorded() {
    compare("fluxjob", include_str!("recorded_jobs.txt"), hard_histories(), replay);
}

/// All decisions in a history.
fn replay((spec, transitions): (Value, Vec<Transition>)) -> Value {
    let mut world = World::lenient(spec.clone());
    let mut said = Vec::new();
    for happening in &transitions {
        happening.apply(&mut world);
        for _ in 0..2 {
            said.push(world.reconcile().recording);
            world.control();
        }
    }
    json!({ "spec": spec, "happenings": format!("{transitions:?}"), "said": said })
}

#[test]
fn what_is_decided_about_a_setup_is_what_was_recorded() {
    compare("fluxsetup", include_str!("recorded_setups.txt"), setups(), decided);
}

/// A moment in the life of a setup: a change of its manifest, its state in the queue, and
/// seconds since its creation.
type Moment = (Value, (usize, usize, usize), bool, bool, i64);

fn setups() -> impl Strategy<Value = Vec<Moment>> {
    let parts = vec![
        json!({ "metadata": { "finalizers": [FINALIZER] } }),
        json!({ "metadata": { "finalizers": ["other.example/a", FINALIZER] } }),
        json!({ "metadata": { "deletionTimestamp": CREATED } }),
        json!({ "metadata": { "generation": 2 } }),
        json!({ "spec": { "replaces": ["old"] } }),
        json!({ "spec": { "cohort": "all" } }),
        json!({ "spec": { "quota": { "cpu": "8", "memory": "4Gi" } } }),
        json!({ "spec": { "quota": { "nodes": "many" } } }),
        json!({ "spec": { "stopPolicy": "HoldAndDrain" } }),
        json!({ "spec": { "quotaFromNodes": { "nodeSelector": { "a": "b" } } } }),
    ];
    let patch = proptest::sample::subsequence(parts, 0..5).prop_map(|parts| {
        let mut patch = json!({});
        parts.iter().for_each(|part| flux_operator_testkit::merge(&mut patch, part));
        patch
    });
    let counts = (0_usize..3, 0_usize..3, 0_usize..3);
    let moment = (patch, counts, any::<bool>(), any::<bool>(), 0_i64..100);
    proptest::collection::vec(moment, 1..4)
}

/// All decisions about a setup, with its status kept from moment to moment.
fn decided(moments: Vec<Moment>) -> Value {
    let mut status = Value::Null;
    let mut said = Vec::new();
    for (patch, (pending, admitted, running), stopped, replaced, seconds) in &moments {
        let mut patch = patch.clone();
        patch["status"] = status;
        let setup = setup(patch);
        let around = SetupContext {
            operator_namespace: "hpc",
            namespaces: &BTreeMap::new(),
            node_capacity: None,
        };
        let read = read(&setup, around);
        let message = "it is stopped".to_owned();
        let usage = Usage {
            used: nodes(i64::try_from(*admitted).unwrap()),
            pending: *pending,
            admitted: *admitted,
            inactive: stopped.then_some(Inactive { reason: InactiveReason::Stopped, message }),
            is_needed: false,
            successor: replaced.then(|| SetupName::new("hpc", "new")),
        };
        let now = after(*seconds);
        let queue = QueuedSetup { rules: &read, usage: &usage, running: *running };
        let decision = decide(ObservedSetup { setup: &setup, queue: Some(queue), now });
        let step = decision.steps.first().map(|step| match step {
            Step::DeleteSelf => "Delete",
            Step::PatchSelf(patch) if patch.to_string().contains(FINALIZER) => "Keep",
            Step::PatchSelf(_) => "Release",
            other => panic!("{other:?} is not for a setup"),
        });
        status = json!(decision.conclude(&Outcome::all(&decision.steps)).status);
        said.push(json!({ "step": step, "status": status }));
    }
    json!({ "moments": format!("{moments:?}"), "said": said })
}
