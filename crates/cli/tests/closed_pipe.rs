//! A closed output, as with `head`, ends the program silently.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.yaml");
const WRONG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// The exit code that shells report for a program killed by SIGPIPE.
const BROKEN_PIPE_CODE: Option<i32> = Some(141);

/// A pipe without a reader.
fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

fn run(words: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux-operator"));
    command.args(words).env("HOME", folder).env("XDG_RUNTIME_DIR", folder);
    command
}

fn assert_quiet(words: &[&str], output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{words:?}: {errors}");
}

#[test]
fn commands_exit_silently_when_their_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["render", "-f", EXAMPLE, "--agent-image", "example.com/agent"][..],
        &["validate", "-f", EXAMPLE],
        &["crd"],
        &["manifests", "--image", "example.com/operator"],
        &["local", "ps"],
    ] {
        let output = run(words, folder.path()).stdout(closed()).output().unwrap();
        assert_quiet(words, &output);
        assert_eq!(output.status.code(), BROKEN_PIPE_CODE, "{words:?}");
    }
}

#[test]
fn help_exits_silently_when_its_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&["--help"][..], &["--version"], &["render", "--help"], &["local", "--help"]] {
        let output = run(words, folder.path()).stdout(closed()).output().unwrap();
        assert_quiet(words, &output);
        // These are printed by the argument parser, which treats a closed pipe as success.
        assert!(output.status.success(), "{words:?}: {}", output.status);
    }
}

#[test]
fn a_local_cluster_runs_on_when_standard_error_is_closed() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let local = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/local.yaml");
    let mut command = run(&["local", "run", "-f", local], folder.path());
    let output = command.env("XDG_STATE_HOME", folder.path()).stderr(closed()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!output.stdout.is_empty());
}

#[test]
fn a_closed_standard_error_does_not_change_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&["validate", "-f", WRONG][..], &["render", "-f", WRONG], &["local", "down", "x"]]
    {
        let mut command = run(words, folder.path());
        let status = command.stdout(Stdio::null()).stderr(closed()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{words:?}");
    }
}
