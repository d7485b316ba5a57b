//! The template of the pods.

use flux_operator_api::minicluster::{
    DnsPolicy, PodRestartPolicy, PodSecurity, PodSpec as UserPod,
};
use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodSpec, PodTemplateSpec,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};

use super::container::{runner, sidecar, volumes};
use super::delivery::init_containers;
use super::security::restrict;
use super::{Rendering, labels};
use crate::grace;

/// The template of a cluster's pods.
pub(super) fn pod_template(rendering: &Rendering<'_>) -> PodTemplateSpec {
    let spec = &rendering.minicluster.spec;
    let pod = spec.pod.clone().unwrap_or_default();
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let sidecars = rendering.minicluster.sidecars().iter();
    let sidecars = sidecars.map(|container| sidecar(rendering, container));
    // Sidecars run under the agent, so the agent must be delivered first.
    let first: Vec<_> = init_containers(rendering).into_iter().chain(sidecars).collect();
    let restart_policy = match pod.restart_policy {
        PodRestartPolicy::OnFailure => "OnFailure",
        PodRestartPolicy::Unset | PodRestartPolicy::Never => "Never",
    };
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels::of_pods(rendering)),
            annotations: Some(pod.annotations.clone()).filter(|map| !map.is_empty()),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            init_containers: Some(first).filter(|containers| !containers.is_empty()),
            containers: vec![runner(rendering, rendering.minicluster.runner())],
            volumes: Some(volumes(rendering)),
            subdomain: Some(rendering.headless_name().to_owned()),
            set_hostname_as_fqdn: Some(false),
            restart_policy: Some(restart_policy.into()),
            share_process_namespace: Some(spec.share_process_namespace),
            automount_service_account_token: Some(pod.automount_service_account_token),
            service_account_name: text(&pod.service_account_name),
            runtime_class_name: text(&pod.runtime_class_name),
            scheduler_name: text(&pod.scheduler_name),
            priority_class_name: text(&pod.priority_class_name),
            node_selector: Some(pod.node_selector.clone()).filter(|map| !map.is_empty()),
            affinity: affinity(rendering, &pod),
            tolerations: Some(pod.tolerations.clone()).filter(|list| !list.is_empty()),
            topology_spread_constraints: Some(pod.topology_spread_constraints.clone())
                .filter(|list| !list.is_empty()),
            host_network: pod.host_network.then_some(true),
            host_ipc: pod.host_ipc.then_some(true),
            host_pid: pod.host_pid.then_some(true),
            dns_policy: dns_policy(&pod),
            dns_config: pod.dns_config.clone(),
            host_aliases: Some(pod.host_aliases.clone()).filter(|list| !list.is_empty()),
            resource_claims: Some(pod.resource_claims.clone()).filter(|list| !list.is_empty()),
            overhead: Some(pod.resources.clone()).filter(|map| !map.is_empty()),
            security_context: pod.security_context.clone(),
            termination_grace_period_seconds: grace::pod_seconds(spec),
            image_pull_secrets: pull_secrets(pull_secret_names(rendering)),
            ..PodSpec::default()
        }),
    };
    if let (PodSecurity::Restricted, Some(pod)) = (spec.pod_security, &mut template.spec) {
        restrict(pod);
    }
    template
}

pub(super) fn dns_policy(pod: &UserPod) -> Option<String> {
    let policy = match pod.dns_policy {
        // Otherwise a pod on the node's network would not find the others.
        DnsPolicy::Unset if pod.host_network => "ClusterFirstWithHostNet",
        DnsPolicy::Unset => return None,
        DnsPolicy::ClusterFirst => "ClusterFirst",
        DnsPolicy::ClusterFirstWithHostNet => "ClusterFirstWithHostNet",
        DnsPolicy::Default => "Default",
        DnsPolicy::None => "None",
    };
    Some(policy.to_owned())
}

/// The pull secrets of all containers and of the view.
fn pull_secret_names<'a>(rendering: &'a Rendering<'_>) -> impl Iterator<Item = &'a String> {
    let containers = rendering.minicluster.spec.containers.iter();
    let view = rendering.flux_container().map(|container| &container.image_pull_secret);
    containers.map(|container| &container.image_pull_secret).chain(view)
}

/// References to the Secrets, without duplicates.
pub(super) fn pull_secrets<'a>(
    names: impl Iterator<Item = &'a String>,
) -> Option<Vec<LocalObjectReference>> {
    let mut secrets: Vec<LocalObjectReference> = Vec::new();
    for name in names {
        if !name.is_empty() && !secrets.iter().any(|known| known.name == *name) {
            secrets.push(LocalObjectReference { name: name.clone() });
        }
    }
    Some(secrets).filter(|secrets| !secrets.is_empty())
}

/// The Go operator's affinity: near each other, on different nodes, both as
/// preferences. A kind of affinity that the user sets replaces ours of that kind.
fn affinity(rendering: &Rendering<'_>, pod: &UserPod) -> Option<Affinity> {
    if has_no_affinity(rendering) {
        return pod.affinity.clone();
    }
    let given = pod.affinity.clone().unwrap_or_default();
    let same_cluster = |topology_key: &str| WeightedPodAffinityTerm {
        weight: 100,
        pod_affinity_term: PodAffinityTerm {
            topology_key: topology_key.into(),
            label_selector: Some(LabelSelector {
                match_expressions: Some(vec![LabelSelectorRequirement {
                    key: "app.kubernetes.io/name".into(),
                    operator: "In".into(),
                    values: Some(vec![rendering.name().to_owned()]),
                }]),
                ..LabelSelector::default()
            }),
            ..PodAffinityTerm::default()
        },
    };
    Some(Affinity {
        node_affinity: node_affinity(rendering, pod),
        pod_affinity: given.pod_affinity.or_else(|| {
            Some(PodAffinity {
                preferred_during_scheduling_ignored_during_execution: Some(vec![same_cluster(
                    "topology.kubernetes.io/zone",
                )]),
                ..PodAffinity::default()
            })
        }),
        pod_anti_affinity: given.pod_anti_affinity.or_else(|| {
            Some(PodAntiAffinity {
                preferred_during_scheduling_ignored_during_execution: Some(vec![same_cluster(
                    "kubernetes.io/hostname",
                )]),
                ..PodAntiAffinity::default()
            })
        }),
    })
}

fn has_no_affinity(rendering: &Rendering<'_>) -> bool {
    let network = rendering.minicluster.spec.network.as_ref();
    network.is_some_and(|network| network.disable_affinity)
}

/// The nodes that the user has chosen: by affinity, or by labels alone.
pub(super) fn node_affinity(rendering: &Rendering<'_>, pod: &UserPod) -> Option<NodeAffinity> {
    let given = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
    if given.is_some() || has_no_affinity(rendering) {
        return given;
    }
    let requirements = pod.node_affinity.iter().map(|(key, values)| NodeSelectorRequirement {
        key: key.clone(),
        operator: "In".into(),
        values: Some(values.clone()),
    });
    let requirements: Vec<_> = requirements.collect();
    (!requirements.is_empty()).then(|| NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: Some(requirements),
                ..NodeSelectorTerm::default()
            }],
        }),
        ..NodeAffinity::default()
    })
}
