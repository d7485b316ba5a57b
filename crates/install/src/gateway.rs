//! The gateway: a program of its own, with an account that can read MiniClusters and write Events.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, Service,
    ServiceAccount, ServicePort, ServiceSpec,
};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::deployment::{container_security, pod_security, probe, quantities};
use crate::{GATEWAY, InstallSettings, PORT, REPORTS, labels, roles, value};

/// The ports of leases. The operator chooses among them.
const LEASE_PORTS: (i32, i32) = (24_000, 31_999);

/// How long the gateway may take to stop: it has nothing to finish.
const GRACE_SECONDS: i64 = 2;

/// All objects of the gateway.
pub fn gateway_objects(settings: &InstallSettings) -> Vec<Value> {
    let mut objects = vec![value(&service_account(settings))];
    objects.extend(roles::gateway_roles(settings));
    objects.push(value(&service(settings)));
    objects.push(value(&deployment(settings)));
    if settings.network_policy {
        objects.push(value(&network_policy(settings)));
    }
    objects
}

fn selector() -> BTreeMap<String, String> {
    BTreeMap::from([("control-plane".to_owned(), "gateway".to_owned())])
}

fn service_account(settings: &InstallSettings) -> ServiceAccount {
    ServiceAccount { metadata: settings.metadata(GATEWAY), ..ServiceAccount::default() }
}

/// Its endpoints tell the operator where the gateway is. Nothing connects to the Service itself.
fn service(settings: &InstallSettings) -> Service {
    Service {
        metadata: settings.metadata(GATEWAY),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            selector: Some(selector()),
            ports: Some(vec![ServicePort {
                name: Some("http".into()),
                port: i32::from(PORT),
                target_port: Some(IntOrString::String("http".into())),
                protocol: Some("TCP".into()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn deployment(settings: &InstallSettings) -> Deployment {
    Deployment {
        metadata: settings.metadata(GATEWAY),
        spec: Some(DeploymentSpec {
            // Two would allow twice the connections.
            replicas: Some(1),
            strategy: Some(DeploymentStrategy {
                type_: Some("Recreate".into()),
                ..DeploymentStrategy::default()
            }),
            selector: LabelSelector { match_labels: Some(selector()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels().into_iter().chain(selector()).collect()),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    service_account_name: Some(GATEWAY.into()),
                    automount_service_account_token: Some(true),
                    node_selector: Some(BTreeMap::from([(
                        "kubernetes.io/os".into(),
                        "linux".into(),
                    )])),
                    security_context: Some(pod_security()),
                    containers: vec![container(settings)],
                    termination_grace_period_seconds: Some(GRACE_SECONDS),
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn container(settings: &InstallSettings) -> Container {
    let mut arguments = vec![
        "gateway".to_owned(),
        format!("--bind=[::]:{PORT}"),
        format!(
            "--report-address={REPORTS}.{}.svc.{}:{PORT}",
            settings.namespace, settings.cluster_domain
        ),
    ];
    if let Some(watched) = &settings.watched_namespace {
        arguments.push(format!("--namespace={watched}"));
    }
    Container {
        name: "gateway".into(),
        image: Some(settings.image.clone()),
        command: Some(vec!["/flux-operator".into()]),
        args: Some(arguments),
        ports: Some(vec![ContainerPort {
            name: Some("http".into()),
            container_port: i32::from(PORT),
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        }]),
        liveness_probe: Some(Probe { period_seconds: Some(20), ..probe("/healthz") }),
        readiness_probe: Some(Probe { period_seconds: Some(2), ..probe("/readyz") }),
        resources: Some(ResourceRequirements {
            requests: Some(quantities(&[("cpu", "10m"), ("memory", "16Mi")])),
            limits: Some(quantities(&[("memory", "128Mi")])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(container_security()),
        ..Container::default()
    }
}

/// Closes all ports except those of leases, whose sources the gateway checks itself, and its own.
fn network_policy(settings: &InstallSettings) -> NetworkPolicy {
    let port = |port: IntOrString, end_port: Option<i32>| NetworkPolicyPort {
        port: Some(port),
        end_port,
        protocol: Some("TCP".into()),
    };
    NetworkPolicy {
        metadata: settings.metadata(GATEWAY),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(selector()),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                ports: Some(vec![
                    port(IntOrString::String("http".into()), None),
                    port(IntOrString::Int(LEASE_PORTS.0), Some(LEASE_PORTS.1)),
                ]),
                ..NetworkPolicyIngressRule::default()
            }]),
            ..NetworkPolicySpec::default()
        }),
    }
}
