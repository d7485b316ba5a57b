//! The objects of a few MiniClusters, each for one situation. The snapshots show a reviewer how
//! a change affects them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/render.rs"]
mod common;

use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_plan::kubernetes::{self, Keys, Rendering};
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_wire::BootPlan;
use flux_operator_wire::names::file;
use flux_operator_wire::seal::SealKey;
use serde_json::{Value, json};

#[test]
fn a_command_on_four_nodes() {
    render(
        json!({ "spec": { "size": 4, "containers": [{ "image": "ubuntu", "command": "hostname" }] } }),
        |rendering| {
            insta::assert_yaml_snapshot!("hello_job", kubernetes::job(rendering));
            insta::assert_yaml_snapshot!("hello_service", kubernetes::cluster_service(rendering));
            insta::assert_yaml_snapshot!("hello_boot_plan", rendering.boot_plan());
        },
    );
}

#[test]
fn sidecars_are_native_and_only_the_runner_has_the_keys() {
    let containers = json!([
        { "image": "ubuntu", "runFlux": true, "command": "hostname" },
        { "image": "nginx", "name": "web", "ports": [80] },
        { "image": "ubuntu", "name": "helper", "command": "sleep 10", "args": ["a b"] },
    ]);
    render(json!({ "spec": { "containers": containers } }), |rendering| {
        let pod = kubernetes::job(rendering).spec.unwrap().template.spec.unwrap();
        let sidecars = pod.init_containers.unwrap();
        assert!(sidecars.iter().all(|sidecar| sidecar.restart_policy.as_deref() == Some("Always")));
        let mounts = serde_json::to_string(&sidecars).unwrap();
        assert!(!mounts.contains("flux-operator-keys"), "{mounts}");
        assert!(!mounts.contains("flux-operator-certificate"), "{mounts}");
        insta::assert_yaml_snapshot!("sidecars", sidecars);
    });
}

#[test]
fn without_image_volumes_agent_and_view_are_copied_to_the_same_paths() {
    let container = json!({
        "delivery": "init", "name": "view", "image": "example.org/view", "pullAlways": true,
        "workingDir": "/w", "imagePullSecret": "pull", "mountPath": "/flux",
        "resources": { "limits": { "cpu": "1" } }, "securityContext": { "runAsUser": 7 },
    });
    let containers = json!([{ "command": "a", "runFlux": true }, { "name": "b", "command": "b" }]);
    let manifest =
        json!({ "spec": { "flux": { "container": container }, "containers": containers } });
    render(manifest, |rendering| {
        let pod = kubernetes::job(rendering).spec.unwrap().template.spec.unwrap();
        assert!(pod.volumes.as_ref().unwrap().iter().all(|volume| volume.image.is_none()));
        assert_eq!(pod.image_pull_secrets.as_ref().unwrap()[0].name, "pull");
        let first = pod.init_containers.as_ref().unwrap();
        let names: Vec<&str> = first.iter().map(|container| container.name.as_str()).collect();
        assert_eq!(names, ["flux-operator-agent", "view", "b"]);
        let (runner, copies) = (&pod.containers[0].volume_mounts, &first[..2]);
        insta::assert_yaml_snapshot!("copied", (copies, runner));
    });
    let mounted = json!({ "spec": { "flux": { "container": { "delivery": "imageVolume" } } } });
    let copied = json!({ "spec": { "flux": { "container": { "delivery": "init" } } } });
    let plan = |rendering: &Rendering<'_>| rendering.boot_plan();
    assert_eq!(render(mounted, plan), render(copied, plan));
}

#[test]
fn a_cluster_with_flux_in_its_image_gets_only_the_agent() {
    let container = json!({ "delivery": "init", "disable": true });
    render(json!({ "spec": { "flux": { "container": container } } }), |rendering| {
        let pod = kubernetes::job(rendering).spec.unwrap().template.spec.unwrap();
        let first = pod.init_containers.unwrap();
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].image.as_deref(), Some("example.org/flux-operator:1"));
    });
}

#[test]
fn services_are_a_pod_beside_the_cluster() {
    let services = json!([
        { "name": "web", "image": "nginx", "ports": [80], "imagePullSecret": "mine" },
        {
            "name": "store", "image": "registry", "command": "serve \"$HOME\"", "args": ["a b"],
            "volumes": { "data": { "path": "/data", "claimName": "data" } },
        },
    ]);
    let pod = json!({
        "nodeSelector": { "pool": "hpc" },
        "nodeAffinity": { "zone": ["a"] },
        "tolerations": [{ "key": "hpc", "operator": "Exists" }],
        "securityContext": { "runAsUser": 7 },
    });
    let spec = json!({ "services": services, "pod": pod });
    render(json!({ "spec": spec }), |rendering| {
        let pod = kubernetes::services_pod(rendering).unwrap();
        assert!(kubernetes::is_services_pod(&pod));
        insta::assert_yaml_snapshot!("services_pod", pod);
    });
    render(json!({}), |rendering| assert_eq!(kubernetes::services_pod(rendering), None));
}

