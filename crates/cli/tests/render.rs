//! `flux-operator render`: the objects of a manifest, without a cluster.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use flux_operator_api::manifest;
use flux_operator_flux::{Certificate, Metadata, SecretKey};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.yaml");

#[test]
fn the_same_certificate_gives_the_same_objects() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("curve.cert");
    let certificate =
        Certificate::new(SecretKey::from_bytes([7; 32]), Metadata::new("test").unwrap());
    std::fs::write(&file, certificate.to_secret_text().as_bytes()).unwrap();
    let render = || render(&["-f", EXAMPLE, "--certificate", file.to_str().unwrap()]);
    let (first, second) = (render(), render());
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    assert_eq!(first.stdout, second.stdout);
    let objects = manifest::read(&first.stdout).unwrap().documents;
    let kinds: Vec<_> = objects.iter().map(|object| object.kind().unwrap()).collect();
    assert_eq!(kinds, ["Secret", "ConfigMap", "Service", "Job"]);
    assert_eq!(objects[3].value["spec"]["completions"], 4);
}

#[test]
fn without_one_each_run_has_keys_of_its_own() {
    assert_ne!(render(&["-f", EXAMPLE]).stdout, render(&["-f", EXAMPLE]).stdout);
}

#[test]
fn of_another_kind_it_is_told_that_nothing_is_rendered() {
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/queue/job.yaml");
    let result = render(&["-f", job]);
    assert_eq!(result.status.code(), Some(1));
    let errors = String::from_utf8(result.stderr).unwrap();
    assert!(errors.contains("only MiniClusters are rendered, and this is a FluxJob"), "{errors}");
}

#[test]
fn what_cannot_be_carried_out_is_told_with_its_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("munge.yaml");
    let text = std::fs::read_to_string(EXAMPLE)
        .unwrap()
        .replace("spec:\n", "spec:\n  flux: { mungeSecret: munge }\n");
    std::fs::write(&file, text).unwrap();
    let result = render(&["-f", file.to_str().unwrap()]);
    assert_eq!(result.status.code(), Some(1));
    let errors = String::from_utf8(result.stderr).unwrap();
    assert!(errors.contains("spec.flux.mungeSecret: is not supported yet: remove it"), "{errors}");
    let result = render(&["-f", EXAMPLE, "--certificate", file.to_str().unwrap()]);
    let errors = String::from_utf8(result.stderr).unwrap();
    assert!(errors.contains("is not a valid certificate"), "{errors}");
}

fn render(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flux-operator"))
        .args(["render", "--agent-image", "example.com/agent:1"])
        .args(arguments)
        .output()
        .unwrap()
}
