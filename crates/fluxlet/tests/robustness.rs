//! Robustness of brokers: garbage, wrong certificates, killed processes, much output, many jobs,
//! many brokers. These tests are about fluxlet itself, so they never run a real Flux.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use support::{Cluster, Process, UnderTest, command, exit_code, output};

/// These tests depend on fluxlet's own messages.
const UNDER_TEST: UnderTest = UnderTest::Fluxlet;

#[test]
fn a_closed_pipe_stops_a_command_without_a_message() {
    for words in [&["version"][..], &["help"], &["submit", "--dry-run", "true"]] {
        let closed_pipe = std::io::pipe().unwrap().1;
        let output = command().args(words).stdout(closed_pipe).output().unwrap();
        assert_eq!(output.stderr, b"", "{words:?}");
        // The exit code that shells show for a program killed by SIGPIPE.
        assert_eq!(output.status.code(), Some(141), "{words:?}");
    }
}

/// The lead rejects peers without the certificate, and logs why.
#[test]
fn peers_without_the_certificate_are_rejected_and_the_lead_keeps_running() {
    let mut cluster = Cluster::on_tcp(4);
    cluster.start(2);
    // Garbage, a valid length with a wrong key, nothing at all, and connections that stay open.
    let mut garbage = connect(&cluster);
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(garbage.read(&mut [0; 16]).unwrap_or(0), 0, "the connection is closed");
    let mut forged = connect(&cluster);
    forged.write_all(&[0, 48]).unwrap();
    forged.write_all(&[7; 48]).unwrap();
    assert_eq!(forged.read(&mut [0; 16]).unwrap_or(0), 0, "the connection is closed");
    let half = connect(&cluster);
    half.shutdown(Shutdown::Write).unwrap();
    let slow: Vec<TcpStream> = (0..20).map(|_| connect(&cluster)).collect();
    for mut stream in &slow {
        stream.write_all(&[0]).unwrap();
    }
    let log = |word: &str| fs::read_to_string(cluster.path("log0")).unwrap().contains(word);
    cluster.wait_until("garbage is logged", || log("sent an invalid handshake"));
    cluster.wait_until("the forgery is logged", || log("does not have the certificate"));
    cluster.start_worker(2);
    cluster.wait_for(2, true);
    assert_eq!(cluster.text(&["run", "-N3", "echo", "hi"]), "hi\nhi\nhi");
    drop(slow);
}