#[test]
fn a_sidecar_with_ports_has_a_service() {
    let containers = json!([
        { "runFlux": true, "ports": [22] },
        { "name": "web", "image": "nginx", "ports": [80, 443] },
        { "name": "quiet", "image": "nginx" },
    ]);
    render(json!({ "spec": { "containers": containers } }), |rendering| {
        let services = kubernetes::sidecar_services(rendering);
        insta::assert_yaml_snapshot!("sidecar_services", services);
    });
}

#[test]
fn a_minimal_service_selects_the_lead() {
    render(json!({ "spec": { "flux": { "minimalService": true } } }), |rendering| {
        insta::assert_yaml_snapshot!("minimal_service", kubernetes::cluster_service(rendering));
    });
}

#[test]
fn a_service_of_another_name_is_shared() {
    let network = json!({ "spec": { "network": { "headlessName": "flux-service" } } });
    render(network, |rendering| {
        assert!(rendering.shares_service());
        let service = kubernetes::cluster_service(rendering);
        let selector = service.spec.clone().unwrap().selector.unwrap();
        let pods = kubernetes::job(rendering).spec.unwrap().template.metadata.unwrap();
        let labels = pods.labels.unwrap();
        assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)));
        insta::assert_yaml_snapshot!("shared_service", service);
    });
    render(json!({}), |rendering| assert!(!rendering.shares_service()));
}

#[test]
fn a_shared_service_of_two_clusters_differs_only_in_the_owner() {
    let of = |name: &str| {
        let patch = json!({
            "metadata": { "name": name, "uid": name },
            "spec": { "serviceName": "flux-service" },
        });
        render(patch, kubernetes::cluster_service)
    };
    let (mut first, mut second) = (of("a"), of("b"));
    let owners = [&mut first, &mut second].map(|service| service.metadata.owner_references.take());
    assert_ne!(owners[0], owners[1]);
    for owner in owners.into_iter().flatten().flatten() {
        assert_eq!((owner.controller, owner.block_owner_deletion), (None, None));
    }
    assert_eq!(first, second);
}

#[test]
fn a_job_with_kueues_label_belongs_to_kueue() {
    let queue = json!({ "spec": { "jobLabels": { "kueue.x-k8s.io/queue-name": "team" } } });
    render(queue, |rendering| assert!(kubernetes::belongs_to_kueue(&kubernetes::job(rendering))));
    let other = json!({ "spec": { "jobLabels": { "team": "a" } } });
    render(other, |rendering| assert!(!kubernetes::belongs_to_kueue(&kubernetes::job(rendering))));
}

#[test]
fn keys_are_in_the_secret_and_nowhere_else() {
    render(json!({ "spec": { "containers": [{ "command": "hostname" }] } }), |rendering| {
        let keys = keys();
        let secret = kubernetes::NewKeys::of(rendering).secret(&keys);
        assert_eq!(secret.immutable, Some(true));
        let text = keys.certificate.as_ref().unwrap().to_secret_text();
        let data = secret.data.unwrap();
        assert_eq!(data[file::CERTIFICATE].0, text.as_bytes());
        let key = text
            .lines()
            .find(|line| line.contains("secret-key"))
            .unwrap()
            .split('"')
            .nth(1)
            .unwrap();
        let others = [
            serde_json::to_string(&kubernetes::config_map(rendering)).unwrap(),
            serde_json::to_string(&kubernetes::job(rendering)).unwrap(),
            format!("{keys:?}"),
        ];
        for other in others {
            assert!(!other.contains(key));
        }
    });
}

#[test]
fn the_same_manifest_gives_the_same_objects() {
    let manifest = json!({ "spec": { "containers": [{
        "environment": { "B": "2", "A": "1" },
        "volumes": { "b": { "path": "/b", "claimName": "b" }, "a": { "emptyDir": true } },
    }] } });
    let objects = |rendering: &Rendering<'_>| {
        (
            kubernetes::job(rendering),
            kubernetes::config_map(rendering),
            kubernetes::cluster_service(rendering),
        )
    };
    let first = render(manifest.clone(), objects);
    let second = render(manifest, objects);
    assert_eq!(first, second);
}

#[test]
fn no_field_can_break_out_of_the_boot_plan() {
    let nasty = "\"\"}],\n$(touch /tmp/x) `id` '\u{0}'";
    let manifest = json!({ "spec": {
        "containers": [{ "command": nasty, "args": [nasty], "commands": { "pre": nasty } }],
        "flux": { "environment": { "A": nasty }, "optionFlags": nasty },
    } });
    render(manifest, |rendering| {
        let map = kubernetes::config_map(rendering).data.unwrap();
        let plan: BootPlan = serde_json::from_str(&map["boot.json"]).unwrap();
        assert_eq!(plan.hooks.pre, nasty);
        assert_eq!(plan.environment["A"], nasty);
        let flux_operator_wire::Program::Line { words, .. } = plan.program else { panic!() };
        assert_eq!(words, [nasty]);
    });
}

fn render<T>(patch: Value, check: impl FnOnce(&Rendering<'_>) -> T) -> T {
    let mut manifest = smallest_minicluster("fs");
    merge(&mut manifest, &patch);
    common::render(&manifest, check).unwrap()
}

fn keys() -> Keys {
    let certificate =
        Certificate::new(SecretKey::from_bytes([7; 32]), Metadata::new("test").unwrap());
    Keys { certificate: Some(certificate), report: Some(SealKey::from_bytes([9; 32])) }
}
