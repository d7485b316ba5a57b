//! The program itself: exit codes, and what it prints.

use std::process::{Output, Stdio};

use flux_operator_gke::testing::{FakeGoogle, Fault, TOKEN};
use flux_operator_wire::GkeFailure;
use serde_json::json;
use tokio::process::Command;

use super::support::*;

/// Runs the program for a server.
async fn run(fake: &FakeGoogle, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let server = format!("{}/home", fake.url());
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "home",
        "clusters": [{ "name": "home", "cluster": { "server": server } }],
        "users": [{ "name": "home", "user": {} }],
        "contexts": [{ "name": "home", "context": { "cluster": "home", "user": "home" } }] });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux-operator-gke"));
    for name in ["BURST_NAME", "BURST_NODES", "BURST_SECRET", "BURST_NAMESPACE", "GKE_SETTINGS"] {
        command.env(name, variables(name).unwrap());
    }
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("GKE_ENDPOINT", fake.url())
        .env("GCE_METADATA_HOST", fake.address().to_string())
        .env_remove("GKE_CREDENTIALS")
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap()
}

#[test]
fn it_makes_lists_and_deletes_a_cluster_and_prints_no_secret() {
    run_test(async || {
        let fake = fake().await;
        fake.set_slowness(0);
        let up = run(&fake, &["up"]).await;
        let log = String::from_utf8_lossy(&up.stderr).into_owned();
        assert!(up.status.success(), "{log}");
        check_made(&fake);
        let list = run(&fake, &["list"]).await;
        assert!(String::from_utf8_lossy(&list.stdout).starts_with("burst-0123456789ab RUNNING"));
        let down = run(&fake, &["down"]).await;
        assert!(down.status.success());
        assert!(fake.clusters().is_empty());
        assert!(log.contains("the cluster is ready"), "{log}");
        for secret in [TOKEN, "inner-token"] {
            assert!(!log.contains(secret), "{log}");
        }
    });
}

#[test]
fn its_exit_code_and_its_last_line_say_why_it_gave_up() {
    run_test(async || {
        let fake = fake().await;
        let text = "Insufficient regional quota to satisfy request";
        fake.fail("CreateCluster", Fault::Refused(403, "PERMISSION_DENIED", text.into()));
        let up = run(&fake, &["up"]).await;
        assert_eq!(up.status.code(), Some(GkeFailure::Quota.exit_code().into()));
        let log = String::from_utf8_lossy(&up.stderr).into_owned();
        let last = log.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: ") && last.contains(text), "{log}");
    });
}

#[test]
fn an_unknown_verb_is_refused() {
    run_test(async || {
        for arguments in [&["away"][..], &[], &["up", "down"]] {
            let output = run(&fake().await, arguments).await;
            assert_eq!(output.status.code(), Some(1));
            assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: "));
        }
    });
}
