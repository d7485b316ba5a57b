//! `flux-operator manifests` prints what `kubectl apply` accepts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use flux_operator_api::manifest;
use serde_json::Value;

fn manifests(arguments: &[&str]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux-operator"));
    let output = command.arg("manifests").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = manifest::read(&output.stdout).unwrap();
    printed.documents.into_iter().map(|document| document.value).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

#[test]
fn manifests_prints_the_crds_and_an_operator_that_uses_its_own_image() {
    let image = "example.com/mine:2";
    let objects = manifests(&["--image", image, "--namespace", "mine", "--replicas", "3"]);
    assert_eq!(of_kind(&objects, "CustomResourceDefinition").len(), 5);
    assert_eq!(of_kind(&objects, "NetworkPolicy").len(), 0);
    // The namespace comes before the objects in it.
    assert_eq!(objects[0]["kind"], "Namespace");
    let spec = &of_kind(&objects, "Deployment")[0]["spec"];
    assert_eq!(spec["replicas"], 3);
    let manager = &spec["template"]["spec"]["containers"][0];
    assert_eq!(manager["image"], image);
    let arguments = manager["args"].as_array().unwrap();
    for expected in [
        format!("--agent-image={image}"),
        "--report-url=http://operator-reports.mine.svc.cluster.local:8080".to_owned(),
    ] {
        assert!(arguments.iter().any(|argument| *argument == expected), "{arguments:?}");
    }
}

#[test]
fn manifests_has_a_network_policy_if_requested() {
    let objects = manifests(&["--network-policy", "--image", "example.com/mine:2"]);
    assert_eq!(of_kind(&objects, "NetworkPolicy").len(), 2, "of the operator and of the gateway");
}

#[test]
fn manifests_has_the_gateway_unless_it_is_left_out() {
    let deployments = |more: &[&str]| {
        let words = [&["--image", "example.com/mine:2"], more].concat();
        of_kind(&manifests(&words), "Deployment").len()
    };
    assert_eq!((deployments(&[]), deployments(&["--no-gateway"])), (2, 1));
}

#[test]
fn a_namespace_of_bursts_that_is_given_twice_has_one_role() {
    let words = ["--burst-namespace", "a", "--burst-namespace", "b", "--burst-namespace", "a"];
    let objects = manifests(&[&["--image", "example.com/mine:2"][..], &words].concat());
    let roles = of_kind(&objects, "Role").into_iter().map(|role| &role["metadata"]);
    let of_bursts = roles.filter(|it| it["name"] == "operator-burst-controller-role");
    assert_eq!(of_bursts.map(|it| &it["namespace"]).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn an_empty_image_for_gke_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux-operator"));
    command.args(["manifests", "--image", "i", "--burst-namespace", "a", "--burst-gke", ""]);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("a value is required for '--burst-gke <IMAGE>'"), "{errors}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_arguments_in_the_deployments_can_be_parsed() {
    let operator = &["--namespaced", "team", "--no-gateway"][..];
    let bursts = &["--burst-namespace", "team", "--burst-commands", "--burst-gke", "gke"][..];
    for (words, name) in
        [(operator, "operator-controller-manager"), (bursts, "operator-burst-controller")]
    {
        let objects = manifests(&[&["--image", "example.com/mine:2"], words].concat());
        let deployments = of_kind(&objects, "Deployment");
        let deployment = deployments.iter().find(|it| it["metadata"]["name"] == name).unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().unwrap().iter().map(|argument| {
            // As the kubelet does.
            argument.as_str().unwrap().replace("$(POD_IP)", "10.0.0.1")
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux-operator"));
        // Outside a cluster it fails after parsing its arguments. If it cannot parse them, that is 2.
        let output = command.args(arguments).env("KUBECONFIG", "/nonexistent").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name}: {errors}");
    }
}
