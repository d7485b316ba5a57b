//! A run in an instance of its own: what becomes of it and of the job at home, also if the controller
//! is killed before any step.

use flux_operator_api::Reason;
use flux_operator_api::burst::RunState;
use flux_operator_plan::bursting::{Presence, RECORD_SECONDS, burst_events, output_name};
use flux_operator_wire::{HomeJobState, JobRefusal};
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use super::run::{JOBSPEC, Run};
use super::world::{failure, start};

#[test]
fn a_job_runs_once_and_its_exit_code_comes_back() {
    let mut run = Run::new(0);
    run.settle();
    assert_eq!((run.started, run.saved, run.finished), (1, 1, 1));
    assert_eq!(run.home, HomeJobState::Finished);
    assert_eq!(run.message, "ran as Burst b at target away: exit code 7");
    let found = run.run();
    assert_eq!((found.state, found.exit_code), (RunState::Failed, Some(7)));
    assert_eq!(found.output, output_name(run.burst()));
    assert_eq!(run.presence, Presence::Nothing);
    assert_eq!(run.burst().metadata.finalizers, None, "a record can be deleted at once");
    assert_eq!(run.reason("Finished"), "True CommandFailed");
    assert_eq!(run.burst().status.as_ref().unwrap().phase, "Failed");
}

#[test]
fn a_record_is_quiet_and_is_deleted_after_a_day() {
    let mut run = Run::new(0);
    run.exit.exit_code = Some(0);
    run.settle();
    let before = run.burst().status.clone();
    assert_eq!(run.run().state, RunState::Completed);
    run.now += SignedDuration::from_secs(RECORD_SECONDS - 100);
    run.reconcile(None);
    assert_eq!(run.burst().status, before);
    run.now += SignedDuration::from_secs(200);
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!(run.started, 1);
}

#[test]
fn a_job_that_is_not_portable_waits_at_home_with_the_reason() {
    let mut run = Run::new(16);
    run.jobspec = JOBSPEC.replace("\"duration\": 0", "\"duration\": 0, \"dw\": \"x\"");
    run.settle();
    assert_eq!(run.run().state, RunState::Refused);
    assert_eq!(run.reason("Prepared"), "False NotPortable");
    assert!(run.run().message.contains("use another file system"), "{}", run.run().message);
    assert_eq!((run.started, run.home), (0, HomeJobState::Pending), "it is not held any more");
}

/// Only the lead knows that.
#[test]
fn a_job_that_the_lead_refuses_to_hand_over_waits_at_home_with_the_reason() {
    for (refusal, urgency, message) in [
        (JobRefusal::OtherUser, 16, "another user than the owner of the instance"),
        (JobRefusal::OtherUser, 0, "another user than the owner of the instance"),
        (JobRefusal::NotUpdatable, 0, "its jobspec was changed, as flux update does"),
    ] {
        let mut run = Run::new(urgency);
        let before = run.home;
        run.refusal = Some(refusal);
        run.settle();
        assert_eq!(run.run().state, RunState::Refused);
        assert_eq!(run.reason("Prepared"), "False NotPortable");
        assert!(run.run().message.contains(message), "{}", run.run().message);
        assert_eq!((run.started, run.home), (0, before));
    }
}

/// It may run at the target already.
#[test]
fn a_job_that_is_refused_after_it_may_have_been_started_is_not_released_before_that_is_known() {
    let mut run = Run::new(16);
    run.has_no_nodes = true;
    run.settle();
    assert!(run.run().may_have_run);
    run.refusal = Some(JobRefusal::NotUpdatable);
    // Its Job is not shown yet.
    run.presence = Presence::Nothing;
    run.burst.as_mut().unwrap().status.as_mut().unwrap().conditions.clear();
    run.reconcile(None);
    assert!(run.run().may_have_run);
    assert!(run.burst().metadata.deletion_timestamp.is_some());
}

