//! Whether an existing object is as wanted. Only what we set is compared: other clients may
//! add to it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

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
