//! The Service by which agents reach the operator, and a NetworkPolicy that closes other ports.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::{InstallSettings, OPERATOR, PORT, REPORTS, selector};

/// The Service that agents report to. It has an IP address instead of being headless, because
/// resolvers cache the names of a headless Service, which would point to a replaced pod for about
/// 30 s. It includes replicas that are not the leader; they redirect agents to the leader.
pub(crate) fn reports_service(settings: &InstallSettings) -> Service {
    Service {
        metadata: settings.metadata(REPORTS),
        spec: Some(ServiceSpec {
            selector: Some(selector()),
            ports: Some(vec![http_port()]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The port of a program's own server, in its Service.
pub(crate) fn http_port() -> ServicePort {
    ServicePort {
        name: Some("http".into()),
        port: i32::from(PORT),
        target_port: Some(IntOrString::String("http".into())),
        protocol: Some("TCP".into()),
        ..ServicePort::default()
    }
}

/// Closes all ports except the operator's own, which pods of all namespaces and the node's kubelet
/// need. Egress is not restricted, because a NetworkPolicy cannot name the API server.
pub(crate) fn network_policy(settings: &InstallSettings) -> NetworkPolicy {
    let port = NetworkPolicyPort {
        port: Some(IntOrString::String("http".into())),
        protocol: Some("TCP".into()),
        ..NetworkPolicyPort::default()
    };
    NetworkPolicy {
        metadata: settings.metadata(OPERATOR),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(selector()),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                ports: Some(vec![port]),
                ..NetworkPolicyIngressRule::default()
            }]),
            ..NetworkPolicySpec::default()
        }),
    }
}
