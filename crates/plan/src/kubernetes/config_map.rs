//! The ConfigMap with the boot plan.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use super::Rendering;

/// The boot plan's key in the ConfigMap.
pub(super) const BOOT_PLAN_KEY: &str = "boot.json";

/// The ConfigMap of a cluster. It contains no secret.
pub fn config_map(rendering: &Rendering<'_>) -> ConfigMap {
    let plan = serde_json::to_string_pretty(&rendering.boot_plan()).expect("a boot plan is JSON");
    ConfigMap {
        metadata: rendering.metadata(rendering.config_map_name()),
        data: Some(BTreeMap::from([(BOOT_PLAN_KEY.to_owned(), plan)])),
        ..ConfigMap::default()
    }
}
