//! Runs in an instance of their own, in a Kubernetes cluster that is made for them.

use flux_operator_api::burst::RunState;
use flux_operator_plan::bursting::Presence;
use flux_operator_wire::HomeJobState;
use k8s_openapi::jiff::SignedDuration;

use super::run::Run;

#[test]
fn a_cluster_that_is_made_for_a_run_is_deleted_after_it() {
    let mut run = Run::with_made_cluster();
    run.settle();
    assert_eq!((run.started, run.saved, run.finished), (1, 1, 1));
    assert_eq!((run.run().exit_code, run.home), (Some(7), HomeJobState::Finished));
    assert_eq!(run.presence, Presence::Nothing);
    assert!(!run.burst().status.as_ref().unwrap().cluster_made);
}

#[test]
fn the_cluster_of_a_run_counts_until_it_is_deleted() {
    let mut run = Run::with_made_cluster();
    let mut counted = Vec::new();
    for _ in 0..60 {
        let is_there = matches!(run.presence, Presence::ClusterReady | Presence::Complete);
        let state = run.run().state;
        run.reconcile(None);
        if is_there {
            counted.push((state, run.burst().status.as_ref().unwrap().counted_nodes));
        }
    }
    assert!(counted.iter().any(|(state, _)| *state == RunState::Finishing), "{counted:?}");
    assert!(counted.iter().all(|(_, nodes)| *nodes == 9), "{counted:?}");
    assert_eq!(run.burst().status.as_ref().unwrap().counted_nodes, 0);
}

/// A cluster that is made for a run need not answer when it is deleted.
#[test]
fn a_run_is_not_started_again_when_its_cluster_does_not_say_whether_it_was() {
    for before in 0..20 {
        let mut run = Run::with_made_cluster();
        run.takes = 1000;
        for _ in 0..before {
            run.reconcile(None);
        }
        run.delete();
        // It may answer again for a minute.
        (0..3).for_each(|_| run.settle());
        assert!(run.burst.is_none());
        assert_eq!(run.presence, Presence::Nothing, "{before}");
        let waits = run.home == HomeJobState::Pending;
        assert!(run.started == 0 || !waits, "{before}: it would run again");
        assert!(before > 2 || waits, "{before}: nothing was made yet");
    }
}

/// Its pods never started: it waits at home as before, and the target is not tried again for a while.
#[test]
fn a_job_that_has_not_started_in_a_cluster_that_was_made_for_it_is_not_canceled() {
    for inside_answers in [true, false] {
        let mut run = Run::with_made_cluster();
        (run.has_no_nodes, run.inside_answers) = (true, inside_answers);
        run.settle();
        assert_eq!((&run.presence, run.run().state), (&Presence::Complete, RunState::Starting));
        run.delete();
        let mut last = run.run();
        for _ in 0..120 {
            run.reconcile(None);
            last = run.burst.as_ref().map_or(last, |burst| burst.run().cloned().unwrap());
        }
        assert!(run.burst.is_none());
        assert_eq!(run.presence, Presence::Nothing);
        let expected = if inside_answers { HomeJobState::Pending } else { HomeJobState::Finished };
        assert_eq!((run.home, last.started_at.as_str()), (expected, ""), "it was not observed");
    }
}

/// One look at a cluster without its kubeconfig says nothing about the run.
#[test]
fn a_cluster_without_its_kubeconfig_for_a_moment_does_not_end_a_run() {
    let mut run = Run::with_made_cluster();
    run.takes = 100;
    run.settle();
    assert_eq!(run.run().state, RunState::Running);
    run.lapses = true;
    run.settle();
    assert_eq!((run.run().state, run.home), (RunState::Running, HomeJobState::Held));
    run.lapses = false;
    run.now += SignedDuration::from_secs(100);
    run.reconcile(None);
    assert_eq!(run.run().state, RunState::Finishing);
    run.lapses = true;
    run.settle();
    assert!(!run.run().output_settled, "the output may still be read");
    run.lapses = false;
    run.settle();
    assert_eq!((run.run().state, run.saved, run.started), (RunState::Failed, 1, 1));
}
