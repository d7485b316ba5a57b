//! The gateway: a program of its own, with an account that can read MiniClusters and write Events.

use std::collections::BTreeMap;

use flux_operator_api::minicluster::GATEWAY_PORTS;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy};
use k8s_openapi::api::core::v1::{Service, ServiceAccount, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::deployment::{Program, deployment};
use crate::network::http_port;
use crate::{GATEWAY, InstallSettings, PORT, REPORTS, roles, value};

/// How long the gateway may take to stop: it has nothing to finish.
const GRACE_SECONDS: i64 = 2;

/// All objects of the gateway.
pub fn gateway_objects(settings: &InstallSettings) -> Vec<Value> {
    let mut objects = vec![value(&service_account(settings))];
    objects.extend(roles::gateway_roles(settings));
    objects.push(value(&service(settings)));
    objects.push(value(&gateway_deployment(settings)));
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
            ports: Some(vec![http_port()]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn gateway_deployment(settings: &InstallSettings) -> Deployment {
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
    let gateway = Program {
        name: GATEWAY,
        container: "gateway",
        selector: selector(),
        // Two would allow twice the connections.
        replicas: 1,
        strategy: Some(DeploymentStrategy {
            type_: Some("Recreate".into()),
            ..DeploymentStrategy::default()
        }),
        arguments,
        environment: None,
        memory_request: "16Mi",
        // What its limits of connections are computed from (`MAX_BROKERS` in the gateway).
        memory_limit: "1Gi",
        grace_seconds: GRACE_SECONDS,
    };
    deployment(settings, gateway)
}

/// Closes all ports except those of leases, whose sources the gateway checks itself, and its own.
fn network_policy(settings: &InstallSettings) -> NetworkPolicy {
    let port = |port: IntOrString, end_port: Option<i32>| NetworkPolicyPort {
        port: Some(port),
        end_port,
        protocol: Some("TCP".into()),
    };
    let (first, last) = (i32::from(*GATEWAY_PORTS.start()), i32::from(*GATEWAY_PORTS.end()));
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
                    port(IntOrString::Int(first), Some(last)),
                ]),
                ..NetworkPolicyIngressRule::default()
            }]),
            ..NetworkPolicySpec::default()
        }),
    }
}
