//! All objects of a rendering, except for the keys.

use flux_operator_plan::kubernetes::{self, Rendering};
use serde_json::{Value, json};

/// The objects as JSON.
pub fn objects(rendering: &Rendering<'_>) -> Vec<Value> {
    let mut objects = vec![
        json!(kubernetes::job(rendering)),
        json!(kubernetes::config_map(rendering)),
        json!(kubernetes::cluster_service(rendering)),
    ];
    objects.extend(kubernetes::sidecar_services(rendering).iter().map(|service| json!(service)));
    objects.extend(kubernetes::services_pod(rendering).iter().map(|pod| json!(pod)));
    objects
}
