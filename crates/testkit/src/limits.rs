//! For every limit in a CRD's schema, a manifest that violates only that limit.
//!
//! A hand-written table would always miss some; this one is generated from the schema, so that a
//! new field is covered as soon as it exists.

use serde_json::{Value, json};

use crate::{merge, smallest_of};

/// A manifest that violates one limit.
#[derive(Clone, Debug)]
pub struct LimitViolation {
    /// Path of the field.
    pub path: String,
    /// The keyword of the schema that is violated.
    pub keyword: &'static str,
    /// The manifest.
    pub manifest: Value,
}

/// A manifest for every limit below `spec` of a kind.
pub fn all_violations(kind: &str, schema: &Value) -> Vec<LimitViolation> {
    let mut found = Vec::new();
    walk(&schema["properties"]["spec"], &mut vec![PathSegment::Field("spec".into())], &mut found);
    let base = smallest_of(kind, "limits");
    for broken in &mut found {
        let patch = std::mem::replace(&mut broken.manifest, base.clone());
        merge(&mut broken.manifest, &patch);
    }
    found
}

#[derive(Clone)]
enum PathSegment {
    Field(String),
    Item,
}

fn walk(schema: &Value, path: &mut Vec<PathSegment>, found: &mut Vec<LimitViolation>) {
    for (keyword, value) in violations(schema) {
        found.push(LimitViolation { path: display(path), keyword, manifest: patch(path, value) });
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(PathSegment::Field(name.clone()));
        walk(property, path, found);
        path.pop();
    }
    if schema["items"].is_object() {
        path.push(PathSegment::Item);
        walk(&schema["items"], path, found);
        path.pop();
    }
    if schema["additionalProperties"].is_object() {
        path.push(PathSegment::Field("key".into()));
        walk(&schema["additionalProperties"], path, found);
        path.pop();
    }
}

/// Values that violate one keyword each. A list violates every type except a list, for which a map
/// is used. `minItems` is left out: only the list of containers has it, and `fixtures/bad.yaml`
/// covers it.
fn violations(schema: &Value) -> Vec<(&'static str, Value)> {
    let mut values = Vec::new();
    let kind = schema["type"].as_str().unwrap_or_default();
    // Where anything is allowed, no type is violated.
    let is_anything = kind.is_empty() && schema["x-kubernetes-preserve-unknown-fields"] == true;
    if !is_anything {
        values.push(("type", if kind == "array" { json!({ "a": 1 }) } else { json!([[1]]) }));
    }
    let count = |keyword: &str| schema[keyword].as_u64();
    if schema["enum"].is_array() {
        values.push(("enum", json!("no-such-word")));
    }
    if let Some(least) = schema["minimum"].as_f64() {
        values.push(("minimum", json!(least as i64 - 1)));
    }
    if let Some(most) = schema["maximum"].as_f64() {
        values.push(("maximum", json!(most as i64 + 1)));
    }
    if let Some(most) = count("maxLength") {
        values.push(("maxLength", json!("a".repeat(most as usize + 1))));
    }
    if count("minLength").is_some_and(|least| least > 0) {
        values.push(("minLength", json!("")));
    }
    if schema["pattern"].is_string() {
        values.push(("pattern", json!(" :~")));
    }
    if let Some(most) = count("maxItems") {
        values.push(("maxItems", Value::Array(vec![filler(&schema["items"]); most as usize + 1])));
    }
    if let Some(most) = count("maxProperties") {
        let filler = filler(&schema["additionalProperties"]);
        let entries = (0..=most).map(|index| (format!("k{index}"), filler.clone()));
        values.push(("maxProperties", Value::Object(entries.collect())));
    }
    values
}

/// A value of the right type, for lists and maps that are too long.
fn filler(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("a"),
    }
}

/// The patch that sets a value at a path.
fn patch(path: &[PathSegment], value: Value) -> Value {
    let mut patch = value;
    for step in path.iter().rev() {
        patch = match step {
            PathSegment::Field(name) => json!({ name.as_str(): patch }),
            PathSegment::Item => json!([patch]),
        };
    }
    patch
}

fn display(path: &[PathSegment]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            PathSegment::Item => text.push_str("[0]"),
            PathSegment::Field(name) if text.is_empty() => text.push_str(name),
            PathSegment::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
        }
    }
    text
}
