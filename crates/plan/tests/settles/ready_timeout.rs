//! `readyTimeoutSeconds`: which clusters release their nodes, and which do not.

use serde_json::{Value, json};

use crate::world::{PodState, World};

const LIMIT: i64 = 60;

fn with_command() -> Value {
    let command = json!([{ "image": "busybox", "command": "sleep 7200" }]);
    json!({ "size": 2, "readyTimeoutSeconds": LIMIT, "containers": command })
}

fn interactive() -> Value {
    json!({ "size": 2, "readyTimeoutSeconds": LIMIT, "interactive": true })
}

/// A cluster that was ready for an hour, and whose lead now fails its probes.
fn unready_after_an_hour(spec: &Value) -> World {
    let mut world = World::new(spec);
    world.settle();
    world.set_pods(PodState::Is("Ready"));
    world.settle();
    assert_eq!(world.condition("Ready").status, "True");
    world.pass_time(3600);
    world.set_pods(PodState::Is("Running"));
    world
}

/// Not a second earlier, counted from now.
fn assert_released_after_the_limit(world: &mut World) {
    world.pass_time(LIMIT - 1);
    world.settle();
    assert!(!world.is_suspended(), "it had a second left");
    world.pass_time(1);
    world.settle();
    assert!(world.is_suspended(), "its time was up");
}

#[test]
fn a_cluster_that_never_was_ready_releases_its_nodes() {
    for spec in [with_command(), interactive()] {
        let mut world = World::new(&spec);
        world.settle();
        world.set_pods(PodState::Is("Running"));
        assert_released_after_the_limit(&mut world);
        assert_eq!(world.condition("Ready").reason, "ReadyTimeout");
    }
}

#[test]
fn a_command_that_runs_is_not_stopped_for_missed_probes() {
    let mut world = unready_after_an_hour(&with_command());
    for seconds in [0, LIMIT, 10 * LIMIT] {
        world.pass_time(seconds);
        world.settle();
        assert!(!world.is_suspended(), "after {seconds} more seconds");
    }
    assert_eq!(world.condition("Running").status, "True");
}

#[test]
fn the_timeout_of_a_cluster_without_a_command_counts_from_when_it_became_unready() {
    let mut world = unready_after_an_hour(&interactive());
    world.settle();
    world.pass_time(LIMIT - 1);
    world.settle();
    assert!(!world.is_suspended());
    world.set_pods(PodState::Is("Ready"));
    world.settle();
    world.set_pods(PodState::Is("Running"));
    assert_released_after_the_limit(&mut world);
}

/// The status says that it never was ready; its pod shows otherwise.
#[test]
fn a_restarted_operator_does_not_stop_what_it_has_not_observed_to_start() {
    for spec in [with_command(), interactive()] {
        let mut world = World::new(&spec);
        world.settle();
        world.set_pods(PodState::Is("Running"));
        world.settle();
        world.pass_time(30);
        world.set_pods(PodState::Is("Ready"));
        world.pass_time(3600);
        world.set_pods(PodState::Is("Running"));
        world.settle();
        assert!(!world.is_suspended());
    }
}

#[test]
fn a_lead_that_was_replaced_has_the_whole_time_to_reach_the_quorum() {
    let mut spec = with_command();
    spec["restart"] = json!({ "limit": 1 });
    let mut world = unready_after_an_hour(&spec);
    world.set_pods(PodState::Is("Ready"));
    world.settle();
    world.lose_lead();
    world.set_pods(PodState::Is("Pending"));
    world.settle();
    assert!(!world.is_suspended());
    assert_released_after_the_limit(&mut world);
}
