//! Compares decisions about MiniClusters with recorded ones.

use serde_json::{Value, json};

use crate::record::compare;
use crate::transitions::{Transition, hard_histories};
use crate::world::World;

#[test]
fn what_is_decided_is_what_was_recorded() {
    compare("minicluster", include_str!("recorded.txt"), hard_histories(), replay);
}

/// All decisions in a history.
fn replay((spec, transitions): (Value, Vec<Transition>)) -> Value {
    let mut world = World::lenient(&spec);
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
