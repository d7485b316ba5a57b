//! The user's hooks around a real broker.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Cluster, argv, shell_line};
use flux_operator_wire::TerminationReason;

#[test]
fn exports_and_directory_of_hooks_reach_broker_program_and_post() {
    let mut cluster = Cluster::new(2, shell_line("flux run -N2 sh -c 'echo task $A $PWD'"));
    let hooks = &mut cluster.plan.hooks;
    hooks.init = "echo first; export A=1".into();
    hooks.pre = "A=$A-pre\ncd /usr".into();
    hooks.broker_pre = "A=$A-lead".into();
    hooks.worker_pre = "A=$A-worker; echo on worker $A".into();
    hooks.post = "echo after $A $PWD".into();
    let mut agents = cluster.start_all();
    assert_eq!(agents[0].wait(), 0, "{}", agents[0].output());
    let output = agents[0].output();
    for expected in ["first", "task 1-pre-lead /usr", "after 1-pre-lead /usr"] {
        assert!(output.lines().any(|line| line == expected), "{expected} is not in\n{output}");
    }
    assert!(!output.contains("worker"), "{output}");
    let complete = agents[1].root.join("flux-operator-complete.txt");
    common::eventually("the worker's hooks are done", || complete.exists());
    let output = agents[1].output();
    assert!(output.contains("on worker 1-pre-worker\n"), "{output}");
    assert!(output.contains("after 1-pre-worker /usr\n"), "{output}");
    assert_eq!(agents[1].stop(), 143);
}

#[test]
fn post_runs_after_a_failed_program_and_keeps_its_exit_code() {
    let mut cluster = Cluster::new(1, shell_line("exit 9"));
    cluster.plan.logging.strict = true;
    cluster.plan.logging.quiet = true;
    cluster.plan.hooks.init = "echo chatter".into();
    cluster.plan.hooks.pre = "echo chatter; echo chatter >&2".into();
    cluster.plan.hooks.post = "echo saved; exit 3".into();
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 9);
    assert_eq!(lead.output(), "saved\n");
    assert_eq!(lead.termination().reason, TerminationReason::CommandFailed);
}

#[test]
fn a_failed_hook_stops_the_agent_when_strict() {
    for (strict, reason, code) in
        [(true, TerminationReason::HookFailed, 1), (false, TerminationReason::Completed, 0)]
    {
        let mut cluster = Cluster::without_flux(argv(&["true"]));
        cluster.plan.logging.strict = strict;
        cluster.plan.hooks.pre = "false\ntrue".into();
        let mut lead = cluster.start(0);
        assert_eq!(lead.wait(), code);
        let termination = lead.termination();
        assert_eq!(termination.reason, reason);
        assert_eq!(termination.message.contains("\"pre\""), strict, "{}", termination.message);
    }
}

#[test]
fn a_hook_that_exits_stops_the_agent() {
    for (text, code, reason) in
        [("exit 5", 5, TerminationReason::HookFailed), ("exit 0", 0, TerminationReason::Completed)]
    {
        let mut cluster = Cluster::without_flux(argv(&["echo", "never"]));
        cluster.plan.hooks.broker_pre = text.into();
        let mut lead = cluster.start(0);
        assert_eq!(lead.wait(), code);
        assert_eq!(lead.termination().reason, reason);
        assert!(!lead.output().lines().any(|line| line == "never"));
    }
}

#[test]
fn a_failing_post_hook_matters_when_strict() {
    let mut cluster = Cluster::without_flux(argv(&["true"]));
    cluster.plan.logging.strict = true;
    cluster.plan.hooks.post = "exit 75".into();
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 1);
    let termination = lead.termination();
    assert_eq!((termination.exit_code, termination.reason), (75, TerminationReason::HookFailed));
}

#[test]
fn hooks_in_an_image_without_a_shell_are_rejected() {
    let mut cluster = Cluster::without_flux(argv(&["true"]));
    cluster.plan.hooks.init = "true".into();
    let empty = cluster.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    cluster.environment = vec![("PATH".into(), empty.display().to_string())];
    // Otherwise the directory of the given `flux` would be added to PATH.
    cluster.flux = None;
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 1);
    let termination = lead.termination();
    assert_eq!(termination.reason, TerminationReason::HookFailed);
    assert!(termination.message.contains("neither bash nor sh"), "{}", termination.message);
}

#[test]
fn processes_that_hooks_leave_behind_are_killed_with_the_agent() {
    let mut cluster = Cluster::without_flux(argv(&["true"]));
    cluster.plan.hooks.pre = "sleep 1000 & (setsid sleep 1000 &)".into();
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 0);
    lead.assert_nothing_left();
}

#[test]
fn the_users_script_is_written_before_the_program_starts() {
    let mut cluster = Cluster::without_flux(argv(&["/tmp/custom-entrypoint.sh", "a b"]));
    cluster.plan.hooks.script = "#!/bin/sh\necho \"script got $1\"\n".into();
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 0);
    assert!(lead.output().contains("script got a b\n"), "{}", lead.output());
}
