//! Builds manifests from the paths of fields.

use std::collections::BTreeMap;

use flux_operator_testkit::smallest_minicluster;
use serde_json::{Value, json};

/// The key of the only entry of each map.
pub const KEY: &str = "data";

/// The smallest manifest with these fields set. `[]` is the first entry of a list,
/// `[1]` the second.
pub fn with(fields: &BTreeMap<String, Value>) -> Value {
    let mut manifest = smallest_minicluster("fs");
    for (path, value) in fields {
        *field_mut(&mut manifest["spec"], path) = value.clone();
    }
    manifest
}

/// The path of a field without the indexes of lists.
pub fn without_indexes(path: &str) -> String {
    let parts = path.split('[').map(|part| match part.split_once(']') {
        Some((_, rest)) => format!("]{rest}"),
        None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("[")
}

fn field_mut<'a>(spec: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(spec, |value, segment| {
        if let Some(name) = segment.strip_suffix("{}") {
            return &mut value[name][KEY];
        }
        let Some((name, place)) = segment.trim_end_matches(']').split_once('[') else {
            return &mut value[segment];
        };
        let place = place.parse().unwrap_or(0);
        if !value[name].is_array() {
            value[name] = json!([]);
        }
        let list = value[name].as_array_mut().expect("made above");
        while list.len() <= place {
            list.push(json!({}));
        }
        &mut list[place]
    })
}