/// Flux at the target would refuse it, and the job at home would be canceled.
#[test]
fn a_job_for_which_a_burst_is_too_small_waits_at_home_with_the_reason() {
    let cores = |count: u32| format!("{{\"type\": \"core\", \"count\": {count}}}");
    let gpu = format!("{}, {{\"type\": \"gpu\", \"count\": 1}}", cores(2));
    let on_nodes = |slot: &str| JOBSPEC.replace(&cores(1), slot);
    // Eight tasks of two cores each, on any nodes.
    let anywhere = on_nodes(&cores(2))
        .replace("{\"type\": \"node\", \"count\": 9, \"with\": [", "")
        .replace("\"slot\", \"count\": 1", "\"slot\", \"count\": 8")
        .replace("]}]}], \"tasks\"", "]}], \"tasks\"");
    let nodes = |needed: u32, has: u32| {
        format!(
            "it needs {needed} nodes, and its Burst has {has}: request a Burst with {needed} nodes"
        )
    };
    let shape = |cores: u32, gpus: u32, has: &str| {
        format!(
            "it needs {cores} cores and {gpus} GPUs on one node, and a node of target \"away\" has {has}: \
             request a Burst at another target, or correct cores and gpus of this one"
        )
    };
    for (jobspec, burst_nodes, of_node, message) in [
        (on_nodes(&cores(2)), 8, (0, None), nodes(9, 8)),
        (on_nodes(&cores(2)), 9, (0, None), String::new()),
        (on_nodes(&cores(2)), 9, (2, None), String::new()),
        (on_nodes(&cores(2)), 9, (1, None), shape(2, 0, "1 and enough")),
        (on_nodes(&gpu), 9, (2, Some(0)), shape(2, 1, "2 and 0")),
        (on_nodes(&gpu), 9, (2, Some(1)), String::new()),
        (anywhere.clone(), 2, (4, None), nodes(4, 2)),
        (anywhere.clone(), 4, (5, None), String::new()),
        (anywhere, 9, (1, None), shape(2, 0, "1 and enough")),
    ] {
        let mut run = Run::new(16);
        let spec = &mut run.burst.as_mut().unwrap().spec;
        (spec.nodes, (spec.target.cores, spec.target.gpus)) = (burst_nodes, of_node);
        run.jobspec = jobspec;
        run.settle();
        if message.is_empty() {
            assert_eq!(run.started, 1, "{}", run.jobspec);
            continue;
        }
        assert_eq!((run.run().state, run.run().message), (RunState::Refused, message));
        assert_eq!((run.started, run.home), (0, HomeJobState::Pending));
    }
}

#[test]
fn a_job_that_starts_or_finishes_at_home_meanwhile_is_not_run() {
    for state in [HomeJobState::Started, HomeJobState::Finished, HomeJobState::Missing] {
        let mut run = Run::new(16);
        run.home = state;
        run.settle();
        assert!(run.burst.is_none(), "{:?}", run.run());
        assert_eq!((run.started, run.home), (0, state));
    }
}

/// Flux was about to start it when it was held.
#[test]
fn a_job_that_starts_at_home_before_it_does_at_the_target_is_not_run_there() {
    for state in [HomeJobState::Started, HomeJobState::Finished] {
        let mut run = Run::new(16);
        run.has_no_nodes = true;
        run.settle();
        assert_eq!((run.run().state, &run.presence), (RunState::Starting, &Presence::Complete));
        run.home = state;
        run.settle();
        assert!(run.burst.is_none(), "{:?}", run.run());
        assert_eq!((run.started, run.home), (0, state));
        assert_eq!(run.presence, Presence::Nothing);
    }
}

#[test]
fn a_target_that_has_no_nodes_is_given_up_and_the_job_waits_as_before() {
    for urgency in [0, 16] {
        let mut run = Run::new(urgency);
        run.has_no_nodes = true;
        run.settle();
        assert_eq!(run.run().state, RunState::Starting);
        run.now += SignedDuration::from_secs(1000);
        run.settle();
        assert!(run.burst.is_none());
        let expected = if urgency == 0 { HomeJobState::Held } else { HomeJobState::Pending };
        assert_eq!((run.started, run.home), (0, expected));
        assert_eq!(run.presence, Presence::Nothing);
    }
}

/// It starts at the very moment at which it is given up.
#[test]
fn a_job_that_starts_while_it_is_given_up_is_not_run_again() {
    let mut run = Run::new(0);
    run.has_no_nodes = true;
    run.settle();
    run.delete();
    run.lingers = true;
    run.starts_late = true;
    run.settle();
    run.lingers = false;
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!((run.started, run.home), (1, HomeJobState::Finished));
    let message = "ran as Burst b at target away: it was given back before it had finished";
    assert_eq!(run.message, message);
}

