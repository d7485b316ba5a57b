//! Services of the containers beside the runner: a name for their ports.

use flux_operator_api::minicluster::Container;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Rendering, labels};

/// One Service for each container beside the runner that has ports, named after
/// it. It selects every pod of the cluster.
pub fn sidecar_services(rendering: &Rendering<'_>) -> Vec<Service> {
    let containers = rendering.minicluster.sidecars().iter();
    containers
        .filter(|container| !container.ports.is_empty())
        .map(|container| service(rendering, container))
        .collect()
}

fn service(rendering: &Rendering<'_>, container: &Container) -> Service {
    Service {
        metadata: rendering.metadata(container.name.clone()),
        spec: Some(ServiceSpec {
            selector: Some(labels::map([("app.kubernetes.io/name", rendering.name())])),
            ports: Some(container.ports.iter().copied().map(port).collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// A port of a Service. Kubernetes requires names if there are several.
pub(super) fn port(number: i32) -> ServicePort {
    ServicePort {
        name: Some(format!("port-{number}")),
        port: number,
        protocol: Some("TCP".into()),
        target_port: Some(IntOrString::Int(number)),
        ..ServicePort::default()
    }
}
