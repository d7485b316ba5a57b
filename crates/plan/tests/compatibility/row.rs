//! The table of differences in docs/compatibility.md.

use serde_json::Value;

use crate::difference::Difference;

/// The heading above the table.
const HEADING: &str = "## Differences of the rendered objects";

/// What a row's last cell starts with when no manifest of our corpus shows it.
const NOT_IN_CORPUS: &str = "(not in the corpus) ";

/// What follows when only manifests with some field show it: the field.
const WITH: &str = "with `";

/// An intended difference.
#[derive(Debug)]
pub struct Row {
    object: String,
    path: String,
    theirs: Cell,
    ours: Cell,
    /// The field that a manifest must have; none where every corpus shows it.
    pub only_with: Option<String>,
    /// Whether our own corpus shows it.
    pub is_shown: bool,
}

/// The value of one side. A value in backticks must be equal, `none` means absent, and
/// other words match any value.
#[derive(Debug)]
enum Cell {
    Nothing,
    Value(Value),
    Words,
}

impl Row {
    /// Whether the row describes this difference of a manifest.
    pub fn explains(&self, difference: &Difference, manifest: &Value) -> bool {
        (self.object == difference.object || self.object == "any")
            && fits(&self.path, &difference.path)
            && self.theirs.fits(difference.theirs.as_ref())
            && self.ours.fits(difference.ours.as_ref())
            && self.only_with.as_ref().is_none_or(|field| has_field(manifest, field))
    }
}

impl Cell {
    fn read(text: &str) -> Cell {
        match text.strip_prefix('`').and_then(|text| text.strip_suffix('`')) {
            _ if text == "none" => Cell::Nothing,
            Some(value) => {
                Cell::Value(serde_json::from_str(value).unwrap_or_else(|_| value.into()))
            }
            None => Cell::Words,
        }
    }

    fn fits(&self, value: Option<&Value>) -> bool {
        match self {
            Cell::Nothing => value.is_none(),
            Cell::Value(expected) => value == Some(expected),
            Cell::Words => value.is_some(),
        }
    }
}

/// The rows of the table.
pub fn rows(document: &str) -> Vec<Row> {
    let section = document.split_once(HEADING).expect("the section is there").1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [object, path, theirs, ours, why] = cells[..] else {
                panic!("not five cells: {line}")
            };
            assert!(!why.is_empty(), "no reason: {line}");
            Row {
                object: object.into(),
                path: if path == "(whole)" { "" } else { path.trim_matches('`') }.into(),
                theirs: Cell::read(theirs),
                ours: Cell::read(ours),
                only_with: only_with(why),
                is_shown: !why.starts_with(NOT_IN_CORPUS),
            }
        })
        .collect()
}

fn only_with(why: &str) -> Option<String> {
    let why = why.strip_prefix(NOT_IN_CORPUS).unwrap_or(why);
    let field = why.strip_prefix(WITH)?.split_once("`: ");
    Some(field.unwrap_or_else(|| panic!("no field: {why}")).0.to_owned())
}

fn has_field(value: &Value, field: &str) -> bool {
    match value {
        Value::Object(map) => {
            map.contains_key(field) || map.values().any(|value| has_field(value, field))
        }
        Value::Array(list) => list.iter().any(|value| has_field(value, field)),
        _ => false,
    }
}

/// Whether text fits a pattern in which `*` stands for any run of characters but
/// `]`, so that it stays within one name.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let name = text.find(']').unwrap_or(text.len());
            (0..=name).filter(|end| text.is_char_boundary(*end)).any(|end| fits(rest, &text[end..]))
        }),
    }
}
