//! The schema that objects of a kind are validated with, compiled once from the kind's CRD.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_cel::{CompiledSchema, Validator};
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::Problem;
use crate::crd;
use crate::embedded::embedded;

/// The schema of a kind and its compiled rules: compiling them takes far longer than
/// evaluating them, and the operator evaluates them in every reconciliation.
#[derive(Debug)]
pub struct Schema {
    /// Fields, types, limits and defaults.
    pub(super) structure: Value,
    rules: CompiledSchema,
}

impl Schema {
    pub(super) fn of(crd: &CustomResourceDefinition) -> Schema {
        let structure = full_schema(crd);
        let rules = kube_cel::compile_schema(&structure);
        Schema { structure, rules }
    }

    /// Violations of the CEL rules by an object whose structure is valid.
    pub(super) fn check_rules(&self, object: &Value) -> Vec<Problem> {
        let Err(errors) = Validator::new().validate_compiled(&self.rules, object, None) else {
            return Vec::new();
        };
        errors
            .into_vec()
            .into_iter()
            .map(|error| Problem::new(error.field_path.trim_start_matches('.'), error.message))
            .collect()
    }
}

/// The CRD's schema with what the API server adds: the type fields
/// and Kubernetes' metadata.
fn full_schema(crd: &CustomResourceDefinition) -> Value {
    let mut schema = crd::schema(crd);
    let mut generator = SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let mut metadata = embedded::<ObjectMeta>(&mut generator).to_value();
    // Written by the server; manifests exported from a cluster have them.
    metadata["properties"]["managedFields"] = json!({
        "type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
    });
    schema["properties"]["apiVersion"] = json!({ "type": "string" });
    schema["properties"]["kind"] = json!({ "type": "string" });
    schema["properties"]["metadata"] = metadata;
    schema["required"] = json!(["metadata", "spec"]);
    for rule in schema["x-kubernetes-validations"].as_array_mut().into_iter().flatten() {
        without_stored_object(rule);
    }
    schema
}

/// Offline there is never a stored object. In the API server `oldSelf` is then an optional
/// without a value; in the evaluator used here it is null, on which `hasValue()` fails.
fn without_stored_object(rule: &mut Value) {
    if let Some(text) = rule["rule"].as_str().map(|text| text.replace(HAS_OLD_SELF, "false")) {
        rule["rule"] = text.into();
    }
}

const HAS_OLD_SELF: &str = "oldSelf.hasValue()";