/// A token that has expired, or a quota: it is tried again before it is lost.
#[test]
fn an_output_that_cannot_be_read_or_saved_for_a_while_is_not_lost() {
    for (reason, wait, is_saved) in [
        (Reason::CredentialsRefused, 100, true),
        (Reason::LenderNotReady, 100, true),
        (Reason::CredentialsRefused, 700, false),
    ] {
        let mut run = Run::new(0);
        run.no_output = failure(reason);
        run.settle();
        assert_eq!((run.run().state, &run.presence), (RunState::Finishing, &Presence::Complete));
        let condition =
            if reason == Reason::LenderNotReady { "GivingBack" } else { "CredentialsAccepted" };
        assert!(run.reason(condition).ends_with(&reason.to_string()), "{}", run.reason(condition));
        run.now += SignedDuration::from_secs(wait);
        run.no_output = run.no_output.filter(|_| !is_saved);
        run.now += SignedDuration::from_secs(100);
        run.settle();
        assert_eq!((run.run().state, run.saved), (RunState::Failed, usize::from(is_saved)));
        assert_eq!(run.run().message.contains("its output is lost"), !is_saved);
        assert_eq!(run.message, "ran as Burst b at target away: exit code 7");
    }
}

#[test]
fn a_run_is_stopped_when_its_lifetime_is_over_and_its_output_is_saved() {
    let mut run = Run::new(0);
    run.takes = 10_000;
    run.settle();
    run.now += SignedDuration::from_secs(3600);
    run.settle();
    assert_eq!((run.run().state, run.run().exit_code), (RunState::Failed, None));
    assert_eq!(
        (run.saved, run.home, &run.presence),
        (1, HomeJobState::Finished, &Presence::Nothing)
    );
    assert_eq!(run.message, "ran as Burst b at target away: its lifetime is over");
    assert_eq!(run.run().output, output_name(run.burst()));
}

/// The policy would create no other one, because that has the same name.
#[test]
fn a_policys_burst_that_has_left_the_job_to_another_one_is_deleted_at_once() {
    let mut run = Run::new(16);
    let record = json!({ "run": { "state": "Yielded", "finishedAt": start().to_string() } });
    run.burst.as_mut().unwrap().status = Some(serde_json::from_value(record).unwrap());
    let mut of_user = Run::new(16);
    of_user.burst.clone_from(&run.burst);
    of_user.burst.as_mut().unwrap().metadata.owner_references = None;
    of_user.burst.as_mut().unwrap().spec.policy.clear();
    run.reconcile(None);
    of_user.settle();
    assert!(run.burst.is_none());
    assert_eq!(of_user.run().state, RunState::Yielded, "a user sees why");
}

/// The kubelet had no capacity for the lead, or its node was reclaimed, and Kubernetes does not start it
/// again.
#[test]
fn a_job_whose_lead_was_lost_before_it_was_started_waits_at_home_as_before() {
    let mut run = Run::new(16);
    run.never_starts = true;
    run.settle();
    assert!(run.burst.is_none());
    assert_eq!((&run.presence, run.started), (&Presence::Nothing, 0));
    assert_eq!((run.home, run.message.as_str()), (HomeJobState::Pending, ""));
}

#[test]
fn a_run_that_is_lost_has_failed_and_is_not_started_again() {
    let mut run = Run::new(0);
    run.takes = 1000;
    run.settle();
    assert_eq!(run.run().state, RunState::Running);
    run.presence = Presence::Nothing;
    run.settle();
    assert_eq!((run.run().state, run.started), (RunState::Failed, 1));
    assert_eq!(run.reason("Finished"), "True JobFailed");
    assert!(run.message.contains("it was lost"), "{}", run.message);
}

#[test]
fn a_target_that_does_not_respond_does_not_end_a_run() {
    let mut run = Run::new(0);
    run.takes = 500;
    run.settle();
    run.failure = failure(flux_operator_api::Reason::TargetUnreachable);
    run.settle();
    assert_eq!((run.run().state, run.home), (RunState::Running, HomeJobState::Held));
    run.failure = None;
    run.now += SignedDuration::from_secs(500);
    run.settle();
    assert_eq!((run.run().exit_code, run.home), (Some(7), HomeJobState::Finished));
}

