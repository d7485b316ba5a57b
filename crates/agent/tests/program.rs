//! The program of a cluster: its arguments, and how its exit code is reported.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Cluster, eventually, line, words};
use flux_operator_wire::{EndingReason, Program};
use proptest::prelude::*;

/// Prints its arguments, each with a NUL after it.
const PRINTER: &str = "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done >\"$PRINTED\"\n";

#[test]
fn four_ranks_run_a_program_and_end_well() {
    let mut cluster = Cluster::new(4, words(&["flux", "run", "-N4", "hostname"]));
    let mut agents = cluster.start_all();
    assert_eq!(agents[0].wait(), 0, "{}", agents[0].output());
    assert_eq!(agents[0].ending().reason, EndingReason::Completed);
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
        assert_eq!(worker.ending().reason, EndingReason::Stopped);
    }
}

#[test]
fn the_code_of_the_program_is_told_and_never_taken_for_a_wish_to_be_replaced() {
    for (code, exit) in [(7, 7), (75, 1), (137, 1), (143, 1)] {
        let mut cluster = Cluster::new(1, line(&format!("exit {code}")));
        let mut lead = cluster.start(0);
        assert_eq!(lead.wait(), exit, "{}", lead.output());
        let ending = lead.ending();
        assert_eq!(
            (i32::from(ending.exit_code), ending.reason),
            (code, EndingReason::CommandFailed)
        );
    }
}

#[test]
fn a_program_that_is_killed_or_missing_is_told_apart() {
    for (program, code) in [
        (line("kill -9 $$"), 137),
        (words(&["/no/such/program"]), 127),
        (words(&["/dev/null"]), 126),
        (Program::Words(Vec::new()), 127),
    ] {
        let mut cluster = Cluster::without_flux(program);
        let mut lead = cluster.start(0);
        lead.wait();
        let ending = lead.ending();
        assert_eq!((ending.exit_code, ending.reason), (code, EndingReason::CommandFailed));
    }
}

#[test]
fn a_real_instance_passes_words_on_byte_for_byte() {
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
fn times_are_printed_where_they_are_wanted() {
    let mut cluster = Cluster::new(1, words(&["true"]));
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
fn a_broker_that_ends_before_the_program_shows_what_it_said() {
    let mut cluster = Cluster::new(1, words(&["true"]));
    cluster.plan.verbatim_config = Some("[bootstrap]\nhosts = [ { host = \"other\" } ]\n".into());
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 1);
    let ending = lead.ending();
    assert_eq!(ending.reason, EndingReason::BrokerFailed);
    assert!(ending.message.len() > "the broker exited with 1 before the program: ".len());
    assert!(lead.output().contains(ending.message.lines().last().unwrap()), "passed on as well");
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
fn any_words() -> impl Strategy<Value = Vec<String>> {
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
    fn words_arrive_byte_for_byte(given in any_words()) {
        let mut cluster = Cluster::without_flux(Program::Stay);
        let printed = run_printer(&mut cluster, |printer| {
            Program::Words([printer].into_iter().chain(given.clone()).collect())
        });
        prop_assert_eq!(printed, given);
    }

    #[test]
    fn a_line_is_read_by_a_shell_and_its_words_arrive_byte_for_byte(
        in_line in any_words(),
        given in any_words(),
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
    let mut cluster = Cluster::new(1, line("echo \"wrapped=$WRAPPED\""));
    cluster.plan.broker.wrap = Some("env,WRAPPED=yes".into());
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 0, "{}", lead.output());
    // fluxlet ignores `--wrap`.
    let expected = if std::env::var_os("FLUX_ROOT").is_some() { "wrapped=yes" } else { "wrapped=" };
    let output = lead.output();
    assert!(output.lines().any(|line| line == expected), "{output}");
}
