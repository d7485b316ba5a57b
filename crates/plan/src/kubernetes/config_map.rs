//! The ConfigMap with the boot plan.

use std::collections::BTreeMap;

use flux_operator_flux::RankList;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::Rendering;

/// The boot plan's key in the ConfigMap.
pub(super) const BOOT_PLAN_KEY: &str = "boot.json";

/// The ConfigMap of a cluster. It contains no secret.
pub fn config_map(rendering: &Rendering<'_>) -> ConfigMap {
    let plan = serde_json::to_string_pretty(&rendering.boot_plan()).expect("a boot plan is JSON");
    with_plan(rendering, plan)
}

/// A joiner's ConfigMap as it was found, but with these ranks; `None` if it has them already, or has
/// no plan.
pub(crate) fn config_map_with_ranks(
    rendering: &Rendering<'_>,
    found: &ConfigMap,
    ranks: &RankList,
) -> Option<ConfigMap> {
    // Not as a boot plan: one of another build may have other fields.
    let mut plan: Value = serde_json::from_str(found.data.as_ref()?.get(BOOT_PLAN_KEY)?).ok()?;
    let noted = plan.get_mut("join")?.get_mut("ranks")?;
    let ranks = Value::from(ranks.to_string());
    if *noted == ranks {
        return None;
    }
    *noted = ranks;
    let plan = serde_json::to_string_pretty(&plan).expect("a value is JSON");
    Some(with_plan(rendering, plan))
}

fn with_plan(rendering: &Rendering<'_>, plan: String) -> ConfigMap {
    ConfigMap {
        metadata: rendering.metadata(rendering.config_map_name()),
        data: Some(BTreeMap::from([(BOOT_PLAN_KEY.to_owned(), plan)])),
        ..ConfigMap::default()
    }
}
