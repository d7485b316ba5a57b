//! The CustomResourceDefinitions, as they are sent to the API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{Burst, BurstPolicy, FluxJob, FluxSetup, MiniCluster};

/// Every CRD of this project.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![minicluster(), fluxjob(), fluxsetup(), burst_policy(), burst()]
}

/// The CRD of MiniCluster.
pub fn minicluster() -> CustomResourceDefinition {
    tidy(MiniCluster::crd())
}

/// The CRD of FluxJob.
pub fn fluxjob() -> CustomResourceDefinition {
    tidy(FluxJob::crd())
}

/// The CRD of FluxSetup.
pub fn fluxsetup() -> CustomResourceDefinition {
    tidy(FluxSetup::crd())
}

/// The CRD of BurstPolicy.
pub fn burst_policy() -> CustomResourceDefinition {
    tidy(BurstPolicy::crd())
}

/// The CRD of Burst.
pub fn burst() -> CustomResourceDefinition {
    tidy(Burst::crd())
}

/// The schema of a CRD's only version, as JSON.
pub fn schema(crd: &CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions[0]
        .schema
        .as_ref()
        .and_then(|validation| validation.open_api_v3_schema.as_ref())
        .expect("a derived CRD has a schema");
    serde_json::to_value(schema).expect("a schema is JSON")
}

/// Removes what the derive macros add and we do not want.
fn tidy(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(crd).expect("a CRD is JSON");
    let schema = &mut value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    drop_nullable(schema);
    join_lines(schema);
    serde_json::from_value(value).expect("dropping keywords keeps a CRD a CRD")
}

/// Removes `nullable` from all fields. The API server removes nulls from fields that are not
/// nullable before it stores an object, so `command:` without a value means unset, and no
/// reader ever sees a null.
fn drop_nullable(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.remove("nullable").is_some()
                && let Some(Value::Array(words)) = object.get_mut("enum")
            {
                words.retain(|word| !word.is_null());
            }
            object.values_mut().for_each(drop_nullable);
        }
        Value::Array(array) => array.iter_mut().for_each(drop_nullable),
        _ => {}
    }
}

/// Joins the lines of each paragraph of a description: the line breaks are those of
/// the source file, and would look odd wherever the text is shown.
fn join_lines(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(text)) = object.get_mut("description") {
                let paragraphs: Vec<String> =
                    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
                *text = paragraphs.join("\n\n");
            }
            object.values_mut().for_each(join_lines);
        }
        Value::Array(array) => array.iter_mut().for_each(join_lines),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kubectl apply` stores the whole object in an annotation, and all
    /// annotations of an object together may have at most this many bytes.
    const ANNOTATION_LIMIT: usize = 262_144;

    #[test]
    fn plain_kubectl_apply_can_store_every_crd() {
        for crd in all() {
            let bytes = serde_json::to_vec(&crd).unwrap().len();
            // Half the limit leaves space for more fields.
            assert!(bytes < ANNOTATION_LIMIT / 2, "{} takes {bytes} bytes", crd.spec.names.kind);
        }
    }

    #[test]
    fn every_field_of_our_own_types_has_a_description() {
        for crd in all() {
            let schema = schema(&crd);
            let mut missing = Vec::new();
            collect_undescribed(&schema["properties"]["spec"], "spec", &mut missing);
            collect_undescribed(&schema["properties"]["status"], "status", &mut missing);
            assert_eq!(missing, Vec::<String>::new());
        }
    }

    /// Collects the paths of fields without a description. Kubernetes' own types, at the paths
    /// of [`KUBERNETES_TYPES`], are skipped: none of their fields has one.
    fn collect_undescribed(schema: &Value, path: &str, missing: &mut Vec<String>) {
        let inner = [schema, &schema["items"], &schema["additionalProperties"]];
        for properties in inner.iter().filter_map(|s| s["properties"].as_object()) {
            let described = properties.values().filter(|p| p["description"].is_string()).count();
            if described == 0 && KUBERNETES_TYPES.iter().any(|end| path.ends_with(end)) {
                continue;
            }
            for (name, property) in properties {
                let path = format!("{path}.{name}");
                if !property["description"].is_string() {
                    missing.push(path.clone());
                }
                collect_undescribed(property, &path, missing);
            }
        }
    }

    /// Paths of fields whose type is Kubernetes' own; all other types are ours.
    const KUBERNETES_TYPES: [&str; 13] = [
        "spec.selector",
        ".namespaceSelector",
        ".resources",
        ".securityContext",
        ".affinity",
        ".tolerations",
        ".topologySpreadConstraints",
        ".dnsConfig",
        ".hostAliases",
        ".resourceClaims",
        ".conditions",
        ".env",
        ".envFrom",
    ];

    /// The burst controller keeps them for all namespaces in bounded memory.
    #[test]
    fn what_a_policy_or_a_burst_selects_has_a_largest_size() {
        let policy = schema(&burst_policy());
        let spec = &policy["properties"]["spec"]["properties"];
        let burst = schema(&burst());
        let jobs = &burst["properties"]["spec"]["properties"]["jobs"];
        let mut unlimited = Vec::new();
        for (path, part) in
            [("selector", &spec["selector"]), ("jobs", &spec["jobs"]), ("Burst jobs", jobs)]
        {
            collect_unlimited(part, path, &mut unlimited);
        }
        assert_eq!(unlimited, Vec::<String>::new());
    }

    /// Collects the paths of texts, lists and maps without a largest size.
    fn collect_unlimited(schema: &Value, path: &str, unlimited: &mut Vec<String>) {
        let is_map = schema["additionalProperties"].is_object();
        let limit = match schema["type"].as_str() {
            Some("string") => "maxLength",
            Some("array") => "maxItems",
            Some("object") if is_map => "maxProperties",
            _ => "type",
        };
        if schema[limit].is_null() {
            unlimited.push(format!("{path}: {limit}"));
        }
        let fields = schema["properties"].as_object().into_iter().flatten();
        let fields = fields.map(|(name, field)| (name.as_str(), field));
        let inner = [("items", &schema["items"]), ("*", &schema["additionalProperties"])];
        for (name, part) in fields.chain(inner).filter(|(_, part)| part.is_object()) {
            collect_unlimited(part, &format!("{path}.{name}"), unlimited);
        }
    }

    #[test]
    fn no_field_is_nullable() {
        let text = serde_json::to_string(&all()).unwrap();
        assert!(!text.contains("nullable"));
    }
}
