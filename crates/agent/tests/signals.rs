//! Agents that are stopped exit soon, whatever they are doing, and leave no
//! processes behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use common::{Agent, Cluster, STOP_LIMIT, eventually, line, words};
use flux_operator_wire::{EndingReason, Program};
use rustix::process::Signal;

fn assert_stops(agent: &mut Agent) {
    assert_eq!(agent.stop(), 143, "{}", agent.output());
    let ending = agent.ending();
    assert_eq!((ending.exit_code, ending.reason), (143, EndingReason::Stopped));
}

fn appears(path: &Path) {
    eventually("a file is there", || path.exists());
}

#[test]
fn in_a_hook_even_one_that_does_not_want_to_end() {
    for trap in ["", "trap '' TERM HUP INT; "] {
        let mut cluster = Cluster::without_flux(words(&["true"]));
        let file = cluster.path().join("in-hook");
        cluster.plan.hooks.pre = format!("{trap}touch {}; sleep 1000; sleep 1000", file.display());
        let mut agent = cluster.start(0);
        appears(&file);
        assert_stops(&mut agent);
        assert!(!agent.root.join("flux-operator-complete.txt").exists());
    }
}

#[test]
fn in_a_hook_that_needs_the_time_its_pod_has() {
    let mut cluster = Cluster::without_flux(words(&["true"]));
    cluster.plan.grace_seconds = 60;
    let [begun, saved] = ["begun", "saved"].map(|name| cluster.path().join(name));
    // The hook takes longer than the default grace period.
    cluster.plan.hooks.pre = format!(
        "trap 'sleep 2; touch {}; exit 1' TERM; touch {}; sleep 1000 & wait",
        saved.display(),
        begun.display()
    );
    let agent = cluster.start(0);
    appears(&begun);
    agent.signal(Signal::TERM);
    appears(&saved);
}

#[test]
fn while_the_lead_has_no_address() {
    let mut cluster = Cluster::new(2, words(&["true"]));
    // The label is longer than allowed, so the name is never queried.
    cluster.plan.lead = format!("tcp://{}:8050", "x".repeat(64));
    let mut worker = cluster.start(1);
    let done = worker.root.join("flux-operator-done.txt");
    appears(&done);
    eventually("the stage is running", || worker.find(" broker --agent").is_some());
    assert_stops(&mut worker);
}

#[test]
fn while_a_broker_waits_for_others() {
    let mut cluster = Cluster::new(2, words(&["true"]));
    for index in [0, 1] {
        let mut agent = cluster.start(index);
        appears(&agent.root.join("config/run/flux/local"));
        assert_stops(&mut agent);
    }
}

#[test]
fn while_a_program_runs_even_one_that_does_not_want_to_end() {
    for trap in ["", "trap '' TERM HUP INT; "] {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let mut cluster = Cluster::new(1, Program::Stay);
            let file = cluster.path().join("in-program");
            let text = format!("{trap}touch {}; sleep 1000; sleep 1000", file.display());
            cluster.plan.program = line(&text);
            // With hooks and without: with hooks the shell has to exit too.
            if signal == Signal::TERM {
                cluster.plan.hooks.pre = "export A=1".into();
                cluster.plan.hooks.post = "sleep 1000".into();
            }
            let mut agent = cluster.start(0);
            appears(&file);
            agent.signal(signal);
            assert_eq!(agent.wait_for(STOP_LIMIT), 143);
            agent.assert_nothing_left();
            assert_eq!(agent.ending().reason, EndingReason::Stopped);
        }
    }
}

#[test]
fn between_two_tries_of_a_worker() {
    let mut cluster = Cluster::new(2, words(&["true"]));
    cluster.flux = Some(cluster.script("flux", "#!/bin/sh\necho no luck >&2\nexit 3\n"));
    let mut worker = cluster.start(1);
    let tries = |agent: &Agent| agent.output().matches("the broker exited with 3").count();
    eventually("the worker has tried again", || tries(&worker) > 2);
    assert_stops(&mut worker);
}

#[test]
fn when_whoever_started_them_is_gone() {
    let mut cluster = Cluster::new(1, Program::Stay);
    let mut agent = cluster.start_with(0, &["--stop-on-eof"]);
    appears(&agent.root.join("config/run/program-started"));
    drop(agent.input.take());
    assert_eq!(agent.wait_for(STOP_LIMIT), 143);
    agent.assert_nothing_left();
}

#[test]
fn without_a_job_a_worker_ends_with_its_instance() {
    let mut cluster = Cluster::new(2, words(&["true"]));
    let mut worker = cluster.start_with(1, &["--stop-on-eof"]);
    let mut lead = cluster.start_with(0, &["--stop-on-eof"]);
    assert_eq!(lead.wait(), 0, "{}", lead.output());
    assert_eq!(worker.wait(), 0, "{}", worker.output());
    assert_eq!(worker.ending().reason, EndingReason::Completed);
    worker.assert_nothing_left();
}

#[test]
fn nothing_is_left_of_an_agent_that_was_killed() {
    for hook in ["", "true"] {
        let mut cluster = Cluster::new(1, Program::Stay);
        cluster.plan.hooks.pre = hook.into();
        let agent = cluster.start(0);
        appears(&agent.root.join("config/run/program-started"));
        agent.signal(Signal::KILL);
        agent.assert_nothing_left();
    }
}
