//! Runs in an instance of their own: what becomes of the job at home, and with its MiniCluster.

use flux_operator_api::burst::RunState;
use flux_operator_plan::bursting::{HomeAnswer, Presence};
use flux_operator_wire::HomeJobState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::run::Run;
use super::world::start;

/// Its nodes cost. Only the job at home waits until the MiniCluster can be read.
#[test]
fn a_run_goes_on_while_its_minicluster_cannot_be_read() {
    let mut run = Run::new(0);
    run.takes = 100;
    run.settle();
    run.is_unreadable = true;
    run.now += SignedDuration::from_secs(100);
    run.settle();
    assert_eq!((run.run().exit_code, run.saved), (Some(7), 1));
    assert_eq!((run.run().state, &run.presence), (RunState::Finishing, &Presence::Nothing));
    run.is_unreadable = false;
    run.settle();
    assert_eq!((run.run().state, run.home), (RunState::Failed, HomeJobState::Finished));
}

#[test]
fn a_result_waits_for_the_lead_to_be_there_again() {
    let mut run = Run::new(0);
    run.takes = 30;
    for _ in 0..10 {
        run.reconcile(None);
    }
    run.silence = Some(HomeAnswer::NoAnswer("the lead does not answer".into()));
    run.settle();
    run.now += SignedDuration::from_secs(5000);
    run.settle();
    assert_eq!(run.run().state, RunState::Finishing);
    assert_eq!(run.burst().status.as_ref().unwrap().phase, "LenderNotReady");
    assert_eq!((run.saved, &run.presence), (1, &Presence::Nothing), "what costs is not kept");
    run.silence = None;
    run.settle();
    assert_eq!((run.run().state, run.home), (RunState::Failed, HomeJobState::Finished));
}

#[test]
fn a_run_whose_minicluster_is_deleted_is_given_back() {
    let mut run = Run::new(0);
    run.takes = 1000;
    run.settle();
    run.world.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(run.now));
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!((run.presence, run.finished), (Presence::Nothing, 1));
}

/// The next one restores its jobs from the archive: the job would run again.
#[test]
fn a_job_is_canceled_before_a_minicluster_with_an_archive_is_deleted() {
    let mut run = Run::new(16);
    run.takes = 1000;
    run.settle();
    let cluster = run.world.cluster.as_mut().unwrap();
    cluster.spec.archive = serde_json::from_value(json!({ "path": "/state.tgz" })).unwrap();
    cluster.metadata.deletion_timestamp = Some(Time(run.now));
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!((run.home, run.started), (HomeJobState::Finished, 1));
    assert!(run.message.starts_with("ran as Burst b at target away"), "{}", run.message);
}

/// The job of this number is another one.
#[test]
fn nothing_is_asked_of_another_minicluster_of_the_same_name() {
    let mut run = Run::new(16);
    run.takes = 1000;
    run.settle();
    run.home = HomeJobState::Pending;
    run.world.cluster.as_mut().unwrap().metadata.uid = Some("other".into());
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!((run.home, run.message.as_str()), (HomeJobState::Pending, ""));
}

/// Its archive has the job: it would run again when it is resumed.
#[test]
fn a_job_of_a_suspended_minicluster_with_an_archive_is_canceled_when_it_is_resumed() {
    let mut run = Run::new(16);
    run.takes = 1000;
    run.settle();
    let spec = &mut run.world.cluster.as_mut().unwrap().spec;
    spec.archive = serde_json::from_value(json!({ "path": "/state.tgz" })).unwrap();
    spec.suspend = true;
    run.silence = Some(HomeAnswer::NoAnswer("there is no lead".into()));
    run.settle();
    assert_eq!((&run.presence, run.finished), (&Presence::Nothing, 0), "nothing is left there");
    run.world.cluster.as_mut().unwrap().spec.suspend = false;
    run.silence = None;
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!((run.home, run.started), (HomeJobState::Finished, 1));
}

#[test]
fn a_job_is_left_as_it_is_only_if_its_minicluster_is_over() {
    type Change = fn(&mut Run);
    let cases: [(&str, Change, bool); 8] = [
        ("unreadable", |run| run.is_unreadable = true, false),
        ("suspended", |run| run.world.cluster.as_mut().unwrap().spec.suspend = true, false),
        ("archived", |run| finish_home(run, json!({ "path": "/state.tgz" })), false),
        ("finished", |run| finish_home(run, Value::Null), true),
        ("deleted", |run| run.world.cluster = None, true),
        ("being deleted", |run| delete_home(run, Value::Null), true),
        ("archived, being deleted", |run| delete_home(run, json!({ "path": "/state.tgz" })), true),
        (
            "another one",
            |run| run.world.cluster.as_mut().unwrap().metadata.uid = Some("other".into()),
            true,
        ),
    ];
    for (name, change, is_settled) in cases {
        let mut run = Run::new(16);
        run.takes = 1000;
        run.settle();
        run.delete();
        change(&mut run);
        run.silence = Some(HomeAnswer::NoAnswer("there is no lead".into()));
        for _ in 0..10 {
            if run.run().state == RunState::Finishing && run.run().home_settled {
                break;
            }
            run.reconcile(None);
        }
        assert_eq!(run.run().home_settled, is_settled, "{name}");
    }
}