fn connect(cluster: &Cluster) -> TcpStream {
    let stream = TcpStream::connect(cluster.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// A peer that sends a byte now and then is disconnected at the deadline.
#[test]
fn a_slow_handshake_is_aborted() {
    let mut cluster = Cluster::on_tcp(2);
    cluster.start(2);
    let mut slow = connect(&cluster);
    slow.write_all(&[0]).unwrap();
    // The lead's deadline is ten seconds; then it closes the connection.
    assert_eq!(slow.read(&mut [0; 16]).unwrap_or(0), 0);
    let log = || fs::read_to_string(cluster.path("log0")).unwrap();
    cluster.wait_until("it is logged", || log().contains("failed to prove membership"));
}

#[test]
fn a_broker_with_another_certificate_does_not_join() {
    let mut cluster = Cluster::on_tcp(4);
    assert!(
        command()
            .args(["keygen", "--name=other"])
            .arg(cluster.path("other"))
            .status()
            .unwrap()
            .success()
    );
    cluster.write_config("other.toml", "other");
    cluster.start(2);
    let mut other = Process::start(cluster.broker(2, "other.toml").arg("-Slog-stderr-level=4"));
    let log =
        |name: &str, word: &str| fs::read_to_string(cluster.path(name)).unwrap().contains(word);
    cluster.wait_until("it is logged", || log("log0", "does not have the certificate"));
    cluster
        .wait_until("the other broker logs it too", || log("log2", "failed to prove membership"));
    assert!(cluster.text(&["overlay", "status"]).contains("2 fs-2: offline"));
    other.signal(Signal::TERM);
    assert_eq!(exit_code(other.wait()), 0, "stopped while it waits");
}

#[test]
fn a_broker_with_the_wrong_rank_is_rejected() {
    let mut cluster = Cluster::on_tcp(4);
    cluster.start(2);
    // A table in which fs-2 and fs-3 are swapped.
    let text = fs::read_to_string(cluster.path("config.toml")).unwrap();
    let swapped = text.replacen("\"fs-[0-3]\"", "\"fs-[0,1,3,2]\"", 1);
    fs::write(cluster.path("swapped.toml"), swapped).unwrap();
    let mut stranger = Process::start(&mut cluster.broker(2, "swapped.toml"));
    assert_eq!(exit_code(stranger.wait()), 1);
    let log = fs::read_to_string(cluster.path("log2")).unwrap();
    assert!(log.contains("rejected by the lead broker") && log.contains("mismatched"), "{log}");
    assert_eq!(cluster.text(&["getattr", "size"]), "4");
}

#[test]
fn a_killed_worker_leaves_no_processes_and_may_rejoin() {
    let mut cluster = Cluster::new(3);
    cluster.start(3);
    let marker = format!("3{:08}", std::process::id());
    cluster.text(&["submit", "-N3", "sleep", &marker]);
    cluster.wait_until("the tasks run", || support::is_running(&marker));
    cluster.kill(2, Signal::KILL);
    let output = cluster.flux(&["job", "attach", &cluster.text(&["job", "last"])]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("node failure on fs-2 (rank 2)"), "{error}");
    cluster.wait_until("all tasks have exited", || !support::is_running(&marker));
    cluster.start_worker(2);
    cluster.wait_for(2, true);
    assert_eq!(cluster.text(&["run", "-N3", "echo", "hi"]), "hi\nhi\nhi");
}

#[test]
fn workers_exit_when_the_lead_is_killed() {
    let mut cluster = Cluster::new(3);
    cluster.start(3);
    let mark = format!("4{:08}", std::process::id());
    cluster.text(&["submit", "-N3", "sleep", &mark]);
    cluster.wait_until("the tasks run", || support::is_running(&mark));
    cluster.kill(0, Signal::KILL);
    for rank in [1, 2] {
        let mut worker = cluster.brokers[rank].take().unwrap();
        assert_eq!(exit_code(worker.wait()), 1);
        let log = fs::read_to_string(cluster.path(&format!("log{rank}"))).unwrap();
        assert!(log.contains("lost the connection to the lead broker"), "{log}");
    }
    cluster.wait_until("all tasks have exited", || !support::is_running(&mark));
    // The same brokers again, in any order: leftovers of the old ones do not interfere.
    cluster.start_worker(2);
    cluster.start(2);
    cluster.wait_for(2, true);
    assert_eq!(cluster.text(&["run", "-N3", "echo", "hi"]), "hi\nhi\nhi");
}

#[test]
fn an_instance_shuts_down_on_a_signal_and_on_request() {
    for by_signal in [true, false] {
        let mut cluster = Cluster::new(3);
        cluster.start(3);
        let mark = format!("5{:07}{}", std::process::id(), u8::from(by_signal));
        cluster.text(&["submit", "-N3", "sh", "-c", &format!("trap '' TERM; sleep {mark}")]);
        cluster.wait_until("the tasks run", || support::is_running(&mark));
        if by_signal {
            assert_eq!(exit_code(cluster.kill(0, Signal::TERM)), 0);
        } else {
            cluster.text(&["shutdown"]);
            assert_eq!(exit_code(cluster.brokers[0].take().unwrap().wait()), 0);
        }
        for rank in [1, 2] {
            assert_eq!(exit_code(cluster.brokers[rank].take().unwrap().wait()), 0);
        }
        cluster.wait_until("all tasks have exited", || !support::is_running(&mark));
    }
}

#[test]
fn no_line_of_output_is_lost() {
    let mut cluster = Cluster::new(4);
    cluster.start(4);
    let lines = "i=0; while [ $i -lt 10000 ]; do echo $FLUX_TASK_RANK $i; i=$((i+1)); done";
    let text = cluster.text(&["run", "-n8", "sh", "-c", lines]);
    let mut next: BTreeMap<u32, u32> = BTreeMap::new();
    for line in text.lines() {
        let (task, number) = line.split_once(' ').unwrap();
        let expected = next.entry(task.parse().unwrap()).or_default();
        assert_eq!(number.parse(), Ok(*expected), "in order and whole");
        *expected += 1;
    }
    assert_eq!(next, (0..8).map(|task| (task, 10_000)).collect());
    // Again from the history, then through a worker, and as one long line.
    let again = cluster.text(&["job", "attach", &cluster.text(&["job", "last"])]);
    assert_eq!(again.len(), text.len());
    let mut from_worker = command();
    let piece = "yes | tr -d '\\n' | head -c 3000000";
    from_worker.args(["run", "-n2", "sh", "-c", piece]).env("FLUX_URI", cluster.uri(3));
    let output = output(&mut from_worker);
    assert_eq!(output.stdout.len(), 6_000_000, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_thousand_jobs_run() {
    let mut cluster = Cluster::new(2);
    cluster.start(2);
    let ids = cluster.text(&["submit", "--cc=1-1000", "--wait", "true"]);
    assert_eq!(ids.lines().count(), 1000);
    let done = cluster.text(&["jobs", "-a", "-c0", "-f", "completed", "-no", "{id}"]);
    assert_eq!(done.lines().count(), 1000);
    assert_eq!(cluster.text(&["jobs", "-no", "{id}"]), "");
}

#[test]
fn sixty_four_brokers_join() {
    let mut start = command();
    start.args(["start", "-s64", "flux", "run", "-N64", "flux", "getattr", "rank"]);
    let output = output(&mut start);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut ranks: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    ranks.sort_unstable();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(ranks, (0..64).collect::<Vec<_>>(), "{error}");
    assert_eq!(exit_code(output.status), 0);
}
