//! The program of a cluster: its arguments, and how its exit code is reported.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Cluster, argv, eventually, shell_line};
use flux_operator_wire::{Program, TerminationReason};
use proptest::prelude::*;

/// Prints its arguments, each with a NUL after it.
const PRINTER: &str = "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done >\"$PRINTED\"\n";

#[test]
fn four_ranks_run_a_program_successfully() {
    let mut cluster = Cluster::new(4, argv(&["flux", "run", "-N4", "hostname"]));
    let mut agents = cluster.start_all();
    assert_eq!(agents[0].wait(), 0, "{}", agents[0].output());
    assert_eq!(agents[0].termination().reason, TerminationReason::Completed);
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let printed = agents[0].output().lines().filter(|line| *line == name.trim()).count();
    assert_eq!(printed, 4, "{}", agents[0].output());
    agents[0].assert_nothing_left();
    assert!(agents[0].root.join("flux-operator-complete.txt").exists());
    for worker in &mut agents[1..] {
        let complete = worker.root.join("flux-operator-complete.txt");
        eventually("the worker's broker has exited", || complete.exists());
        // A worker never exits by itself: an index that has completed is not restarted.
        assert!(worker.is_running());
        assert_eq!(worker.stop(), 143);
        assert_eq!(worker.termination().reason, TerminationReason::Stopped);
    }
}

#[test]
fn the_programs_exit_code_is_reported_and_never_replaces_the_pod() {
    for (code, exit) in [(7, 7), (75, 1), (137, 1), (143, 1)] {
        let mut cluster = Cluster::new(1, shell_line(&format!("exit {code}")));
        let mut lead = cluster.start(0);
        assert_eq!(lead.wait(), exit, "{}", lead.output());
        let termination = lead.termination();
        assert_eq!(
            (i32::from(termination.exit_code), termination.reason),
            (code, TerminationReason::CommandFailed)
        );
    }
}

#[test]
fn killed_and_missing_programs_have_the_exit_codes_of_a_shell() {
    for (program, code) in [
        (shell_line("kill -9 $$"), 137),
        (argv(&["/no/such/program"]), 127),
        (argv(&["/dev/null"]), 126),
        (Program::Words(Vec::new()), 127),
    ] {
        let mut cluster = Cluster::without_flux(program);
        let mut lead = cluster.start(0);
        lead.wait();
        let termination = lead.termination();
        assert_eq!(
            (termination.exit_code, termination.reason),
            (code, TerminationReason::CommandFailed)
        );
    }
}

#[test]
fn a_real_instance_passes_arguments_byte_for_byte() {
    let odd =
        ["", " ", "$HOME", "`date`", "a'b\"c", "new\nline", "ƒ…", "-Sx=y", "\\", "*", "--", "%h"];
    for wrap in [None, Some("env".to_owned())] {
        let mut cluster = Cluster::new(1, Program::Stay);
        cluster.plan.broker.wrap = wrap;
        let printed = run_printer(&mut cluster, |printer| {
            Program::Words([printer].into_iter().chain(odd.map(str::to_owned)).collect())
        });
        assert_eq!(printed, odd);
    }
}

#[test]
fn times_are_printed_if_requested() {
    let mut cluster = Cluster::new(1, argv(&["true"]));
    cluster.plan.logging.timed = true;
    cluster.plan.logging.quiet = true;
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 0);
    let output = lead.output();
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines.len(), 2, "quiet shows nothing else: {output}");
    assert!(lines[0].starts_with("FLUXTIME fluxsubmit wall time 0:0"), "{output}");
    assert!(lines[1].starts_with("FLUXTIME fluxstart wall time 0:0"), "{output}");
}

#[test]
fn a_broker_that_exits_before_the_program_reports_its_output() {
    let mut cluster = Cluster::new(1, argv(&["true"]));
    cluster.plan.verbatim_config = Some("[bootstrap]\nhosts = [ { host = \"other\" } ]\n".into());
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 1);
    let termination = lead.termination();
    assert_eq!(termination.reason, TerminationReason::BrokerFailed);
    assert!(termination.message.len() > "the broker exited with 1 before the program: ".len());
    assert!(
        lead.output().contains(termination.message.lines().last().unwrap()),
        "the broker's output is forwarded too"
    );
}

fn run_printer(cluster: &mut Cluster, program: impl Fn(String) -> Program) -> Vec<String> {
    let printed = cluster.path().join("printed");
    let printer = cluster.script("print words", PRINTER);
    cluster.environment = vec![("PRINTED".into(), printed.display().to_string())];
    cluster.plan.program = program(printer.display().to_string());
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 0, "{}", lead.output());
    let text = String::from_utf8(std::fs::read(printed).unwrap()).unwrap();
    let mut words: Vec<_> = text.split('\0').map(str::to_owned).collect();
    assert_eq!(words.pop().as_deref(), Some(""));
    words
}

/// Any arguments, often with characters that are special in shells.
fn any_arguments() -> impl Strategy<Value = Vec<String>> {
    let odd = "['\"$`\\\\ \n\ta*?!~#&|;<>(){}=%-]{0,12}";
    let word = prop_oneof![Just(String::new()), "[^\0]{0,12}", odd];
    proptest::collection::vec(word, 0..8)
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn arguments_arrive_byte_for_byte(given in any_arguments()) {
        let mut cluster = Cluster::without_flux(Program::Stay);
        let printed = run_printer(&mut cluster, |printer| {
            Program::Words([printer].into_iter().chain(given.clone()).collect())
        });
        prop_assert_eq!(printed, given);
    }

    #[test]
    fn a_line_is_run_by_a_shell_and_its_arguments_arrive_byte_for_byte(
        in_line in any_arguments(),
        given in any_arguments(),
    ) {
        let mut cluster = Cluster::without_flux(Program::Stay);
        let printed = run_printer(&mut cluster, |printer| {
            let mut line = quoted(&printer);
            for word in &in_line {
                line += &format!(" {}", quoted(word));
            }
            Program::Line { line: line + " \"$@\"", words: given.clone() }
        });
        prop_assert_eq!(printed, [in_line, given].concat());
    }
}

#[test]
fn a_wrapped_broker_runs_its_program() {
    let mut cluster = Cluster::new(1, shell_line("echo \"wrapped=$WRAPPED\""));
    cluster.plan.broker.wrap = Some("env,WRAPPED=yes".into());
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 0, "{}", lead.output());
    // fluxlet ignores `--wrap`.
    let expected = if std::env::var_os("FLUX_ROOT").is_some() { "wrapped=yes" } else { "wrapped=" };
    let output = lead.output();
    assert!(output.lines().any(|line| line == expected), "{output}");
}
