//! The table fields.yaml, expanded: one entry per field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// What the table says about one field.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The fields to set, by path below `spec`, including the field itself.
    pub set: BTreeMap<String, Value>,
    /// How the field is tested.
    pub evidence: Vec<Evidence>,
}

/// One way in which a field is tested.
#[derive(Clone, Debug)]
pub enum Evidence {
    /// What is rendered has these values at these paths.
    Gives(Map<String, Value>),
    /// Tests with these names test it.
    Tests(Vec<String>),
    /// It is refused with this reason.
    Refused(String),
    /// It does not change what is rendered, for this reason.
    Ignored(String),
}

impl Entry {
    /// The names of tests that test the field.
    pub fn tests(&self) -> impl Iterator<Item = &String> {
        self.evidence.iter().flat_map(|proof| match proof {
            Evidence::Tests(names) => names.as_slice(),
            _ => &[],
        })
    }
}

/// Reads the table. A key with `(a|b)` stands for several fields.
pub fn entries(text: &str) -> BTreeMap<String, Entry> {
    let manifest = flux_operator_api::manifest::read(text.as_bytes()).unwrap();
    assert_eq!(manifest.warnings, Vec::<String>::new());
    let mut entries = BTreeMap::new();
    for (key, row) in map(&manifest.documents[0].value) {
        for field in expand(&key) {
            let entry = entry(&field, &row);
            assert!(entries.insert(field, entry).is_none(), "{key} is in the table already");
        }
    }
    entries
}

fn entry(field: &str, row: &Value) -> Entry {
    let mut entry = Entry { set: BTreeMap::new(), evidence: Vec::new() };
    if field.starts_with("services[]") {
        // A service needs a name.
        entry.set.insert("services[].name".into(), "web".into());
    }
    for (word, value) in map(row) {
        match word.as_str() {
            "value" => _ = entry.set.insert(field.to_owned(), value),
            // Other fields beside it.
            "with" => {
                let parent = field.rfind('.').map_or("", |end| &field[..=end]);
                let beside = map(&value).into_iter();
                entry.set.extend(beside.map(|(name, value)| (format!("{parent}{name}"), value)));
            }
            "set" => entry.set.extend(map(&value)),
            "gives" => entry.evidence.push(Evidence::Gives(map(&value))),
            "tests" => {
                let names = value.as_array().expect("a list of names").iter();
                entry.evidence.push(Evidence::Tests(names.map(text).collect()));
            }
            "refused" => entry.evidence.push(Evidence::Refused(text(&value))),
            "ignored" => entry.evidence.push(Evidence::Ignored(text(&value))),
            other => panic!("{field}: {other:?} is not a known key"),
        }
    }
    assert!(!entry.evidence.is_empty(), "{field}: nothing tests it");
    entry
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("not a map: {value}")).clone()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not text: {value}")).to_owned()
}

/// Expands `(a|b).c` to `a.c` and `b.c`.
fn expand(key: &str) -> Vec<String> {
    let Some((start, rest)) = key.split_once('(') else { return vec![key.to_owned()] };
    let (choices, end) = rest.split_once(')').expect("a closing parenthesis");
    choices.split('|').flat_map(|choice| expand(&format!("{start}{choice}{end}"))).collect()
}
