//! Node-hours and cost.

use flux_operator_api::Burst;
use flux_operator_api::burst::DayUsage;
use flux_operator_plan::bursting::{RawStatus, record_finished, used_today, with_finished};
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::world::World;

#[test]
fn nodes_are_counted_from_their_creation_to_their_end() {
    let mut world = World::new(json!({ "target": { "pricePerNodeHour": "0.5" } }));
    world.settle();
    world.pass(1800);
    world.reconcile(false);
    let status = world.status();
    // Two nodes for half an hour, and the seconds until it was settled.
    assert!((3600..3700).contains(&status.node_seconds), "{status:?}");
    assert_eq!((status.node_hours.as_str(), status.cost.as_str()), ("1.02", "0.51"));
    let (hours, cost) = used_today(None, [world.burst()], world.now);
    assert!((1.0..1.1).contains(&hours) && (0.5..0.55).contains(&cost), "{hours} {cost}");
}

#[test]
fn a_burst_that_is_gone_counts_once_and_for_its_day() {
    let mut world = World::new(json!({ "target": { "pricePerNodeHour": "2" } }));
    world.settle();
    world.pass(3600);
    world.reconcile(false);
    let burst = world.burst().clone();
    let usage: DayUsage = with_finished(None, &burst, world.now);
    let again = with_finished(Some(&usage), &burst, world.now);
    assert_eq!(usage, again, "it may be recorded twice");
    let both = used_today(Some(&usage), [&burst], world.now);
    let alone = used_today(Some(&usage), [], world.now);
    assert_eq!(both, alone, "it is in the record, and still exists");
    assert!(alone.0 > 2.0 && (alone.1 - 2.0 * alone.0).abs() < 1e-9);
    world.pass(86_400);
    assert_eq!(used_today(Some(&usage), [], world.now), (0.0, 0.0), "another day");
}

/// They exist as Bursts for a day, and only the newest are in the policy's record by their uids.
#[test]
fn runs_that_are_over_are_counted_once() {
    let mut world = World::new(json!({ "isolatedJob": "f2b" }));
    world.settle();
    let runs: Vec<Burst> = (0..100)
        .map(|number| {
            let mut burst = world.burst().clone();
            burst.metadata.uid = Some(format!("run-{number}"));
            burst.metadata.finalizers = None;
            let status = json!({ "run": { "state": "Completed" }, "nodeSeconds": 3600,
                "nodeSecondsToday": 3600, "counted": world.now.to_string() });
            burst.status = Some(serde_json::from_value(status).unwrap());
            burst
        })
        .collect();
    let record =
        |usage: Option<DayUsage>, burst| Some(with_finished(usage.as_ref(), burst, world.now));
    let usage = runs.iter().fold(None, record);
    let (hours, _) = used_today(usage.as_ref(), &runs, world.now);
    assert!((hours - 100.0).abs() < 1e-9, "{hours}");
}

#[test]
fn what_is_used_after_the_clock_was_wrong_is_counted_once() {
    let mut world = World::new(json!({}));
    world.settle();
    world.pass(1800);
    world.reconcile(false);
    let before = world.status();
    // The clock was ahead when it was counted last.
    let next_day = world.now + SignedDuration::from_hours(24);
    world.burst.as_mut().unwrap().status.as_mut().unwrap().counted = next_day.to_string();
    let (hours, _) = used_today(None, [world.burst()], world.now);
    assert!((1.0..1.1).contains(&hours), "not since midnight: {hours}");
    for seconds in [0, 1800] {
        world.pass(seconds);
        world.reconcile(false);
        let status = world.status();
        let added = 2 * seconds;
        assert_eq!(status.node_seconds, before.node_seconds + added);
        assert_eq!(status.node_seconds_today, before.node_seconds_today + added);
    }
}

/// A target is not believed.
#[test]
fn no_more_nodes_are_counted_than_were_requested() {
    let scaling = json!({ "target": { "scaling": { "minNodes": 1, "maxNodes": 4 } } });
    for (spec, most) in [(json!({}), 2), (scaling, 4)] {
        let mut world = World::new(spec);
        world.settle();
        for (shown, counted) in [(i32::MAX, most), (1, 1), (i32::MIN, 0)] {
            world.target.nodes = shown;
            let status = world.decide().status;
            assert_eq!(status.counted_nodes, counted, "{shown}");
        }
    }
}

#[test]
fn what_was_used_is_recorded_in_a_policy_that_cannot_be_read() {
    let mut world = World::new(json!({ "target": { "pricePerNodeHour": "2" } }));
    world.settle();
    let burst = world.burst();
    let conditions = json!([{ "of": "another version" }]);
    let raw = |value| serde_json::from_value::<RawStatus>(value).unwrap();
    let shown = |status: &RawStatus| serde_json::to_value(status).unwrap();
    let mut policy = raw(json!({ "nodes": 2, "conditions": conditions }));
    assert!(record_finished(&mut policy, burst, world.now).unwrap());
    let status = shown(&policy);
    let expected = with_finished(None, burst, world.now);
    assert_eq!(status["usage"], serde_json::to_value(expected).unwrap());
    assert_eq!((&status["nodes"], &status["conditions"]), (&json!(2), &conditions));
    assert!(!record_finished(&mut policy, burst, world.now).unwrap(), "it is there already");
    assert_eq!(shown(&policy), status);
    for new in [json!({}), json!({ "usage": null })] {
        let mut new = raw(new);
        assert!(record_finished(&mut new, burst, world.now).unwrap());
        assert_eq!(shown(&new)["usage"], status["usage"]);
    }
    let mut other = raw(json!({ "usage": "of another version" }));
    assert!(record_finished(&mut other, burst, world.now).is_err(), "it is not replaced");
}

#[test]
fn the_status_is_not_written_for_the_seconds_alone() {
    let mut world = World::new(json!({}));
    world.settle();
    let mut writes = 0;
    for _ in 0..50 {
        let before = world.status();
        world.pass(1);
        world.reconcile(false);
        writes += u32::from(world.status() != before);
    }
    assert_eq!(writes, 1, "once in a minute");
}
