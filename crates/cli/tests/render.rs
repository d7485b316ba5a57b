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
fn without_a_certificate_each_run_generates_new_keys() {
    assert_ne!(render(&["-f", EXAMPLE]).stdout, render(&["-f", EXAMPLE]).stdout);
}

#[test]
fn other_kinds_are_rejected() {
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/queue/job.yaml");
    let result = render(&["-f", job]);
    assert_eq!(result.status.code(), Some(1));
    let errors = String::from_utf8(result.stderr).unwrap();
    assert!(errors.contains("only MiniClusters are rendered, and this is a FluxJob"), "{errors}");
}

#[test]
fn an_unsupported_field_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("munge.yaml");
    let text = std::fs::read_to_string(EXAMPLE)
        .unwrap()
        .replace("spec:\n", "spec:\n  autoscale: { maxSize: 2 }\n");
    std::fs::write(&file, text).unwrap();
    let result = render(&["-f", file.to_str().unwrap()]);
    assert_eq!(result.status.code(), Some(1));
    let errors = String::from_utf8(result.stderr).unwrap();
    assert!(errors.contains("spec.autoscale: is not supported yet: remove it"), "{errors}");
    let result = render(&["-f", EXAMPLE, "--certificate", file.to_str().unwrap()]);
    let errors = String::from_utf8(result.stderr).unwrap();
    assert!(errors.contains("is not a valid certificate"), "{errors}");
}

#[test]
fn a_joiner_is_left_out_with_a_note() {
    let connected = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/connected");
    let result = render(&["-f", &format!("{connected}/local.yaml")]);
    assert_eq!(result.status.code(), Some(0));
    let objects = manifest::read(&result.stdout).unwrap().documents;
    let jobs: Vec<_> = objects.iter().filter(|object| object.kind() == Some("Job")).collect();
    assert_eq!((jobs.len(), jobs[0].name()), (1, Some("base")));
    let errors = String::from_utf8(result.stderr).unwrap();
    let note = "MiniCluster \"more\"): \"more\" is left out: its objects depend on the ranks that \
        \"base\" leases to it when both run\n";
    assert!(errors.starts_with("note: ") && errors.ends_with(note), "{errors}");
    let alone = render(&["-f", &format!("{connected}/joiner.yaml")]);
    assert_eq!((alone.status.code(), alone.stdout.as_slice()), (Some(1), &b""[..]));
    let errors = String::from_utf8(alone.stderr).unwrap();
    assert!(errors.contains("which are leased when both run\nhint: render \"lender\""), "{errors}");
}

#[test]
fn an_exposed_cluster_has_its_service_and_says_what_is_not_known() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/two-clusters");
    for (file, name, port, comment) in [
        (
            "lender.yaml",
            "flux-sample-external",
            "closed",
            "# MiniCluster flux-sample: left out are",
        ),
        ("go-lender.yaml", "go-sample-external", "broker", ""),
    ] {
        let result = render(&["-f", &format!("{folder}/{file}")]);
        let text = String::from_utf8(result.stdout).unwrap();
        let objects = manifest::read(text.as_bytes()).unwrap().documents;
        let last = objects.last().unwrap();
        assert_eq!((last.kind(), last.name()), (Some("Service"), Some(name)));
        assert_eq!(last.value["spec"]["ports"][0]["name"], port);
        assert_eq!(text.starts_with("# "), !comment.is_empty(), "{text}");
        assert!(text.starts_with(comment), "{text}");
    }
}

#[test]
fn a_joiner_of_another_kubernetes_cluster_says_what_is_not_known() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/two-clusters/go-child.yaml");
    let text = String::from_utf8(render(&["-f", file]).stdout).unwrap();
    assert!(text.starts_with("# MiniCluster burst-0: "), "{text}");
    assert!(text.contains("report.key in the Secret burst-0-flux"), "{text}");
    let objects = manifest::read(text.as_bytes()).unwrap().documents;
    assert_eq!((objects[0].kind(), objects[0].name()), (Some("Secret"), Some("burst-0-flux")));
}

#[test]
fn an_error_names_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.yaml");
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let name = manifest::read(text.as_bytes()).unwrap().documents[0].name().unwrap().to_owned();
    let fields = [("sizes: 2", "spec.sizes: "), ("autoscale: {maxSize: 2}", "spec.autoscale: ")];
    for (field, problem) in fields {
        let second = text.replace("spec:\n", &format!("spec:\n  {field}\n"));
        std::fs::write(&file, format!("{text}\n---\n{second}")).unwrap();
        let result = render(&["-f", file.to_str().unwrap()]);
        let errors = String::from_utf8(result.stderr).unwrap();
        let expected = format!("(document 2, MiniCluster {name:?}): {problem}");
        assert!(errors.contains(&expected), "{errors}");
    }
}

fn render(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flux-operator"))
        .args(["render", "--agent-image", "example.com/agent:1"])
        .args(arguments)
        .output()
        .unwrap()
}
