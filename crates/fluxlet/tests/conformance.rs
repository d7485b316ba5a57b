//! fluxlet prints what Flux prints.
//!
//! Each file in `conformance/` is a session with an instance of four slots fs-[0-3] of two cores,
//! of which three are online: commands with their output and exit code, as printed by a real Flux
//! 0.88. The same tests run with a real Flux if `FLUX_ROOT` is set, so the expected output is known
//! to be right. `FLUX_RECORD=1` rewrites the files from the actual output.
//!
//! IDs, times, hosts and the directory are replaced before comparing, and JSON is compared as
//! values. `@join N`, `@kill N` and `@term N` start and stop brokers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::process::Output;
use std::sync::{Mutex, PoisonError};

use regex::Regex;
use rustix::process::Signal;
use support::{Cluster, UnderTest, exit_code, fixture_path};

const UNDER_TEST: UnderTest = UnderTest::AnyFlux;

/// One instance at a time: test machines have two cores, and a real Flux needs both.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn attributes_and_configuration() {
    conform("attributes.txt");
}

#[test]
fn running_jobs() {
    conform("run.txt");
}

#[test]
fn submitting_jobs() {
    conform("submit.txt");
}

#[test]
fn printing_jobs() {
    conform("jobs.txt");
}

#[test]
fn canceling_jobs() {
    conform("ending.txt");
}

#[test]
fn resources_and_queue() {
    conform("resources.txt");
}

#[test]
fn batch_jobs() {
    conform("batch.txt");
}

#[test]
fn brokers_that_join_and_leave() {
    conform("brokers.txt");
}

/// A command with its output, or a directive.
struct Step {
    line: String,
    expected: String,
}

fn conform(name: &str) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let path = fixture_path(name);
    let text = fs::read_to_string(&path).unwrap();
    let (preface, steps) = parse(&text);
    let mut cluster = Cluster::new(4);
    cluster.start(3);
    let normal = Normalizer::new(&cluster);
    let mut recorded = preface;
    let mut differences = String::new();
    for step in &steps {
        recorded.push_str(&format!("{}\n", step.line));
        let Some(command) = step.line.strip_prefix("$ ") else {
            run_directive(&mut cluster, &step.line);
            recorded.push('\n');
            continue;
        };
        let found = normal.transcript(&cluster.shell(command));
        recorded.push_str(&format!("{found}\n"));
        if found != step.expected {
            differences.push_str(&format!(
                "$ {command}\n--- expected\n{}--- found\n{found}\n",
                step.expected
            ));
        }
    }
    if std::env::var_os("FLUX_RECORD").is_some() {
        fs::write(path, format!("{}\n", recorded.trim_end())).unwrap();
        return;
    }
    assert!(differences.is_empty(), "{name} differs:\n{differences}");
}

/// Comments before the first step, and the steps.
fn parse(text: &str) -> (String, Vec<Step>) {
    let mut preface = String::new();
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        let is_new = line.starts_with("$ ") || line.starts_with('@');
        match steps.last_mut() {
            _ if is_new => steps.push(Step { line: line.to_owned(), expected: String::new() }),
            None => preface.push_str(&format!("{line}\n")),
            // The empty line between steps belongs to neither.
            Some(step) if step.expected.contains("[rc=") || step.line.starts_with('@') => {}
            Some(step) => step.expected.push_str(&format!("{line}\n")),
        }
    }
    (preface, steps)
}

fn run_directive(cluster: &mut Cluster, line: &str) {
    let (word, rank) = line.split_once(' ').unwrap();
    let rank: u32 = rank.parse().unwrap();
    match word {
        "@join" => {
            cluster.start_worker(rank);
            cluster.wait_for(rank, true);
        }
        "@kill" => {
            cluster.kill(rank, Signal::KILL);
            cluster.wait_for(rank, false);
        }
        "@term" => {
            cluster.kill(rank, Signal::TERM);
            cluster.wait_for(rank, false);
        }
        other => panic!("unknown directive {other}"),
    }
}

/// Replaces what differs between runs and machines.
struct Normalizer(Vec<(Regex, String)>);

impl Normalizer {
    fn new(cluster: &Cluster) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let directory = cluster.directory.path().display().to_string();
        let rules = [
            (regex::escape(&directory), "DIRECTORY"),
            (r"\x1b\[[0-9;]*m".to_owned(), ""),
            (r" *ƒ[1-9A-HJ-NP-Za-km-z]+".to_owned(), " ƒID"),
            (r"\bf[1-9A-HJ-NP-Za-km-z]{7,12}\b".to_owned(), "fID"),
            (r"\d{9,}\.\d+".to_owned(), "TIMESTAMP"),
            (r" *\b\d+(\.\d+)?(ms|s|m)\b".to_owned(), " TIME"),
            (r"[A-Z][a-z][a-z] \d\d \d\d:\d\d:\d\d\.\d+ UTC \d+".to_owned(), "DATE"),
            (r"[A-Z][a-z][a-z]\d\d \d\d:\d\d".to_owned(), "DATE"),
            (r"\d\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d".to_owned(), "DATE"),
            (r"^ \d\d:\d\d:\d\d ".to_owned(), "CLOCK "),
            (format!(r"\b{}\b", regex::escape(&host)), "HOST"),
        ];
        Self(rules.map(|(rule, with)| (Regex::new(&rule).unwrap(), with.to_owned())).into())
    }

    fn transcript(&self, output: &Output) -> String {
        let mut text = String::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            text.push_str(&format!("{}\n", self.line(line)));
        }
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            text.push_str(&format!("stderr: {}\n", self.line(line)));
        }
        text.push_str(&format!("[rc={}]\n", exit_code(output.status)));
        text
    }

    fn line(&self, line: &str) -> String {
        if let Ok(value @ serde_json::Value::Object(_)) = serde_json::from_str(line) {
            return normalize_json(value).to_string();
        }
        let replace = |text: String, (rule, with): &(Regex, String)| {
            rule.replace_all(&text, with.as_str()).into_owned()
        };
        self.0.iter().fold(line.to_owned(), replace).trim_end().to_owned()
    }
}

/// Sorts keys, replaces numbers that are times or IDs, and removes limits of the machine.
fn normalize_json(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, _)| key != "rlimit" && key != "cwd");
            let normal = |(key, value): (String, Value)| match key.as_str() {
                "runtime" => (key, Value::from("TIME")),
                "jobid" => (key, Value::from("ƒID")),
                _ => (key, normalize_json(value)),
            };
            Value::Object(kept.map(normal).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(normalize_json).collect()),
        Value::Number(number) if number.as_f64().is_some_and(|number| number > 1e8) => {
            Value::from("NUMBER")
        }
        // A duration of 0 may be printed with or without a fraction.
        Value::Number(number) => Value::from(number.as_f64()),
        other => other,
    }
}
