//! Agents that are stopped exit soon, whatever they are doing, and leave no
//! processes behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use common::{Agent, Cluster, STOP_LIMIT, argv, eventually, shell_line};
use flux_operator_wire::{Program, TerminationReason};
use rustix::process::Signal;

fn assert_stops(agent: &mut Agent) {
    assert_eq!(agent.stop(), 143, "{}", agent.output());
    let termination = agent.termination();
    assert_eq!((termination.exit_code, termination.reason), (143, TerminationReason::Stopped));
}

fn wait_for_file(path: &Path) {
    eventually("a file is there", || path.exists());
}

#[test]
fn an_agent_stops_in_a_hook_even_if_it_ignores_signals() {
    for trap in ["", "trap '' TERM HUP INT; "] {
        let mut cluster = Cluster::without_flux(argv(&["true"]));
        let file = cluster.path().join("in-hook");
        cluster.plan.hooks.pre = format!("{trap}touch {}; sleep 1000; sleep 1000", file.display());
        let mut agent = cluster.start(0);
        wait_for_file(&file);
        assert_stops(&mut agent);
        assert!(!agent.root.join("flux-operator-complete.txt").exists());
    }
}

#[test]
fn a_hook_has_the_grace_period_of_its_pod() {
    let mut cluster = Cluster::without_flux(argv(&["true"]));
    cluster.plan.grace_seconds = 60;
    let [begun, saved] = ["begun", "saved"].map(|name| cluster.path().join(name));
    // The hook takes longer than the default grace period.
    cluster.plan.hooks.pre = format!(
        "trap 'sleep 2; touch {}; exit 1' TERM; touch {}; sleep 1000 & wait",
        saved.display(),
        begun.display()
    );
    let agent = cluster.start(0);
    wait_for_file(&begun);
    agent.signal(Signal::TERM);
    wait_for_file(&saved);
}

#[test]
fn a_worker_stops_while_the_lead_has_no_address() {
    let mut cluster = Cluster::new(2, argv(&["true"]));
    // The label is longer than allowed, so the name is never queried.
    cluster.plan.lead = format!("tcp://{}:8050", "x".repeat(64));
    let mut worker = cluster.start(1);
    let done = worker.root.join("flux-operator-done.txt");
    wait_for_file(&done);
    eventually("the stage is running", || worker.find(" broker --agent").is_some());
    assert_stops(&mut worker);
}

#[test]
fn an_agent_stops_while_its_broker_waits_for_others() {
    let mut cluster = Cluster::new(2, argv(&["true"]));
    for index in [0, 1] {
        let mut agent = cluster.start(index);
        wait_for_file(&agent.root.join("config/run/flux/local"));
        assert_stops(&mut agent);
    }
}

#[test]
fn an_agent_stops_while_a_program_runs_even_if_it_ignores_signals() {
    for trap in ["", "trap '' TERM HUP INT; "] {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let mut cluster = Cluster::new(1, Program::Stay);
            let file = cluster.path().join("in-program");
            let text = format!("{trap}touch {}; sleep 1000; sleep 1000", file.display());
            cluster.plan.program = shell_line(&text);
            // With hooks and without: with hooks the shell has to exit too.
            if signal == Signal::TERM {
                cluster.plan.hooks.pre = "export A=1".into();
                cluster.plan.hooks.post = "sleep 1000".into();
            }
            let mut agent = cluster.start(0);
            wait_for_file(&file);
            agent.signal(signal);
            assert_eq!(agent.wait_for(STOP_LIMIT), 143);
            agent.assert_nothing_left();
            assert_eq!(agent.termination().reason, TerminationReason::Stopped);
        }
    }
}

#[test]
fn a_worker_stops_between_two_restarts_of_its_broker() {
    let mut cluster = Cluster::new(2, argv(&["true"]));
    cluster.flux = Some(cluster.script("flux", "#!/bin/sh\necho no luck >&2\nexit 3\n"));
    let mut worker = cluster.start(1);
    let tries = |agent: &Agent| agent.output().matches("the broker exited with 3").count();
    eventually("the worker has tried again", || tries(&worker) > 2);
    assert_stops(&mut worker);
}

#[test]
fn an_agent_stops_when_its_parent_has_exited() {
    let mut cluster = Cluster::new(1, Program::Stay);
    let mut agent = cluster.start_with(0, &["--stop-on-eof"]);
    wait_for_file(&agent.root.join("config/run/program-started"));
    drop(agent.input.take());
    assert_eq!(agent.wait_for(STOP_LIMIT), 143);
    agent.assert_nothing_left();
}

#[test]
fn without_a_job_a_worker_exits_with_its_instance() {
    let mut cluster = Cluster::new(2, argv(&["true"]));
    let mut worker = cluster.start_with(1, &["--stop-on-eof"]);
    let mut lead = cluster.start_with(0, &["--stop-on-eof"]);
    assert_eq!(lead.wait(), 0, "{}", lead.output());
    assert_eq!(worker.wait(), 0, "{}", worker.output());
    assert_eq!(worker.termination().reason, TerminationReason::Completed);
    worker.assert_nothing_left();
}

#[test]
fn a_killed_agent_leaves_no_processes() {
    for hook in ["", "true"] {
        let mut cluster = Cluster::new(1, Program::Stay);
        cluster.plan.hooks.pre = hook.into();
        let agent = cluster.start(0);
        wait_for_file(&agent.root.join("config/run/program-started"));
        agent.signal(Signal::KILL);
        agent.assert_nothing_left();
    }
}
