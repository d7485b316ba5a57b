//! Clusters that stay up: users connect to them, and the kubelet probes whether
//! they are ready.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use common::{Agent, Cluster, eventually, free_port};
use flux_operator_wire::{Program, Sidecar, TerminationReason};

/// The agent's response to a readiness probe.
fn probe(port: u16) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
        stream.write_all(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream.read_to_string(&mut text).unwrap();
    }
    text
}

fn is_ready(port: u16) -> bool {
    probe(port).starts_with("HTTP/1.1 200 ")
}

/// Runs a command like a user in a shell in the pod.
fn in_pod(agent: &Agent, text: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", text])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("ROOT", &agent.root)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}: {errors}{}", agent.output());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_cluster_without_a_program_is_ready_at_quorum_and_stays_until_it_is_shut_down() {
    let mut cluster = Cluster::new(2, Program::Stay);
    let ports = [free_port(), free_port()];
    cluster.plan.environment.insert("GREETING".into(), "it's \"me\"".into());
    cluster.plan.ready_port = ports[0];
    let mut lead = cluster.start(0);
    eventually("the lead's broker is there", || lead.root.join("config/run/flux/local").exists());
    assert!(probe(ports[0]).contains("503"), "no quorum yet: {}", probe(ports[0]));
    cluster.plan.ready_port = ports[1];
    let mut worker = cluster.start(1);
    for port in ports {
        eventually("all are ready", || is_ready(port));
    }
    let nodes = "\"$ROOT\"/flux-connect.sh flux run -N2 echo node";
    assert_eq!(in_pod(&lead, nodes), "node\nnode\n");
    let by_hand =
        ". \"$ROOT\"/flux-view.sh; flux proxy $fluxsocket flux getattr size; echo $GREETING";
    assert_eq!(in_pod(&worker, by_hand), "2\nit's \"me\"\n");
    in_pod(&lead, "\"$ROOT\"/flux-connect.sh flux shutdown || :");
    assert_eq!(lead.wait(), 0, "{}", lead.output());
    assert_eq!(lead.termination().reason, TerminationReason::Completed);
    let complete = worker.root.join("flux-operator-complete.txt");
    eventually("the worker's broker has exited", || complete.exists());
    assert!(probe(ports[1]).contains("not ready: the broker exited"), "{}", probe(ports[1]));
    assert_eq!(worker.stop(), 143);
}

#[test]
fn a_sidecar_waits_for_the_broker_and_stays_after_its_command() {
    let mut cluster = Cluster::new(1, Program::Stay);
    cluster.plan.sidecars = vec![Sidecar {
        name: "web".into(),
        init: "echo first".into(),
        service_pre: ". \"$SHARED\"/flux-view.sh; A='before it'".into(),
        command: "echo $A \"$@\"; flux proxy $fluxsocket flux getattr size; (exit 4)".into(),
        words: vec!["a  b".into()],
        post: "echo last".into(),
        wait_for_socket: true,
    }];
    let shared = cluster.path().join("0");
    cluster.environment = vec![("SHARED".into(), shared.display().to_string())];
    let mut sidecar = cluster.start_sidecar(0, "web");
    eventually("the sidecar has begun", || sidecar.output() == "first\n");
    let mut lead = cluster.start(0);
    eventually("the sidecar is done", || sidecar.output().contains("exited with 4"));
    let expected = "first\nbefore it a  b\n1\nlast\n";
    assert!(sidecar.output().starts_with(expected), "{}", sidecar.output());
    assert!(sidecar.is_running());
    assert_eq!(sidecar.stop(), 0);
    assert_eq!(lead.stop(), 143);
}

#[test]
fn a_sidecar_stops_whatever_it_is_doing() {
    let mut cluster = Cluster::new(1, Program::Stay);
    let sidecar = |name: &str, wait_for_socket| Sidecar {
        name: name.into(),
        init: "echo begun".into(),
        command: "trap '' TERM; echo running; sleep 1000".into(),
        wait_for_socket,
        ..Sidecar::default()
    };
    cluster.plan.sidecars = vec![sidecar("waits", true), sidecar("runs", false)];
    for (name, sign) in [("waits", "begun\n"), ("runs", "begun\nrunning\n")] {
        let mut sidecar = cluster.start_sidecar(0, name);
        eventually("the sidecar has begun", || sidecar.output() == sign);
        assert_eq!(sidecar.stop(), 0);
    }
    let mut unknown = cluster.start_sidecar(0, "nobody");
    assert_eq!(unknown.wait(), 1);
    assert!(unknown.output().contains("no sidecar \"nobody\""), "{}", unknown.output());
}

#[test]
fn the_program_copies_itself_and_prints_its_version() {
    let cluster = Cluster::without_flux(Program::Stay);
    let agent = env!("CARGO_BIN_EXE_flux-operator-agent");
    let target = cluster.path().join("a/b");
    assert!(Command::new(agent).arg("copy").arg(&target).status().unwrap().success());
    let output = Command::new(target.join("flux-operator-agent")).arg("version").output().unwrap();
    let expected = format!("flux-operator-agent {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert_eq!(Command::new(agent).arg("nonsense").status().unwrap().code(), Some(64));
}
