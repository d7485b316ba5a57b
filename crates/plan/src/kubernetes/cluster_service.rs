//! The Service of the brokers: a name for every pod, or one for the lead alone.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};

use super::labels::{self, HEADLESS_LABEL};
use super::{Rendering, sidecar_service};
use crate::boot::BROKER_PORT;
use crate::observed::{INDEX_ANNOTATION, LEAD_INDEX};

/// The Service of a cluster: headless, or with `minimalService` one address for
/// the lead. A Service that may be shared has each cluster that uses it as a plain owner,
/// so it is deleted with the last one; nothing else in it refers to a single cluster.
pub fn cluster_service(rendering: &Rendering<'_>) -> Service {
    let mut metadata = rendering.metadata(rendering.headless_name().to_owned());
    if rendering.shares_service() {
        metadata.labels = Some(labels::of_shared_objects());
        metadata.owner_references = rendering.plain_owner().map(|owner| vec![owner]);
    }
    let spec = match rendering.flux().is_some_and(|flux| flux.minimal_service) {
        true => minimal(rendering),
        false => headless(rendering),
    };
    Service { metadata, spec: Some(spec), ..Service::default() }
}

fn headless(rendering: &Rendering<'_>) -> ServiceSpec {
    let group = &rendering.minicluster.spec.job_selector;
    let selector = if !group.is_empty() {
        ("job-group", group.as_str())
    } else if rendering.shares_service() {
        (HEADLESS_LABEL, rendering.headless_name())
    } else {
        ("job-name", rendering.name())
    };
    ServiceSpec {
        cluster_ip: Some("None".into()),
        selector: Some(labels::map([selector])),
        // Workers connect to a lead that is not ready before they have joined.
        publish_not_ready_addresses: Some(true),
        ..ServiceSpec::default()
    }
}

/// Selects by the label that Kubernetes puts on a Job's pods. The Go operator
/// selects by `job-index`, which it has to add to each pod later.
fn minimal(rendering: &Rendering<'_>) -> ServiceSpec {
    let selector = [("job-name", rendering.name()), (INDEX_ANNOTATION, LEAD_INDEX)];
    ServiceSpec {
        ports: Some(vec![ServicePort {
            name: Some("broker".into()),
            ..sidecar_service::port(i32::from(BROKER_PORT))
        }]),
        selector: Some(labels::map(selector)),
        publish_not_ready_addresses: Some(true),
        ..ServiceSpec::default()
    }
}
