//! The pods of a program: the operator, or the gateway.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
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

/// What the Deployments of our programs differ in.
pub(crate) struct Program {
    /// The name of the Deployment and of its ServiceAccount.
    pub(crate) name: &'static str,
    pub(crate) container: &'static str,
    pub(crate) selector: BTreeMap<String, String>,
    pub(crate) replicas: u16,
    pub(crate) strategy: Option<DeploymentStrategy>,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Option<Vec<EnvVar>>,
    pub(crate) memory_request: &'static str,
    pub(crate) memory_limit: &'static str,
    pub(crate) grace_seconds: i64,
}

/// The operator's Deployment.
pub(crate) fn operator_deployment(settings: &InstallSettings) -> Deployment {
    let operator = Program {
        name: OPERATOR,
        container: "manager",
        selector: selector(),
        replicas: settings.replicas,
        strategy: None,
        arguments: arguments(settings),
        environment: Some(vec![EnvVar {
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
        memory_request: "32Mi",
        memory_limit: "192Mi",
        grace_seconds: GRACE_SECONDS,
    };
    deployment(settings, operator)
}

/// The Deployment of a program.
pub(crate) fn deployment(settings: &InstallSettings, program: Program) -> Deployment {
    let labels = labels().into_iter().chain(program.selector.clone()).collect();
    Deployment {
        metadata: settings.metadata(program.name),
        spec: Some(DeploymentSpec {
            replicas: Some(i32::from(program.replicas)),
            strategy: program.strategy.clone(),
            selector: label_selector(&program),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(pod(settings, program)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn label_selector(program: &Program) -> LabelSelector {
    LabelSelector { match_labels: Some(program.selector.clone()), ..LabelSelector::default() }
}

fn pod(settings: &InstallSettings, program: Program) -> PodSpec {
    PodSpec {
        service_account_name: Some(program.name.into()),
        automount_service_account_token: Some(true),
        node_selector: Some(BTreeMap::from([("kubernetes.io/os".into(), "linux".into())])),
        security_context: Some(pod_security()),
        termination_grace_period_seconds: Some(program.grace_seconds),
        // The loss of one node should not stop all replicas.
        topology_spread_constraints: (program.replicas > 1).then(|| {
            vec![TopologySpreadConstraint {
                max_skew: 1,
                topology_key: "kubernetes.io/hostname".into(),
                when_unsatisfiable: "ScheduleAnyway".into(),
                label_selector: Some(label_selector(&program)),
                ..TopologySpreadConstraint::default()
            }]
        }),
        containers: vec![container(settings, program)],
        ..PodSpec::default()
    }
}

fn container(settings: &InstallSettings, program: Program) -> Container {
    Container {
        name: program.container.into(),
        image: Some(settings.image.clone()),
        command: Some(vec!["/flux-operator".into()]),
        args: Some(program.arguments),
        env: program.environment,
        ports: Some(vec![ContainerPort {
            name: Some("http".into()),
            container_port: i32::from(PORT),
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        }]),
        liveness_probe: Some(Probe { period_seconds: Some(20), ..probe("/healthz") }),
        // Both are ready milliseconds after their start, so the probe is frequent.
        readiness_probe: Some(Probe { period_seconds: Some(2), ..probe("/readyz") }),
        resources: Some(ResourceRequirements {
            requests: Some(quantities(&[("cpu", "10m"), ("memory", program.memory_request)])),
            limits: Some(quantities(&[("memory", program.memory_limit)])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(container_security()),
        ..Container::default()
    }
}

/// What the Pod Security Standard `restricted` requires of a pod.
fn pod_security() -> PodSecurityContext {
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
fn container_security() -> SecurityContext {
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

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("http".into()),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}

fn quantities(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    pairs
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
        .collect()
}
