//! Schemas of Kubernetes' own types inside ours.
//!
//! They are taken as a whole from `k8s-openapi`, so that every field of, say, a
//! `SecurityContext` is accepted. Their descriptions are left out: they
//! alone would make the CRD larger than `kubectl apply` can store (an
//! annotation has at most 262,144 bytes).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// The form of a quantity that is written as text, as Kubernetes' own CRD
/// generator has it.
pub(crate) const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The schema of a Kubernetes type, without descriptions, and with a pattern
/// for quantities.
///
/// For use as `#[schemars(schema_with = "embedded::<SecurityContext>")]`. The
/// field's own description is added by schemars afterwards and is kept.
pub(crate) fn embedded<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    if let Some(object) = schema.as_object_mut() {
        tidy(object);
    }
    schema
}

/// A list of a Kubernetes type, of at most 64 entries.
pub(crate) fn embedded_list<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let items = embedded::<T>(generator);
    schemars::json_schema!({ "type": "array", "items": items, "maxItems": 64 })
}

/// A map from resource name to quantity, as in `limits`.
pub(crate) fn quantities(generator: &mut SchemaGenerator) -> Schema {
    let quantity = embedded::<Quantity>(generator);
    schemars::json_schema!({ "type": "object", "additionalProperties": quantity })
}

/// A timestamp, as Kubernetes writes it.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "string", "format": "date-time" })
}

fn tidy(schema: &mut Map<String, Value>) {
    schema.remove("description");
    // Of the types embedded here only Quantity is int-or-string.
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        schema.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
        schema.insert("pattern".into(), QUANTITY_PATTERN.into());
    }
    for (keyword, value) in schema.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().filter_map(Value::as_object_mut).for_each(tidy);
            }
            ("items" | "additionalProperties", Value::Object(inner)) => tidy(inner),
            _ => {}
        }
    }
}
