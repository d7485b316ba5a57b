//! `kubectl minicluster` without a cluster, or with one that does not have our CRDs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod burst;
mod burst_why;
mod exec_server;
mod invite;
mod joiner;
mod proxy;
mod ranks;
mod server;

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use server::kubeconfig;
use tempfile::TempDir;

const WRONG: &str = "
apiVersion: flux-framework.org/v1alpha2
kind: MiniCluster
metadata: {name: wrong}
spec: {size: 0, containers: [{image: busybox}]}
";

#[test]
fn an_invalid_manifest_is_reported_before_connecting() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.yaml");
    std::fs::write(&file, WRONG).unwrap();
    let file = file.to_str().unwrap();
    let ran = plugin(&folder, &["create", "-f", file]);
    assert_eq!(ran.status.code(), Some(1));
    let expected = format!("error: the manifest is not valid\n{file}: spec.size: is 0");
    assert!(errors(&ran).starts_with(&expected), "{}", errors(&ran));
}

#[test]
fn a_missing_cluster_or_context_is_an_error_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let ran = plugin(&folder, &["list"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(errors(&ran).contains("\nhint: set KUBECONFIG"), "{}", errors(&ran));
    let ran = plugin(&folder, &["--context", "other", "list"]);
    assert!(errors(&ran).contains("\nhint: `kubectl config get-contexts`"), "{}", errors(&ran));
}

#[test]
fn a_cluster_without_our_crds_is_an_error_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("http://{}", server::serve(server::NOT_FOUND));
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig(&server, "")).unwrap();
    for words in [
        &["list"][..],
        &["logs", "any"],
        &["ranks", "any"],
        &["delete", "any"],
        &["invite", "list"],
        &["burst"],
        &["burst", "policies"],
        &["burst", "give-back", "any"],
        &["burst", "why", "any"],
        &["why", "any", "--job", "f1"],
    ] {
        let ran = plugin(&folder, words);
        assert_eq!(ran.status.code(), Some(1));
        assert!(errors(&ran).contains("hint: install them with "), "{words:?}: {}", errors(&ran));
    }
}

#[test]
fn a_list_exits_silently_when_its_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("http://{}", server::serve(server::ONE_MINICLUSTER));
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig(&server, "")).unwrap();
    for words in [&["list"][..], &["list", "-o", "json"], &["list", "-o", "name"]] {
        let closed_pipe = std::io::pipe().unwrap().1;
        let ran = command(&folder, words).stdout(closed_pipe).output().unwrap();
        assert_eq!(errors(&ran), "", "{words:?}");
        // The exit code that shells report for a program killed by SIGPIPE.
        assert_eq!(ran.status.code(), Some(141), "{words:?}");
    }
}

fn plugin(folder: &TempDir, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

/// The program under the plugin's name, with the kubeconfig in the folder.
fn command(folder: &TempDir, words: &[&str]) -> Command {
    let link = folder.path().join("kubectl-minicluster");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_flux-operator"), &link).unwrap();
    }
    let mut command = Command::new(link);
    command.args(words).env_remove("KUBERNETES_SERVICE_HOST").env("HOME", folder.path());
    command.env("KUBECONFIG", folder.path().join("kubeconfig"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
