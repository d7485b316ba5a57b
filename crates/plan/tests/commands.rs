//! Whatever the text of a command is, it is refused or it is one command: no part of it runs
//! outside of Flux, and no other exit code replaces its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use flux_operator_api::MiniCluster;
use flux_operator_plan::{Cluster, Refusal, Valid};
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_wire::Program;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Each case starts a shell.
const CASES: u32 = 256;

/// Prints its arguments, counts its calls, and fails: nothing else may print or set the exit code.
const FAKE_FLUX: &str = r#"flux() { printf '%s\0' "$@"; printf 'CALL\0'; return 42; }"#;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    /// Quotes, comments, escapes and lines in any order.
    #[test]
    fn a_text_is_refused_or_one_command(text in r#"[ab'"\\# \n]{1,24}"#) {
        prop_assume!(!text.trim().is_empty());
        if let Ok(line) = line(json!({ "command": text })) {
            let (calls, _) = run(&line);
            prop_assert_eq!(calls, 1, "{:?} became {:?}", text, line);
        }
    }

    /// As the Go operator splits them.
    #[test]
    fn words_are_those_between_any_blanks(text in r"[a-z0-9./=,_-]{1,8}([ \t\n]+[a-z0-9./=,_-]{1,8}){0,5}[ \n]*") {
        let (calls, words) = run(&line(json!({ "command": text })).unwrap());
        prop_assert_eq!(calls, 1);
        let expected: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        prop_assert!(words.ends_with(&expected), "{:?}", words);
    }
}

#[test]
fn the_second_line_neither_runs_elsewhere_nor_hides_a_failure() {
    for (container, words) in [
        (json!({ "command": "false\ntrue\n" }), vec!["false", "true"]),
        (json!({ "command": "\n# what it does\nfalse\n" }), vec!["false"]),
        (json!({ "command": "false \\\n  -x\n" }), vec!["false", "-x"]),
        (json!({ "command": "flux start\n# then\ntrue", "launcher": true }), vec!["start", "true"]),
    ] {
        let (calls, said) = run(&line(container.clone()).unwrap());
        assert_eq!(calls, 1, "{container}");
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        assert!(said.ends_with(&words), "{said:?}");
    }
}

#[test]
fn every_text_in_the_line_is_joined() {
    let container = json!({ "command": "lmp\n-in a", "commands": { "prefix": "strace\n  -f\n" } });
    let flux =
        json!({ "submitCommand": "flux\nsubmit", "optionFlags": "-c 1\n-o cpu-affinity=off\n" });
    let line = line_of(json!({ "containers": [container], "flux": flux })).unwrap();
    assert_eq!(
        line,
        "strace -f flux submit -N1 -n1 -c 1 -o cpu-affinity=off --quiet --watch lmp -in a"
    );
}

#[test]
fn what_cannot_be_one_command_is_refused_with_its_field() {
    for (container, said) in [
        (
            json!({ "command": "cat <<EOF\na\nEOF" }),
            "spec.containers[0].command: has a here-document",
        ),
        (json!({ "command": "a;\nb" }), "spec.containers[0].command: has several lines and ';'"),
        (
            json!({ "command": "a", "commands": { "prefix": "'" } }),
            "spec.containers[0].commands.prefix: has a single quote",
        ),
    ] {
        let refusal = line(container).unwrap_err();
        assert!(refusal.to_string().starts_with(said), "{refusal}");
    }
}

#[test]
fn lines_of_a_batch_and_commands_of_sidecars_are_not_joined() {
    let batch = json!([{ "command": "a 'b\nc'\nd; e\n", "batch": true }]);
    assert!(cluster(json!({ "containers": batch })).is_ok());
    let text = "a;\nb <<EOF\nc\nEOF";
    let sidecar = json!({ "name": "s", "command": text });
    let cluster = cluster(json!({ "containers": [{ "runFlux": true }, sidecar] })).unwrap();
    assert_eq!(cluster.sidecars[0].command, text);
}

fn line(container: Value) -> Result<String, Refusal> {
    line_of(json!({ "containers": [container] }))
}

fn line_of(spec: Value) -> Result<String, Refusal> {
    match cluster(spec)?.program {
        Program::Line { line, .. } => Ok(line),
        other => panic!("{other:?} is not a line"),
    }
}

fn cluster(spec: Value) -> Result<Cluster, Refusal> {
    let mut manifest = smallest_minicluster("fs");
    merge(&mut manifest, &json!({ "spec": spec }));
    let minicluster: MiniCluster = serde_json::from_value(manifest).unwrap();
    Ok(Cluster::of(&Valid::check(minicluster)?).unwrap())
}

/// How often a line called `flux`, and with which words, if it failed with its exit code.
fn run(line: &str) -> (usize, Vec<String>) {
    let script = format!("{FAKE_FLUX}\n{line}");
    let output = Command::new("/bin/sh").args(["-c", &script]).env("PATH", "").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "", "{line:?} ran something else");
    assert_eq!(output.status.code(), Some(42), "{line:?} has an exit code of its own");
    let mut words: Vec<String> =
        String::from_utf8_lossy(&output.stdout).split_terminator('\0').map(str::to_owned).collect();
    let all = words.len();
    words.retain(|word| word != "CALL");
    (all - words.len(), words)
}
