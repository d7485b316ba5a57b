//! How many GPUs a container is given.

use flux_operator_api::minicluster::Container;

/// The vendors' names for a whole GPU. Their other names are for a part of one, or for
/// monitoring.
pub(crate) const NAMES: [&str; 4] =
    ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"];

/// The GPUs in a container's limits, if there are any. Kubernetes allocates
/// GPUs as a whole, and by limit only.
pub(crate) fn gpus(container: &Container) -> Option<u32> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    let count = |name: &&str| limits.get(*name)?.0.parse::<u32>().ok();
    let sum = NAMES.iter().filter_map(count).fold(0, u32::saturating_add);
    Some(sum).filter(|sum| *sum > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_gpus_of_all_vendors_are_counted() {
        for (limits, count) in [
            (json!({ "nvidia.com/gpu": "2", "cpu": "8" }), Some(2)),
            (json!({ "amd.com/gpu": 1, "gpu.intel.com/xe": "3" }), Some(4)),
            (
                json!({ "gpu.intel.com/i915_monitoring": "1", "gpu.intel.com/millicores": "9" }),
                None,
            ),
            (json!({ "nvidia.com/gpu": "0" }), None),
            (json!({ "nvidia.com/gpu": "nonsense" }), None),
            (json!({ "cpu": "1" }), None),
        ] {
            let container = json!({ "resources": { "limits": limits } });
            assert_eq!(gpus(&serde_json::from_value(container).unwrap()), count, "{limits}");
        }
        assert_eq!(gpus(&Container::default()), None);
    }
}
