//! The offline check: what the API server would say of a manifest, and what
//! it cannot say.
//!
//! The answers come from the CRD itself, read by the same steps the API server
//! takes: unknown fields, nulls, defaults, then types and limits
//! ([`structure`]), then the CEL rules. What CEL cannot express follows
//! ([`beyond`]); in a cluster that is told by the condition `Accepted=False`.

mod beyond;
mod structure;

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::manifest::Document;
use crate::{GROUP, MiniCluster, VERSION, crd, embedded::embedded};

pub use beyond::check as check_beyond_schema;

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `spec.containers[0].ports[1]`; empty when the
    /// message names it (a rule cannot point at `metadata`).
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl Problem {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { path: path.into(), message: message.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

/// Everything wrong with a document; empty when it is a MiniCluster that can be
/// carried out.
pub fn document(document: &Document) -> Vec<Problem> {
    if let Some(problem) = wrong_kind(document) {
        return vec![problem];
    }
    let against_crd = schema_and_rules(&document.value);
    if !against_crd.is_empty() {
        return against_crd;
    }
    match minicluster(&document.value) {
        Ok(minicluster) => beyond::check(&minicluster),
        // The schema is made from the type, so this is a mistake of ours; still
        // the user should be told rather than shown a panic.
        Err(error) => vec![Problem::new("spec", format!("cannot be read: {error}"))],
    }
}

/// What the API server refuses: the schema's limits and the CEL rules.
pub fn schema_and_rules(object: &Value) -> Vec<Problem> {
    let mut problems = structure::unknown_fields(&SCHEMA, object);
    let object = as_stored(object);
    problems.extend(structure::check(&SCHEMA, &object));
    // The API server leaves the rules out too when the structure is wrong:
    // they could only fail in confusing ways.
    if problems.is_empty() {
        problems.extend(rules(&object));
    }
    problems
}

/// The object as the API server would store it: without nulls, with defaults.
pub fn as_stored(object: &Value) -> Value {
    let mut object = object.clone();
    structure::drop_nulls(&SCHEMA, &mut object);
    let mut object = kube_cel::apply_defaults(&SCHEMA, &object);
    // The server generates a name before it looks at rules about names.
    if let Some(metadata) = object["metadata"].as_object_mut()
        && !metadata.contains_key("name")
        && let Some(prefix) = metadata.get("generateName").and_then(Value::as_str)
    {
        let name = format!("{prefix}xxxxx");
        metadata.insert("name".into(), name.into());
    }
    object
}

/// Reads a document as a MiniCluster, as the API server would store it.
pub fn minicluster(object: &Value) -> Result<MiniCluster, serde_json::Error> {
    serde_json::from_value(as_stored(object))
}

fn rules(object: &Value) -> Vec<Problem> {
    let Err(errors) = kube_cel::Validator::new().validate(&SCHEMA, object, None) else {
        return Vec::new();
    };
    errors
        .into_vec()
        .into_iter()
        .map(|error| Problem::new(error.field_path.trim_start_matches('.'), error.message))
        .collect()
}

fn wrong_kind(document: &Document) -> Option<Problem> {
    let expected = format!("{GROUP}/{VERSION}");
    if !document.value.is_object() {
        return Some(Problem::new("document", "is not an object with apiVersion, kind and spec"));
    }
    match (document.kind(), document.api_version()) {
        (None, _) => Some(Problem::new("kind", "is missing: write MiniCluster")),
        (Some("MiniCluster"), Some(version)) if version == expected => None,
        (Some("MiniCluster"), Some(version)) => {
            Some(Problem::new("apiVersion", format!("is {version:?}: write {expected:?}")))
        }
        (Some("MiniCluster"), None) => {
            Some(Problem::new("apiVersion", format!("is missing: write {expected:?}")))
        }
        (Some(kind), _) => Some(Problem::new(
            "kind",
            format!("is {kind:?}, which is not checked here: expected MiniCluster"),
        )),
    }
}

/// The CRD's schema, with what the API server knows besides: the type fields
/// and Kubernetes' metadata.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = crd::schema(&crd::minicluster());
    let mut generator = SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let mut metadata = embedded::<ObjectMeta>(&mut generator).to_value();
    // Written by the server; a manifest exported from a cluster has them.
    metadata["properties"]["managedFields"] = serde_json::json!({
        "type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
    });
    schema["properties"]["apiVersion"] = serde_json::json!({ "type": "string" });
    schema["properties"]["kind"] = serde_json::json!({ "type": "string" });
    schema["properties"]["metadata"] = metadata;
    schema["required"] = serde_json::json!(["metadata", "spec"]);
    schema
});
