//! What the ResourceQuotas of a namespace leave.

use flux_operator_queue::{NamespaceQuota, Resource, Resources};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt;

use super::quantity;

/// What the ResourceQuotas of one namespace leave for pods that do not exist yet. A quota
/// with a scope counts only some pods, and is ignored: which pods those are is known only
/// when they are created.
pub fn namespace_quota<'a>(quotas: impl Iterator<Item = &'a ResourceQuota>) -> NamespaceQuota {
    let left = quotas.filter_map(|quota| {
        let left = remaining(quota);
        (!left.is_empty()).then(|| (quota.name_any().into(), left))
    });
    NamespaceQuota { remaining: left.collect() }
}

fn remaining(quota: &ResourceQuota) -> Resources {
    let spec = quota.spec.clone().unwrap_or_default();
    if spec.scopes.is_some_and(|scopes| !scopes.is_empty()) || spec.scope_selector.is_some() {
        return Resources::default();
    }
    let used = quota.status.as_ref().and_then(|status| status.used.clone()).unwrap_or_default();
    let left = spec.hard.unwrap_or_default().into_iter().filter_map(|(name, hard)| {
        let resource = counted(&name)?;
        let hard = quantity::amount(&resource, &hard)?;
        let used = used.get(&name).and_then(|used| quantity::amount(&resource, used));
        Some((resource, hard.saturating_sub(used.unwrap_or_default()).max(0)))
    });
    let mut least: Vec<(Resource, i64)> = Vec::new();
    for (resource, amount) in left {
        // The same resource can be limited by two names, such as cpu and requests.cpu.
        match least.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, known)) => *known = amount.min(*known),
            None => least.push((resource, amount)),
        }
    }
    Resources::of(least)
}

/// The resource that a name in a ResourceQuota counts, if jobs use it.
fn counted(name: &str) -> Option<Resource> {
    match name.strip_prefix("requests.").unwrap_or(name) {
        "pods" | "count/pods" => Some(Resource::Pods),
        "cpu" => Some(Resource::Cpu),
        "memory" => Some(Resource::Memory),
        other if name.starts_with("requests.") && other.contains('/') => {
            Some(Resource::Other(other.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn quota(spec: Value, used: Value) -> NamespaceQuota {
        let quota =
            json!({ "metadata": { "name": "q" }, "spec": spec, "status": { "used": used } });
        namespace_quota(std::iter::once(&serde_json::from_value(quota).unwrap()))
    }

    #[test]
    fn q20_what_is_left_is_what_is_allowed_less_what_is_used() {
        let hard = json!({
            "pods": "4", "requests.cpu": "2", "cpu": "1", "requests.nvidia.com/gpu": "8",
            "limits.cpu": "9", "services": "3",
        });
        let found = quota(json!({ "hard": hard }), json!({ "pods": "5", "cpu": "250m" }));
        let gpus = Resource::Other("nvidia.com/gpu".into());
        let left = [(Resource::Pods, 0), (Resource::Cpu, 750), (gpus, 8000)];
        assert_eq!(found.remaining["q"], Resources::of(left));
    }

    #[test]
    fn a_quota_with_a_scope_or_for_other_resources_is_ignored() {
        let hard = json!({ "pods": "0" });
        assert!(
            quota(json!({ "hard": hard, "scopes": ["BestEffort"] }), json!({}))
                .remaining
                .is_empty()
        );
        assert!(quota(json!({ "hard": { "services": "1" } }), json!({})).remaining.is_empty());
    }
}
