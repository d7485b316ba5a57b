//! Arguments arrive at the task byte for byte, whatever they are, through a real broker.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::{Cluster, UnderTest, command, output};

const UNDER_TEST: UnderTest = UnderTest::Fluxlet;

/// Any bytes but NUL, which no argument can contain; often text that a shell would change.
fn argument() -> impl Strategy<Value = Vec<u8>> {
    let nasty = prop::sample::select(vec![
        "",
        " ",
        "\n",
        "\t",
        "'",
        "\"",
        "\\",
        "$HOME",
        "`id`",
        "*",
        "--",
        "-n",
        "{{id}}",
        "{cc}",
        "ƒ",
        "😳",
        "a b",
        "\u{1b}[0m",
        "%s",
        "\r\n",
    ]);
    prop_oneof![
        nasty.prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(1u8..=255, 0..40),
        "\\PC{0,20}".prop_map(String::into_bytes),
    ]
}

#[test]
fn arguments_arrive_byte_for_byte() {
    let mut cluster = Cluster::new(2);
    cluster.start(2);
    let config = Config { cases: 60, failure_persistence: None, ..Config::default() };
    let arguments = prop::collection::vec(argument(), 0..8);
    // Half of the cases run on the worker, so the arguments are also sent between brokers.
    let strategy = (arguments, any::<bool>());
    TestRunner::new(config)
        .run(&strategy, |(arguments, remote)| {
            let mut expected = Vec::new();
            for argument in &arguments {
                expected.extend_from_slice(argument);
                expected.push(0);
            }
            let mut run = command();
            run.arg("run").args(["-N2", "-n2"].iter().take(if remote { 2 } else { 0 }));
            // Prints its arguments, each with a NUL after it, on the last rank only.
            let script = "[ \"$FLUX_TASK_RANK\" = $((FLUX_JOB_SIZE - 1)) ] || exit 0; [ $# = 0 ] || printf '%s\\0' \"$@\"";
            run.args(["sh", "-c", script, "sh"]);
            run.args(arguments.iter().map(|bytes| OsString::from_vec(bytes.clone())));
            run.env("FLUX_URI", cluster.uri(0));
            let output = output(&mut run);
            prop_assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            prop_assert_eq!(output.stdout, expected);
            Ok(())
        })
        .unwrap();
}
