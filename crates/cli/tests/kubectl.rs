//! `kubectl minicluster` where there is no cluster, or one without MiniClusters.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use tempfile::TempDir;

const WRONG: &str = "
apiVersion: flux-framework.org/v1alpha2
kind: MiniCluster
metadata: {name: wrong}
spec: {size: 0, containers: [{image: busybox}]}
";

#[test]
fn mistakes_are_told_before_a_cluster_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.yaml");
    std::fs::write(&file, WRONG).unwrap();
    let file = file.to_str().unwrap();
    let ran = plugin(&folder, &["create", "-f", file]);
    assert_eq!(ran.status.code(), Some(1));
    let expected = format!("error: the manifest cannot be carried out\n{file}: spec.size: is 0");
    assert!(errors(&ran).starts_with(&expected), "{}", errors(&ran));
}

#[test]
fn no_cluster_and_no_context_come_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let ran = plugin(&folder, &["list"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(errors(&ran).contains("\nhint: set KUBECONFIG"), "{}", errors(&ran));
    let ran = plugin(&folder, &["--context", "other", "list"]);
    assert!(errors(&ran).contains("\nhint: `kubectl config get-contexts`"), "{}", errors(&ran));
}

#[test]
fn a_cluster_without_miniclusters_says_how_to_install_them() {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         users: [{{name: u, user: {{}}}}]\n",
        server.local_addr().unwrap()
    );
    std::fs::write(folder.path().join("kubeconfig"), config).unwrap();
    std::thread::spawn(move || server.incoming().for_each(|stream| not_found(stream.unwrap())));
    for words in [&["list"][..], &["logs", "any"], &["delete", "any"]] {
        let ran = plugin(&folder, words);
        assert_eq!(ran.status.code(), Some(1));
        assert!(errors(&ran).contains("hint: install them with "), "{words:?}: {}", errors(&ran));
    }
}

/// Answers as an API server that knows nothing.
fn not_found(mut stream: std::net::TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let text = "404 page not found\n";
    let head = "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Type: text/plain";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len()).unwrap();
}

/// Runs the program under the plugin's name, with the kubeconfig of the folder.
fn plugin(folder: &TempDir, words: &[&str]) -> Output {
    let link = folder.path().join("kubectl-minicluster");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_flux-operator"), &link).unwrap();
    }
    let mut command = Command::new(link);
    command.args(words).env_remove("KUBERNETES_SERVICE_HOST").env("HOME", folder.path());
    command.env("KUBECONFIG", folder.path().join("kubeconfig")).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
