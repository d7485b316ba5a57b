//! `flux-operator burst`, with a program that answers as `flux` does.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/burst/laptop.yaml");

const KUBECONFIG: &str = r#"{"current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}]}"#;

/// An instance whose one broker is online, and that has no jobs.
const FLUX: &str = r#"#!/bin/sh
case "$1" in
version) echo 'commands: 0.85.0' ;;
overlay)
    sed -n 's/^host = "\(.*\)"/\1/p' "$0.broker" | grep -n . | sed 's/^1:/0 /; s/^2:/1 /; s/$/: full/'
    ;;
esac
"#;

/// A folder with a configuration, a kubeconfig and a program `flux`.
struct Laptop(TempDir);

impl Laptop {
    fn new() -> Laptop {
        let laptop = Laptop(tempfile::tempdir().unwrap());
        let folder = laptop.0.path();
        laptop.run("init my-laptop --ranks 1 --address 192.0.2.7").unwrap();
        fs::write(folder.join("away"), KUBECONFIG).unwrap();
        let flux = folder.join("bin/flux");
        fs::create_dir(folder.join("bin")).unwrap();
        fs::write(&flux, FLUX).unwrap();
        fs::set_permissions(&flux, fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(folder.join("my-laptop/broker.toml"), folder.join("bin/flux.broker")).unwrap();
        laptop
    }

    fn command(&self, words: &str) -> Command {
        // SIGHUP has its default effect, also if the tests were started to ignore it, as by `nohup`.
        let mut command = Command::new("/usr/bin/env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_flux-operator")]);
        let path = format!("{}:/usr/bin:/bin", self.0.path().join("bin").display());
        command.arg("burst").args(words.split_whitespace()).current_dir(self.0.path());
        command.env("PATH", path).env_remove("FLUX_URI").env_remove("FLUX_OPERATOR_IMAGE");
        command
    }

    /// What it prints: on standard output if it succeeds, otherwise on standard error.
    fn run(&self, words: &str) -> Result<String, String> {
        let output = self.command(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(text(output.stderr)),
        }
    }

    /// The call that gets nodes for it.
    fn start(&self) -> Command {
        self.command(&format!("{START} --policy {POLICY} --kubeconfig away=away"))
    }

    fn write(&self, path: impl AsRef<Path>, text: &str) {
        fs::write(self.0.path().join(path), text).unwrap();
    }
}

const START: &str = "--config-path my-laptop --uri local:///no/such --agent-image i";

#[test]
fn bursts_are_listed_in_the_folder_of_an_instance_only() {
    let laptop = Laptop::new();
    let error = laptop.run("list").unwrap_err();
    assert!(
        error.contains("\"./bursts\"") && error.contains("hint: give --config-path"),
        "{error}"
    );
    assert_eq!(laptop.run("list --config-path my-laptop").unwrap(), "");
}

#[test]
fn a_wrong_number_says_which_are_allowed() {
    let laptop = Laptop::new();
    let error = laptop.run("init other --ranks x").unwrap_err();
    assert!(error.contains("'--ranks <RANKS>': is not a number from 1 to 1024"), "{error}");
}

#[test]
fn what_cannot_work_is_refused_at_the_start() {
    let laptop = Laptop::new();
    laptop.write("no-certificate", "x");
    let config = fs::read_to_string(laptop.0.path().join("my-laptop/broker.toml")).unwrap();
    let uncertified = config.replace("my-laptop/curve.cert", "no-certificate");
    fs::create_dir(laptop.0.path().join("other")).unwrap();
    laptop.write("other/broker.toml", &uncertified);
    let policy = fs::read_to_string(POLICY).unwrap();
    let (one, minicluster) = policy.split_once("\n---\n").unwrap();
    laptop.write("two", &format!("{one}\n---\n{one}\n---\n{minicluster}"));
    laptop.write("none", minicluster);
    laptop.write("clusters", &format!("{policy}\n---\n{minicluster}"));
    laptop.write("no-context", &KUBECONFIG.replace("current-context", "context"));
    for (words, problem) in [
        ("--policy two", "two has two BurstPolicies named \"grow\"\nhint: rename"),
        ("--policy none", "none has no BurstPolicy\nhint: "),
        ("--policy clusters", "clusters has two MiniClusters\nhint: "),
        (&format!("--policy {POLICY}"), "hint: give --kubeconfig away=FILE"),
        (
            &format!("--policy {POLICY} --kubeconfig away=nothing"),
            "there is no kubeconfig \"nothing\"",
        ),
        (
            &format!("--policy {POLICY} --kubeconfig away=away --kubeconfig away=away"),
            "--kubeconfig away is given twice",
        ),
        (
            &format!("--policy {POLICY} --kubeconfig away=no-context"),
            "\"no-context\": it has no current-context\nhint: ",
        ),
        (
            &format!("--policy {POLICY} --kubeconfig away=away --flux-root /no/such"),
            "there is no \"/no/such/bin/flux\"\nhint: ",
        ),
    ] {
        let error = laptop.run(&format!("{START} {words}")).unwrap_err();
        assert!(error.contains(problem), "{words}: {error}");
    }
    let other = format!("--config-path other --policy {POLICY} --kubeconfig away=away");
    let error = laptop.run(&other).unwrap_err();
    assert!(error.contains("is not a certificate of Flux") && error.contains("hint: "), "{error}");
}

#[test]
fn a_folder_that_is_in_use_or_that_was_edited_says_what_to_do() {
    let laptop = Laptop::new();
    let start = format!("{START} --policy {POLICY} --kubeconfig away=away");
    fs::create_dir(laptop.0.path().join("my-laptop/bursts")).unwrap();
    let lock = fs::File::create(laptop.0.path().join("my-laptop/bursts/lock")).unwrap();
    lock.lock().unwrap();
    let error = laptop.run(&start).unwrap_err();
    assert!(error.contains("has locked") && error.contains("hint: stop that one"), "{error}");
    drop(lock);
    laptop.write("my-laptop/bursts/x.burst.json", "{");
    for words in ["list --config-path my-laptop", &start] {
        let error = laptop.run(words).unwrap_err();
        assert!(error.contains("is not a record") && error.contains("remove the file"), "{error}");
    }
}

#[test]
fn it_says_what_it_serves_and_gives_back_when_its_terminal_is_closed() {
    let laptop = Laptop::new();
    let mut process = laptop.start().stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    for fact in ["policies=\"grow\"", "targets=\"away\"", "spare_ranks=1", "instance=", "uri="] {
        assert!(line.contains(fact), "{fact}: {line}");
    }
    let id = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
    kill_process(id, Signal::HUP).unwrap();
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert!(process.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("everything was given back"), "{rest}");
}
