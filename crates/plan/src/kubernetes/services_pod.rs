//! The pod of `spec.services`: containers beside the cluster, not part of it.

use flux_operator_api::minicluster::{
    Container as UserContainer, PodRestartPolicy, PodSecurity, PodSpec as UserPod,
};
use k8s_openapi::api::core::v1::{Affinity, Container, Pod, PodSpec};

use super::container::{base, verbatim};
use super::pod_template::{dns_policy, node_affinity, pull_secrets};
use super::security::restrict;
use super::volume::{user_mounts, user_volumes};
use super::{Rendering, labels};

/// The pod with a cluster's services, if it has services. It contains no agent and no key.
/// It uses the fields of `spec.pod` that place and name a pod, but not those for the brokers:
/// their security context, their scheduler, and the node's namespaces.
pub fn services_pod(rendering: &Rendering<'_>) -> Option<Pod> {
    let spec = &rendering.minicluster.spec;
    if spec.services.is_empty() {
        return None;
    }
    let pod = spec.pod.clone().unwrap_or_default();
    let name = rendering.services_pod_name();
    let mut metadata = rendering.metadata(name.clone());
    metadata.labels = Some(labels::of_services_pod(rendering));
    metadata.annotations = Some(pod.annotations.clone()).filter(|map| !map.is_empty());
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let volumes = user_volumes(rendering, &spec.services);
    let secrets = spec.containers.iter().chain(&spec.services);
    let mut result = PodSpec {
        containers: spec.services.iter().map(service).collect(),
        volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
        image_pull_secrets: pull_secrets(secrets.map(|container| &container.image_pull_secret)),
        hostname: Some(name),
        subdomain: Some(rendering.headless_name().to_owned()),
        set_hostname_as_fqdn: Some(false),
        restart_policy: Some(restart_policy(&pod).into()),
        automount_service_account_token: Some(pod.automount_service_account_token),
        service_account_name: text(&pod.service_account_name),
        runtime_class_name: text(&pod.runtime_class_name),
        priority_class_name: text(&pod.priority_class_name),
        node_selector: Some(pod.node_selector.clone()).filter(|map| !map.is_empty()),
        // The nodes that the user has chosen for the cluster, but not the placement of its
        // pods in relation to each other.
        affinity: node_affinity(rendering, &pod)
            .map(|nodes| Affinity { node_affinity: Some(nodes), ..Affinity::default() }),
        // Without tolerations the chosen nodes may not accept it.
        tolerations: Some(pod.tolerations.clone()).filter(|list| !list.is_empty()),
        dns_policy: dns_policy(&UserPod { host_network: false, ..pod.clone() }),
        dns_config: pod.dns_config.clone(),
        host_aliases: Some(pod.host_aliases.clone()).filter(|list| !list.is_empty()),
        termination_grace_period_seconds: pod.termination_grace_period_seconds,
        ..PodSpec::default()
    };
    if spec.pod_security == PodSecurity::Restricted {
        restrict(&mut result);
    }
    Some(Pod { metadata, spec: Some(result), ..Pod::default() })
}

/// No Job replaces a service that failed, so the kubelet restarts it unless the user sets
/// `Never`.
fn restart_policy(pod: &UserPod) -> &'static str {
    match pod.restart_policy {
        PodRestartPolicy::Never => "Never",
        PodRestartPolicy::Unset | PodRestartPolicy::OnFailure => "OnFailure",
    }
}

/// A container of the pod. Its command is shell text, and its arguments follow
/// without passing through the shell; without a command they go to the image's entrypoint.
fn service(container: &UserContainer) -> Container {
    let mut result = base(container, container.name.clone());
    let mounts = user_mounts(container);
    result.volume_mounts = Some(mounts).filter(|mounts| !mounts.is_empty());
    let shell = |line: &str| ["/bin/sh", "-c", line].map(verbatim).to_vec();
    let command = match (container.command.trim_end(), container.args.is_empty()) {
        ("", _) => vec![],
        (text, true) => shell(text),
        // The word after the line is `$0`, and the arguments follow it.
        (text, false) => [shell(&format!("{text} \"$@\"")), vec!["sh".into()]].concat(),
    };
    let args: Vec<_> = container.args.iter().map(|word| verbatim(word)).collect();
    // If the entrypoint is a shell, stdin keeps it running for users who attach, as with the
    // Go operator.
    result.stdin = Some(true);
    result.command = Some(command).filter(|words| !words.is_empty());
    result.args = Some(args).filter(|words| !words.is_empty());
    result
}
