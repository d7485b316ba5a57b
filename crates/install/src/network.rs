//! How agents reach the operator, and that nothing else does.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::{OPERATOR, PORT, REPORTS, Settings, selector};

/// The Service that agents report to. It has an address of its own rather than
/// being headless: the names of a headless one go on pointing to a replaced pod
/// for as long as resolvers keep them, some 30 s. Replicas that do not lead are
/// behind it too, and send agents on to the one that does.
pub(crate) fn reports(settings: &Settings) -> Service {
    Service {
        metadata: settings.metadata(REPORTS),
        spec: Some(ServiceSpec {
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

/// Closes every port but the operator's own, which pods of all namespaces and the
/// node's kubelet need. What it calls is left open: the API server is outside of
/// what a policy can name.
pub(crate) fn policy(settings: &Settings) -> NetworkPolicy {
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
