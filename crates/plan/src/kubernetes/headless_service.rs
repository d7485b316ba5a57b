//! The headless Service: a name for every pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::Rendering;

/// The headless Service of a cluster.
pub fn headless_service(rendering: &Rendering<'_>) -> Service {
    let group = &rendering.minicluster.spec.job_selector;
    let selector = match group.as_str() {
        "" => ("job-name".to_owned(), rendering.name().to_owned()),
        group => ("job-group".to_owned(), group.to_owned()),
    };
    Service {
        metadata: rendering.metadata(rendering.headless_name().to_owned()),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            selector: Some(BTreeMap::from([selector])),
            // Workers look for a lead that is not ready before they have joined.
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
