//! Differences between two sets of objects.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use crate::visible::Objects;

/// A field in which the Go operator's object and ours differ.
#[derive(Debug)]
pub struct Difference {
    /// The object's kind.
    pub object: String,
    /// The field: `spec.template.spec.containers[web].tty`; empty for the whole object.
    pub path: String,
    /// The Go operator's value.
    pub theirs: Option<Value>,
    /// Our value.
    pub ours: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| value.as_ref().map_or("none".into(), Value::to_string);
        let Difference { object, path, theirs, ours } = self;
        write!(f, "{object} | {path} | {} | {}", show(theirs), show(ours))
    }
}

/// All differences; for what only one side has, the topmost field.
pub fn differences(theirs: &Objects, ours: &Objects) -> Vec<Difference> {
    let keys: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    let mut found = Vec::new();
    for key in keys {
        compare(&key.0, String::new(), theirs.get(key), ours.get(key), &mut found);
    }
    found
}

fn compare(
    object: &str,
    path: String,
    theirs: Option<&Value>,
    ours: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    if theirs == ours {
        return;
    }
    // Names that only one side has are reported one by one, even if the other side has no
    // map at all.
    let nothing = Value::Object(Map::new());
    let whole = if has_names(&path) { Some(&nothing) } else { None };
    match (theirs.or(whole), ours.or(whole)) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                compare(object, below(&path, key), left.get(key), right.get(key), found);
            }
        }
        _ => {
            let (theirs, ours) = (theirs.cloned(), ours.cloned());
            found.push(Difference { object: object.into(), path, theirs, ours });
        }
    }
}

/// Field names follow a dot, names that users choose are in brackets.
fn below(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path if has_names(path) => format!("{path}[{key}]"),
        path => format!("{path}.{key}"),
    }
}

/// Whether the keys below a path are names that users choose.
fn has_names(path: &str) -> bool {
    let lists = ["containers", "sidecars", "volumes", "env", "ports", "ownerReferences"];
    let maps = ["volumeMounts", "inheritedMounts", "labels", "annotations", "selector"];
    lists.iter().chain(&maps).any(|name| path.rsplit('.').next() == Some(name))
}
