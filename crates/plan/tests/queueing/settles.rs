//! Properties of every plan, tested on generated histories: a settled job is quiet, it recovers
//! from a crash after any step, and no command is run twice.

use flux_operator_queue::EvictionReason;
use proptest::prelude::*;
use serde_json::json;

use crate::transitions::{Transition, hard_histories, histories};
use crate::world::World;

/// As many cases as run in a few seconds together without optimization.
const CASES: u32 = 40;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn q4_a_settled_job_is_quiet((spec, transitions) in histories()) {
        let mut world = World::new(spec);
        world.settle();
        for happening in transitions {
            happening.apply(&mut world);
            world.settle();
            let settled = world.clone();
            prop_assert_eq!(world.reconcile().steps, []);
            prop_assert_eq!(&world, &settled, "something still changes after {:?}", happening);
        }
    }

    /// Also if the operator is down while things happen, and observes them together.
    #[test]
    fn q4_a_job_recovers_from_a_crash_after_any_step((spec, happenings) in histories(), away in any::<bool>()) {
        let mut world = World::new(spec);
        for happening in happenings {
            if !away {
                settle_in_spite_of_crashes(&mut world);
            }
            happening.apply(&mut world);
        }
        settle_in_spite_of_crashes(&mut world);
    }

    /// Also if its watches lag behind, its steps fail, and its status is refused because the
    /// object has changed: once all of this is over, it settles.
    #[test]
    fn q4_it_settles_after_missed_events_and_failures((spec, happenings) in hard_histories()) {
        let mut world = World::new(spec);
        for happening in happenings {
            happening.apply(&mut world);
            for _ in 0..2 {
                world.reconcile();
                world.control();
            }
        }
        world.settle();
        let settled = world.clone();
        prop_assert_eq!(world.reconcile().steps, []);
        prop_assert_eq!(&world, &settled);
    }

    #[test]
    fn q10_a_command_runs_again_only_after_an_eviction((spec, happenings) in histories()) {
        let mut world = World::new(spec);
        let mut lost = 0;
        for happening in happenings {
            world.settle();
            let before = world.status();
            happening.apply(&mut world);
            world.settle();
            let started = before.start_time.is_some() && before.finish_time.is_none();
            lost += u32::from(started && world.status().start_time.is_none());
            prop_assert!(world.runs() <= lost + 1, "{} runs, {} lost", world.runs(), lost);
        }
    }

    #[test]
    fn q13_nothing_is_left_of_a_finished_job((spec, happenings) in histories()) {
        let mut world = World::new(spec);
        for happening in happenings {
            world.settle();
            happening.apply(&mut world);
        }
        world.settle();
        let Some(job) = world.job() else {
            prop_assert_eq!(world.minicluster(), None);
            return Ok(());
        };
        let finished = job.status.clone().unwrap_or_default().finish_time.is_some();
        if finished && !job.spec.keep_cluster {
            prop_assert_eq!(world.minicluster(), None);
        }
        let workload = world.workload().unwrap();
        prop_assert_eq!(workload.finished, finished);
        prop_assert!(workload.admission.is_some() || finished || world.minicluster().is_none());
    }

    #[test]
    fn q7_time_alone_changes_nothing_that_was_not_announced(
        (spec, happenings) in histories(),
        seconds in 1_i64..200,
    ) {
        let mut world = World::new(spec);
        for happening in happenings {
            world.settle();
            happening.apply(&mut world);
        }
        world.settle();
        let announced = world.decided().requeue_at();
        let before = world.now();
        let settled = world.decided();
        world.pass_time(seconds);
        if announced.is_none_or(|announced| announced > world.now()) {
            let later = world.decided();
            prop_assert_eq!((&later.steps, later.status()), (&settled.steps, settled.status()));
        }
        prop_assert!(announced.is_none_or(|announced| announced > before));
    }
}

/// Whole lives, which random histories seldom contain.
#[test]
fn q4_a_job_recovers_from_a_crash_at_any_time_of_its_life() {
    let suspend = |suspend: bool| Transition::Change(json!({ "suspend": suspend }));
    let runs =
        [Transition::Admit, Transition::Cluster("PodsPending"), Transition::Cluster("Quorum")];
    let evicted = Transition::Evict(EvictionReason::OverQuota);
    for rest in [
        vec![Transition::Ends(0), Transition::Seconds(60)],
        vec![evicted, Transition::Seconds(70), Transition::Admit, Transition::Ends(7)],
        vec![suspend(true), suspend(false), Transition::Admit, Transition::Cluster("Quorum")],
        vec![Transition::LosesItsCluster],
        vec![Transition::Cluster("ReadyTimeout"), Transition::Seconds(70), Transition::Admit],
    ] {
        let mut world = World::new(json!({ "ttlSecondsAfterFinished": 30 }));
        settle_in_spite_of_crashes(&mut world);
        for happening in runs.iter().chain(&rest) {
            happening.apply(&mut world);
            settle_in_spite_of_crashes(&mut world);
        }
    }
}

/// Settles, and for every step on the way also settles a world in which the operator crashed
/// right after it: the result must be the same.
fn settle_in_spite_of_crashes(world: &mut World) {
    let mut crashed = Vec::new();
    for _ in 0..World::MAX_ROUNDS {
        let steps = world.decided().steps;
        for count in 0..=steps.len() {
            let mut other = world.clone();
            other.crash_after(&steps[..count]);
            crashed.push((steps[..count].to_vec(), other.clone()));
            other.control();
            crashed.push((steps[..count].to_vec(), other));
        }
        if !world.round() {
            break;
        }
    }
    world.settle();
    for (done, mut other) in crashed {
        other.settle();
        assert_eq!(
            other.without_versions(),
            world.without_versions(),
            "a crash after {done:?} left something else"
        );
    }
}
