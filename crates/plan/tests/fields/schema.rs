//! The fields of a spec, from its CRD.

use flux_operator_api::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// A field without fields of ours below it. A type of Kubernetes' own is a leaf.
pub struct Leaf {
    /// Where below `spec`: `[]` is an entry of a list, `{}` one of a map.
    pub path: String,
    /// Its type, for display.
    pub kind: String,
    /// Its default, as JSON.
    pub default: Option<String>,
    /// The first sentence of its description.
    pub summary: String,
}

/// All leaves in the order of the schema, which is alphabetical.
pub fn leaves(crd: &CustomResourceDefinition) -> Vec<Leaf> {
    let schema = crd::schema(crd);
    let mut leaves = Vec::new();
    walk(&schema["properties"]["spec"], String::new(), &mut leaves);
    leaves
}

fn walk(schema: &Value, path: String, leaves: &mut Vec<Leaf>) {
    if is_ours(schema) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk(field, path, leaves);
        }
    } else if is_ours(&schema["items"]) {
        walk(&schema["items"], format!("{path}[]"), leaves);
    } else if is_ours(&schema["additionalProperties"]) {
        walk(&schema["additionalProperties"], format!("{path}{{}}"), leaves);
    } else {
        let description = schema["description"].as_str().unwrap_or_default();
        leaves.push(Leaf {
            path,
            kind: kind(schema),
            default: schema.get("default").map(Value::to_string),
            summary: first_sentence(description).to_owned(),
        });
    }
}

/// Whether a type is ours: our own types describe every field; those of Kubernetes have no
/// descriptions here.
fn is_ours(schema: &Value) -> bool {
    let properties = schema["properties"].as_object();
    properties.is_some_and(|fields| fields.values().any(|field| field["description"].is_string()))
}

fn kind(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().filter_map(Value::as_str).filter(|word| !word.is_empty());
        return words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map to {}", kind(&schema["additionalProperties"]))
        }
        Some(word) => word.to_owned(),
        None => "quantity".to_owned(),
    }
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}
