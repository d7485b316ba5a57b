//! The user's hooks around a real broker.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Cluster, line, words};
use flux_operator_wire::EndingReason;

#[test]
fn what_hooks_export_and_where_they_go_reaches_broker_program_and_post() {
    let mut cluster = Cluster::new(2, line("flux run -N2 sh -c 'echo task $A $PWD'"));
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
fn post_runs_after_a_program_that_failed_and_its_code_stays() {
    let mut cluster = Cluster::new(1, line("exit 9"));
    cluster.plan.logging.strict = true;
    cluster.plan.logging.quiet = true;
    cluster.plan.hooks.init = "echo chatter".into();
    cluster.plan.hooks.pre = "echo chatter; echo chatter >&2".into();
    cluster.plan.hooks.post = "echo saved; exit 3".into();
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 9);
    assert_eq!(lead.output(), "saved\n");
    assert_eq!(lead.ending().reason, EndingReason::CommandFailed);
}

#[test]
fn a_hook_that_fails_ends_everything_if_that_is_wanted() {
    for (strict, reason, code) in
        [(true, EndingReason::HookFailed, 1), (false, EndingReason::Completed, 0)]
    {
        let mut cluster = Cluster::without_flux(words(&["true"]));
        cluster.plan.logging.strict = strict;
        cluster.plan.hooks.pre = "false\ntrue".into();
        let mut lead = cluster.start(0);
        assert_eq!(lead.wait(), code);
        let ending = lead.ending();
        assert_eq!(ending.reason, reason);
        assert_eq!(ending.message.contains("\"pre\""), strict, "{}", ending.message);
    }
}

#[test]
fn a_hook_may_end_everything_by_itself() {
    for (text, code, reason) in
        [("exit 5", 5, EndingReason::HookFailed), ("exit 0", 0, EndingReason::Completed)]
    {
        let mut cluster = Cluster::without_flux(words(&["echo", "never"]));
        cluster.plan.hooks.broker_pre = text.into();
        let mut lead = cluster.start(0);
        assert_eq!(lead.wait(), code);
        assert_eq!(lead.ending().reason, reason);
        assert!(!lead.output().lines().any(|line| line == "never"));
    }
}

#[test]
fn a_failing_post_counts_when_strict() {
    let mut cluster = Cluster::without_flux(words(&["true"]));
    cluster.plan.logging.strict = true;
    cluster.plan.hooks.post = "exit 75".into();
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 1);
    let ending = lead.ending();
    assert_eq!((ending.exit_code, ending.reason), (75, EndingReason::HookFailed));
}

#[test]
fn hooks_in_an_image_without_a_shell_are_refused_clearly() {
    let mut cluster = Cluster::without_flux(words(&["true"]));
    cluster.plan.hooks.init = "true".into();
    let empty = cluster.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    cluster.environment = vec![("PATH".into(), empty.display().to_string())];
    // Otherwise the directory of the given `flux` would be added to PATH.
    cluster.flux = None;
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 1);
    let ending = lead.ending();
    assert_eq!(ending.reason, EndingReason::HookFailed);
    assert!(ending.message.contains("neither bash nor sh"), "{}", ending.message);
}

#[test]
fn processes_that_hooks_leave_behind_end_with_the_agent() {
    let mut cluster = Cluster::without_flux(words(&["true"]));
    cluster.plan.hooks.pre = "sleep 1000 & (setsid sleep 1000 &)".into();
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 0);
    lead.assert_nothing_left();
}

#[test]
fn a_script_of_the_users_is_there_before_the_program() {
    let mut cluster = Cluster::without_flux(words(&["/tmp/custom-entrypoint.sh", "a b"]));
    cluster.plan.hooks.script = "#!/bin/sh\necho \"script got $1\"\n".into();
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 0);
    assert!(lead.output().contains("script got a b\n"), "{}", lead.output());
}
