//! Manifests that must be refused, from `fixtures/bad.yaml`.

use serde_json::Value;

use crate::{merge, smallest_of};

/// One manifest that must be refused.
#[derive(Clone, Debug)]
pub struct InvalidManifest {
    /// What is wrong with it.
    pub name: String,
    /// The field that the message must name.
    pub field: String,
    /// Text that the message must contain, if the message is ours.
    pub message: Option<String>,
    /// The manifest.
    pub manifest: Value,
}

/// Manifests that both the API server, by the CRD, and the offline check refuse.
pub fn refused_by_schema() -> Vec<InvalidManifest> {
    read(include_str!("../fixtures/bad.yaml"))
}

/// Manifests that only the offline check and the operator can refuse.
pub fn refused_beyond_schema() -> Vec<InvalidManifest> {
    read(include_str!("../fixtures/bad-beyond-schema.yaml"))
}

fn read(text: &str) -> Vec<InvalidManifest> {
    let manifest = flux_operator_api::manifest::read(text.as_bytes()).expect("the fixture is YAML");
    assert_eq!(manifest.warnings, Vec::<String>::new());
    let entries = manifest.documents[0].value.as_array().expect("the fixture is a list").clone();
    entries.into_iter().map(entry).collect()
}

fn entry(entry: Value) -> InvalidManifest {
    let text = |field: &str| entry[field].as_str().map(str::to_owned);
    let mut manifest = smallest_of(entry["kind"].as_str().unwrap_or("MiniCluster"), "bad");
    merge(&mut manifest, &entry["patch"]);
    InvalidManifest {
        name: text("name").expect("every entry has a name"),
        field: text("field").expect("every entry names its field"),
        message: text("says"),
        manifest,
    }
}
