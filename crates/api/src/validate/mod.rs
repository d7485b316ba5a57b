//! Offline validation: what the API server would say about a manifest, and what
//! it cannot check.
//!
//! The answers come from the CRD itself, by the same steps that the API server
//! takes: unknown fields, nulls, defaults, then types and limits
//! ([`structure`]), then the CEL rules. Checks that CEL cannot express follow
//! ([`beyond_schema`]); in a cluster they are reported by the condition `Accepted=False`.

mod beyond_schema;
mod kind;
mod pattern;
mod schema;
mod structure;

use serde::Serialize;
use serde_json::{Value, json};

use crate::MiniCluster;
use crate::manifest::Document;

pub use kind::Validate;
pub use schema::Schema;

/// A problem, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `spec.containers[0].ports[1]`; empty when the
    /// message names it (a rule cannot point at `metadata`).
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl Problem {
    /// A problem of the field at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
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

/// All problems of a document; empty if it is a valid object of one of our kinds.
pub fn check_document(document: &Document) -> Vec<Problem> {
    let object = &document.value;
    let kind = match kind::lookup(object) {
        Ok(kind) => kind,
        Err(problem) => return vec![problem],
    };
    let against_crd = check_against_crd((kind.schema)(), object);
    if !against_crd.is_empty() {
        return against_crd;
    }
    // The schema is generated from the type, so an object that cannot be read is a defect of
    // ours; still the user should get a message rather than a panic.
    (kind.check_beyond_schema)(object)
        .unwrap_or_else(|error| vec![Problem::new("spec", format!("cannot be read: {error}"))])
}

/// Valid settings of a MiniCluster that are probably a mistake.
pub fn warnings(minicluster: &MiniCluster) -> Vec<Problem> {
    beyond_schema::minicluster::warnings(minicluster)
}

/// Problems that the API server would report: violations of the schema and of the CEL rules.
pub fn check_schema_and_rules(object: &Value) -> Vec<Problem> {
    match kind::lookup(object) {
        Ok(kind) => check_against_crd((kind.schema)(), object),
        Err(problem) => vec![problem],
    }
}

/// Decodes an object as the API server would store it.
pub fn read<K: Validate>(object: &Value) -> Result<K, serde_json::Error> {
    serde_json::from_value(as_stored(&K::schema().structure, object))
}

/// Decodes a MiniCluster as the API server would store it.
pub fn read_minicluster(object: &Value) -> Result<MiniCluster, serde_json::Error> {
    read(object)
}

/// All problems of an object that is already stored, perhaps under another schema than
/// ours: that of another operator, or of another version. Its status, and its metadata
/// except for the name, are not checked.
pub fn check_stored<K: Validate + Serialize>(object: &K) -> Vec<Problem> {
    let value = match serde_json::to_value(object) {
        Ok(value) => value,
        Err(error) => return vec![Problem::new("spec", format!("cannot be read: {error}"))],
    };
    let value = json!({ "metadata": { "name": value["metadata"]["name"] }, "spec": value["spec"] });
    let mut problems = structure::check(&K::schema().structure, &value);
    if problems.is_empty() {
        problems = check_name_and_rules(K::schema(), &value);
    }
    if problems.is_empty() {
        problems = object.check_beyond_schema();
    }
    problems
}

fn check_against_crd(schema: &Schema, object: &Value) -> Vec<Problem> {
    let mut problems = structure::unknown_fields(&schema.structure, object);
    let object = as_stored(&schema.structure, object);
    problems.extend(structure::check(&schema.structure, &object));
    // The API server does not evaluate the rules either if the structure is wrong:
    // their errors would only be confusing.
    if problems.is_empty() {
        problems = check_name_and_rules(schema, &object);
    }
    problems
}

fn check_name_and_rules(schema: &Schema, object: &Value) -> Vec<Problem> {
    match check_name(object) {
        Some(problem) => vec![problem],
        None => schema.check_rules(object),
    }
}

/// The longest name of any object in Kubernetes.
const MAX_NAME: usize = 253;

/// Checks what the API server requires of every name, before the rules of a kind.
fn check_name(object: &Value) -> Option<Problem> {
    let problem = |message: String| Some(Problem::new("metadata.name", message));
    let Some(name) = object["metadata"]["name"].as_str() else {
        return problem("is required".into());
    };
    if name.len() > MAX_NAME {
        return problem(format!("has {} characters: must have at most {MAX_NAME}", name.len()));
    }
    if name.split('.').all(beyond_schema::is_part_of_name) {
        return None;
    }
    problem(format!(
        "is {name:?}: expected lowercase letters, digits, '-' and '.', starting and ending with a letter or digit"
    ))
}

/// The object as the API server would store it: without nulls, with defaults.
fn as_stored(schema: &Value, object: &Value) -> Value {
    let mut object = object.clone();
    structure::drop_nulls(schema, &mut object);
    let mut object = kube_cel::apply_defaults(schema, &object);
    // The server generates a name before it evaluates rules about names.
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && !metadata.contains_key("name")
        && let Some(prefix) = metadata.get("generateName").and_then(Value::as_str)
    {
        let name = format!("{prefix}xxxxx");
        metadata.insert("name".into(), name.into());
    }
    object
}
