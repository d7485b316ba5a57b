//! docs/reference/openapi.json describes the operator's HTTP interface: `make manifests` writes it.

use flux_operator_api::view::openapi::{ENDPOINTS, document};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");

#[test]
fn the_description_is_current() {
    let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    let current = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(text == current, "{FILE} is stale: run 'make manifests' and commit it");
}

#[test]
fn every_reference_leads_to_a_schema() {
    let document = document();
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let references: Vec<&str> = text
        .split("\"#/components/schemas/")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(references.len() >= ENDPOINTS.len());
    for name in references {
        assert!(schemas.contains_key(name), "{name}");
    }
}
