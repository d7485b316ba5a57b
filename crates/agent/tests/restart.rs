//! Brokers that are lost and restarted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Agent, Cluster, eventually, shell_line};
use flux_operator_wire::{Program, TerminationReason};
use rustix::process::Signal;

/// A cluster whose program runs a job on all of its nodes once the file `go` exists.
fn waiting_cluster(size: u32) -> Cluster {
    let mut cluster = Cluster::new(size, Program::Stay);
    let go = cluster.path().join("go");
    let text = format!(
        "until [ -e {} ]; do sleep 0.05; done; flux run -N{size} echo from-all",
        go.display()
    );
    cluster.plan.program = shell_line(&text);
    cluster
}

fn wait_for_program(agent: &Agent) {
    let file = agent.root.join("config/run/program-started");
    eventually("the program has been started", || file.exists());
}

fn go(cluster: &Cluster) {
    std::fs::write(cluster.path().join("go"), "").unwrap();
}

fn assert_all_ran(lead: &mut Agent, size: usize) {
    assert_eq!(lead.wait(), 0, "{}", lead.output());
    assert_eq!(lead.termination().reason, TerminationReason::Completed);
    let output = lead.output();
    assert_eq!(output.lines().filter(|line| *line == "from-all").count(), size, "{output}");
}

#[test]
fn a_worker_restarts_a_killed_broker() {
    let mut cluster = waiting_cluster(2);
    let mut agents = cluster.start_all();
    wait_for_program(&agents[0]);
    let worker = &agents[1];
    let broker = worker.find("-Srundir=").unwrap();
    rustix::process::kill_process(broker, Signal::KILL).unwrap();
    eventually("the worker has noticed", || worker.output().contains("restarting in"));
    go(&cluster);
    assert_all_ran(&mut agents[0], 2);
    assert_eq!(agents[1].stop(), 143);
}

#[test]
fn workers_find_the_new_lead_after_the_old_one_was_lost() {
    let mut cluster = waiting_cluster(3);
    let mut agents = cluster.start_all();
    wait_for_program(&agents[0]);
    agents[0].kill();
    // A replacement pod starts with an empty directory.
    std::fs::remove_dir_all(&agents[0].root).unwrap();
    let mut lead = cluster.start(0);
    go(&cluster);
    assert_all_ran(&mut lead, 3);
    for worker in &mut agents[1..] {
        assert_eq!(worker.stop(), 143, "{}", worker.output());
    }
}

#[test]
fn workers_wait_for_a_stopped_lead_that_may_be_restarted() {
    let mut cluster = waiting_cluster(2);
    cluster.plan.restart_limit = 1;
    let mut agents = cluster.start_all();
    wait_for_program(&agents[0]);
    assert_eq!(agents[0].stop(), 143);
    std::fs::remove_dir_all(&agents[0].root).unwrap();
    cluster.environment = vec![("FLUX_OPERATOR_IGNORED_FAILURES".into(), "1".into())];
    let mut lead = cluster.start(0);
    go(&cluster);
    assert_all_ran(&mut lead, 2);
    assert_eq!(agents[1].stop(), 143, "{}", agents[1].output());
}

#[test]
fn a_lead_whose_broker_is_killed_is_replaced_within_the_restart_limit() {
    for (limit, code) in [(0, 1), (1, 75)] {
        let mut cluster = waiting_cluster(1);
        cluster.plan.restart_limit = limit;
        let mut lead = cluster.start(0);
        wait_for_program(&lead);
        let broker = lead.find("-Srundir=").unwrap();
        rustix::process::kill_process(broker, Signal::KILL).unwrap();
        assert_eq!(lead.wait(), code, "{}", lead.output());
        let termination = lead.termination();
        assert_eq!(
            (termination.exit_code, termination.reason),
            (137, TerminationReason::BrokerFailed)
        );
        lead.assert_nothing_left();
    }
}

#[test]
fn a_worker_that_should_complete_does_not_restart_its_broker() {
    let mut cluster = Cluster::new(2, Program::Stay);
    cluster.plan.complete_workers = true;
    cluster.flux = Some(cluster.script("flux", "#!/bin/sh\nexit 3\n"));
    let mut worker = cluster.start(1);
    let complete = worker.root.join("flux-operator-complete.txt");
    eventually("the worker is done", || complete.exists());
    assert!(worker.is_running());
    assert_eq!(worker.stop(), 143);
    assert!(!worker.output().contains("restarting in"));
}
