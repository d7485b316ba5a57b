//! The operator's pods.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
    SeccompProfile, SecurityContext, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::{GATEWAY, InstallSettings, OPERATOR, PORT, labels, selector};

/// The `nonroot` user of distroless images.
const USER: i64 = 65532;

/// How long the operator may take to stop: its last reconciliations, its last writes and the
/// release of the Lease take at most 9 s (see `hand_over` in the operator).
const GRACE_SECONDS: i64 = 10;

/// The Deployment.
pub(crate) fn deployment(settings: &InstallSettings) -> Deployment {
    Deployment {
        metadata: settings.metadata(OPERATOR),
        spec: Some(DeploymentSpec {
            replicas: Some(i32::from(settings.replicas)),
            selector: LabelSelector { match_labels: Some(selector()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels().into_iter().chain(selector()).collect()),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(settings)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn pod(settings: &InstallSettings) -> PodSpec {
    PodSpec {
        service_account_name: Some(OPERATOR.into()),
        automount_service_account_token: Some(true),
        node_selector: Some(BTreeMap::from([("kubernetes.io/os".into(), "linux".into())])),
        security_context: Some(pod_security()),
        containers: vec![container(settings)],
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        // The loss of one node should not stop all replicas.
        topology_spread_constraints: (settings.replicas > 1).then(|| {
            vec![TopologySpreadConstraint {
                max_skew: 1,
                topology_key: "kubernetes.io/hostname".into(),
                when_unsatisfiable: "ScheduleAnyway".into(),
                label_selector: Some(LabelSelector {
                    match_labels: Some(selector()),
                    ..LabelSelector::default()
                }),
                ..TopologySpreadConstraint::default()
            }]
        }),
        ..PodSpec::default()
    }
}

fn container(settings: &InstallSettings) -> Container {
    Container {
        name: "manager".into(),
        image: Some(settings.image.clone()),
        command: Some(vec!["/flux-operator".into()]),
        args: Some(arguments(settings)),
        env: Some(vec![EnvVar {
            name: "POD_IP".into(),
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    field_path: "status.podIP".into(),
                    ..ObjectFieldSelector::default()
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        }]),
        ports: Some(vec![ContainerPort {
            name: Some("http".into()),
            container_port: i32::from(PORT),
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        }]),
        liveness_probe: Some(Probe { period_seconds: Some(20), ..probe("/healthz") }),
        // It is ready milliseconds after its start, so the probe is frequent.
        readiness_probe: Some(Probe { period_seconds: Some(2), ..probe("/readyz") }),
        resources: Some(ResourceRequirements {
            requests: Some(quantities(&[("cpu", "10m"), ("memory", "32Mi")])),
            limits: Some(quantities(&[("memory", "128Mi")])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(container_security()),
        ..Container::default()
    }
}

/// What the Pod Security Standard `restricted` requires of a pod.
pub(crate) fn pod_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".into(),
            ..SeccompProfile::default()
        }),
        ..PodSecurityContext::default()
    }
}

/// What it requires of a container.
pub(crate) fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            ..Capabilities::default()
        }),
        ..SecurityContext::default()
    }
}

fn arguments(settings: &InstallSettings) -> Vec<String> {
    let mut arguments = vec![
        "run".to_owned(),
        "--leader-elect".to_owned(),
        // The kubelet substitutes the address.
        "--advertise=$(POD_IP)".to_owned(),
        format!("--bind=[::]:{PORT}"),
        format!("--report-url={}", settings.report_url()),
        format!("--cluster-domain={}", settings.cluster_domain),
        format!("--agent-image={}", settings.image),
    ];
    if settings.gateway {
        arguments.push(format!("--gateway-service={GATEWAY}"));
    }
    if let Some(watched) = &settings.watched_namespace {
        arguments.push(format!("--namespace={watched}"));
    }
    arguments
}

pub(crate) fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("http".into()),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}

pub(crate) fn quantities(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    pairs
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
        .collect()
}
