//! `kubectl minicluster create` of a MiniCluster that joins another one. Its command is never run.

use std::process::Output;

use serde_json::{Value, json};

use crate::server::{kubeconfig, serve_objects};
use crate::{errors, plugin};

#[test]
fn create_returns_once_it_has_joined() {
    let ran = create(&[], &["True", "Joined", "ranks 2-3 of \"first\" are online"]);
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(0), &b""[..]), "{}", errors(&ran));
    let expected = "second has joined: ranks 2-3 of \"first\" are online\n\
        hint: show its ranks with `kubectl minicluster ranks second`\n";
    assert!(errors(&ran).ends_with(expected), "{}", errors(&ran));
}

#[test]
fn create_fails_if_its_user_has_to_act() {
    let ran = create(&[], &["False", "NotAllowed", "namespace \"default\" is not allowed"]);
    assert_eq!(ran.status.code(), Some(1));
    let expected = "error: second does not start: NotAllowed: namespace \"default\" is not allowed\n\
        hint: Add this namespace to ";
    assert!(errors(&ran).contains(expected), "{}", errors(&ran));
}

#[test]
fn rm_needs_a_cluster_that_finishes() {
    let ran = create(&["--rm"], &["True", "Joined", ""]);
    assert_eq!(ran.status.code(), Some(1));
    let expected = "error: --rm needs a command\nhint: a MiniCluster that joins another one";
    assert!(errors(&ran).starts_with(expected), "{}", errors(&ran));
}

#[test]
fn several_are_created_by_kubectl() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.yaml");
    let object = |name: &str, flux: Value| {
        json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "metadata": { "name": name }, "spec": { "flux": flux, "containers": [{}] } })
    };
    let (first, second) =
        (object("first", json!({})), object("second", json!({ "join": { "name": "first" } })));
    std::fs::write(&file, format!("{first}\n---\n{second}")).unwrap();
    let ran = plugin(&folder, &["create", "-f", file.to_str().unwrap()]);
    assert_eq!(ran.status.code(), Some(1));
    let expected = format!(
        "error: {file} has 2 MiniClusters, and one can be created\n\
         hint: create them with `kubectl apply -f {file}`\n",
        file = file.display()
    );
    assert_eq!(errors(&ran), expected);
}

/// Creates a joiner whose condition Joined has this status, reason and message.
fn create(flags: &[&str], joined: &[&str; 3]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("joiner.yaml");
    let manifest = json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": "second" },
        "spec": {
            "size": 2,
            "flux": { "join": { "name": "first" } },
            "containers": [{ "image": "busybox", "command": "hostname" }],
        },
    });
    std::fs::write(&file, manifest.to_string()).unwrap();
    let mut stored = manifest;
    let [status, reason, message] = joined;
    let condition = |kind: &str| -> Value {
        json!({ "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    stored["metadata"] =
        json!({ "name": "second", "namespace": "default", "uid": "u", "generation": 1 });
    stored["status"] = json!({ "phase": "Waiting", "ready": "0/2", "observedGeneration": 1,
        "conditions": [condition("Joined"), condition("Ready")] });
    let server = format!("http://{}", serve_objects(vec![stored]));
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig(&server, "")).unwrap();
    plugin(&folder, &[&["create", "-f", file.to_str().unwrap()], flags].concat())
}
