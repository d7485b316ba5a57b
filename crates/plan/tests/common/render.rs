//! Renders a manifest with fixed settings, so that nothing needs masking.

use flux_operator_api::validate::{self, Problem};
use flux_operator_plan::kubernetes::{DeliveryMethod, Rendering, Settings};
use flux_operator_plan::{Cluster, Refusal, RefusalReason, Valid};
use serde_json::{Value, json};

/// Calls `inspect` with the rendering of a manifest, or returns why it is refused. A manifest
/// without a namespace or uid gets one.
pub fn render<T>(
    manifest: &Value,
    inspect: impl FnOnce(&Rendering<'_>) -> T,
) -> Result<T, Refusal> {
    let mut manifest = manifest.clone();
    for (field, value) in [("namespace", "hpc"), ("uid", "0000-1111")] {
        if manifest["metadata"][field].is_null() {
            manifest["metadata"][field] = json!(value);
        }
    }
    let minicluster = validate::read_minicluster(&manifest).map_err(|error| Refusal {
        reason: RefusalReason::Invalid,
        problems: vec![Problem { path: "spec".into(), message: error.to_string() }],
    })?;
    let valid = Valid::check(minicluster)?;
    let cluster = Cluster::of(&valid).unwrap();
    let settings = Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        delivery: DeliveryMethod::ImageVolume,
        report_url: Some("http://10.0.0.1:8080".into()),
    };
    Ok(inspect(&Rendering { minicluster: &valid, cluster: &cluster, settings: &settings }))
}
