//! The fields of the Go operator's MiniCluster: ours without those that
//! docs/compatibility.md lists as new.

use std::collections::{BTreeMap, BTreeSet};

use flux_operator_testkit::corpus::CorpusManifest;
use serde_json::Value;

use crate::table::{Entry, Evidence};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compatibility.md");

/// The heading above the table of new fields.
const HEADING: &str = "## Accepted beyond the Go operator";

/// Paths of the Go operator's fields, except those that are refused as invalid: no manifest with
/// one of them can be compared.
pub fn fields(entries: BTreeMap<String, Entry>) -> BTreeSet<String> {
    let new = new_fields();
    let is_invalid =
        |proof: &Evidence| matches!(proof, Evidence::Refused(reason) if reason == "Invalid");
    for new in &new {
        let is_field = |field: &String| is_at_or_below(field, new) || is_at_or_below(new, field);
        assert!(entries.keys().any(is_field), "{DOCUMENT} lists {new}, which is not a field");
    }
    entries
        .into_iter()
        .filter(|(_, entry)| !entry.evidence.iter().any(is_invalid))
        .map(|(field, _)| field)
        .filter(|field| !new.iter().any(|new| is_at_or_below(field, new)))
        .collect()
}

/// Every path below `spec` that a manifest sets. An entry of a map is included by its name and
/// as `{}`.
pub fn set_by(examples: &[CorpusManifest]) -> BTreeSet<String> {
    let mut set = BTreeSet::new();
    for example in examples {
        let manifest = flux_operator_api::manifest::read(example.text.as_bytes()).unwrap();
        for document in manifest.documents {
            add_paths(&document.value["spec"], "", &mut set);
        }
    }
    set
}

fn add_paths(value: &Value, path: &str, set: &mut BTreeSet<String>) {
    set.insert(path.to_owned());
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                add_paths(value, &format!("{path}{dot}{name}"), set);
                add_paths(value, &format!("{path}{{}}"), set);
            }
        }
        Value::Array(entries) => {
            entries.iter().for_each(|entry| add_paths(entry, &format!("{path}[]"), set));
        }
        _ => (),
    }
}

/// The paths in the first cells of the table. Those of containers are services' too.
fn new_fields() -> BTreeSet<String> {
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let section = document.split_once(HEADING).expect("the section is there").1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let paths = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    paths.flat_map(|path| [path.to_owned(), path.replace("containers[]", "services[]")]).collect()
}

fn is_at_or_below(field: &str, place: &str) -> bool {
    field
        .strip_prefix(place)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
}