fn delete_home(run: &mut Run, archive: Value) {
    let cluster = run.world.cluster.as_mut().unwrap();
    cluster.spec.archive = serde_json::from_value(archive).unwrap();
    cluster.metadata.deletion_timestamp = Some(Time(run.now));
}

fn finish_home(run: &mut Run, archive: Value) {
    let cluster = run.world.cluster.as_mut().unwrap();
    cluster.spec.archive = serde_json::from_value(archive).unwrap();
    let finished = json!([{ "type": "JobFinished", "status": "True", "reason": "Completed",
        "message": "", "lastTransitionTime": start().to_string() }]);
    let mut status = cluster.status.clone().unwrap_or_default();
    status.conditions = serde_json::from_value(finished).unwrap();
    cluster.status = Some(status);
}

/// Only a job that was never to be held is left as it is.
#[test]
fn a_job_that_may_be_held_is_released_although_nobody_answers_for_a_while() {
    let failed = HomeAnswer::Failed("the operator does not respond".into());
    let no_answer = HomeAnswer::NoAnswer("the lead does not answer".into());
    for (silence, wait, was_ordered, is_settled) in [
        (failed.clone(), 600, false, false),
        (failed.clone(), 4000, false, true),
        (failed, 4000, true, false),
        (no_answer.clone(), 0, false, true),
        (no_answer, 4000, true, false),
        (HomeAnswer::Awaited, 4000, true, false),
    ] {
        let mut run = Run::new(16);
        for _ in 0..if was_ordered { 2 } else { 1 } {
            run.reconcile(None);
        }
        assert_eq!((run.run().state, run.run().urgency), (RunState::Holding, None));
        assert_eq!(run.run().hold_ordered, was_ordered);
        if was_ordered {
            run.home = HomeJobState::Held;
        }
        run.delete();
        run.silence = Some(silence);
        run.reconcile(None);
        run.now += SignedDuration::from_secs(wait);
        run.settle();
        assert_eq!(run.burst.is_none(), is_settled, "{wait}");
        run.silence = None;
        run.settle();
        assert_eq!((run.burst.is_none(), run.home), (true, HomeJobState::Pending));
    }
}

/// The lead has held it, and goes down before it says so.
#[test]
fn a_job_whose_lead_is_lost_after_it_was_held_is_released_when_there_is_one_again() {
    for is_late in [false, true] {
        let mut run = Run::new(16);
        run.silence = Some(HomeAnswer::NoAnswer("the lead does not answer".into()));
        run.loses_answers = true;
        run.settle();
        assert_eq!((run.home, run.run().urgency), (HomeJobState::Held, None));
        run.loses_answers = false;
        match is_late {
            true => run.now += SignedDuration::from_secs(1000),
            false => run.delete(),
        }
        run.settle();
        run.now += SignedDuration::from_secs(5000);
        run.settle();
        assert_eq!(run.run().state, RunState::Finishing, "it has to be released");
        assert_eq!(run.burst().status.as_ref().unwrap().phase, "LenderNotReady");
        run.silence = None;
        run.settle();
        assert!(run.burst.is_none());
        assert_eq!((run.home, run.started), (HomeJobState::Pending, 0));
    }
}

/// A user may release it, and it must not start there too.
#[test]
fn a_job_is_held_at_home_until_it_is_canceled() {
    let mut run = Run::new(16);
    run.takes = 20;
    let mut states = Vec::new();
    for _ in 0..60 {
        let state = run.run().state;
        if state == RunState::Running || !run.run().output_settled && run.run().may_have_run {
            states.push(state);
            run.home = HomeJobState::Pending;
            run.reconcile(None);
            assert_ne!(run.home, HomeJobState::Pending, "{state:?}");
        } else {
            run.reconcile(None);
        }
    }
    states.dedup();
    assert_eq!(states, [RunState::Starting, RunState::Running, RunState::Finishing]);
    assert_eq!(run.home, HomeJobState::Finished);
}
