//! The Service by which brokers of other Kubernetes clusters reach a lender, and its endpoints.

use std::collections::BTreeMap;

use flux_operator_api::minicluster::{Expose, ExposeType};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Rendering, labels};
use crate::boot::BROKER_PORT;
use crate::exposing::{GatewayView, first_port, is_gateway_port, is_port};
use crate::joining::LeaseRecord;
use crate::observed::{INDEX_ANNOTATION, LEAD_INDEX};

/// The name of the lead's port in the Service, if it is exposed without the gateway.
pub(crate) const BROKER_PORT_NAME: &str = "broker";

/// The name of the only port of a Service without leases: a Service needs one. Nothing listens
/// behind it.
const CLOSED_PORT_NAME: &str = "closed";

/// What external-dns reads the name for a Service from.
const EXTERNAL_DNS: &str = "external-dns.alpha.kubernetes.io/hostname";

/// Lists the names of the annotations that the Service has from us. Others add some too, so without it
/// those that a user has removed from the spec could not be told from theirs.
pub(crate) const OWN_ANNOTATIONS: &str = "flux-framework.org/annotations";

/// Name of the Service of a MiniCluster with this name.
pub(crate) fn exposed_name(name: &str) -> String {
    format!("{name}-external")
}

/// The Service; `None` with type None.
pub(crate) fn exposed_service(
    rendering: &Rendering<'_>,
    expose: &Expose,
    leases: &[LeaseRecord],
) -> Option<Service> {
    let kind = match expose.kind {
        ExposeType::NodePort => "NodePort",
        ExposeType::LoadBalancer => "LoadBalancer",
        ExposeType::ClusterIP => "ClusterIP",
        ExposeType::None => return None,
    };
    let is_outside = expose.kind != ExposeType::ClusterIP;
    let ranges = Some(expose.source_ranges.clone()).filter(|ranges| !ranges.is_empty());
    let mut metadata = rendering.metadata(exposed_name(rendering.name()));
    let name = Some(expose.hostname.clone()).filter(|name| !name.is_empty());
    let name = name.map(|name| (EXTERNAL_DNS.to_owned(), name));
    let mut annotations: BTreeMap<String, String> =
        expose.annotations.clone().into_iter().chain(name).collect();
    if !annotations.is_empty() {
        let names: Vec<String> = annotations.keys().cloned().collect();
        annotations.insert(OWN_ANNOTATIONS.into(), names.join(","));
        metadata.annotations = Some(annotations);
    }
    let selector = [("job-name", rendering.name()), (INDEX_ANNOTATION, LEAD_INDEX)];
    Some(Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(kind.into()),
            ports: Some(ports(expose, leases)),
            selector: expose.direct.then(|| labels::map(selector)),
            // A broker connects before the lead is ready.
            publish_not_ready_addresses: Some(true),
            // Only so is the source of a connection seen where it is checked.
            external_traffic_policy: is_outside
                .then(|| if ranges.is_some() { "Local" } else { "Cluster" }.into()),
            load_balancer_source_ranges: ranges.filter(|_| expose.kind == ExposeType::LoadBalancer),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    })
}

fn ports(expose: &Expose, leases: &[LeaseRecord]) -> Vec<ServicePort> {
    let first = first_port(expose.port);
    let port = |name: &str, number: i32, target: i32| ServicePort {
        name: Some(name.to_owned()),
        port: number,
        protocol: Some("TCP".into()),
        target_port: Some(IntOrString::Int(target)),
        // Consecutive, as the ports of the Service. Kubernetes chooses those that cannot be.
        node_port: (expose.node_port > 0 && number >= first)
            .then(|| expose.node_port.saturating_add(number.saturating_sub(first)))
            .filter(|port| is_port(*port)),
        ..ServicePort::default()
    };
    if expose.direct {
        return vec![port(BROKER_PORT_NAME, first, i32::from(BROKER_PORT))];
    }
    let of_leases: Vec<ServicePort> = active(leases)
        .map(|(name, invitation)| port(name, invitation.service_port, invitation.gateway_port))
        .collect();
    match of_leases.is_empty() {
        true => vec![port(CLOSED_PORT_NAME, first, i32::from(BROKER_PORT))],
        false => of_leases,
    }
}

/// The leases of invitations that may be used and have ports, with their names.
fn active(
    leases: &[LeaseRecord],
) -> impl Iterator<Item = (&str, &flux_operator_api::minicluster::InvitationLease)> {
    leases.iter().filter(|record| record.is_active()).filter_map(|record| {
        let invitation = record.invitation.as_ref()?;
        let has_ports = invitation.service_port > 0 && is_gateway_port(invitation.gateway_port);
        has_ports.then_some((record.holder.name.as_str(), invitation))
    })
}

/// The endpoints of the Service: the pods of the gateway. `None` if it needs none, or there are none.
pub(crate) fn exposed_endpoints(
    rendering: &Rendering<'_>,
    expose: &Expose,
    leases: &[LeaseRecord],
    gateway: &GatewayView,
) -> Option<EndpointSlice> {
    if expose.direct || expose.kind == ExposeType::None {
        return None;
    }
    let ports: Vec<EndpointPort> = active(leases)
        .map(|(name, invitation)| EndpointPort {
            name: Some(name.to_owned()),
            port: Some(invitation.gateway_port),
            protocol: Some("TCP".into()),
            ..EndpointPort::default()
        })
        .collect();
    let first = gateway.endpoints.first()?;
    // A slice has addresses of one family, which cannot change.
    let family = if first.address.is_ipv4() { "IPv4" } else { "IPv6" };
    let same = gateway.endpoints.iter();
    let same = same.filter(|it| it.address.is_ipv4() == first.address.is_ipv4());
    let service = exposed_name(rendering.name());
    let mut metadata = rendering.metadata(format!("{service}-{}", family.to_lowercase()));
    let own = [
        ("kubernetes.io/service-name", service.as_str()),
        ("endpointslice.kubernetes.io/managed-by", "flux-operator"),
    ];
    metadata.labels.get_or_insert_default().extend(labels::map(own));
    Some(EndpointSlice {
        metadata,
        address_type: family.into(),
        endpoints: Some(
            same.map(|it| Endpoint {
                addresses: vec![it.address.to_string()],
                conditions: Some(EndpointConditions {
                    ready: Some(true),
                    ..EndpointConditions::default()
                }),
                node_name: Some(it.node.clone()).filter(|node| !node.is_empty()),
                ..Endpoint::default()
            })
            .collect(),
        ),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    })
    .filter(|slice| slice.ports.is_some())
}
