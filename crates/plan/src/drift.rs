//! Whether an existing object is as wanted. Only what we set is compared: other clients may
//! add to it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::kubernetes::OWN_ANNOTATIONS;
use crate::queueing::merge_patch;

/// Whether a ConfigMap has the wanted content and owner.
pub(crate) fn config_map_matches(found: &ConfigMap, wanted: &ConfigMap) -> bool {
    metadata_matches(&found.metadata, &wanted.metadata) && contains_all(&found.data, &wanted.data)
}

/// Whether a Service has the wanted labels, owner, selector, address and ports.
pub(crate) fn service_matches(found: &Service, wanted: &Service) -> bool {
    let (Some(have), Some(want)) = (&found.spec, &wanted.spec) else { return false };
    let ports = |ports: &Option<Vec<ServicePort>>| -> BTreeSet<(i32, Option<String>)> {
        ports.iter().flatten().map(|port| (port.port, port.name.clone())).collect()
    };
    metadata_matches(&found.metadata, &wanted.metadata)
        && have.selector == want.selector
        && want.cluster_ip.as_ref().is_none_or(|wanted| have.cluster_ip.as_ref() == Some(wanted))
        && have.publish_not_ready_addresses == want.publish_not_ready_addresses
        && ports(&have.ports).is_superset(&ports(&want.ports))
}

/// A merge patch that corrects the Service by which others reach a cluster; `None` if it is as wanted.
/// The patch replaces the list of ports. Server-side apply would keep a port that another client has
/// added, and also one that the Service was created with.
pub(crate) fn exposed_service_change(found: &Service, wanted: &Service) -> Option<Value> {
    let mut after = found.clone();
    let metadata = &mut after.metadata;
    if let Some(annotations) = &mut metadata.annotations {
        // Those that were in the spec before. Those of others stay.
        let own = annotations.remove(OWN_ANNOTATIONS).unwrap_or_default();
        own.split(',').for_each(|name| _ = annotations.remove(name));
    }
    for (theirs, ours) in [
        (&mut metadata.labels, &wanted.metadata.labels),
        (&mut metadata.annotations, &wanted.metadata.annotations),
    ] {
        if let Some(ours) = ours {
            theirs.get_or_insert_default().extend(ours.clone());
        }
    }
    let owners = metadata.owner_references.get_or_insert_default();
    for owner in wanted.metadata.owner_references.iter().flatten() {
        if !owners.iter().any(|it| it.uid == owner.uid) {
            owners.push(owner.clone());
        }
    }
    let (have, want) =
        (after.spec.get_or_insert_default(), wanted.spec.clone().unwrap_or_default());
    let has_node_ports = want.type_.as_deref() != Some("ClusterIP");
    let known = have.ports.take().unwrap_or_default();
    // A port keeps what Kubernetes has chosen for it.
    let with_node_port = |mut port: ServicePort| {
        let before = known.iter().find(|it| (it.port, &it.protocol) == (port.port, &port.protocol));
        let before = before.and_then(|it| it.node_port).filter(|_| has_node_ports);
        port.node_port = port.node_port.or(before);
        port
    };
    have.ports = want.ports.map(|ports| ports.into_iter().map(with_node_port).collect());
    have.type_ = want.type_;
    have.selector = want.selector;
    have.external_traffic_policy = want.external_traffic_policy;
    have.load_balancer_source_ranges = want.load_balancer_source_ranges;
    have.publish_not_ready_addresses = want.publish_not_ready_addresses;
    merge_patch(found, &after)
}

/// Whether an EndpointSlice is as wanted.
pub(crate) fn endpoint_slice_matches(found: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let places = |slice: &EndpointSlice| -> Vec<_> {
        let places = slice.endpoints.iter().flatten();
        let ready = |it: &Endpoint| it.conditions.as_ref().and_then(|conditions| conditions.ready);
        places.map(|it| (it.addresses.clone(), it.node_name.clone(), ready(it))).collect()
    };
    let numbers = |slice: &EndpointSlice| -> BTreeSet<_> {
        slice.ports.iter().flatten().map(|it| (it.name.clone(), it.port)).collect()
    };
    found.metadata.name == wanted.metadata.name
        && metadata_matches(&found.metadata, &wanted.metadata)
        && found.address_type == wanted.address_type
        && places(found) == places(wanted)
        && numbers(found) == numbers(wanted)
}

fn metadata_matches(found: &ObjectMeta, wanted: &ObjectMeta) -> bool {
    let owners = wanted.owner_references.iter().flatten();
    let mut owners = owners.map(|owner| &owner.uid);
    contains_all(&found.labels, &wanted.labels)
        && owners.all(|uid| found.owner_references.iter().flatten().any(|owner| owner.uid == *uid))
}

/// Whether all wanted entries are there. Entries that others have added stay when we apply, so
/// checking for their absence would never succeed.
fn contains_all(
    found: &Option<BTreeMap<String, String>>,
    wanted: &Option<BTreeMap<String, String>>,
) -> bool {
    let found = |name| found.as_ref().and_then(|found| found.get(name));
    wanted.iter().flatten().all(|(name, value)| found(name) == Some(value))
}