#[test]
fn a_run_that_is_to_be_drained_finishes_and_one_that_has_not_begun_does_not_begin() {
    for (before, started) in [(2, 0), (12, 1)] {
        let mut run = Run::new(16);
        run.takes = 30;
        for _ in 0..before {
            run.reconcile(None);
        }
        run.burst.as_mut().unwrap().spec.drain = true;
        run.settle();
        assert_eq!(run.started, started);
        match started {
            0 => assert!(run.burst.is_none() && run.home == HomeJobState::Pending),
            _ => assert_eq!((run.run().exit_code, run.saved), (Some(7), 1)),
        }
    }
}

/// The Job was created, and it starts while the target does not respond.
#[test]
fn a_target_that_does_not_respond_at_the_join_deadline_does_not_end_a_run() {
    let mut run = Run::new(16);
    (run.takes, run.has_no_nodes) = (2000, true);
    run.settle();
    run.failure = failure(flux_operator_api::Reason::TargetUnreachable);
    run.reconcile(None);
    run.has_no_nodes = false;
    run.now += SignedDuration::from_secs(1500);
    run.settle();
    assert_eq!(run.burst().metadata.deletion_timestamp, None);
    run.failure = None;
    run.now += SignedDuration::from_secs(600);
    run.settle();
    assert_eq!((run.run().state, run.started), (RunState::Running, 1));
}

/// Nobody has to do anything about it.
#[test]
fn a_run_that_is_given_back_before_its_start_does_not_warn() {
    let mut run = Run::new(16);
    run.has_no_nodes = true;
    run.settle();
    run.delete();
    let mut before = run.burst().status.clone();
    for _ in 0..20 {
        run.reconcile(None);
        let Some(burst) = &run.burst else { break };
        let now = burst.status.clone().unwrap();
        let events = burst_events(before.as_ref(), &now);
        assert!(events.iter().all(|event| event.is_normal), "{events:?}");
        if run.run().state == RunState::Finishing {
            assert_eq!(run.reason("Finished"), "False GivingBack");
        }
        before = Some(now);
    }
    assert!(run.burst.is_none());
}

proptest! {
    /// Whenever the controller is killed, before a write or before a step, the job runs exactly once,
    /// and its exit code comes back.
    #[test]
    fn a_controller_that_is_killed_anywhere_runs_the_job_once(
        kills in prop::collection::vec(prop_oneof![Just(None), Just(Some(true)), Just(Some(false))], 0..60),
        urgency in prop_oneof![Just(0), Just(16)],
    ) {
        let mut run = Run::new(urgency);
        for killed in kills {
            run.reconcile(killed);
        }
        run.settle();
        prop_assert_eq!((run.started, run.run().exit_code), (1, Some(7)));
        prop_assert_eq!(run.home, HomeJobState::Finished);
        prop_assert!(run.message.ends_with("exit code 7"));
        prop_assert_eq!(run.run().state, RunState::Failed);
        prop_assert_eq!(&run.presence, &Presence::Nothing);
        prop_assert!(run.run().output_settled && !run.run().output.is_empty());
    }

    /// Also if it is deleted at any time, it never runs twice, and the job at home is canceled if and only
    /// if it may have run.
    #[test]
    fn a_run_that_is_deleted_at_any_time_is_not_run_again(
        before in 0usize..20,
        kills in prop::collection::vec(prop_oneof![Just(None), Just(Some(true)), Just(Some(false))], 0..30),
        lingers in any::<bool>(),
        is_made in any::<bool>(),
    ) {
        let mut run = if is_made { Run::with_made_cluster() } else { Run::new(16) };
        run.inside_answers = true;
        for _ in 0..before {
            run.reconcile(None);
        }
        if run.burst.is_some() {
            run.delete();
        }
        run.lingers = lingers;
        for killed in kills {
            run.reconcile(killed);
        }
        run.lingers = false;
        run.settle();
        prop_assert!(run.burst.is_none());
        prop_assert_eq!(&run.presence, &Presence::Nothing);
        let expected = match run.started {
            0 => HomeJobState::Pending,
            _ => HomeJobState::Finished,
        };
        prop_assert!(run.started <= 1);
        prop_assert_eq!(run.home, expected);
    }
}
